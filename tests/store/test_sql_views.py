"""The views tell what is ready, dead and behind, from the log and the journal alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg
import msgspec
import pytest

from queue_core.message.message import Death, count_death
from tests.support.postgres import on_stock_too
from tests.support.seed import append, change, death, make_queue, make_segment, settle

pytestmark = on_stock_too


async def _status(db: asyncpg.Connection, queue: str) -> dict[str, Any]:
    row = await db.fetchrow("SELECT * FROM howdah.queue_status WHERE queue = $1", queue)
    assert row is not None
    return dict(row)


async def _ready(db: asyncpg.Connection, queue: str) -> list[int]:
    rows = await db.fetch(
        'SELECT "offset" FROM howdah.ready_messages WHERE queue = $1 ORDER BY "offset"', queue
    )
    return [row[0] for row in rows]


async def _state(db: asyncpg.Connection, queue: str) -> tuple[int, str]:
    row = await db.fetchrow(
        "SELECT floor, acked::text FROM howdah.settlement_state WHERE queue = $1", queue
    )
    assert row is not None
    return row[0], row[1]


# ----------------------------------------------------------------------------- settlement_state


async def test_a_group_is_its_newest_full_row_and_what_came_after_it(
    db: asyncpg.Connection,
) -> None:
    queue = await make_queue(db, "q")
    await settle(db, queue, 1, 90, "{[95,99)}", is_full=True)  # forgotten by the next full row
    await settle(db, queue, 2, 10, "{[12,13),[20,25)}", is_full=True)
    await settle(db, queue, 3, 10, "{[14,15)}")
    await settle(db, queue, 4, 11, "{[25,30)}")
    assert await _state(db, "q") == (11, "{[12,13),[14,15),[20,30)}")


async def test_what_the_floor_has_passed_is_not_listed_as_acked(db: asyncpg.Connection) -> None:
    queue = await make_queue(db, "q")
    await settle(db, queue, 1, 0, "{[2,4),[8,12)}", is_full=True)
    await settle(db, queue, 2, 10)
    assert await _state(db, "q") == (10, "{[10,12)}")


async def test_rows_without_a_full_one_before_them_count_all(db: asyncpg.Connection) -> None:
    queue = await make_queue(db, "q")
    await settle(db, queue, 1, 3, "{[5,6)}")
    await settle(db, queue, 2, 3, "{[7,8)}")
    assert await _state(db, "q") == (3, "{[5,6),[7,8)}")


async def test_a_queue_that_never_settled_starts_at_its_first_message(
    db: asyncpg.Connection,
) -> None:
    queue, segment = await make_queue(db, "q"), await make_segment(db)
    assert await _state(db, "q") == (0, "{}")
    await append(db, segment, queue, [5, 6])
    assert await _state(db, "q") == (5, "{}")


async def test_only_the_generation_of_the_queues_shard_counts(db: asyncpg.Connection) -> None:
    queue = await make_queue(db, "q")
    assert await db.fetchval("SELECT howdah.open_generation(1)") == 2
    await settle(db, queue, 1, 10, is_full=True)
    await settle(db, queue, 2, 20, is_full=True, generation=2)
    assert await _state(db, "q") == (10, "{}")
    await db.execute(
        "UPDATE howdah.shard SET generation = 2 WHERE id <> howdah.shard_of('/', 'queue', 'q')"
    )
    assert await _state(db, "q") == (10, "{}")
    await db.execute(
        "UPDATE howdah.shard SET generation = 2 WHERE id = howdah.shard_of('/', 'queue', 'q')"
    )
    assert await _state(db, "q") == (20, "{}")


async def test_a_stream_has_one_row_for_each_group(db: asyncpg.Connection) -> None:
    queue = await make_queue(db, "s", "stream")
    for group in ("", "billing", "ümlaut"):
        for seq in range(1, 4):
            await settle(db, queue, seq, seq * 10, group=group)
    rows = await db.fetch("SELECT group_name, floor FROM howdah.settlement_state")
    assert sorted(map(tuple, rows)) == [("", 30), ("billing", 30), ("ümlaut", 30)]


# --------------------------------------------------------------------------------- queue_status


async def test_unsettled_is_what_lies_above_the_floor_and_is_not_acked(
    db: asyncpg.Connection,
) -> None:
    queue, segment = await make_queue(db, "q"), await make_segment(db)
    await append(db, segment, queue, range(100))
    await settle(db, queue, 1, 40, "{[50,60),[99,100)}", is_full=True)
    status = await _status(db, "q")
    assert (status["head"], status["floor"], status["tail"]) == (0, 40, 100)
    assert status["unsettled"] == status["lag"] == status["ready"] == 60 - 11
    assert status["unsettled"] == len(await _ready(db, "q"))


async def test_in_flight_is_as_the_gateway_noted_it_and_is_not_ready(
    db: asyncpg.Connection,
) -> None:
    queue, segment = await make_queue(db, "q"), await make_segment(db)
    await append(db, segment, queue, range(10))
    await db.execute(
        "INSERT INTO howdah.queue_activity (queue_id, in_flight, consumers, noted_at) "
        "VALUES ($1, 4, 2, now())",
        queue,
    )
    status = await _status(db, "q")
    assert (status["ready"], status["in_flight"], status["unsettled"]) == (6, 4, 10)
    assert status["consumers"] == 2
    await settle(db, queue, 1, 10, is_full=True)  # settled since it was noted
    assert (await _status(db, "q"))["ready"] == 0


@pytest.mark.parametrize(
    ("asked_for", "failures", "delayed"),
    [
        pytest.param(None, [], 0, id="due at once"),
        pytest.param("1 hour", [], 1, id="delayed by the publisher"),
        pytest.param("-1 s", [], 0, id="its time has come"),
        pytest.param(None, ["1 hour"], 1, id="put off"),
        pytest.param(None, ["-1 s"], 0, id="put off, and its time has come"),
        pytest.param(None, ["1 hour", None], 0, id="put off, and then failed"),
        pytest.param("1 hour", [None], 1, id="failed before its time"),
        pytest.param("1 hour", ["-1 s"], 0, id="the later word counts"),
        pytest.param("1 hour", ["1 hour", "2 hours"], 1, id="counted once"),
    ],
)
async def test_what_is_not_due_is_delayed_and_not_ready(
    db: asyncpg.Connection, asked_for: str | None, failures: list[str | None], delayed: int
) -> None:
    """Beside two that are due, one that was purged before its time, and as ready_messages says."""
    queue, segment = await make_queue(db, "q"), await make_segment(db)
    await append(db, segment, queue, range(4))
    delay = 'UPDATE howdah.message SET not_before = now() + $1::text::interval WHERE "offset" = $2'
    await db.execute(delay, asked_for, 1)
    await db.execute(delay, "1 hour", 3)
    for count, until in enumerate(failures):
        await db.execute(
            'INSERT INTO howdah.redelivery (generation, queue_id, "offset", count, not_before) '
            "VALUES (1, $1, 1, $2, now() + $3::text::interval)",
            queue,
            count,
            until,
        )
    await settle(db, queue, 1, 0, "{[3,4)}", is_full=True)
    status = await _status(db, "q")
    assert (status["ready"], status["delayed"], status["unsettled"]) == (3 - delayed, delayed, 3)
    states = "SELECT count(*) FROM howdah.ready_messages WHERE state = 'delayed'"
    assert await db.fetchval(states) == delayed


async def test_a_delayed_message_carried_forward_out_of_a_retired_segment_counts_once(
    db: asyncpg.Connection,
) -> None:
    queue = await make_queue(db, "q")
    old, new = await make_segment(db), await make_segment(db)
    await append(db, old, queue, [0])
    await append(db, new, queue, [0, 1])
    await db.execute("UPDATE howdah.message SET not_before = now() + interval '1 hour'")
    await db.execute(
        "UPDATE howdah.segment SET sealed_at = now(), retired_at = now() WHERE id = $1", old
    )
    status = await _status(db, "q")
    assert (status["ready"], status["delayed"]) == (0, 2)


async def test_an_empty_queue_has_nothing_of_any_age(db: asyncpg.Connection) -> None:
    await make_queue(db, "q")
    await make_queue(db, "s", "stream")
    for name in ("q", "s"):
        status = await _status(db, name)
        assert (status["ready"], status["unsettled"], status["size_bytes"]) == (0, 0, 0)
        assert (status["tail"], status["oldest_age"], status["noted_at"]) == (0, None, None)


async def test_a_settled_queue_whose_segments_are_gone_keeps_its_place(
    db: asyncpg.Connection,
) -> None:
    queue = await make_queue(db, "q")
    await settle(db, queue, 1, 500, is_full=True)
    status = await _status(db, "q")
    assert (status["tail"], status["unsettled"], status["head"]) == (500, 0, None)


async def test_one_old_message_left_behind_counts_as_one(db: asyncpg.Connection) -> None:
    """Later messages are settled and dropped already; only the journal knows how far it went."""
    queue, segment = await make_queue(db, "q"), await make_segment(db)
    await append(db, segment, queue, [5])
    await settle(db, queue, 1, 5, "{[6,1000)}", is_full=True)
    status = await _status(db, "q")
    assert (status["floor"], status["tail"], status["unsettled"]) == (5, 1000, 1)
    assert await _ready(db, "q") == [5]


async def test_the_oldest_age_is_that_of_the_first_unsettled_message(
    db: asyncpg.Connection,
) -> None:
    queue, segment = await make_queue(db, "q"), await make_segment(db)
    await append(db, segment, queue, range(4))
    for offset, hours in enumerate((5, 4, 3, 2)):
        then = await db.fetchval("SELECT now() - make_interval(hours => $1)", hours)
        await change(db, queue, offset, enqueued_at=then)
    await settle(db, queue, 1, 1, "{[1,2)}", is_full=True)
    age = await db.fetchval("SELECT oldest_unsettled_age FROM howdah.consumer_lag")
    for shown in (age, (await _status(db, "q"))["oldest_age"]):
        assert timedelta(hours=3) <= shown < timedelta(hours=3, minutes=1)


async def test_the_size_is_about_right_wherever_the_bodies_are(db: asyncpg.Connection) -> None:
    queue, segment = await make_queue(db, "q"), await make_segment(db)
    await append(db, segment, queue, range(40))
    await db.execute("INSERT INTO howdah.message_body VALUES ($1, 1, $2)", segment, b"x" * 10_000)
    await db.execute("UPDATE howdah.message SET body = NULL, body_id = 1")
    size = (await _status(db, "q"))["size_bytes"]
    assert 40 * 10_000 <= size <= 40 * 10_200


async def test_a_stream_keeps_all_and_lags_as_its_slowest_group(db: asyncpg.Connection) -> None:
    queue = await make_queue(db, "s", "stream")
    segment = await make_segment(db, queue)
    await append(db, segment, queue, range(50, 150))
    await settle(db, queue, 1, 120, group="fast", is_full=True)
    await settle(db, queue, 2, 60, "{[70,80)}", group="slow", is_full=True)
    await settle(db, queue, 3, 10, group="lost", is_full=True)
    status = await _status(db, "s")
    assert (status["head"], status["tail"], status["floor"]) == (50, 150, 10)
    assert (status["ready"], status["unsettled"]) == (100, 100)
    assert status["lag"] == 100
    rows = await db.fetch("SELECT group_name, lag FROM howdah.consumer_lag")
    # What retention has taken nobody can catch up with: the lost group lags by what is there.
    assert dict(map(tuple, rows)) == {"fast": 30, "slow": 80, "lost": 100}


# ------------------------------------------------------------------------------- ready_messages


async def test_ready_messages_are_those_that_are_not_settled_over_all_segments(
    db: asyncpg.Connection,
) -> None:
    queue, other = await make_queue(db, "q"), await make_queue(db, "other")
    for start in (0, 10, 20):
        segment = await make_segment(db)
        await append(db, segment, queue, range(start, start + 10))
        await append(db, segment, other, range(start, start + 10))
    await settle(db, queue, 1, 5, "{[8,12),[15,16),[20,29)}", is_full=True)
    assert await _ready(db, "q") == [5, 6, 7, 12, 13, 14, 16, 17, 18, 19, 29]
    assert len(await _ready(db, "other")) == 30


async def test_a_message_carried_forward_out_of_a_retired_segment_is_there_once(
    db: asyncpg.Connection,
) -> None:
    queue, old, new = await make_queue(db, "q"), await make_segment(db), await make_segment(db)
    await append(db, old, queue, [1, 2])
    await append(db, new, queue, [1, 2, 3])
    await db.execute("SELECT howdah.seal_segment($1, 2, 10, now())", old)
    await db.execute("SELECT howdah.retire_segment($1)", old)
    assert await _ready(db, "q") == [1, 2, 3]
    peeked = await db.fetch("SELECT \"offset\" FROM howdah.peek('q')")
    assert [row[0] for row in peeked] == [1, 2, 3]


async def test_a_body_is_found_wherever_it_is(db: asyncpg.Connection) -> None:
    queue, first, second = (
        await make_queue(db, "q"),
        await make_segment(db),
        await make_segment(db),
    )
    await append(db, first, queue, [0])
    await append(db, second, queue, [1])
    insert = "INSERT INTO howdah.message_body VALUES ($1, 1, $2)"
    await db.execute(insert, first, b"of another segment")
    await db.execute(insert, second, b"shared")
    await change(db, queue, 1, body=None, body_id=1)
    bodies = 'SELECT body, body_bytes FROM howdah.ready_messages ORDER BY "offset"'
    assert [tuple(r) for r in await db.fetch(bodies)] == [(b"body 0", 6), (b"shared", 6)]


@pytest.mark.parametrize(
    ("expires", "not_before", "failed_until", "state"),
    [
        pytest.param(None, None, None, "ready", id="ready"),
        pytest.param("-1 s", None, None, "expired", id="expired"),
        pytest.param("1 hour", None, None, "ready", id="not expired yet"),
        pytest.param(None, "1 hour", None, "delayed", id="delayed by the publisher"),
        pytest.param(None, "-1 hour", None, "ready", id="delay is over"),
        pytest.param(None, None, "1 hour", "delayed", id="delayed after a failure"),
        pytest.param(None, "-1 hour", "-1 s", "ready", id="all delays over"),
    ],
)
async def test_the_state_of_a_message_says_why_it_waits(
    db: asyncpg.Connection,
    expires: str | None,
    not_before: str | None,
    failed_until: str | None,
    state: str,
) -> None:
    queue, segment = await make_queue(db, "q"), await make_segment(db)
    await append(db, segment, queue, [0])
    await db.execute(
        "UPDATE howdah.message SET expires_at = now() + $1::text::interval, "
        "not_before = now() + $2::text::interval",
        expires,
        not_before,
    )
    if failed_until is not None:
        await db.execute(
            'INSERT INTO howdah.redelivery (generation, queue_id, "offset", count, not_before) '
            "VALUES (1, $1, 0, 1, now() + $2::text::interval)",
            queue,
            failed_until,
        )
    assert await db.fetchval("SELECT state FROM howdah.ready_messages") == state


async def test_failed_deliveries_are_counted_with_the_last_reason(db: asyncpg.Connection) -> None:
    queue, segment = await make_queue(db, "q"), await make_segment(db)
    await append(db, segment, queue, [0, 1])
    await db.execute(
        'INSERT INTO howdah.redelivery (generation, queue_id, "offset", count, reason) '
        "VALUES (1, $1, 0, 1, 'lost'), (1, $1, 0, 2, 'rejected')",
        queue,
    )
    rows = await db.fetch(
        'SELECT delivery_count, failed_because FROM howdah.ready_messages ORDER BY "offset"'
    )
    assert [tuple(row) for row in rows] == [(2, "rejected"), (0, None)]


async def test_a_message_tells_its_topic_and_its_protocol(db: asyncpg.Connection) -> None:
    queue, segment = await make_queue(db, "q"), await make_segment(db)
    await append(db, segment, queue, [0, 1])
    await change(db, queue, 0, exchange="amq.topic", routing_key="a.b/1", form=2)
    rows = await db.fetch(
        'SELECT topic, protocol FROM howdah.ready_messages ORDER BY "offset"',
    )
    assert [tuple(row) for row in rows] == [("a/b.1", "MQTT 5"), (None, "SQL")]


@pytest.mark.parametrize(
    ("body", "shown"), [(b"gr\xc3\xbcn", "grün"), (b"\xff\xfe", None), (b"a\x00b", None), (b"", "")]
)
async def test_a_body_is_shown_as_text_if_it_is_text(
    db: asyncpg.Connection, body: bytes, shown: str | None
) -> None:
    assert await db.fetchval("SELECT howdah.body_text($1)", body) == shown


async def test_every_form_has_a_name(db: asyncpg.Connection) -> None:
    names = await db.fetchval(
        "SELECT array_agg(howdah.protocol_name(f::smallint) ORDER BY f) "
        "FROM generate_series(0, 5) f"
    )
    assert names == ["SQL", "MQTT 3", "MQTT 5", "AMQP 0.9.1", "AMQP 1.0", None]


# --------------------------------------------------------------------------------- dead_letters


async def test_a_dead_letter_tells_where_why_when_and_how_often_it_died(
    db: asyncpg.Connection,
) -> None:
    queue, segment = await make_queue(db, "dead"), await make_segment(db)
    await append(db, segment, queue, [0, 1])
    deaths = [death("orders", time=1_700_000_000.5, count=3), death("first", "expired", time=1.0)]
    await change(db, queue, 1, deaths=deaths)
    rows = await db.fetch(
        'SELECT queue, "offset", died_in, reason, deaths_in_all, extract(epoch FROM died_at) '
        "FROM howdah.dead_letters"
    )
    assert [tuple(row)[:5] for row in rows] == [("dead", 1, "orders", "rejected", 4)]
    assert float(rows[0][5]) == 1_700_000_000.5


async def test_a_dead_letter_that_was_settled_is_gone(db: asyncpg.Connection) -> None:
    queue, segment = await make_queue(db, "dead"), await make_segment(db)
    await append(db, segment, queue, [0])
    await change(db, queue, 0, deaths=[death("orders")])
    assert await db.fetchval("SELECT count(*) FROM howdah.dead_letters") == 1
    await settle(db, queue, 1, 1, is_full=True)
    assert await db.fetchval("SELECT count(*) FROM howdah.dead_letters") == 0


async def test_deaths_as_the_core_writes_them_are_read_by_the_view(db: asyncpg.Connection) -> None:
    queue, segment = await make_queue(db, "dead"), await make_segment(db)
    await append(db, segment, queue, [0])
    deaths = count_death((), Death(queue="orders", reason="maxlen", time=5.0))
    deaths = count_death(deaths, Death(queue="orders", reason="maxlen", time=6.0))
    await change(db, queue, 0, deaths=msgspec.json.decode(msgspec.json.encode(deaths)))
    row = await db.fetchrow("SELECT died_in, reason, deaths_in_all FROM howdah.dead_letters")
    assert row is not None
    assert tuple(row) == ("orders", "maxlen", 2)
