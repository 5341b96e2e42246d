"""Redrives dead letters: each goes back to the queue that it died in, and leaves the queue that it
lies in by the same commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from queue_core.commit.unit import Unit
from queue_core.delivery.consumer import Entry
from queue_core.delivery.cursor import Cursor
from queue_core.errors import InvalidArgument
from queue_core.message.message import Message
from queue_core.queues.classic import ClassicQueue
from queue_core.queues.queue import Appends
from queue_core.store.read.reader import Reader

if TYPE_CHECKING:
    from queue_core.vhost import Vhost

CHUNK_MESSAGES: Final = 500


class Redriven(NamedTuple):
    """How many messages moved, and how many stayed: taken by a consumer meanwhile, or with nowhere
    to go."""

    moved: int
    left: int


class Redrive:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def run(self, vhost: Vhost, name: str, offsets: Sequence[int]) -> Redriven:
        """Moves the dead letters of those offsets; committed when it returns. Raises
        InvalidArgument for a queue that is not classic."""
        queue = vhost.queue(name)
        if not isinstance(queue, ClassicQueue):
            raise InvalidArgument(f"queue '{name}' is {queue.spec.kind}: only classic ones redrive")
        moved = 0
        for at in range(0, len(offsets), CHUNK_MESSAGES):
            moved += await self._run_some(vhost, queue, list(offsets[at : at + CHUNK_MESSAGES]))
        return Redriven(moved, len(offsets) - moved)

    async def _run_some(self, vhost: Vhost, queue: ClassicQueue, offsets: list[int]) -> int:
        """Redrives the given offsets: each is read first and taken then, so that all are still
        ready should the database go away in between."""
        cursor, moved = queue.cursor, 0
        while offsets and (entries := await self._reader.read_offsets(queue.log, offsets)):
            for entry in entries:
                self._reader.amend(entry, cursor.history.amendments)
                if cursor.ready.claim(entry):
                    moved += _revive(vhost, cursor, entry)
            offsets = [offset for offset in offsets if offset > entries[-1].offset]
        await vhost.writer.flushed()
        return moved


def _revive(vhost: Vhost, cursor: Cursor, entry: Entry) -> bool:
    appends: Appends = []
    deaths = entry.message.deaths
    target = vhost.queues.get(deaths[0].queue) if deaths else None
    if target is None or not target.take(revived(entry.message), (), appends, stays=True):
        cursor.take_back(entry)
        return False
    vhost.writer.submit(Unit(appends, moves=[(cursor, entry)]))
    return True


def revived(message: Message) -> Message:
    """Returns the message as it was before its last death; the deaths stay on record."""
    death = message.deaths[0]
    return Message(
        message.body,
        death.exchange,
        routing_key=death.routing_keys[0] if death.routing_keys else message.routing_key,
        durable=message.durable,
        form=message.form,
        native=message.native,
        properties=message.properties if message.form is None else None,
        priority=message.priority,
        publisher=message.publisher,
        deaths=message.deaths,
    )
