"""Shortcuts for what comes in runs: many entries to one consumer, many offsets settled in a row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from queue_core.delivery.consumer import Consumer, Delivery, Entry

if TYPE_CHECKING:
    from queue_core.delivery.lease import Lease
    from queue_core.delivery.ready import Ready


def take_run(
    consumer: Consumer, ready: Ready, most: int, lease: Lease
) -> tuple[list[Delivery], Entry | None]:
    """Takes up to `most` entries that are ready, as deliveries, and stops at the first one that
    needs a closer look: it has a time of its own, may have been handed out before a restart, or
    lies beyond the lease. That entry was taken as well, and is given undelivered."""
    deliveries: list[Delivery] = []
    unsettled, take = consumer.unsettled, ready.take
    mark, end = lease.recovered_mark, lease.committed
    for _ in range(most):
        entry = take()
        if entry is None:
            break
        offset = entry.offset
        if (
            offset >= end
            or offset < mark
            or entry.expires_at is not None
            or entry.not_before is not None
        ):
            return deliveries, entry
        delivery = unsettled[offset] = Delivery(entry, entry.message, offset, consumer)
        deliveries.append(delivery)
    return deliveries, None


def runs_of(offsets: list[int]) -> Iterator[tuple[int, int]]:
    """Yields the offsets as half-open ranges, in the order they come in."""
    start = end = offsets[0]
    for offset in offsets:
        if offset == end:
            end += 1
        else:
            yield start, end
            start, end = offset, offset + 1
    yield start, end
