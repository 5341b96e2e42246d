"""Dead letters that SQL drives back to the queue they died in."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg
import pytest

from queue_core.commit.queue_log import Log
from queue_core.delivery.consumer import Entry
from queue_core.outcomes import ACCEPTED
from tests.support.managers import House, bodies, store_dead_letters
from tests.support.sql_requests import outcome


async def test_dead_letters_are_driven_back_to_where_they_died(
    house: House, db: asyncpg.Connection
) -> None:
    await store_dead_letters(house, b"1", b"2", b"3")
    answer = await outcome(db, "SELECT howdah.redrive('dead', $$ howdah.body_text(body) <> '2' $$)")
    assert answer["moved"] == 2
    await house.crash_and_reopen()
    found = await house.drain("q")
    assert bodies(found) == [b"1", b"3"]
    assert {(d.message.exchange, d.message.routing_key) for d in found} == {
        ("amq.direct", "orders")
    }
    assert bodies(await house.drain("dead")) == [b"2"]


async def test_dead_letters_whose_queue_is_gone_stay_in_their_place(
    house: House, db: asyncpg.Connection
) -> None:
    await store_dead_letters(house, b"1", b"2")
    await house.store("dead", b"3")
    await house.vhost.delete_queue("q")
    answer = await outcome(db, "SELECT howdah.redrive('dead')")
    assert answer["moved"] == 0
    assert bodies(await house.drain("dead")) == [b"1", b"2", b"3"]


async def test_dead_letters_in_somebodys_hands_are_not_driven_back(
    house: House, db: asyncpg.Connection
) -> None:
    await store_dead_letters(house, b"1", b"2")
    taken = await house.vhost.get("dead")
    assert taken is not None
    answer = await outcome(db, "SELECT howdah.redrive('dead')")
    assert answer["moved"] == 1
    house.vhost.settle([taken], ACCEPTED)
    assert bodies(await house.drain("q")) == [b"2"]
    assert bodies(await house.drain("dead")) == []


@pytest.mark.parametrize("is_read", [False, True])
async def test_dead_letters_are_driven_back_once_though_the_connections_are_cut(
    house: House,
    db: asyncpg.Connection,
    other: asyncpg.Connection,
    monkeypatch: pytest.MonkeyPatch,
    is_read: bool,
) -> None:
    """While they are being read, or when they are, and the answer is to be written down."""
    await store_dead_letters(house, b"1", b"2", b"3")
    reader = house.manager._database.reader
    read, cut = reader.read_offsets, 0

    async def read_cut_off(log: Log, offsets: Sequence[int]) -> list[Entry]:
        nonlocal cut
        if cut:
            return await read(log, offsets)
        cut = await other.fetchval(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE "
            "application_name LIKE 'howdah gateway%' AND datname = current_database()"
        )
        if not is_read:
            raise asyncpg.ConnectionDoesNotExistError("connection was closed while reading")
        return await read(log, offsets)

    monkeypatch.setattr(reader, "read_offsets", read_cut_off)
    assert await outcome(db, "SELECT howdah.redrive('dead')") == {"moved": 3, "left": 0}
    assert cut
    assert bodies(await house.drain("q")) == [b"1", b"2", b"3"]
    assert bodies(await house.drain("dead")) == []
