"""Every way in which a gateway writes beside its writer: once the node is gone, nothing of it is
committed, whatever it is asked for, and no module opens a transaction of its own kind."""

from __future__ import annotations

import ast
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest

from queue_core.errors import CoreError
from queue_core.manager import Manager
from queue_core.message.message import Message
from queue_core.queues.spec import QueueSpec
from queue_core.routing.exchanges import ExchangeKind, ExchangeSpec
from queue_core.sessions.subscription import Subscription
from queue_core.store.tables.users import Users
from queue_core.store.tables.vhosts import Vhosts
from tests.store.sessions import ANONYMOUS, World, world

STORE = Path(__file__).parents[2] / "queue_core" / "store"
FENCED = "UPDATE howdah.node SET state = 'gone', gone_because = 'a test', fenced_by = 0"
TABLES = """
    SELECT c.relname::text FROM pg_class c
    WHERE c.relnamespace = 'howdah'::regnamespace AND c.relkind = 'r' AND c.relname <> 'node'
"""
# Transactions that do not pass the fence, and why they need not.
WITHOUT_FENCE = {
    "pooler_check.py": "it looks at sessions",
    "ownership.py": "it takes the database, under the members' lock",
    "nodes/joining.py": "it joins, under the members' lock",
    "nodes/fencing.py": "it fences, under the members' lock",
    "tables/table_transactions.py": "it is the fence, where the engine has one",
    "read/recovery.py": "it reads",
    "queue_store.py": "it reads",
}

Ask = Callable[[World], Awaitable[object]]


async def detach(there: World) -> None:
    session = there.sessions._attached["/", "sensor"]
    await there.sessions.detach(session, expiry=60, publish_will=False)


ASKED: dict[str, Ask] = {
    "declare a queue": lambda w: w.vhost.declare_queue(QueueSpec.parse("new", {})),
    "declare a stream": lambda w: w.vhost.declare_queue(
        QueueSpec.parse("stream", {"x-queue-type": "stream"})
    ),
    "delete a queue": lambda w: w.vhost.delete_queue("q"),
    "purge a queue": lambda w: w.vhost.purge_queue("q"),
    "declare an exchange": lambda w: w.vhost.declare_exchange(
        ExchangeSpec("new", ExchangeKind.FANOUT)
    ),
    "delete an exchange": lambda w: w.vhost.delete_exchange("ex"),
    "bind": lambda w: w.vhost.bind("ex", w.vhost.queue("q"), "key"),
    "unbind": lambda w: w.vhost.unbind("amq.topic", w.vhost.queue("q"), "there"),
    "open a session": lambda w: w.open("another"),
    "resume a session": lambda w: w.open("sensor"),
    "subscribe": lambda w: w.sessions._attached["/", "sensor"].subscribe(
        Subscription("a/+", qos=1)
    ),
    "detach a session": detach,
    "end a session": lambda w: w.sessions.end(w.vhost, "sensor"),
    "set a will": lambda w: w.sessions.wills.set(
        w.sessions._attached["/", "sensor"], Message(b"gone", topic="wills"), ANONYMOUS
    ),
    "add a virtual host": lambda w: w.manager.add_vhost("new"),
    "upkeep": lambda w: w.manager._background.keep_up(),
    "the end of upkeep": lambda w: w.manager._background.maintenance.end(),
    "a mark": lambda w: w.manager._database.leave_mark(),
    "a virtual host by the engine": lambda w: Vhosts(w.manager._database.engine).add("other"),
    "a user by the engine": lambda w: Users(w.manager._database.engine).put("ada", "hash"),
}


@pytest.fixture
async def there(migrated_url: str) -> AsyncIterator[World]:
    """A gateway with a queue, an exchange, a binding and a session."""
    async with world(migrated_url) as made:
        await made.vhost.declare_queue(QueueSpec.parse("q", {}))
        await made.vhost.declare_exchange(ExchangeSpec("ex", ExchangeKind.FANOUT))
        await made.vhost.bind("amq.topic", made.vhost.queue("q"), "there")
        await made.open("sensor")
        await made.publish("there", b"1")
        yield made


async def contents(db: asyncpg.Connection) -> dict[str, list[str]]:
    """All rows of all tables, and with the tables' names their partitions."""
    names = sorted(row[0] for row in await db.fetch(TABLES))
    return {
        name: sorted(row[0] for row in await db.fetch(f'SELECT t::text FROM howdah."{name}" t'))
        for name in names
    }


@pytest.mark.parametrize("what", ASKED)
async def test_once_a_node_is_gone_nothing_that_it_is_asked_for_is_committed(
    there: World, db: asyncpg.Connection, what: str
) -> None:
    manager: Manager = there.manager
    async with manager._database.engine.connect(), manager._database.pool.acquire():
        pass  # connected before the fence, and used after it
    await there.idle()
    await db.execute(FENCED)
    before = await contents(db)
    with suppress(CoreError, asyncpg.PostgresError):
        await ASKED[what](there)
    assert await contents(db) == before


def opened_transactions(path: Path) -> list[int]:
    """The lines at which a module opens a transaction by the driver's own means."""
    calls = (n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call))
    return [
        call.lineno
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and "readonly=True" not in ast.unparse(call)
        and (
            call.func.attr == "transaction"
            or (call.func.attr == "begin" and "engine" in ast.unparse(call.func.value))
        )
    ]


def test_no_module_of_the_store_opens_a_transaction_without_the_fence() -> None:
    found = {
        str(path.relative_to(STORE)): lines
        for path in STORE.rglob("*.py")
        if path.parent.name != "operator" and (lines := opened_transactions(path))
    }
    unknown = {name: lines for name, lines in found.items() if name not in WITHOUT_FENCE}
    assert unknown == {}, "use store.write.fence.fenced, or table_transactions.transaction"
    assert sorted(WITHOUT_FENCE) == sorted(found), "an exception that nobody needs any more"
