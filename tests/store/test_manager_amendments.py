"""Consumers add to messages that they give back: it stays with the message, whatever comes."""

from __future__ import annotations

from dataclasses import dataclass

import asyncpg
import pytest

from queue_core.message.message import NO_PROPERTIES, Message, Properties
from queue_core.outcomes import ACCEPTED, REJECTED, Outcome, Verdict
from queue_core.store.write import journal_generation
from tests.support.managers import House


class NoteForm:
    """A protocol whose native encoding is a row of words."""

    code = 4

    def properties(self, native: bytes) -> Properties:
        return NO_PROPERTIES

    def amended(self, message: Message, amendment: bytes) -> Message:
        return noted(message, amendment[1:])


FORM = NoteForm()


def noted(message: Message, words: bytes) -> Message:
    return Message(
        message.body, message.exchange, message.routing_key, form=FORM, native=b"own" + words
    )


@dataclass(frozen=True)
class Note:
    words: bytes

    def apply(self, message: Message) -> Message:
        return noted(message, message.native[3:] + self.words)

    def encode(self, before: bytes | None) -> bytes:
        return (before or bytes((FORM.code,))) + self.words


@pytest.fixture
async def noting(house: House) -> House:
    """With a queue of three messages, the middle one of them noted on twice."""
    await house.close()
    house.forms = (FORM,)
    await house.open()
    await house.queue("dead")
    await house.queue("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    for body in (b"1", b"2", b"3"):
        house.vhost.publish(Message(body, "", routing_key="q", form=FORM, native=b"own"))
    await house.flushed()
    inbox, consumer = await house.consume("q", credit=10)
    await inbox.has(3)
    house.vhost.settle([inbox.deliveries[1]], Verdict(Outcome.RELEASED, amendment=Note(b" a")))
    await inbox.has(4)
    house.vhost.settle([inbox.deliveries[3]], Verdict(Outcome.MODIFIED, amendment=Note(b" b")))
    await inbox.has(5)
    house.vhost.end_consumer(consumer, Verdict(Outcome.RELEASED))
    await house.flushed()
    return house


async def natives(house: House, queue: str = "q") -> list[tuple[bytes, bytes]]:
    return [(each.message.body, each.message.native) for each in await house.drain(queue)]


WHOLE = [(b"1", b"own"), (b"2", b"own a b"), (b"3", b"own")]


async def test_it_is_there_at_the_next_delivery(noting: House) -> None:
    assert await natives(noting) == WHOLE


async def test_it_survives_a_crash(noting: House) -> None:
    await noting.crash_and_reopen()
    assert [each.message.native for each in await noting.vhost.browse("q", 0, 9)] == [
        native for _, native in WHOLE
    ]
    assert await natives(noting) == WHOLE


async def test_it_survives_the_journal_starting_again(
    noting: House, db: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_generation, "GENERATION_ROWS", 2)
    generation = "SELECT max(generation) FROM howdah.shard"
    before = await db.fetchval(generation)
    for _ in range(6):
        delivery = await noting.vhost.get("q")
        assert delivery is not None
        noting.vhost.settle([delivery], Verdict(Outcome.MODIFIED))
        await noting.flushed()
    assert await db.fetchval(generation) > before
    await noting.crash_and_reopen()
    assert await natives(noting) == WHOLE


async def test_a_dead_letter_has_it(noting: House) -> None:
    await noting.crash_and_reopen()
    for verdict in (ACCEPTED, REJECTED):
        delivery = await noting.vhost.get("q")
        assert delivery is not None
        noting.vhost.settle([delivery], verdict)
    await noting.flushed()
    assert await natives(noting, "dead") == [(b"2", b"own a b")]


async def test_what_is_settled_leaves_nothing_behind(noting: House) -> None:
    queue = noting.vhost.queue("q")
    assert queue.cursor.history.amendments  # type: ignore[attr-defined]
    await natives(noting)
    assert not queue.cursor.history.amendments  # type: ignore[attr-defined]
