"""The figures that are sampled: their names, as RabbitMQ calls them, and where they come from."""

from __future__ import annotations

from typing import Final

from protocols.connection_report import Flow
from queue_core.counters import QueueCounts
from queue_core.traffic import Traffic

LENGTHS: Final = ("messages", "messages_ready", "messages_unacknowledged")
QUEUE_STATS: Final = (
    "publish",
    "deliver_get",
    "deliver",
    "deliver_no_ack",
    "get",
    "get_no_ack",
    "get_empty",
    "redeliver",
    "ack",
    "dead_lettered",
    "expired",
    "dropped",
)
QUEUE_FIGURES: Final = (*LENGTHS, "consumers", *QUEUE_STATS)
NO_LENGTHS: Final = QueueCounts(0, 0, 0, 0)  # of a queue that is gone
NOTHING: Final = (0,) * len(QUEUE_FIGURES)

CHANNEL_STATS: Final = (
    "publish",
    "confirm",
    "return_unroutable",
    "drop_unroutable",
    "deliver_get",
    "deliver",
    "deliver_no_ack",
    "get",
    "get_no_ack",
    "get_empty",
    "ack",
)
BROKER_STATS: Final = (
    "confirm",
    "return_unroutable",
    "drop_unroutable",
    "disk_reads",
    "disk_writes",
)
CHURN: Final = (
    "connection_created",
    "connection_closed",
    "channel_created",
    "channel_closed",
    "queue_declared",
    "queue_created",
    "queue_deleted",
)
BROKER_FIGURES: Final = (*QUEUE_FIGURES, *BROKER_STATS, *CHURN)


def queue_figures(traffic: Traffic, counts: QueueCounts) -> tuple[int, ...]:
    """Returns a queue's figures in the order of QUEUE_FIGURES. What was passed on without a stop
    was published and delivered."""
    delivered, settled = traffic.delivered, traffic.delivered_settled + traffic.passed_on
    got, got_settled = traffic.got, traffic.got_settled
    return (
        counts.waiting + counts.in_flight,
        counts.ready,
        counts.in_flight,
        counts.consumers,
        traffic.published + traffic.passed_on,
        delivered + settled + got + got_settled,
        delivered,
        settled,
        got,
        got_settled,
        traffic.empty_gets,
        traffic.redelivered,
        traffic.acknowledged,
        traffic.dead_lettered,
        traffic.expired,
        traffic.dropped,
    )


def channel_figures(flow: Flow) -> tuple[int, ...]:
    """Returns a channel's figures in the order of CHANNEL_STATS."""
    return (
        flow.published,
        flow.confirmed,
        flow.returned,
        flow.unroutable,
        flow.delivered + flow.delivered_settled + flow.got + flow.got_settled,
        flow.delivered,
        flow.delivered_settled,
        flow.got,
        flow.got_settled,
        flow.empty_gets,
        flow.acknowledged,
    )
