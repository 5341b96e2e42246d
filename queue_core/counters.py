"""Counters of the core: plain integers, added to on the hot path, read by whoever exports them."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec


@dataclass(slots=True)
class Counters:
    """Totals since the start. Every message that does not reach a consumer is in one of them."""

    published: int = 0
    unroutable: int = 0
    refused_full: int = 0  # a queue with overflow reject-publish said no
    refused_delays: int = 0  # too many messages wait for their time already
    cut_delays: int = 0  # that came back or were dead-lettered at once, for the same reason
    dropped_overflow: int = 0  # drop-head, and nowhere to dead-letter to
    dropped_expired: int = 0
    dropped_rejected: int = 0
    dropped_exhausted: int = 0  # over the delivery limit
    dropped_wills: int = 0  # of users who were removed, or may not publish there any more
    dropped_cycle: int = 0  # dead-lettered in a circle without a rejection
    dead_lettered: int = 0
    duplicates: int = 0  # repetitions that a queue or an exchange kept out
    dedup_forgotten: int = 0  # message ids that there was no room for until their time was over
    delivered: int = 0  # with those passed on as far as `Manager.count_passed_on` has come
    settled: int = 0
    stalled_consumers: int = 0  # disconnected: they took nothing while publishers waited
    returned: int = 0  # released or failed: back to their place
    failed_writes: int = 0  # units that the database refused
    failed_generations: int = 0  # times that the journal could not start again, and grew on
    losses_noted: int = 0  # in howdah.loss, by gateways before as well: what the database has lost
    commits: int = 0
    committed_messages: int = 0
    read_back: int = 0  # messages that did not fit into memory, and were read again
    outbox_drained: int = 0
    outbox_deferred: int = 0  # messages from SQL that found a queue full, and wait in the outbox
    segments_dropped: int = 0
    carried_forward: int = 0  # messages that outlived their segment
    queues_declared: int = 0  # declarations that were met, of queues that were there as well
    queues_created: int = 0
    queues_deleted: int = 0


class QueueCounts(msgspec.Struct, frozen=True, gc=False):  # made for each row of long lists
    """Counts how many messages and consumers one queue has at this moment."""

    ready: int
    in_flight: int
    delayed: int
    consumers: int

    @property
    def waiting(self) -> int:
        """Messages that no consumer has, due or not."""
        return self.ready + self.delayed
