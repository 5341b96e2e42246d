"""Rows that another gateway wrote are never replaced: names are taken by an insert that finds them
free, and only a row whose answer this gateway itself has lost is written again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import SimpleNamespace

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from queue_core.errors import NotEquivalent, StoreUnavailable
from queue_core.queues.spec import QueueSpec
from queue_core.routing.bindings import Binding
from queue_core.routing.exchanges import ExchangeSpec
from queue_core.sessions.session import SessionState
from queue_core.sessions.subscription import Subscription
from queue_core.store.tables import definitions, sessions
from queue_core.store.tables.definitions import DefinitionStore
from queue_core.store.tables.sessions import SessionTables

Transaction = Callable[[AsyncEngine], AbstractAsyncContextManager[AsyncConnection]]


def losing_answers(transaction: Transaction) -> Transaction:
    """A transaction that is committed, and whose answer does not come."""

    @asynccontextmanager
    async def committed(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
        async with transaction(engine) as connection:
            yield connection
        raise StoreUnavailable("the connection was lost")

    return committed


@pytest.fixture
async def engine(migrated_url: str) -> AsyncIterator[AsyncEngine]:
    made = create_async_engine(migrated_url.replace("postgresql://", "postgresql+asyncpg://"))
    yield made
    await made.dispose()


async def test_a_queue_of_another_gateway_keeps_its_id_its_words_and_its_bindings(
    engine: AsyncEngine, db: asyncpg.Connection
) -> None:
    first, second = DefinitionStore(engine), DefinitionStore(engine)
    queue_id = await first.add_queue("/", QueueSpec.parse("q", {"x-max-length": 3}), "ann")
    await first.add_binding("/", Binding("amq.topic", SimpleNamespace(name="q"), "a.b"))
    with pytest.raises(NotEquivalent, match=r"howdah\.queue already"):
        await second.add_queue("/", QueueSpec.parse("q"), "bob")
    rows = await db.fetch("SELECT id, created_by, arguments::text FROM howdah.queue")
    assert [tuple(row) for row in rows] == [(queue_id, "ann", '{"x-max-length": 3}')]
    assert await db.fetchval("SELECT routing_key FROM howdah.binding") == "a.b"


async def test_one_name_that_is_taken_does_not_fail_those_declared_at_the_same_time(
    engine: AsyncEngine,
) -> None:
    first, second = DefinitionStore(engine), DefinitionStore(engine)
    await first.add_queue("/", QueueSpec.parse("q1"), None)
    made = await asyncio.gather(
        *(second.add_queue("/", QueueSpec.parse(f"q{number}"), None) for number in range(3)),
        return_exceptions=True,
    )
    assert [isinstance(each, NotEquivalent) for each in made] == [False, True, False]


async def test_an_exchange_of_another_gateway_keeps_its_kind_and_its_bindings(
    engine: AsyncEngine, db: asyncpg.Connection
) -> None:
    first, second = DefinitionStore(engine), DefinitionStore(engine)
    await first.add_exchange("/", ExchangeSpec.parse("x", "fanout", {}))
    await first.add_binding("/", Binding("x", SimpleNamespace(name="q"), ""))
    with pytest.raises(NotEquivalent, match=r"howdah\.exchange already"):
        await second.add_exchange("/", ExchangeSpec.parse("x", "direct", {}))
    assert await db.fetchval("SELECT kind FROM howdah.exchange") == "fanout"
    assert await db.fetchval("SELECT source FROM howdah.binding") == "x"


async def test_a_session_of_another_gateway_keeps_its_id_and_its_subscriptions(
    engine: AsyncEngine, db: asyncpg.Connection
) -> None:
    first, second = SessionTables(engine), SessionTables(engine)
    state = SessionState(("/", "sensor"), "ann", "MQTT 5.0", 60.0)
    session_id = await first.add(state, "$session/sensor", 0.0)
    await first.put_subscriptions(session_id, [Subscription("a/b", 1)])
    with pytest.raises(NotEquivalent, match="has a session"):
        await second.add(state, "$session/sensor", 1.0)
    assert await db.fetchval("SELECT id FROM howdah.session") == session_id
    assert await db.fetchval("SELECT filter FROM howdah.subscription") == "a/b"


async def test_a_row_whose_answer_was_lost_is_written_again_by_the_same_gateway(
    engine: AsyncEngine, db: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit may go through although its answer does not: the client is told to try again."""
    store, tables = DefinitionStore(engine), SessionTables(engine)
    state = SessionState(("/", "sensor"), "ann", "MQTT 5.0", 60.0)
    with monkeypatch.context() as patch:
        for module in (definitions, sessions):
            patch.setattr(module, "transaction", losing_answers(module.transaction))
        with pytest.raises(StoreUnavailable):
            await store.add_queue("/", QueueSpec.parse("q", {"x-max-length": 3}), "ann")
        with pytest.raises(StoreUnavailable):
            await store.add_exchange("/", ExchangeSpec.parse("x", "fanout", {}))
        with pytest.raises(StoreUnavailable):
            await tables.add(state, "$session/sensor", 0.0)
    queue_id = await store.add_queue("/", QueueSpec.parse("q"), "bob")
    await store.add_exchange("/", ExchangeSpec.parse("x", "direct", {}))
    session_id = await tables.add(state, "$session/sensor", 1.0)
    rows = await db.fetch("SELECT id, created_by, arguments::text FROM howdah.queue")
    assert [tuple(row) for row in rows] == [(queue_id, "bob", "{}")]
    assert await db.fetchval("SELECT kind FROM howdah.exchange") == "direct"
    assert await db.fetchval("SELECT id FROM howdah.session") == session_id


async def test_a_client_that_leaves_while_its_queue_is_declared_may_declare_it_again(
    engine: AsyncEngine, db: asyncpg.Connection
) -> None:
    store = DefinitionStore(engine)
    leaving = asyncio.create_task(store.add_queue("/", QueueSpec.parse("q"), "ann"))
    await asyncio.sleep(0)  # it has begun
    leaving.cancel()
    assert await asyncio.gather(leaving, return_exceptions=True)
    queue_id = await store.add_queue("/", QueueSpec.parse("q"), "bob")
    rows = await db.fetch("SELECT id, created_by FROM howdah.queue")
    assert [row["id"] for row in rows] == [queue_id]
