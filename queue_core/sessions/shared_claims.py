"""Claims: a message of a group that one member begins to receive becomes that member's own.

It leaves the group's queue and enters the member's in one commit. What the member has not finished
when its connection ends waits for it there, and ends with its session; nobody else gets it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from queue_core.commit.unit import Unit

if TYPE_CHECKING:
    from queue_core.delivery.consumer import Delivery
    from queue_core.errors import CoreError
    from queue_core.queues.classic import ClassicQueue
    from queue_core.vhost import Vhost

log = logging.getLogger(__name__)


def claim_entry(vhost: Vhost, delivery: Delivery, target: ClassicQueue, options: object) -> None:
    """Moves the delivery's message to the target, which takes it whatever its limits say: they are
    held to when it is there."""
    cursor = delivery.consumer.cursor
    entry = target.entry(delivery.message, (options,))
    target.log.expect(entry.message)
    claim = _Claim(delivery)
    moves = [(cursor, delivery.entry)]
    vhost.writer.submit(Unit([(target.log, entry)], claim, moves=moves))
    cursor.detach(delivery)  # last: the credit that it gives back may bring the next one here


class _Claim:
    """Waits for the commit. Until then the message takes its place in the window that its delivery
    came through, so that no more are under way than that has room for."""

    __slots__ = ("_delivery",)

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        if delivery.consumer.shared is not None:
            delivery.consumer.shared.free -= 1

    def _free(self) -> None:
        if self._delivery.consumer.shared is not None:
            self._delivery.consumer.shared.grant(1)

    def on_committed(self, tokens: list[int]) -> None:
        self._free()

    def on_refused(self, tokens: list[int], error: CoreError) -> None:
        log.error("a message cannot become a session's own, and stays in its group: %s", error)
        self._free()
        self._delivery.consumer.cursor.take_back(self._delivery.entry)
