"""A database that went back in time, by the marks of commits: noticed at a reconnect and at a
start, whatever was lost, and named. The commits that a standby lacks are taken away by hand here,
their marks with them; tests/faults/test_failover.py does it with a real one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest

from queue_core.access.accounts import UserAuth
from queue_core.commit.unit import Record
from queue_core.commit.waiter import Waiter
from queue_core.message.message import Message
from queue_core.outcomes import ACCEPTED
from queue_core.routing.exchanges import ExchangeKind, ExchangeSpec
from queue_core.sessions.session import Session
from queue_core.sessions.subscription import Subscription
from queue_core.store.background_work import BackgroundWork
from queue_core.store.lost_commits.losses import Loss
from queue_core.store.ownership import Setback
from queue_core.store.write.fence import fenced
from tests.store.sessions import ANONYMOUS, Owner
from tests.support.managers import House, bodies
from tests.support.until import PATIENCE_SECONDS, until_true

NEWEST_MARK = "SELECT coalesce(max(number), 0) FROM howdah.commit_mark"
GATEWAYS = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'howdah gateway%'
"""
DETAILS = "SELECT string_agg(detail, E'\\n' ORDER BY id) FROM howdah.loss"
PATTERNS = ", ".join(["'.*'"] * 3)

Act = Callable[[House, asyncpg.Connection], Awaitable[object]]


async def go_back(db: asyncpg.Connection, mark: int, *statements: str) -> None:
    """Undoes the commits after that mark by statements, as if they had never come."""
    async with db.transaction():
        for statement in statements:
            await db.execute(statement)
        await db.execute("DELETE FROM howdah.commit_mark WHERE number > $1", mark)


async def noticed(house: House, db: asyncpg.Connection, mark: int, *statements: str) -> str:
    """Goes back while the gateway is cut off; what it says when it is back."""
    lost: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
    house.manager.on_lost(lost.set_result)
    house.manager._database.server.instance = ("another server",)
    # It waits for the lock, and so comes back to a database that is behind.
    async with db.transaction():
        await db.execute("LOCK TABLE howdah.gateway IN ACCESS EXCLUSIVE MODE")
        await db.execute(GATEWAYS)
        for statement in statements:
            await db.execute(statement)
        await db.execute("DELETE FROM howdah.commit_mark WHERE number > $1", mark)
    error = await asyncio.wait_for(lost, PATIENCE_SECONDS)
    assert isinstance(error, Setback), error
    return str(error)


async def open_session(house: House, expiry: float = 3600.0) -> Session:
    return await house.manager.sessions.open(
        house.vhost,
        "sensor",
        clean_start=False,
        expiry=expiry,
        user=None,
        protocol="MQTT 5",
        owner=Owner(),
    )


async def commit(house: House, records: tuple[Record, ...]) -> None:
    waiter = Waiter()
    house.vhost.settle([], ACCEPTED, waiter, 0, records)
    await waiter.done


# --- what may be lost: how it comes to be, and how the tables go back


async def declare_exchange(house: House, db: asyncpg.Connection) -> None:
    await house.vhost.declare_exchange(ExchangeSpec("orders", ExchangeKind.FANOUT))


async def bind(house: House, db: asyncpg.Connection) -> None:
    await house.vhost.bind("amq.topic", house.vhost.queue("q"), "a.#", {"n": 1})


async def unbind(house: House, db: asyncpg.Connection) -> None:
    await house.vhost.unbind("amq.fanout", house.vhost.queue("q"))


async def declare_queue(house: House, db: asyncpg.Connection) -> None:
    await house.queue("new")


async def delete_queue(house: House, db: asyncpg.Connection) -> None:
    await house.vhost.delete_queue("old")


async def add_vhost(house: House, db: asyncpg.Connection) -> None:
    await db.execute("INSERT INTO howdah.vhost (name) VALUES ('tenant')")
    assert await house.manager.refresh_rights()


async def add_user(house: House, db: asyncpg.Connection) -> None:
    await db.execute("INSERT INTO howdah.\"user\" (name, password_hash) VALUES ('ann', 'x')")
    assert await house.manager.refresh_rights()


async def remove_user(house: House, db: asyncpg.Connection) -> None:
    await db.execute("DELETE FROM howdah.\"user\" WHERE name = 'bob'")
    assert await house.manager.refresh_rights()


async def revoke(house: House, db: asyncpg.Connection) -> None:
    await db.execute("UPDATE howdah.permission SET write = '' WHERE user_name = 'bob'")
    assert await house.manager.refresh_rights()


async def set_policy(house: House, db: asyncpg.Connection) -> None:
    await db.execute("SELECT howdah.set_policy('short', '^q', '{\"max-length\": 3}')")
    assert await house.manager.refresh_rights()


async def begin_session(house: House, db: asyncpg.Connection) -> None:
    await open_session(house)


async def subscribe(house: House, db: asyncpg.Connection) -> None:
    session = await open_session(house)
    await session.subscribe(Subscription("a/b", 1))


async def set_will(house: House, db: asyncpg.Connection) -> None:
    session = await open_session(house, expiry=0)
    gone = Message(b"gone", topic="status")
    await house.manager.sessions.wills.set(session, gone, ANONYMOUS)


async def retain(house: House, db: asyncpg.Connection) -> None:
    value = Message(b"21.5", topic="temperature")
    await commit(house, (house.manager.sessions.retained.record("/", value, 1),))


async def receive_packet(house: House, db: asyncpg.Connection) -> None:
    session = await open_session(house)
    await commit(house, session.note(False, 7, 1))


async def run_command(house: House, db: asyncpg.Connection) -> None:
    number = await db.fetchval("SELECT howdah.purge('q')")
    done = "SELECT done_at IS NOT NULL FROM howdah.command WHERE id = $1"
    await until_true(db, done, number)


BOUND = """
    INSERT INTO howdah.binding (vhost, source, destination_kind, destination, routing_key)
    VALUES ('/', 'amq.fanout', 'queue', 'q', '')
"""
DECLARED = """
    INSERT INTO howdah.queue (vhost, name, kind, arguments, shard)
    VALUES ('/', 'old', 'classic', '{}', 0)
"""
LOSSES: dict[str, tuple[Act, str, str]] = {
    "an exchange": (
        declare_exchange,
        "DELETE FROM howdah.exchange",
        "exchange 'orders' of virtual host '/'",
    ),
    "a binding": (
        bind,
        "DELETE FROM howdah.binding WHERE source = 'amq.topic'",
        "the binding from exchange 'amq.topic' to queue 'q' with key 'a.#' in virtual host '/'",
    ),
    "an unbinding": (
        unbind,
        BOUND,
        "the removal of the binding from exchange 'amq.fanout' to queue 'q' with key ''",
    ),
    "a queue": (
        declare_queue,
        "DELETE FROM howdah.queue WHERE name = 'new'",
        "queue 'new' of virtual host '/' with all 0 messages in it",
    ),
    "a queue's removal": (
        delete_queue,
        DECLARED,
        "the removal of queue 'old' of virtual host '/': it is there again",
    ),
    "a virtual host": (
        add_vhost,
        "DELETE FROM howdah.vhost WHERE name = 'tenant'",
        "virtual host 'tenant'",
    ),
    "a user": (add_user, "DELETE FROM howdah.\"user\" WHERE name = 'ann'", "user 'ann'"),
    "a user's removal": (
        remove_user,
        "INSERT INTO howdah.\"user\" (name, password_hash) VALUES ('bob', 'y')",
        "the removal of user 'bob': it is there again",
    ),
    "rights": (
        revoke,
        "UPDATE howdah.permission SET write = '.*' WHERE user_name = 'bob'",
        "the newest change of what user 'bob' may do in virtual host '/'",
    ),
    "a policy": (
        set_policy,
        "DELETE FROM howdah.policy",
        "policy 'short' of virtual host '/'",
    ),
    "a session": (
        begin_session,
        "DELETE FROM howdah.session",
        "the session of client 'sensor' in virtual host '/'",
    ),
    "a subscription": (
        subscribe,
        "DELETE FROM howdah.subscription",
        "the subscription of client 'sensor' to 'a/b' in virtual host '/'",
    ),
    "a will": (
        set_will,
        "DELETE FROM howdah.will",
        "the will of client 'sensor' in virtual host '/'",
    ),
    "a retained message": (
        retain,
        "DELETE FROM howdah.retained",
        "the retained message of topic 'temperature' in virtual host '/'",
    ),
    "a packet of QoS 2": (
        receive_packet,
        "DELETE FROM howdah.packet",
        "packet 7 in flight from client 'sensor' in virtual host '/'",
    ),
    "the answer to a command": (
        run_command,
        "UPDATE howdah.command SET done_at = NULL",
        "up to ",
    ),
}


@pytest.mark.parametrize("what", LOSSES)
async def test_the_loss_of_one_thing_alone_is_noticed_at_a_reconnect_and_named(
    house: House, db: asyncpg.Connection, what: str
) -> None:
    act, undo, expected = LOSSES[what]
    await house.vhost.bind("amq.fanout", await house.queue("q"))
    await house.queue("old")
    await db.execute("INSERT INTO howdah.\"user\" (name, password_hash) VALUES ('bob', 'y')")
    await db.execute(
        "INSERT INTO howdah.permission (user_name, vhost, configure, write, read) "
        f"VALUES ('bob', '/', {PATTERNS})"
    )
    assert await house.manager.refresh_rights()
    mark = await db.fetchval(NEWEST_MARK)
    await act(house, db)
    said = await noticed(house, db, mark, undo)
    assert expected in said
    details = await db.fetchval(DETAILS)
    assert expected in details
    assert "commits, made from" in details
    await house.close()
    await house.open()  # from what the tables say, and with nothing to add
    assert await db.fetchval(DETAILS) == details


async def test_nothing_is_noticed_where_nothing_was_lost(
    house: House, db: asyncpg.Connection
) -> None:
    lost: list[Exception] = []
    house.manager.on_lost(lost.append)
    await house.queue("q")
    await open_session(house)
    for body in (b"1", b"2"):
        await db.execute(GATEWAYS)
        await house.store("q", body)
        await house.queue(f"after {body!r}")
    assert lost == []
    assert await db.fetchval(DETAILS) is None


async def test_what_a_start_has_not_read_yet_is_not_said_to_have_been_removed(
    house: House, db: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer may lose its connection, and look at the database again, during the start."""
    await open_session(house)
    found: list[Loss] = []
    start, refresh = BackgroundWork.start, UserAuth.refresh
    looks: list[Callable[[], Awaitable[list[Loss]]]] = []

    def begin(serving: BackgroundWork) -> None:
        start(serving)
        looks.append(lambda: serving._look_back(db, is_short=False))

    async def look_before(auth: UserAuth) -> bool:
        while looks:
            found.extend(await looks.pop()())
        return await refresh(auth)

    monkeypatch.setattr(BackgroundWork, "start", begin)
    monkeypatch.setattr(UserAuth, "refresh", look_before)
    await house.crash_and_reopen()
    assert not looks
    assert found == []


async def test_a_commit_whose_answer_was_lost_is_found_by_its_mark(
    house: House, db: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that has neither messages nor settlements: a retained value, which would be written
    a second time over a newer one."""
    from queue_core.store.write import statements

    written = statements.write
    calls = 0

    async def lose_the_answer(*arguments: object) -> None:
        nonlocal calls
        calls += 1
        await written(*arguments)  # type: ignore[arg-type]
        if calls == 1:
            raise ConnectionResetError

    monkeypatch.setattr(statements, "write", lose_the_answer)
    await retain(house, db)
    assert calls == 1
    assert await db.fetchval("SELECT count(*) FROM howdah.retained") == 1


async def test_marks_are_forgotten_with_their_generation_and_prove_what_came_after(
    house: House, db: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queue_core.store.write.journal_generation.GENERATION_ROWS", 20)
    leaves = "SELECT array_agg(relname::text ORDER BY relname) FROM pg_class "
    leaves += "WHERE relname ~ '^commit_mark_[0-9]+$'"
    lost: list[Exception] = []
    house.manager.on_lost(lost.append)
    for number in range(30):  # no message, no settlement: marks alone fill a generation
        await house.queue(f"q{number}")
        await house.upkeep()
    generation = await db.fetchval("SELECT max(generation) FROM howdah.shard")
    assert generation >= 2
    names = [f"commit_mark_{generation - 1}", f"commit_mark_{generation}"]
    assert await db.fetchval(leaves) == names
    await db.execute(GATEWAYS)
    await house.queue("one more")
    assert lost == []


async def test_a_transaction_of_the_generation_before_leaves_its_mark_there(
    house: House, db: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that runs while the journal starts again; it may see the new number before the new
    partitions, and must not look for them."""
    monkeypatch.setattr("queue_core.store.write.journal_generation.GENERATION_ROWS", 1)
    await house.queue("q")
    before = await db.fetchval("SELECT max(generation) FROM howdah.shard")
    passage = house.manager.writer.fence.begin()
    await house.store("q", b"1")
    await house.upkeep()
    assert await db.fetchval("SELECT max(generation) FROM howdah.shard") > before
    async with fenced(db, passage):
        pass
    assert passage.mark is not None
    mark = "SELECT generation FROM howdah.commit_mark WHERE number = $1"
    assert await db.fetchval(mark, passage.mark.number) == before


async def test_notes_of_what_memory_knows_leave_no_mark(
    house: House, db: asyncpg.Connection
) -> None:
    """A failover that loses them alone ends nobody's connection."""
    await house.queue("q")
    await house.store("q", b"1")
    await house.upkeep()  # drops the generation before
    await house.consume("q")
    await house.flushed()
    mark = await db.fetchval(NEWEST_MARK)
    await house.upkeep()
    assert await db.fetchval("SELECT count(*) FROM howdah.consumer") == 1
    assert await db.fetchval("SELECT count(*) FROM howdah.log_end") == 1
    assert await db.fetchval(NEWEST_MARK) == mark


# --- at a start, without memory


@pytest.fixture
async def recorded(house: House, tmp_path: Path) -> House:
    """A house whose gateways keep a record of their commits."""
    await house.close()
    store = replace(house.settings.store, record_folder=tmp_path / "data")
    house.settings = replace(house.settings, store=store)
    return await house.open()


async def test_a_gateway_without_memory_notices_what_its_predecessor_had_committed(
    recorded: House, db: asyncpg.Connection
) -> None:
    house = recorded
    await house.queue("q")
    await house.stream("s")
    for queue in ("q", "s"):
        await house.store(queue, b"0", b"1")
    mark = await db.fetchval(NEWEST_MARK)
    await house.store("q", b"2", b"3", b"4")
    await house.store("s", b"2")
    await house.crash()
    await go_back(db, mark, 'DELETE FROM howdah.message WHERE "offset" >= 2')
    await house.open()
    summary, *gaps = await db.fetch("SELECT * FROM howdah.loss ORDER BY id")
    assert summary["cause"] == "setback"
    assert "up to 2 commits with 4 messages" in summary["detail"]
    found = {(row["queue"], row["first_offset"], row["end_offset"]) for row in gaps}
    assert found == {("q", 2, 6), ("s", 2, 6)}
    counts = {name: house.vhost.queue(name).counts().ready for name in ("q", "s")}
    assert counts == {"q": 2, "s": 2}
    for queue in ("q", "s"):
        await house.store(queue, b"new")
    offsets = 'SELECT DISTINCT max("offset") FROM howdah.message GROUP BY queue_id'
    assert await db.fetchval(offsets) == 6
    assert bodies(await house.drain("q")) == [b"0", b"1", b"new"]
    assert await db.fetch("SELECT * FROM howdah.find_gaps()") == []
    said = await db.fetchval(DETAILS)
    await house.crash_and_reopen()
    assert await db.fetchval(DETAILS) == said


async def test_a_lost_definition_alone_is_noticed_by_a_gateway_without_memory(
    recorded: House, db: asyncpg.Connection
) -> None:
    mark = await db.fetchval(NEWEST_MARK)
    await recorded.queue("q")
    await recorded.crash()
    await go_back(db, mark, "DELETE FROM howdah.queue")
    await recorded.open()
    assert "up to 1 commits with 0 messages" in await db.fetchval(DETAILS)


async def test_a_crash_that_loses_nothing_is_no_loss(
    recorded: House, db: asyncpg.Connection
) -> None:
    await recorded.queue("q")
    await recorded.store("q", b"0")
    await recorded.crash_and_reopen()
    await recorded.reopen()
    assert await db.fetchval(DETAILS) is None
    owners = await db.fetch("SELECT epoch, last_commit FROM howdah.ownership ORDER BY epoch")
    assert len(owners) == 4  # with the one that had kept no record
    assert owners[0]["last_commit"] < owners[-1]["last_commit"]


async def test_another_timeline_without_a_record_is_said_to_be_unproven_once(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue("q")
    await house.close()
    await db.execute("UPDATE howdah.ownership SET timeline = timeline + 1")
    await house.open()
    (row,) = await db.fetch("SELECT cause, detail FROM howdah.loss")
    assert row["cause"] == "unproven"
    assert "cannot be proven" in row["detail"]
    await house.reopen()
    assert await db.fetchval("SELECT count(*) FROM howdah.loss") == 1


async def test_views_leave_out_what_was_lost(recorded: House, db: asyncpg.Connection) -> None:
    house = recorded
    await house.queue("q")
    await house.stream("s")
    for queue in ("q", "s"):
        await house.store(queue, b"0", b"1", b"2", b"3")
    await house.close()
    await db.execute('DELETE FROM howdah.message WHERE "offset" IN (1, 2)')
    await db.fetch("SELECT * FROM howdah.repair()")
    rows = await db.fetch("SELECT queue, ready, unsettled, tail FROM howdah.queue_status")
    assert {tuple(row) for row in rows} == {("q", 2, 2, 4), ("s", 2, 2, 4)}
    await db.execute(
        "INSERT INTO howdah.loss (cause, queue_id, first_offset, end_offset, detail) "
        "SELECT 'setback', id, 4, 9, 'the newest ones' FROM howdah.queue"
    )
    rows = await db.fetch("SELECT queue, ready, unsettled, tail FROM howdah.queue_status")
    assert {tuple(row) for row in rows} == {("q", 2, 2, 9), ("s", 2, 2, 9)}
    await house.open()
    await house.store("s", b"9")
    await house.consume("s", ACCEPTED, group="g")
    lag = "FROM howdah.consumer_lag WHERE queue = 's' AND group_name = 'g'"
    await until_true(db, f"SELECT max(lag) = 0 {lag}")
    assert await db.fetchval("SELECT ready FROM howdah.queue_status WHERE queue = 's'") == 3
