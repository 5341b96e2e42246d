"""Looks into queues by offset, time and condition: they change nothing, end in time, and the SQL
that they show gives the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from time import time
from typing import Any

import asyncpg
import msgspec
import pytest

from queue_core.message.condition import EVERYTHING, parse
from queue_core.message.message import CANONICAL, Message, Properties
from queue_core.outcomes import ACCEPTED, REJECTED
from queue_core.store.operator.browsing import Browser, Range
from tests.support.managers import House, store_dead_letters
from tests.support.sql_requests import outcome


def _message(body: bytes, headers: dict[str, Any] | None = None, **facts: Any) -> Message:
    properties = Properties(headers=tuple((headers or {}).items()), **facts)
    return Message(
        body,
        "",
        routing_key="q",
        form=CANONICAL,
        native=CANONICAL.encode(properties),
        priority=None,
    )


async def _offsets(house: House, condition: str, queue: str = "q") -> list[int]:
    page = await house.manager.inspection.browser.browse(
        Range(vhost="/", queue=queue), parse(condition), 100, 1000
    )
    return [message.offset for message in page.messages]


async def _shown(db: asyncpg.Connection, sql: str) -> list[asyncpg.Record]:
    rows: list[asyncpg.Record] = await db.fetch(sql)
    return rows


@pytest.fixture
def browser(house: House) -> Browser:
    return house.manager.inspection.browser


async def test_a_queue_is_browsed_page_by_page_and_nothing_changes(
    house: House, browser: Browser
) -> None:
    await house.queue("q")
    await house.store("q", *(b"%d" % number for number in range(25)))
    before = house.vhost.queue("q").counts()
    found: list[bytes] = []
    start: int | None = 0
    while start is not None:
        page = await browser.browse(
            Range(vhost="/", queue="q", start=start), EVERYTHING, limit=10, truncate=100
        )
        found += [message.body for message in page.messages]
        start = page.next_offset
    assert found == [b"%d" % number for number in range(25)]
    assert house.vhost.queue("q").counts() == before
    assert not any(d.redelivered for d in await house.drain("q"))


async def test_newest_first_goes_back_from_the_end(house: House, browser: Browser) -> None:
    await house.stream("s")
    await house.store("s", b"0", b"1", b"2", b"3", b"4")
    place = Range(vhost="/", queue="s", newest_first=True)
    page = await browser.browse(place, EVERYTHING, limit=2, truncate=10)
    assert [message.offset for message in page.messages] == [4, 3]
    assert page.next_offset == 2
    rest = await browser.browse(
        Range(vhost="/", queue="s", start=2, newest_first=True), EVERYTHING, limit=9, truncate=10
    )
    assert [message.offset for message in rest.messages] == [2, 1, 0]
    assert rest.next_offset is None


async def test_settled_messages_are_left_out_and_shown_when_asked_for(
    house: House, browser: Browser
) -> None:
    await house.queue("q")
    await house.store("q", b"0", b"1", b"2")
    first = await house.vhost.get("q")
    assert first is not None
    house.vhost.settle([first], ACCEPTED)
    await house.flushed()
    page = await browser.browse(Range(vhost="/", queue="q"), EVERYTHING, 10, 10)
    assert [(m.offset, m.state) for m in page.messages] == [(1, "ready"), (2, "ready")]
    place = Range(vhost="/", queue="q", with_settled=True)
    page = await browser.browse(place, EVERYTHING, 10, 10)
    assert [(m.offset, m.state) for m in page.messages[:1]] == [(0, "settled")]


async def test_bodies_are_cut_and_their_whole_size_is_told(house: House, browser: Browser) -> None:
    await house.queue("q")
    await house.store("q", b"x" * 100_000)
    page = await browser.browse(Range(vhost="/", queue="q"), EVERYTHING, 10, 7)
    (message,) = page.messages
    assert (message.body, message.body_bytes) == (b"x" * 7, 100_000)


CONDITIONS = [
    pytest.param("header.region = 'eu'", [0, 2], id="header"),
    pytest.param("header.region <> 'eu'", [1], id="a missing header is unknown"),
    pytest.param("header.region is null", [3], id="null"),
    pytest.param("header.size > 5", [1], id="number in a header"),
    pytest.param("header.size = '7'", [1], id="a number compared with a text is its text"),
    pytest.param("header.urgent = true", [2], id="flag in a header"),
    pytest.param("header.\"x y\" like 'a%'", [0], id="quoted name"),
    pytest.param("body like '%zwei%'", [1], id="body"),
    pytest.param("json.order.id = 17", [2], id="JSON member"),
    pytest.param("json.order.id is not null and not (json.order.id < 10)", [2], id="not"),
    pytest.param("content_type in ('text/plain', 'application/json')", [0, 2], id="in"),
    pytest.param("offset >= 1 and offset < 3 or body = 'drei'", [1, 2, 3], id="and before or"),
    pytest.param("message_id = 'it''s'", [3], id="a quote in a text"),
    pytest.param("body_bytes > 4", [2], id="size"),
    pytest.param("age < 1000000000 and enqueued_at > '2000-01-01'", [0, 1, 2, 3], id="times"),
]


@pytest.mark.parametrize("kind", ["classic", "stream"])
@pytest.mark.parametrize(("condition", "expected"), CONDITIONS)
async def test_conditions_choose_messages_and_the_shown_sql_chooses_the_same(
    house: House, db: asyncpg.Connection, browser: Browser, kind: str, condition: str, expected: Any
) -> None:
    await (house.queue("q") if kind == "classic" else house.stream("q"))
    for message in (
        _message(b"eins", {"region": "eu", "x y": "ab"}, content_type="text/plain"),
        _message(b"zwei", {"region": "us", "size": 7}),
        _message(
            b'{"order": {"id": 17}}',
            {"region": "eu", "urgent": True, "size": 2},
            content_type="application/json",
        ),
        _message(b"drei", message_id="it's"),
    ):
        house.vhost.publish(message)
    await house.flushed()
    page = await browser.browse(Range(vhost="/", queue="q"), parse(condition), 100, 1000)
    assert [message.offset for message in page.messages] == expected
    shown = await _shown(db, page.sql)
    assert [row["offset"] for row in shown] == expected
    assert [row["body"] for row in shown] == [message.body for message in page.messages]


async def test_a_value_is_never_a_part_of_the_statement(house: House) -> None:
    await house.queue("q")
    await house.store("q", b"1")
    hostile = "x'' OR true); DROP TABLE howdah.queue; --"
    assert await _offsets(house, f"body = '{hostile}'") == []
    assert await _offsets(house, "body like '%\\\\%'") == []
    assert await _offsets(house, "header.\"a' || 'b\" = 'c'") == []
    assert await _offsets(house, "body = '1'") == [0]


async def test_a_look_through_many_messages_says_where_it_found_them(
    house: House, db: asyncpg.Connection, browser: Browser
) -> None:
    """More than one slice: the condition holds for one of 6,000 only."""
    await house.queue("q")
    await house.store("q", *(b"%d" % number for number in range(6000)))
    page = await browser.browse(Range(vhost="/", queue="q"), parse("body = '5500'"), 10, 10)
    assert [message.offset for message in page.messages] == [5500]
    assert (page.looked_at, page.next_offset) == (6000, None)
    assert [row["offset"] for row in await _shown(db, page.sql)] == [5500]


async def test_a_time_is_an_offset(house: House, browser: Browser) -> None:
    await house.stream("s")
    times = []
    for number in range(20):
        house.clock.now += 10
        await house.store("s", b"%d" % number)
        times.append(datetime.fromtimestamp(house.clock.now, UTC))
    assert await browser.offset_at("/", "s", times[7]) == 7
    assert await browser.offset_at("/", "s", times[7] + timedelta(seconds=1)) == 8
    assert await browser.offset_at("/", "s", times[0] - timedelta(days=1)) == 0
    assert await browser.offset_at("/", "s", times[-1] + timedelta(days=1)) == 20


async def test_dead_letters_are_grouped_by_where_why_and_what_was_said(
    house: House, db: asyncpg.Connection, browser: Browser
) -> None:
    await house.queue("dead")
    for name in ("q", "p"):
        await house.queue(name, dead_letter_exchange="", dead_letter_routing_key="dead")
    for queue, said in (("q", "timeout"), ("q", "timeout\n at line 7"), ("q", None), ("p", None)):
        headers = {} if said is None else {"x-exception-message": said}
        properties = Properties(headers=tuple(headers.items()))
        house.vhost.publish(
            Message(
                b"1234",
                "",
                routing_key=queue,
                form=CANONICAL,
                native=CANONICAL.encode(properties),
            )
        )
    await house.flushed()
    await house.store("dead", b"alive")
    for queue in ("q", "p"):
        while (delivery := await house.vhost.get(queue)) is not None:
            house.vhost.settle([delivery], REJECTED)
    await house.flushed()
    found = await browser.causes(Range(vhost="/", queue="dead"), EVERYTHING)
    assert [(c.died_in, c.reason, c.failure, c.messages, c.bytes) for c in found.causes] == [
        ("q", "rejected", "timeout", 2, 8),
        ("p", "rejected", None, 1, 4),
        ("q", "rejected", None, 1, 4),
    ]
    assert found.next_offset is None
    shown = {(r["died_in"], r["failure"]): r["messages"] for r in await _shown(db, found.sql)}
    assert shown == {(c.died_in, c.failure): c.messages for c in found.causes}
    function = await db.fetch("SELECT * FROM howdah.dead_letter_causes('dead')")
    assert {(r["died_in"], r["failure"]): r["messages"] for r in function} == shown


async def test_the_redrive_that_is_shown_moves_what_was_chosen(
    house: House, db: asyncpg.Connection, browser: Browser
) -> None:
    await store_dead_letters(house, b"1", b"2", b"3")
    chosen = await browser.choose(
        Range(vhost="/", queue="dead"),
        parse("body <> '2' and reason = 'rejected' and died_in = 'q'"),
        before=None,
    )
    assert chosen.offsets == {"q": [0, 2]}
    assert [tuple(row) for row in await _shown(db, chosen.sql)] == [("q", 2)]
    answer = await outcome(db, chosen.redrive_sql.removesuffix(";"))
    assert answer == {"moved": 2, "left": 0}


async def test_a_redrive_takes_nothing_that_came_after_the_dry_run(
    house: House, browser: Browser
) -> None:
    await store_dead_letters(house, b"1", b"2", b"3")
    chosen = await browser.choose(Range(vhost="/", queue="dead"), EVERYTHING, before=2)
    assert chosen.offsets == {"q": [0, 1]}
    done = await house.manager.redrive.run(house.vhost, "dead", chosen.offsets["q"])
    assert done == (2, 0)


async def test_the_life_of_a_message_is_told_in_order(
    house: House, db: asyncpg.Connection, browser: Browser
) -> None:
    house.clock.now = time()  # the journal's rows are dated by PostgreSQL
    await store_dead_letters(house, b"1")
    events, sql = await browser.life("/", "q", 0)
    assert [event.event for event in events] == ["enqueued", "settled"]
    events, sql = await browser.life("/", "dead", 0)
    assert [event.event for event in events] == ["died", "enqueued"]
    assert events[0].detail["queue"] == "q"
    assert [row["event"] for row in await _shown(db, sql)] == ["died", "enqueued"]
    taken = await house.vhost.get("dead")
    assert taken is not None
    house.vhost.settle([taken], ACCEPTED)
    await house.flushed()
    events, _ = await browser.life("/", "dead", 0)
    assert events[-1].event == "settled"


async def test_connections_for_looking_write_nothing(house: House) -> None:
    pool = house.manager._database.inspection
    async with pool.connection() as connection:
        for _ in range(2):
            with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
                await connection.execute("DELETE FROM howdah.queue")


@pytest.mark.parametrize(
    ("topic", "topic_filter", "matches"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a/+", True),
        ("a/b/c", "a/+", False),
        ("a/b/c", "a/#", True),
        ("a", "a/#", True),
        ("ab", "a/#", False),
        ("a//c", "a/+/c", True),
        ("$SYS/x", "#", False),
        ("$SYS/x", "+/x", False),
        ("$SYS/x", "$SYS/#", True),
        ("a.b", "a.b", True),
        ("axb", "a.b", False),
        ("a+b", "a+b", True),
        ("aab", "a+b", False),
        ("(a", "(a", True),
        ("a\\b", "a\\b", True),
        ("a*", "a*", True),
        ("x", "+", True),
        ("/x", "+/+", True),
        ("x/y", "+/+", True),
    ],
)
async def test_topics_match_filters_as_over_mqtt(
    db: asyncpg.Connection, topic: str, topic_filter: str, matches: bool
) -> None:
    found = await db.fetchval("SELECT howdah.topic_matches($1, $2)", topic, topic_filter)
    assert found is matches


async def test_browse_says_what_is_wrong(db: asyncpg.Connection) -> None:
    with pytest.raises(asyncpg.UndefinedObjectError, match="no durable queue 'nowhere'"):
        await db.fetch("SELECT * FROM howdah.browse('nowhere')")
    with pytest.raises(asyncpg.InvalidParameterValueError, match="scan must be"):
        await db.fetch("SELECT * FROM howdah.browse('nowhere', scan => 0)")


async def test_a_body_that_is_no_json_is_null(db: asyncpg.Connection) -> None:
    deep = b"[" * 100_000
    for body in (b"\xff", b"{", b'"\\u0000"', deep, b""):
        assert await db.fetchval("SELECT howdah.body_json($1)", body) is None
    assert msgspec.json.decode(await db.fetchval("SELECT howdah.body_json('[1]')")) == [1]
