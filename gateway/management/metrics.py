"""The metrics for Prometheus.

Answers for names, units and bounds: however many queues there are, the number of time series is
limited, and what is left out is counted. It must not count anything itself.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.connections import Connections
from queue_core.counters import QueueCounts
from queue_core.manager import Manager
from queue_core.queues.queue import Queue
from queue_core.queues.spec import QueueKind

MOST_QUEUES: Final = 500
SURVEYED_AT_ONCE: Final = 1000  # queues, in a millisecond or two
OWN_PREFIXES: Final = ("$session/", "$share/", "amq.gen-")

# What each counter says; a test holds that none is missing.
COUNTERS: Final = {
    "published": "Messages published, from any protocol.",
    "unroutable": "Messages that no queue and no subscriber took.",
    "refused_full": "Messages that a full queue refused.",
    "refused_delays": "Messages with a delay that were refused, as too many wait already.",
    "cut_delays": "Messages that came back or were dead-lettered at once, as too many wait.",
    "dropped_overflow": "Messages dropped by a full queue.",
    "dropped_expired": "Messages that expired and had nowhere to go.",
    "dropped_rejected": "Messages that consumers rejected and that had nowhere to go.",
    "dropped_exhausted": "Messages dropped over their delivery limit.",
    "dropped_wills": "Wills of users who were removed, or may not publish them any more.",
    "dropped_cycle": "Messages dropped because they were dead-lettered in a circle.",
    "dead_lettered": "Messages dead-lettered.",
    "duplicates": "Messages that queues and exchanges kept out as repetitions.",
    "delivered": "Messages handed to consumers.",
    "settled": "Deliveries that ended, one way or another.",
    "stalled_consumers": "Consumers that took nothing while publishers waited, disconnected.",
    "returned": "Deliveries given back to their queue.",
    "failed_writes": "Units of work that the database refused.",
    "failed_generations": "Times that the journal could not start again, and grew on.",
    "losses_noted": "Losses of the database that were noticed, also by gateways before.",
    "commits": "Transactions that the writer committed.",
    "committed_messages": "Messages in them.",
    "read_back": "Messages read from the database because memory had no room for them.",
    "dedup_forgotten": "Message ids that were forgotten early, as there are too many.",
    "outbox_drained": "Messages taken over from the outbox.",
    "outbox_deferred": "Messages from SQL that found a queue full, and wait in the outbox.",
    "segments_dropped": "Segments of the log dropped.",
    "carried_forward": "Messages copied out of old segments.",
    "queues_declared": "Declarations of queues that were met, new or not.",
    "queues_created": "Queues created.",
    "queues_deleted": "Queues deleted.",
}
GAUGES: Final = {
    "ready": "Messages that wait for a consumer",
    "in_flight": "Messages that are delivered and not settled",
    "delayed": "Messages that wait for their time",
    "consumers": "Consumers",
}


MQTT_COUNTERS: Final = {
    "connections": "Clients that were let in.",
    "refused_connections": "Clients that were not.",
    "protocol_errors": "Connections ended because the client broke the protocol.",
    "early_floods": "Connections ended because too much came before the login.",
    "takeovers": "Sessions taken over by another connection.",
    "keep_alive_timeouts": "Connections ended because the client fell silent.",
    "messages_received": "Messages from clients.",
    "messages_sent": "Messages to clients.",
    "bytes_received": "Bytes from clients.",
    "bytes_sent": "Bytes to clients.",
    "held_publishers": "Times that a publisher waited for a subscriber that was behind.",
    "refused_publishes": "Messages refused: forbidden, oversize, malformed, or a full queue.",
    "refused_subscriptions": "Subscriptions refused.",
    "dropped_too_large": "Messages larger than the subscriber takes.",
    "dropped_forbidden": "Messages that waited for a user who may not read them any more.",
    "stray_acknowledgements": "Acknowledgements of packets that are not in flight.",
    "bad_settlements": "Settle messages that settle nothing.",
    "lost_subscriptions": "Subscriptions to queues that were deleted.",
}
AMQP_091_COUNTERS: Final = {
    "connections": "Clients that were let in.",
    "refused_connections": "Clients that were not.",
    "connection_errors": "Connections ended because the client broke the protocol.",
    "channels_opened": "Channels opened.",
    "channels_closed": "Channels closed, with their connections as well.",
    "channel_errors": "Channels ended because a request could not be met.",
    "timed_out_channels": "Channels ended because a delivery was not acknowledged in time.",
    "early_floods": "Connections ended because too much came before the login.",
    "handshake_timeouts": "Connections that were not opened in time.",
    "heartbeat_timeouts": "Connections ended because the client fell silent.",
    "held_publishers": "Times that one was not read: the database or a subscriber was behind.",
    "rested_publishers": "Times that one was not read for a moment: a queue in memory grew.",
    "held_readers": "Times that one was not read: it did not read its answers.",
    "returned_messages": "Mandatory messages that no queue took.",
    "nacked_publishes": "Messages refused by a full queue or by the database.",
    "bugs": "Connections ended by a bug of the gateway; the log has it.",
}
AMQP_10_COUNTERS: Final = {
    "connections": "Clients that were let in.",
    "refused_connections": "Clients that were not.",
    "connection_errors": "Connections ended because the client broke the protocol.",
    "sessions_opened": "Sessions begun.",
    "sessions_closed": "Sessions ended, with their connections as well.",
    "link_errors": "Links refused, or ended with an error.",
    "rejected_transfers": "Messages answered with rejected.",
    "dropped_transfers": "Messages refused that were sent settled.",
    "early_floods": "Connections ended because too much came before the login.",
    "handshake_timeouts": "Connections that were not opened in time.",
    "held_publishers": "Times that one was not read: the database or a subscriber was behind.",
    "held_readers": "Times that one was not read: it did not read its answers.",
    "bugs": "Connections ended by a bug of the gateway; the log has it.",
}
MEMORY_COUNTERS: Final = {
    "alarms": "Times that memory became short.",
    "held_publishers": "Times that a publisher was not read because memory was short.",
    "stalled_messages": "Connections ended: an unfinished message did not go on.",
    "unread_connections": "Connections ended: the client did not read what waited for it.",
    "relieved_connections": "Connections ended: they held most while memory was short.",
}
CLUSTER_COUNTERS: Final = {
    "beats": "Signs of life of this node that the database answered.",
    "missed_beats": "Those that it did not answer in time.",
    "fenced_nodes": "Nodes that this one took for dead.",
    "rewinds": "Times that signs of life were missing which the database had answered.",
    "takeovers": "Times that this node began to serve in this life; 0 while it stands by.",
}
TLS_COUNTERS: Final = {"failed_handshakes": "TLS handshakes that failed; the log says why."}
LISTENER_COUNTERS: Final = {
    "accept_failures": "Times that the system could not give a connection: descriptors, memory.",
    "refused_connections": "Connections refused: the listener's share of descriptors is taken.",
    "displaced_connections": "Strangers and HTTP connections that gave way to others.",
    "handshake_timeouts": "TLS handshakes and HTTP requests that took too long.",
}
COLLECTOR_COUNTERS: Final = {
    "collections": "Full collections of cyclic garbage, by plan.",
    "collected_objects": "Objects that they freed.",
    "pause_seconds": "Seconds that the gateway stood still for them.",
}
DESCRIPTIONS: Final = {
    "": COUNTERS,
    "mqtt": MQTT_COUNTERS,
    "amqp091": AMQP_091_COUNTERS,
    "amqp10": AMQP_10_COUNTERS,
    "memory": MEMORY_COUNTERS,
    "cluster": CLUSTER_COUNTERS,
    "tls": TLS_COUNTERS,
    "listener": LISTENER_COUNTERS,
    "collector": COLLECTOR_COUNTERS,
}


def counter_metrics(counted: Mapping[str, Any]) -> Iterator[Metric]:
    """Yields the counters of each part, by the prefix of their names."""
    for prefix, counters in counted.items():
        described = DESCRIPTIONS[prefix]
        for field in fields(counters):
            yield CounterMetricFamily(
                "_".join(filter(None, ("howdah", prefix, field.name))),
                described[field.name],
                value=getattr(counters, field.name),
            )


class Survey:
    """Sums up the counts of all queues, and keeps those of named queues."""

    def __init__(self) -> None:
        self.totals = dict.fromkeys(GAUGES, 0)
        self.kinds = dict.fromkeys(QueueKind, 0)
        self.named: list[tuple[QueueCounts, tuple[str, str, str]]] = []

    def add(self, vhost: str, queue: Queue) -> None:
        counts = queue.counts()
        self.kinds[queue.spec.kind] += 1
        for name in GAUGES:
            self.totals[name] += getattr(counts, name)
        if not queue.name.startswith(OWN_PREFIXES):
            self.named.append((counts, (vhost, queue.name, queue.spec.kind.value)))

    def fullest(self) -> list[tuple[QueueCounts, tuple[str, str, str]]]:
        return heapq.nsmallest(MOST_QUEUES, self.named, key=lambda pair: (-pair[0].ready, pair[1]))


class GatewayCollector(Collector):
    """Collects all metrics. `counters` are the dataclasses that each part counts in; the core's has
    no prefix."""

    def __init__(
        self, manager: Manager, connections: Connections, counters: Mapping[str, Any]
    ) -> None:
        self._manager = manager
        self._connections = connections
        self._counted = counters
        self._survey = Survey()

    def collect(self) -> Iterable[Metric]:
        yield from counter_metrics(self._counted)
        yield from self._logins()
        yield from self._accepted()
        yield GaugeMetricFamily(
            "howdah_ready",
            "1 while durable messages can be stored.",
            value=float(self._manager.is_ready),
        )
        yield from self._memory()
        yield from self._queues()

    def _memory(self) -> Iterator[Metric]:
        memory = self._manager.memory
        used = GaugeMetricFamily(
            "howdah_memory_bytes", "What clients make the gateway hold, by kind.", labels=["kind"]
        )
        for kind, size in memory.kinds().items():
            used.add_metric([kind], size)
        yield used
        yield GaugeMetricFamily(
            "howdah_memory_high_watermark_bytes", "Above it publishers wait.", value=memory.mark
        )
        yield GaugeMetricFamily(
            "howdah_memory_alarm",
            "1 while memory is short and publishers wait.",
            value=float(memory.is_short),
        )

    def _logins(self) -> Iterator[Metric]:
        counted = self._manager.auth.counters
        logins = CounterMetricFamily("howdah_logins", "Logins by result.", labels=["result"])
        logins.add_metric(["accepted"], counted.logins)
        logins.add_metric(["refused"], counted.failed_logins)
        logins.add_metric(["throttled"], counted.throttled_logins)
        yield logins
        yield CounterMetricFamily(
            "howdah_refused_actions",
            "Actions refused for lack of permission.",
            value=counted.refused_actions,
        )
        yield CounterMetricFamily(
            "howdah_expelled_connections",
            "Connections ended because their user was removed or lost its virtual host.",
            value=counted.expelled_connections,
        )
        yield CounterMetricFamily(
            "howdah_revoked_consumers",
            "Consumers and subscriptions ended because their user may not read any more.",
            value=counted.revoked_consumers,
        )

    def _accepted(self) -> Iterator[Metric]:
        opened = GaugeMetricFamily(
            "howdah_connections", "Open connections by adapter.", labels=["adapter"]
        )
        accepted = CounterMetricFamily(
            "howdah_accepted_connections", "Connections since the start.", labels=["adapter"]
        )
        for name, count in self._connections.accepted.items():
            opened.add_metric([name], self._connections.count(name))
            accepted.add_metric([name], count)
        yield opened
        yield accepted

    async def survey(self) -> None:
        """Looks at all queues, in slices between which others get their turn: there may be a
        million of sessions. The next collection tells of this look."""
        found = Survey()
        self._manager.count_passed_on()
        number = 0
        for vhost in list(self._manager.vhosts.values()):
            for queue in list(vhost.queues.values()):
                found.add(vhost.name, queue)
                number += 1
                if number % SURVEYED_AT_ONCE == 0:
                    await asyncio.sleep(0)
        self._survey = found

    def _queues(self) -> Iterator[Metric]:
        """Yields gauges by name for the fullest queues that somebody named, and in sum for all."""
        families = {
            name: GaugeMetricFamily(
                f"howdah_queue_{name}",
                f"{what}, of one queue.",
                labels=["vhost", "queue", "kind"],
            )
            for name, what in GAUGES.items()
        }
        survey = self._survey
        totals, kinds, named = survey.totals, survey.kinds, survey.named
        for counts, labels in survey.fullest():
            for name, family in families.items():
                family.add_metric(labels, getattr(counts, name))
        yield from families.values()
        for name, total in totals.items():
            yield GaugeMetricFamily(
                f"howdah_queues_{name}",
                f"{GAUGES[name]}, of all queues.",
                value=total,
            )
        queues = GaugeMetricFamily("howdah_queues", "Queues by kind.", labels=["kind"])
        for kind, count in kinds.items():
            queues.add_metric([kind.value], count)
        yield queues
        yield GaugeMetricFamily(
            "howdah_queues_without_metrics",
            f"Named queues beyond the {MOST_QUEUES} fullest, which have no metrics of their own.",
            value=max(0, len(named) - MOST_QUEUES),
        )
