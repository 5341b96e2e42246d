"""Nodes of a cluster on a real PostgreSQL: who may join, what is told to whom, and what becomes of
a node that was fenced."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from gateway.database import DatabaseError, bring_up_to_date
from queue_core.errors import StoreUnavailable
from queue_core.manager import Manager
from queue_core.queues.spec import QueueSpec
from queue_core.store.nodes import cluster_node, locks
from queue_core.store.nodes.cluster_node import ClusterNode, Drained, join_cluster
from queue_core.store.nodes.fencing import end_remains, rise
from queue_core.store.nodes.joining import NameTaken, OtherCluster, join
from queue_core.store.nodes.rows import BEAT, NodeLife, NodeTerms
from queue_core.store.ownership import DatabaseInUse, OwnershipLost, open_session
from queue_core.store.pooler_check import NoSession
from tests.store.sessions import ANONYMOUS, Owner
from tests.support.managers import House
from tests.support.until import PATIENCE_SECONDS, turns, until, until_true

TERMS = NodeTerms("first", 1024, cluster="here", lease_ms=1000)
END_SESSIONS = """
    SELECT pg_terminate_backend(l.pid) FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.classid = 1752135524::oid
      AND l.objid = $1::int4::oid
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@asynccontextmanager
async def joined(url: str, **changed: Any) -> AsyncIterator[ClusterNode]:
    node = await join_cluster(url, replace(TERMS, **changed))
    try:
        yield node
    finally:
        await node.leave()


async def up(node: ClusterNode) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        await node.until_up()


async def state(db: asyncpg.Connection, node: ClusterNode) -> str:
    found: str = await db.fetchval("SELECT state FROM howdah.node WHERE id = $1", node.life.id)
    return found


async def test_one_node_is_up_and_the_next_follows_when_it_leaves(
    migrated_url: str, db: asyncpg.Connection
) -> None:
    async with joined(migrated_url) as first:
        await up(first)
        async with joined(migrated_url, name="second") as second:
            await until(lambda: second.serving == "first")
            assert (await state(db, second), second.is_up) == ("joining", False)
            await first.leave()
            await up(second)
            assert await state(db, second) == "up"
            assert second.counters.fenced_nodes == 0
            assert second.membership.trust_begins <= second.trust.until  # it need not wait


async def test_a_node_with_a_name_that_is_taken_is_told_by_whom_and_the_other_goes_on(
    migrated_url: str,
) -> None:
    async with joined(migrated_url) as first:
        await up(first)
        with pytest.raises(NameTaken, match=f"'first' is taken by node {first.life.id} 'first' on"):
            await join_cluster(migrated_url, TERMS)
        assert first.trust.is_given()


async def test_a_gateway_of_another_cluster_is_told_which_one_the_database_belongs_to(
    migrated_url: str,
) -> None:
    async with joined(migrated_url) as first:
        await up(first)
        with pytest.raises(OtherCluster, match=r"belongs to the cluster 'here' .*, and this gatew"):
            await join_cluster(migrated_url, replace(TERMS, name="second", cluster="there"))
        assert first.trust.is_given()


async def test_a_cluster_and_a_gateway_that_is_in_none_keep_each_other_out(
    migrated_url: str,
) -> None:
    async with joined(migrated_url) as first:
        await up(first)
        with pytest.raises(DatabaseInUse):
            await Manager.open(migrated_url)
    house = await House(migrated_url).open()
    with pytest.raises(DatabaseInUse, match="a gateway that is in no cluster owns this database"):
        await join_cluster(migrated_url, TERMS)
    await house.close()


async def test_a_standby_with_other_limits_is_told_each_of_them(
    migrated_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with joined(migrated_url, limits={"broker.max_qos": 2, "mqtt.max_keep_alive": 60}) as one:
        await up(one)
        async with joined(migrated_url, name="second", limits={"broker.max_qos": 1}):
            assert "broker.max_qos (2 there, 1 here)" in caplog.text
            assert "mqtt.max_keep_alive (60 there, None here)" in caplog.text


async def test_clocks_that_are_apart_are_told_and_decide_nothing(
    migrated_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 3600.0)
    async with joined(migrated_url) as first:
        assert "s apart. Who serves does not depend on them" in caplog.text
        await up(first)
        assert first.trust.is_given()


async def test_a_node_that_lost_its_sessions_is_fenced_and_commits_nothing(
    migrated_url: str, db: asyncpg.Connection
) -> None:
    async with joined(migrated_url) as first, joined(migrated_url, name="second") as second:
        await up(first)
        manager = await Manager.open(migrated_url, node=first)
        lost: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        manager.on_lost(lambda error: None if lost.done() else lost.set_result(error))
        vhost = await manager.vhost("/")
        await vhost.declare_queue(QueueSpec.parse("q", {}))
        await until(lambda: second.serving == "first")
        first._task.cancel()  # it is stopped: no beat any more, and its sessions end
        await db.fetch(END_SESSIONS, first.life.id)
        await up(second)
        with pytest.raises(StoreUnavailable):
            await vhost.declare_queue(QueueSpec.parse("other", {}))
        assert isinstance(await asyncio.wait_for(lost, PATIENCE_SECONDS), OwnershipLost)
        assert await db.fetchval("SELECT array_agg(name) FROM howdah.queue") == ["q"]
        assert not first.trust.is_given()
        async with asyncio.timeout(PATIENCE_SECONDS / 6):  # whoever waits for a commit is answered
            with pytest.raises(StoreUnavailable):
                await manager.writer.flushed()
            with suppress(StoreUnavailable):
                await manager.close()


async def test_a_node_without_an_answer_hands_out_nothing_and_grants_no_session(
    migrated_url: str,
) -> None:
    async with joined(migrated_url) as first:
        await up(first)
        house = House(migrated_url)
        house.manager = manager = await Manager.open(migrated_url, node=first)
        house.vhost = vhost = await manager.vhost("/")
        await house.queue("q")
        first._task.cancel()
        first.trust.until = float("-inf")
        inbox = (
            await house.consume_with_inbox("q") if hasattr(house, "consume_with_inbox") else None
        )
        assert inbox is None
        await house.store("q", b"1")
        waiting = asyncio.create_task(vhost.get("q"))
        await turns(50)
        assert not waiting.done()
        with pytest.raises(StoreUnavailable, match="does not hear from its database"):
            await manager.sessions.open(
                vhost,
                "client",
                clean_start=True,
                expiry=0,
                user=ANONYMOUS.name,
                protocol="mqtt",
                owner=Owner(),
            )
        first.trust.until = float("inf")
        first.trust.renew()
        got = await asyncio.wait_for(waiting, PATIENCE_SECONDS)
        assert got is not None
        await manager.close()


async def test_a_node_that_is_asked_to_leave_says_so(
    migrated_url: str, db: asyncpg.Connection
) -> None:
    async with joined(migrated_url) as first, joined(migrated_url, name="second"):
        await up(first)
        lost: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        first.on_lost(lost.set_result)
        await until_true(db, "SELECT count(*) = 2 FROM howdah.node WHERE state <> 'gone'")
        assert await db.fetchval("SELECT howdah.drain_node('first')") == first.life.id
        assert isinstance(await asyncio.wait_for(lost, PATIENCE_SECONDS), Drained)


async def test_a_database_that_lost_beats_is_told_by_a_standby(
    migrated_url: str, db: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    async with joined(migrated_url) as first, joined(migrated_url, name="second") as second:
        await up(first)
        await until(lambda: first.counters.beats > 2)
        await db.execute("UPDATE howdah.node SET beat = 0 WHERE id = $1", first.life.id)
        await until(lambda: second.counters.rewinds > 0)
        assert f"of node {first.life.id} 'first', and now has" in caplog.text


async def test_the_schema_is_not_changed_below_a_gateway_that_runs(
    migrated_url: str, db: asyncpg.Connection
) -> None:
    async with joined(migrated_url) as first:
        await up(first)
        await db.execute("UPDATE howdah.alembic_version SET version_num = '0001_initial'")
        with pytest.raises(DatabaseError, match="gateway of another release runs on it"):
            await bring_up_to_date(migrated_url)
        assert await db.fetchval("SELECT version_num FROM howdah.alembic_version") == "0001_initial"


async def test_a_standby_that_died_is_cleared_away_by_the_node_that_serves(
    migrated_url: str, db: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with joined(migrated_url) as first, joined(migrated_url, name="second") as second:
        await up(first)
        await until(lambda: second.serving == "first")
        second._task.cancel()
        second._connection.terminate()
        await until_true(db, f"SELECT state = 'gone' FROM howdah.node WHERE id = {second.life.id}")
        assert f"fenced node {second.life.id} 'second': it gave no sign of life" in caplog.text
        assert first.trust.is_given()


# ------------------------------------------------------------- fencing, one statement at a time


@asynccontextmanager
async def session(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def test_a_beat_that_waited_while_its_node_was_fenced_does_not_count(
    migrated_url: str, db: asyncpg.Connection
) -> None:
    async with session(migrated_url) as first, session(migrated_url) as fencing:
        life, _ = await join(first, TERMS)
        async with fencing.transaction():
            await fencing.execute("UPDATE howdah.node SET state = 'gone' WHERE id = $1", life.id)
            beat = asyncio.create_task(first.fetch(BEAT, life.id, life.started_at, []))
            process = first.get_server_pid()
            await until_true(db, f"SELECT cardinality(pg_blocking_pids({process})) > 0")
        assert [(row["id"], row["state"]) for row in await beat] == [(life.id, "gone")]


async def test_a_node_that_is_stopped_while_it_changes_members_keeps_nobody_from_fencing_it(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "IDLE_SECONDS", 0.1)
    async with session(migrated_url) as stopped, session(migrated_url) as other:
        await stopped.execute("BEGIN")
        await locks.lock_members(stopped)
        async with asyncio.timeout(PATIENCE_SECONDS), other.transaction():
            await locks.lock_members(other)


async def test_whoever_drains_a_node_cannot_hold_up_its_beats_by_an_open_transaction(
    migrated_url: str, db: asyncpg.Connection
) -> None:
    async with joined(migrated_url) as first, joined(migrated_url, name="second"):
        await up(first)
        async with db.transaction():
            await db.execute("SELECT howdah.drain_node('first')")
            assert await db.fetchval("SHOW idle_in_transaction_session_timeout") == "5s"


async def test_a_peer_that_looks_at_a_lock_is_not_taken_for_a_session_of_the_node(
    migrated_url: str, db: asyncpg.Connection
) -> None:
    async with session(migrated_url) as first:
        life, _ = await join(first, TERMS)
    await db.execute("UPDATE howdah.node SET state = 'gone' WHERE id = $1", life.id)
    async with session(migrated_url) as looking, looking.transaction():
        await looking.execute(locks.LOCK_NODE, life.id)
        await end_remains(db)
        assert await looking.fetchval("SELECT true")


async def test_a_newcomer_waits_for_the_trust_of_a_node_that_was_fenced_before_it_looked(
    migrated_url: str, db: asyncpg.Connection
) -> None:
    async with session(migrated_url) as first, session(migrated_url) as newcomer:
        assert (await join(first, TERMS))[1] == 0
        assert (await join(newcomer, replace(TERMS, name="second", lease_ms=500)))[1] == 1


async def test_sessions_that_a_login_may_not_end_keep_a_standby_waiting_and_no_more(
    migrated_url: str, db: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await db.execute("CREATE ROLE howdah_test_other; GRANT howdah_gateway TO howdah_test_other")
    try:
        async with session(migrated_url) as gone, session(migrated_url) as again:
            life, _ = await join(gone, TERMS)
            await locks.keep_node(again, life.id)  # its second session
            await db.execute("UPDATE howdah.node SET state = 'gone' WHERE id = $1", life.id)
            async with session(migrated_url) as standby:
                own, _ = await join(standby, replace(TERMS, name="second"))
                await standby.execute("SET ROLE howdah_test_other")
                assert not await rise(standby, own, [])
                assert "this login may not end it" in caplog.text
                await gone.close()
                await again.close()
                await until(lambda: rise(standby, own, []))
    finally:
        await db.execute("DROP ROLE howdah_test_other")


async def test_a_node_serves_whose_rise_was_committed_and_not_answered(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unanswered(
        connection: asyncpg.Connection, life: NodeLife, known: Collection[int]
    ) -> bool:
        assert await rise(connection, life, known)
        raise ConnectionResetError("the answer was lost")

    monkeypatch.setattr(cluster_node, "rise", unanswered)
    async with joined(migrated_url) as first:
        await up(first)
        assert first.counters.takeovers == 1
        await until(first.trust.is_given)


async def test_a_node_goes_on_after_a_server_that_was_too_slow_to_prove_a_session(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    async def slow(url: str, settings: dict[str, str]) -> asyncpg.Connection:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise NoSession("the server did not answer")
        return await open_session(url, settings)

    async with joined(migrated_url) as first:
        await up(first)
        monkeypatch.setattr(cluster_node, "open_session", slow)
        first._connection.terminate()
        await until(lambda: tries == 2)
        beats = first.counters.beats
        await until(lambda: first.counters.beats > beats)
        assert first.trust.is_given()


async def test_a_node_that_is_drained_while_it_takes_over_tells_whoever_listens_later(
    migrated_url: str, db: asyncpg.Connection
) -> None:
    async with joined(migrated_url) as first:
        await up(first)
        told: list[Exception] = []
        first.on_lost(told.append)
        await db.execute("UPDATE howdah.node SET state = 'leaving' WHERE id = $1", first.life.id)
        await until(lambda: bool(told))
        later: list[Exception] = []
        first.on_lost(later.append)
        assert [type(error) for error in later] == [Drained]
