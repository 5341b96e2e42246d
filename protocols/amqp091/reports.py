"""An AMQP 0.9.1 connection and its channels, as people are told of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocols.amqp091.states import ChannelState
from protocols.connection_report import ChannelReport, ConnectionReport, ConnectionState, Flow
from queue_core.delivery.consumer import UNLIMITED_CREDIT

if TYPE_CHECKING:
    from protocols.amqp091.channel import Channel
    from protocols.amqp091.client import Client

PROTOCOL = "AMQP 0-9-1"  # as RabbitMQ writes it


def flow_of(channel: Channel) -> Flow:
    """Counts a channel's messages. Deliveries that need no ack, and acks, are what is left of all
    delivery tags: nothing is counted for them when they pass."""
    confirms = channel.confirms
    to_acknowledge = channel.delivered + channel.got
    held = len(channel.unacked) + (0 if channel.work is None else len(channel.work.acked))
    return Flow(
        published=channel.published,
        confirmed=0 if confirms is None else confirms.confirmed,
        returned=channel.returned,
        unroutable=channel.unroutable,
        delivered=channel.delivered,
        delivered_settled=channel.delivery_tag - to_acknowledge - channel.got_settled,
        got=channel.got,
        got_settled=channel.got_settled,
        empty_gets=channel.empty_gets,
        acknowledged=max(0, to_acknowledge - held - channel.rejected),
    )


def _channel(channel: Channel) -> ChannelReport:
    confirms, work = channel.confirms, channel.work
    return ChannelReport(
        number=channel.number,
        flow=flow_of(channel),
        consumers=list(channel.consumers.values()),
        is_flowing=channel.is_flowing,
        is_confirming=confirms is not None,
        is_transactional=work is not None,
        prefetch=0 if channel.prefetch >= UNLIMITED_CREDIT else channel.prefetch,
        shared_prefetch=channel.shared_limit,
        unacknowledged=len(channel.unacked),
        unconfirmed=0 if confirms is None else confirms.outstanding,
        uncommitted=0 if work is None else work.transaction.entries,
        uncommitted_acks=0 if work is None else len(work.acked),
    )


def report_on(client: Client, state: ConnectionState) -> ConnectionReport:
    """Describes an open connection."""
    terms = client.terms
    return ConnectionReport(
        protocol=PROTOCOL,
        user=terms.identity.name,
        vhost=terms.vhost.name,
        mechanism=terms.client.mechanism,
        client_name=terms.client.name,
        client_properties=terms.client.properties,
        state=state,
        frame_max=terms.tuning.frame_max,
        channel_max=terms.tuning.channel_max,
        timeout=terms.tuning.heartbeat,
        channels=[
            _channel(each) for each in client.channels.values() if each.state is ChannelState.OPEN
        ],
        ended_flow=client.ended_flow,
    )
