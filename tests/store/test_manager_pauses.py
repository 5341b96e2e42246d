"""Queues that are paused: nothing is delivered, over a restart as well, until they are resumed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from queue_core.delivery.consumer import Position
from queue_core.errors import NameReserved, QueueNotFound
from queue_core.outcomes import ACCEPTED
from tests.support.managers import House, bodies
from tests.support.until import turns

FIRST = Position(name="first")
KINDS = ("queue", "stream", "ephemeral")
NAMES = {"queue": "q", "stream": "s", "ephemeral": "e"}
MAKE: dict[str, Callable[[House], Awaitable[object]]] = {
    "queue": lambda house: house.queue(),
    "stream": lambda house: house.stream(),
    "ephemeral": lambda house: house.ephemeral(),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_paused_queue_takes_messages_and_delivers_none(house: House, kind: str) -> None:
    name = NAMES[kind]
    await MAKE[kind](house)
    before, _ = await house.consume(name, ACCEPTED, start=FIRST if kind == "stream" else None)
    await house.store(name, b"0")
    await before.has_bodies(1)
    await house.vhost.pause_queue(name)
    after, _ = await house.consume(name, ACCEPTED)
    await house.store(name, b"1", b"2")
    await turns(20)
    assert (before.arrived, after.arrived) == ([b"0"], [])
    await house.vhost.pause_queue(name, is_paused=False)
    await house.store(name, b"3")
    await house.until(lambda: b"3" in before.arrived + after.arrived)
    assert set(before.arrived + after.arrived) == {b"0", b"1", b"2", b"3"}


@pytest.mark.parametrize("kind", ["queue", "ephemeral"])
async def test_who_asks_a_paused_queue_for_a_message_gets_none_and_may_look(
    house: House, kind: str
) -> None:
    name = NAMES[kind]
    await MAKE[kind](house)
    await house.store(name, b"0")
    await house.vhost.pause_queue(name)
    assert await house.vhost.get(name) is None
    found = await house.vhost.browse(name, 0, 10)
    assert [entry.message.body for entry in found] == [b"0"]
    assert await house.vhost.purge_queue(name) == 1


async def test_what_is_in_flight_may_be_settled_and_comes_back_only_later(house: House) -> None:
    await house.queue()
    await house.store("q", b"0", b"1")
    inbox, consumer = await house.consume("q", credit=1)
    (delivery,) = await inbox.has(1)
    await house.vhost.pause_queue("q")
    house.vhost.settle([delivery])
    await house.flushed()
    assert bodies(inbox.deliveries) == [b"0"]
    await house.vhost.pause_queue("q", is_paused=False)
    assert bodies(await inbox.has(2)) == [b"0", b"1"]
    assert consumer.credit == 0


@pytest.mark.parametrize("kind", ["queue", "stream"])
async def test_a_durable_queue_stays_paused_over_a_restart(house: House, kind: str) -> None:
    name = NAMES[kind]
    await MAKE[kind](house)
    await house.store(name, b"0")
    await house.vhost.pause_queue(name)
    await house.reopen()
    assert house.vhost.queues[name].is_paused
    inbox, _ = await house.consume(name, ACCEPTED, start=FIRST if kind == "stream" else None)
    await turns(20)
    assert inbox.arrived == []
    await house.vhost.pause_queue(name, is_paused=False)
    assert await inbox.has_bodies(1) == [b"0"]
    await house.reopen()
    assert not house.vhost.queues[name].is_paused


async def test_a_single_active_consumer_goes_on_after_a_pause(house: House) -> None:
    await house.queue(x_single_active_consumer=True)
    first, _ = await house.consume("q", ACCEPTED)
    second, _ = await house.consume("q", ACCEPTED)
    await house.vhost.pause_queue("q")
    await house.store("q", b"0")
    await house.vhost.pause_queue("q", is_paused=False)
    assert await first.has_bodies(1) == [b"0"]
    assert second.arrived == []


async def test_sql_pauses_and_resumes(house: House, db: asyncpg.Connection) -> None:
    queue = await house.queue()
    await db.fetchval("SELECT howdah.pause_queue('q')")
    await house.until(lambda: queue.is_paused)
    await db.fetchval("SELECT howdah.resume_queue('q')")
    await house.until(lambda: not queue.is_paused)
    with pytest.raises(asyncpg.UndefinedObjectError, match="no durable queue 'other'"):
        await db.fetchval("SELECT howdah.pause_queue('other')")


async def test_only_queues_that_people_name_are_paused(house: House) -> None:
    with pytest.raises(QueueNotFound):
        await house.vhost.pause_queue("nowhere")
    with pytest.raises(NameReserved):
        await house.vhost.pause_queue("$session/x")
