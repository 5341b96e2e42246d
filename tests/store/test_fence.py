"""One writer: a gateway that is not the owner any more commits nothing, and a pooler that gives no
session is refused."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from queue_core.errors import CoreError
from queue_core.manager import Manager
from queue_core.message.message import Message, Properties
from queue_core.outcomes import ACCEPTED
from queue_core.queues.queue import Queue
from queue_core.queues.spec import QueueSpec
from queue_core.store import pooler_check as session_probe
from queue_core.store.nodes.locks import NODE_LOCKS
from queue_core.store.nodes.rows import NodeTerms
from queue_core.store.ownership import DatabaseInUse, Login, OwnershipLost, take_ownership
from queue_core.store.pooler_check import NoSession
from queue_core.store.write.fence import FENCED, fenced
from tests.support.managers import House, Told
from tests.support.pooler import PROGRAM, running_pooler
from tests.support.seed import append, make_segment
from tests.support.until import PATIENCE_SECONDS, until_true

needs_pooler = pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed")
TAKEN = "UPDATE howdah.node SET state = 'gone', gone_at = now(), gone_because = 'a test'"
LOCK_NODES = f"SELECT pg_advisory_xact_lock({NODE_LOCKS}, id) FROM howdah.node"


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="howdah-pooler-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


async def test_what_is_on_its_way_when_another_gateway_has_taken_over_is_not_committed(
    house: House, db: asyncpg.Connection
) -> None:
    lost: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
    house.manager.on_lost(lost.set_result)
    await house.queue("q")
    await house.store("q", b"before")
    await db.execute(TAKEN)  # by whatever way: this gateway still has its session and its lock
    told = Told()
    house.put("q", b"after", told=told)
    error = await asyncio.wait_for(lost, PATIENCE_SECONDS)
    assert isinstance(error, OwnershipLost)
    assert "another gateway" in str(error)
    assert told.committed == []
    assert await db.fetchval("SELECT count(*) FROM howdah.message") == 1


def numbered(count: int) -> list[Message]:
    """Messages that differ by more than their bodies, so that they are no run."""
    return [
        Message(b"x", "", routing_key="q", properties=Properties(headers=(("n", n),)))
        for n in range(count)
    ]


WAYS = {
    "one statement": [Message(b"x", "", routing_key="q")],
    "a run": [Message(b"%d" % n, "", routing_key="q") for n in range(500)],
    "arrays": numbered(5),
    "COPY": numbered(200),
    "a transaction": [Message(b"x" * 9000, "amq.fanout")],  # to two queues: the body is stored once
}


@pytest.mark.parametrize("way", WAYS)
async def test_each_way_of_writing_messages_looks_at_the_fence(
    house: House, db: asyncpg.Connection, way: str
) -> None:
    lost: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
    house.manager.on_lost(lost.set_result)
    for name in ("q", "other"):
        await house.vhost.bind("amq.fanout", await house.queue(name))
    await house.store("q", b"first")
    before = await db.fetchval("SELECT count(*) FROM howdah.message")
    await db.execute(TAKEN)
    for message in WAYS[way]:
        house.vhost.publish(message)
    await asyncio.wait_for(lost, PATIENCE_SECONDS)
    assert await db.fetchval("SELECT count(*) FROM howdah.message") == before


async def test_settlements_and_definitions_look_at_the_fence(
    house: House, db: asyncpg.Connection
) -> None:
    await house.queue("q")
    await house.store("q", b"1")
    await db.execute(TAKEN)
    with pytest.raises(CoreError, match="another gateway has taken over"):
        await house.vhost.declare_queue(QueueSpec.parse("other", {}))
    assert await db.fetchval("SELECT array_agg(name) FROM howdah.queue") == ["q"]
    lost: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
    house.manager.on_lost(lost.set_result)
    rows = "SELECT count(*) FROM howdah.settlement"
    before = await db.fetchval(rows)
    await house.consume("q", ACCEPTED)
    await asyncio.wait_for(lost, PATIENCE_SECONDS)
    assert await db.fetchval(rows) == before


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
@pytest.mark.parametrize("way", ["one statement", "COPY", "a definition"])
async def test_what_waits_while_another_gateway_takes_over_is_not_committed_at_any_isolation(
    migrated_url: str, db: asyncpg.Connection, level: str, way: str
) -> None:
    name = migrated_url.rpartition("/")[2]
    await db.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = '{level}'")
    house = await House(migrated_url).open()
    await house.queue("q")
    await house.store("q", b"before")
    lost: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
    house.manager.on_lost(lost.set_result)
    declared: asyncio.Future[Queue] | None = None
    await house.let_node_lock_go()
    async with db.transaction(isolation="read_committed"):
        await db.execute("SET LOCAL lock_timeout = '1s'")
        await db.execute(LOCK_NODES)
        if way == "a definition":
            spec = QueueSpec.parse("other", {})
            declared = asyncio.ensure_future(house.vhost.declare_queue(spec))
        else:
            for message in WAYS[way]:
                house.vhost.publish(message)
        await waits_for_a_lock(db)
        await db.execute(TAKEN)
    if declared is None:
        assert isinstance(await asyncio.wait_for(lost, PATIENCE_SECONDS), OwnershipLost)
    else:
        with pytest.raises(CoreError, match="another gateway has taken over"):
            await declared
    assert await db.fetchval("SELECT count(*) FROM howdah.message") == 1
    assert await db.fetchval("SELECT array_agg(name) FROM howdah.queue") == ["q"]
    await house.crash()


async def waits_for_a_lock(db: asyncpg.Connection) -> None:
    """Returns when some session of the database waits for an advisory lock."""
    waiting = """
        SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
        WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted)
    """
    await until_true(db, waiting)


async def test_whoever_takes_the_database_waits_for_what_its_owner_has_begun(
    migrated_url: str, db: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, first = await take_ownership(Login(migrated_url, NodeTerms("first", 1024)))
    begun = owner.fence
    async with fenced(db, begun.begin()):  # a transaction of the first one, in another session
        await first.close()  # and with it the lock
        monkeypatch.setattr("queue_core.store.ownership.TAKE_SECONDS", 1)
        with pytest.raises(DatabaseInUse, match=r"first, since .* a transaction of it is still"):
            await take_ownership(Login(migrated_url, NodeTerms("second", 1024)))
    _, second = await take_ownership(Login(migrated_url, NodeTerms("second", 1024)))
    with pytest.raises(asyncpg.PostgresError) as refused:
        async with fenced(db, begun.begin()):
            pytest.fail("the fence is open")
    assert refused.value.sqlstate == FENCED
    await second.close()


async def test_whoever_owns_the_database_is_named_with_its_host_process_and_start(
    house: House, migrated_url: str, db: asyncpg.Connection
) -> None:
    node = await db.fetchval("SELECT node FROM howdah.gateway")
    with pytest.raises(DatabaseInUse) as refused:
        await Manager.open(migrated_url)
    assert f"another gateway ({node}, since 20" in str(refused.value)
    assert "server process" in str(refused.value)


@needs_pooler
@pytest.mark.parametrize("sessions", [1, 5])
@pytest.mark.parametrize("mode", ["transaction", "statement"])
async def test_a_pooler_that_gives_no_session_is_refused(
    migrated_url: str,
    db: asyncpg.Connection,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    sessions: int,
) -> None:
    monkeypatch.setattr(session_probe, "ANSWER_SECONDS", 2.0)
    with running_pooler(migrated_url, mode, folder, sessions=sessions) as url:
        with pytest.raises((NoSession, asyncpg.PostgresError)) as refused:
            await Manager.open(url)
        if mode == "transaction":
            assert "pool_mode = session" in str(refused.value)
        assert await db.fetchval("SELECT epoch FROM howdah.gateway") == 0  # it took nothing


@needs_pooler
async def test_a_pooler_that_keeps_sessions_is_fine(migrated_url: str, folder: Path) -> None:
    with running_pooler(migrated_url, "session", folder, sessions=20) as url:
        house = await House(url).open()
        await house.queue("q")
        await house.store("q", b"1", b"2")
        assert [each.message.body for each in await house.drain("q")] == [b"1", b"2"]
        with pytest.raises(DatabaseInUse):
            await Manager.open(url)
        await house.close()


async def test_a_server_whose_advisory_locks_keep_nobody_out_is_refused(
    migrated_url: str, db: asyncpg.Connection
) -> None:
    """As look-alikes of PostgreSQL have them: the function is there, and always says yes."""
    name = migrated_url.rpartition("/")[2]
    await db.execute("CREATE SCHEMA lenient")
    await db.execute(
        "CREATE FUNCTION lenient.pg_try_advisory_lock(bigint) RETURNS boolean "
        "LANGUAGE sql AS 'SELECT true'"
    )
    await db.execute(f"ALTER DATABASE {name} SET search_path = lenient, pg_catalog, public")
    with pytest.raises(NoSession, match="advisory locks keep nobody out"):
        await Manager.open(migrated_url)
    assert await db.fetchval("SELECT epoch FROM howdah.gateway") == 0  # it took nothing


async def test_a_session_that_commits_without_the_disk_is_put_right(
    migrated_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = migrated_url.rpartition("/")[2]
    owner, first = await take_ownership(Login(migrated_url, NodeTerms("here", 1024)))
    assert await first.fetchval("SHOW synchronous_commit") == "on"
    await first.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    await first.close()
    again = await owner.reconnect()
    assert await again.fetchval("SHOW synchronous_commit") == "on"
    assert "synchronous_commit is off for this login" in caplog.text
    await again.close()


async def test_a_pooled_session_commits_to_the_disk_whoever_had_it_before(
    migrated_url: str, db: asyncpg.Connection
) -> None:
    name = migrated_url.rpartition("/")[2]
    await db.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    await db.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = serializable")
    house = await House(migrated_url).open()
    for _ in range(4):
        async with house.manager._database.pool.acquire() as connection:
            assert await connection.fetchval("SHOW synchronous_commit") == "on"
            assert await connection.fetchval("SHOW default_transaction_isolation") == (
                "read committed"
            )
    await house.close()


async def test_the_key_of_a_message_does_not_keep_a_second_writer_out_and_the_fence_does(
    house: House, db: asyncpg.Connection
) -> None:
    """Two nodes with a segment each could both give an offset: the segment is part of the key."""
    await house.queue("q")
    await house.store("q", b"first")
    queue = await db.fetchval("SELECT id FROM howdah.queue")
    segment = await make_segment(db)
    await append(db, segment, queue, [0])
    assert await db.fetchval("SELECT count(*) FROM howdah.message") == 2
    node = house.manager.writer.fence.node
    await db.execute("UPDATE howdah.node SET state = 'gone' WHERE id = $1", node.id)
    with pytest.raises(asyncpg.PostgresError) as refused:
        async with fenced(db, house.manager.writer.fence.begin()):
            await append(db, await make_segment(db), queue, [0])
    assert refused.value.sqlstate == FENCED
    assert await db.fetchval("SELECT count(*) FROM howdah.message") == 2
    await house.crash()
