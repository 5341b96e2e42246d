"""Cold statements: each of them fails when its node is fenced after it has its connection and
before it writes, and none writes without having passed the fence.

Cold statements are those of all sessions but the writer's. The writer holds its node's lock for
life; every other session takes it anew for each transaction, through `howdah.hold`.
"""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import asyncpg
import pytest

from queue_core.access.accounts import Permission, User
from queue_core.access.password_renewal import RenewedHash
from queue_core.definitions.items import Section
from queue_core.definitions.plan import Account, Action, Step
from queue_core.errors import CoreError
from queue_core.message.message import Message
from queue_core.policies.policy import Policy
from queue_core.queues.spec import QueueSpec
from queue_core.routing.bindings import Binding
from queue_core.routing.exchanges import ExchangeKind, ExchangeSpec
from queue_core.sessions.session import SessionState
from queue_core.sessions.subscription import Subscription
from queue_core.sessions.wills import Will
from queue_core.store.adoption import adopt
from queue_core.store.nodes.locks import NODE_LOCKS
from queue_core.store.tables.definitions_import import DefinitionsImports, ImportRecord
from queue_core.store.tables.parameters import Parameters
from queue_core.store.tables.policies import Policies
from queue_core.store.tables.retained import RetainedTable
from queue_core.store.tables.sessions import SessionTables
from queue_core.store.tables.users import StoredRoll, Users
from queue_core.store.tables.vhosts import Vhosts
from queue_core.store.tables.wills import WillTable
from queue_core.store.upkeep.consumer_status import ConsumerNotes
from queue_core.store.write.fence import fenced_on_pool
from tests.support.managers import House
from tests.support.until import until

STORE: Final = Path(__file__).parents[2] / "queue_core" / "store"
GONE: Final = "UPDATE howdah.node SET state = 'gone', gone_at = now(), gone_because = 'a test'"
LOCK_NODES: Final = f"SELECT pg_advisory_xact_lock({NODE_LOCKS}, id) FROM howdah.node"
WAITS: Final = """
    SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
    WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted)
"""
TABLES: Final = """
    SELECT c.relname FROM pg_class c
    WHERE c.relnamespace = 'howdah'::regnamespace AND c.relkind IN ('r', 'p')
      AND NOT c.relispartition AND c.relname NOT IN ('node', 'commit_mark') ORDER BY 1
"""

MARKS: Final = "SELECT max(number) FROM howdah.commit_mark"
FIRST_SESSION: Final = 1
Statement = Callable[[House], Awaitable[Any]]


def users(house: House) -> Users:
    return Users(house.manager._database.engine)


def sessions(house: House) -> SessionTables:
    return SessionTables(house.manager._database.engine)


def wills(house: House) -> WillTable:
    return WillTable(house.manager._database.engine, house.manager._database.forms)


def vhosts(house: House) -> Vhosts:
    return Vhosts(house.manager._database.engine)


def policies(house: House) -> Policies:
    return Policies(house.manager._database.engine)


def parameters(house: House) -> Parameters:
    return Parameters(house.manager._database.engine)


def imports(house: House) -> DefinitionsImports:
    return DefinitionsImports(house.manager._database.engine)


def state(client_id: str) -> SessionState:
    return SessionState(("/", client_id), None, "MQTT 5", 3600)


def will() -> Will:
    return Will(0.0, False, 0, None, Message(b"x", "amq.topic", routing_key="t"))


def on_pool(work: Callable[[House, Any], Awaitable[Any]]) -> Statement:
    """The statement on a session of the pool for reading and upkeep."""

    async def run(house: House) -> None:
        async with house.manager._database.pool.acquire() as connection:
            await work(house, connection)

    return run


def upkeep(name: str, *arguments: object, **options: object) -> Statement:
    async def work(house: House, connection: Any) -> None:
        await getattr(house.manager._background.maintenance, name)(
            connection, *arguments, **options
        )

    return on_pool(work)


def consumers(name: str) -> Statement:
    async def work(house: House, connection: Any) -> None:
        database = house.manager._database
        fence = database.owner.fence
        notes = ConsumerNotes(database.queues.queues, lambda: fence, database.clock)
        notes._is_begun = name == "note"
        await getattr(notes, name)(connection)

    return on_pool(work)


async def put_off(house: House, connection: Any) -> None:
    segment = next(iter(house.manager._database.book.segments.values()))
    maintenance = house.manager._background.maintenance
    await maintenance._put_off(connection, segment, is_needed=False)


async def drop(house: House, connection: Any) -> None:
    segment = next(iter(house.manager._database.book.segments.values()))
    await house.manager._background.maintenance._drop(connection, segment, [], {})


async def note_torn(house: House, connection: Any) -> None:
    queues = house.manager._database.queues
    await queues._note_torn(connection, await house.manager.vhost("/"), SPEC, 1, (0, 5))


async def adopt_shards(house: House, connection: Any) -> None:
    await adopt(connection, house.manager.writer.fence)


async def drop_generation(house: House, connection: Any) -> None:
    await house.manager._background.maintenance._drop_generations(connection)


async def note_activity(house: House, connection: Any) -> None:
    house.manager._background.maintenance._activity = {}
    await house.manager._background.maintenance._note_activity(connection)


async def forget_activity(house: House, connection: Any) -> None:
    house.manager._background.maintenance._activity = None
    await house.manager._background.maintenance._note_activity(connection)


async def run_command(house: House, connection: Any) -> None:
    commands = house.manager._background.commands
    commands._unsaid[1] = ({}, None)
    await commands.run(connection, {"id": 1})  # type: ignore[arg-type]


async def forget_commands(house: House, connection: Any) -> None:
    await house.manager._background.commands.forget(connection)


EXCHANGE: Final = ExchangeSpec("new", ExchangeKind.FANOUT)
BINDING: Binding[Any] = Binding("amq.topic", SimpleNamespace(name="q"), "a.b")
SPEC: Final = QueueSpec.parse("new", {})
POLICY: Final = Policy("new", "^q", {"max-length": 5})
IMPORT: Final = ImportRecord("command", None, "0", 0, 0, [])
BOB: Final = Account(User("bob", None), {})
RIGHTS: Final = [Step(Section.USERS, "bob", None, Action.CREATE, wanted=BOB)]

# By the function that opens the transaction. Each changes something where nothing is in its way.
STATEMENTS: Final[dict[str, Statement]] = {
    "adopt": on_pool(adopt_shards),
    "Database.leave_mark": lambda house: house.manager._database.leave_mark(),
    "DefinitionStore._execute": lambda house: house.manager._database.definitions.add_vhost("new"),
    "DefinitionStore.add_exchange": lambda house: house.manager._database.definitions.add_exchange(
        "/", EXCHANGE
    ),
    "DefinitionStore.remove_exchange": lambda house: (
        house.manager._database.definitions.remove_exchange("/", "x")
    ),
    "DefinitionStore._add_queues": lambda house: house.manager._database.definitions.add_queue(
        "/", SPEC, None
    ),
    "DefinitionStore._add_bindings": lambda house: house.manager._database.definitions.add_binding(
        "/", BINDING
    ),
    "DefinitionStore._remove_queues": lambda house: (
        house.manager._database.definitions.remove_queue("/", "q")
    ),
    "SessionTables.load": lambda house: sessions(house).load(0.0),
    "SessionTables.note_limits": lambda house: sessions(house).note_limits({"x-max-length": 5}),
    "SessionTables._add_all": lambda house: sessions(house).add(state("new"), "queue", 0.0),
    "SessionTables._change_all": lambda house: sessions(house).connect(
        FIRST_SESSION, 9.0, "MQTT 5", 0.0
    ),
    "SessionTables._delete_all": lambda house: sessions(house).delete(FIRST_SESSION),
    "SessionTables._subscribe_all": lambda house: sessions(house).put_subscriptions(
        1, [Subscription("t", 1)]
    ),
    "SessionTables.delete_subscriptions": lambda house: sessions(house).delete_subscriptions(
        1, ["s"]
    ),
    "WillTable._put_all": lambda house: wills(house).put(("/", "new"), will()),
    "WillTable.set_due": lambda house: wills(house).set_due({("/", "first"): 5.0}),
    "WillTable._delete_all": lambda house: wills(house).delete(("/", "first")),
    "RetainedTable.delete_expired": lambda house: RetainedTable(
        house.manager._database.engine, house.manager._database.forms
    ).delete_expired("/", ["t"], 1e10),
    "Vhosts.add": lambda house: vhosts(house).add("new"),
    "Vhosts.remove": lambda house: vhosts(house).remove("empty"),
    "Vhosts._update": lambda house: vhosts(house).set_limit("/", "max-queues", 5),
    "Policies.put": lambda house: policies(house).put("/", POLICY),
    "Policies.remove": lambda house: policies(house).remove("/", "old"),
    "Users.put": lambda house: users(house).put("bob", None),
    "Parameters._put": lambda house: parameters(house).put("tool", "/", "new", 1),
    "Parameters._remove": lambda house: parameters(house).remove("tool", "/", "old"),
    "Users.set_limit": lambda house: users(house).set_limit("ann", "max-channels", 5),
    "Users.remove": lambda house: users(house).remove("ann"),
    "Users.grant": lambda house: users(house).grant("ann", "/", Permission("a", "b", "c")),
    "Users.remove_all": lambda house: users(house).remove_all(["ann"]),
    "Users.revoke_names": lambda house: users(house).revoke_names("ann", "/"),
    "Users.revoke_topics": lambda house: users(house).revoke_topics("ann", "/"),
    "Users.revoke": lambda house: users(house).revoke("ann", "/"),
    "StoredRoll.renew": lambda house: StoredRoll(house.manager._database.engine).renew(
        [RenewedHash("ann", "old", "new", None)]
    ),
    "DefinitionsImports.write_rights": lambda house: imports(house).write_rights(RIGHTS),
    "DefinitionsImports.note": lambda house: imports(house).note(IMPORT),
    "Maintenance.end": lambda house: house.manager._background.maintenance.end(),
    "Maintenance._note_activity": on_pool(note_activity),
    "Maintenance._note_activity, at first": on_pool(forget_activity),
    "Maintenance._note_ends": upkeep("_note_ends"),
    "Maintenance._drop_generations": on_pool(drop_generation),
    "Maintenance._drop": on_pool(drop),
    "Maintenance._put_off": on_pool(put_off),
    "QueueStore._note_torn": on_pool(note_torn),
    "ConsumerNotes.note": consumers("note"),
    "ConsumerNotes.clear": consumers("clear"),
    "ConsumerNotes._empty": consumers("_empty"),
    "Commands.run": on_pool(run_command),
    "Commands.forget": on_pool(forget_commands),
}

PREPARED: Final = """
    INSERT INTO howdah.vhost (name) VALUES ('empty');
    INSERT INTO howdah."user" (name, password_hash) VALUES ('ann', 'old');
    INSERT INTO howdah.permission (user_name, vhost, configure, write, read)
        VALUES ('ann', '/', '', '', '');
    INSERT INTO howdah.topic_permission (user_name, vhost, exchange, write, read)
        VALUES ('ann', '/', 'amq.topic', '', '');
    INSERT INTO howdah.queue_activity (queue_id, in_flight, consumers, noted_at)
        SELECT id, 7, 7, now() FROM howdah.queue;
"""


async def prepare(house: House, db: asyncpg.Connection) -> None:
    """Something that each of the statements would change."""
    await house.queue("q")
    await house.store("q", b"1", b"2")
    await house.consume("q")
    await house.flushed()
    assert await sessions(house).add(state("first"), "queue", 0.0) == FIRST_SESSION
    await sessions(house).connect(FIRST_SESSION, 5.0, "MQTT 5", 0.0)
    await sessions(house).put_subscriptions(FIRST_SESSION, [Subscription("s", 1)])
    await wills(house).put(("/", "first"), will())
    old = ExchangeSpec("x", ExchangeKind.FANOUT)
    await house.manager._database.definitions.add_exchange("/", old)
    await policies(house).put("/", Policy("old", "^x", {"max-length": 5}))
    await parameters(house).put("tool", "/", "old", 1)
    await db.execute(PREPARED)


async def contents(db: asyncpg.Connection) -> dict[str, object]:
    """Every table of the schema, in a few characters each, but for nodes and the marks that commits
    leave: a gateway leaves those by itself as well."""
    found = {}
    for row in await db.fetch(TABLES):
        text = f"SELECT md5(string_agg(t::text, ',' ORDER BY t::text)) FROM howdah.{row[0]} t"
        found[row[0]] = await db.fetchval(text.replace("howdah.user ", 'howdah."user" '))
    return found


@pytest.mark.parametrize("name", STATEMENTS)
async def test_a_node_that_is_fenced_between_connect_and_execute_writes_nothing(
    house: House, db: asyncpg.Connection, name: str
) -> None:
    await prepare(house, db)
    await house.let_node_lock_go()
    before = await contents(db)
    async with db.transaction():
        await db.execute(LOCK_NODES)
        task = asyncio.ensure_future(STATEMENTS[name](house))

        async def has_come() -> bool:
            return task.done() or bool(await db.fetchval(WAITS))

        await until(has_come, f"{name} has its connection, and waits at the fence")
        assert not task.done(), f"{name} did not look at the fence"
        await db.execute(GONE)
    with pytest.raises((CoreError, asyncpg.PostgresError), match="another gateway has taken over"):
        await task
    assert await contents(db) == before
    await house.crash()


# The guard: a database that takes no write of a session without its node's lock.
GUARD: Final = f"""
    CREATE FUNCTION public.require_fence() RETURNS trigger LANGUAGE plpgsql AS $body$
    BEGIN
        IF current_setting('application_name') LIKE 'howdah gateway%' AND NOT EXISTS (
            SELECT FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'
            AND classid = {NODE_LOCKS} AND granted)
        THEN RAISE EXCEPTION '% of % without the fence', tg_op, tg_table_name; END IF;
        RETURN NULL;
    END $body$;
    CREATE FUNCTION public.require_fence_of_ddl() RETURNS event_trigger LANGUAGE plpgsql AS $body$
    BEGIN
        IF current_setting('application_name') LIKE 'howdah gateway%' AND NOT EXISTS (
            SELECT FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'
            AND classid = {NODE_LOCKS} AND granted)
        THEN RAISE EXCEPTION '% without the fence', tg_tag; END IF;
    END $body$;
    CREATE EVENT TRIGGER fence_ddl ON ddl_command_start
        EXECUTE FUNCTION public.require_fence_of_ddl();
"""


async def guard(db: asyncpg.Connection) -> None:
    await db.execute(GUARD)
    for row in await db.fetch(TABLES):
        await db.execute(
            f'CREATE TRIGGER fence AFTER INSERT OR UPDATE OR DELETE ON howdah."{row[0]}" '
            "FOR EACH STATEMENT EXECUTE FUNCTION public.require_fence()"
        )


@pytest.mark.parametrize("name", STATEMENTS)
async def test_no_statement_writes_without_having_passed_the_fence(
    house: House, db: asyncpg.Connection, name: str
) -> None:
    await prepare(house, db)
    if name == "Maintenance._drop_generations":
        await house.manager.writer._rotate()
    await guard(db)
    before = await contents(db)
    await STATEMENTS[name](house)
    assert name in UNCHANGING or await contents(db) != before, f"{name} was to change something"


# A mark alone, tables that were empty before, and what is too young to be deleted.
UNCHANGING: Final = {
    "Database.leave_mark",
    "ConsumerNotes.clear",
    "ConsumerNotes._empty",
    "SessionTables.note_limits",
    "RetainedTable.delete_expired",
    "Commands.run",
    "Commands.forget",
    "adopt",  # the shards are its own already
}


async def test_the_guard_of_these_tests_refuses_a_write_without_the_fence(
    house: House, db: asyncpg.Connection
) -> None:
    await guard(db)
    async with house.manager._database.pool.acquire() as connection:
        with pytest.raises(asyncpg.RaiseError, match="INSERT of vhost without the fence"):
            await connection.execute("INSERT INTO howdah.vhost (name) VALUES ('x')")
        with pytest.raises(asyncpg.RaiseError, match="CREATE TABLE without the fence"):
            await connection.execute("CREATE TEMPORARY TABLE x ()")


@pytest.mark.parametrize(("said", "marks"), [("NOTICE", 1), ("WARNING", 2)])
async def test_a_commit_of_the_pool_that_came_with_a_warning_is_proven_by_another_mark(
    house: House, db: asyncpg.Connection, said: str, marks: int
) -> None:
    """The wait for a synchronous standby was cancelled, perhaps: nothing else tells of that."""
    fence = house.manager.writer.fence
    async with house.manager._database.pool.acquire() as connection:
        before = await db.fetchval(MARKS)
        async with fenced_on_pool(connection, fence.begin()):
            await connection.execute(f"DO 'BEGIN RAISE {said} ''a test''; END'")
        assert await db.fetchval(MARKS) == before + marks
        assert await db.fetchval(MARKS) == fence.marks.number


# --- the source


def functions(path: Path) -> Iterator[tuple[str, ast.AsyncFunctionDef]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.AsyncFunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, ast.AsyncFunctionDef):
                    yield f"{node.name}.{each.name}", each


OPENING: Final = ("transaction", "fenced", "fenced_on_pool", "begin", "_changing")


def opens(function: ast.AST) -> bool:
    """Tells if a function opens a transaction, or passes the fence in a statement that is one."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in OPENING:
                return True
        elif isinstance(node, ast.AsyncWith):
            called = [
                i.context_expr.func for i in node.items if isinstance(i.context_expr, ast.Call)
            ]
            names = [each.attr for each in called if isinstance(each, ast.Attribute)]
            if "transaction" in names or "begin" in names:
                return True
        elif isinstance(node, ast.Starred) and ast.unparse(node).endswith(".arguments"):
            return True
    return False


WRITERS_OWN: Final = {"write", "lost_commits", "nodes", "operator", "read"}


def cold_modules() -> Iterator[Path]:
    for path in sorted(STORE.rglob("*.py")):
        if path.relative_to(STORE).parts[0] not in WRITERS_OWN:
            yield path


# Transactions that only read, those by which a node becomes a member (nobody could fence it
# before), and the two that open a transaction behind the fence for all others.
NOT_COLD: Final = {
    "outbox.Outbox.drain",
    "queue_store.QueueStore._restore_priorities",
    "queue_store.QueueStore._restore_keys",
    "pooler_check.require_session",
    "pooler_check._pid",
    "ownership._take",
    "table_transactions.transaction",
    "table_transactions.begin",
    "table_transactions._prove",
    "users._changing",
}


def test_every_transaction_of_a_cold_session_is_fenced_in_these_tests() -> None:
    found = {
        f"{path.stem}.{name}"
        for path in cold_modules()
        for name, function in functions(path)
        if opens(function)
    }
    assert {name.partition(".")[2] for name in found - NOT_COLD} == {
        name.partition(",")[0] for name in STATEMENTS
    }
    assert found >= NOT_COLD


# --- statements that change something, wherever they stand

CHANGES: Final = re.compile(
    r"\b(INSERT\s+INTO|UPDATE\s+howdah|DELETE\s+FROM|TRUNCATE"
    r"|(CREATE|DROP|ALTER)\s+(UNLOGGED\s+)?(TABLE|INDEX|SEQUENCE))\b"
)


def words(node: ast.AST) -> str:
    """All texts in it, but for those that stand alone: they explain."""
    alone = {id(each.value) for each in ast.walk(node) if isinstance(each, ast.Expr)}
    texts = (each for each in ast.walk(node) if isinstance(each, ast.Constant))
    return " ".join(str(each.value) for each in texts if id(each) not in alone)


class Source:
    """The modules of the store: which function uses which text or function of which module."""

    def __init__(self) -> None:
        self.functions: dict[str, ast.AsyncFunctionDef] = {}
        self.texts: set[str] = set()  # that change something
        self._imported: dict[str, dict[str, str]] = {}
        for path in sorted(STORE.rglob("*.py")):
            self._read(".".join(("queue_core.store", *path.relative_to(STORE).parts))[:-3], path)

    def _read(self, module: str, path: Path) -> None:
        imported = self._imported[module] = {}
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                imported |= {each.name: f"{node.module}:{each.name}" for each in node.names}
        for statement in tree.body:
            if isinstance(statement, ast.AnnAssign | ast.Assign) and CHANGES.search(
                words(statement)
            ):
                target = statement.targets[0] if isinstance(statement, ast.Assign) else None
                name = ast.unparse(target or statement.target)  # type: ignore[union-attr]
                self.texts.add(f"{module}:{name}")
        self.functions |= {f"{module}:{name}": each for name, each in functions(path)}

    def used_by(self, function: str) -> Iterator[str]:
        """Names of the store's texts and functions, each behind its module."""
        module, _, name = function.partition(":")
        owner = name.rpartition(".")[0]
        imported = self._imported[module]
        for node in ast.walk(self.functions[function]):
            if isinstance(node, ast.Name):
                yield imported.get(node.id, f"{module}:{node.id}")
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if node.value.id == "self":
                    yield f"{module}:{owner}.{node.attr}"
                elif node.value.id in imported:  # a module
                    yield imported[node.value.id].replace(":", ".") + f":{node.attr}"

    def without_the_fence(self) -> set[str]:
        """Functions that change something, themselves or by functions that they call, in no
        transaction that one of these opens."""
        opening = {name for name, each in self.functions.items() if opens(each)}
        found = {
            name
            for name, each in self.functions.items()
            if name not in opening and CHANGES.search(words(each))
        }
        uses = {name: set(self.used_by(name)) for name in self.functions.keys() - opening}
        while more := {n for n, used in uses.items() if used & (found | self.texts)} - found:
            found |= more
        return found


# On the writer's session, which holds its node's lock for life, or before anybody could fence the
# node; or called within a fenced transaction, which the tests above show.
BEHIND_ANOTHERS_FENCE: Final = {
    "background_work.BackgroundWork._on_return",
    "drop_segments.Maintenance._carry",
    "ownership.Owner.leave",
    "ownership._enter",
    "shards.take_all",
}


def test_every_cold_statement_that_changes_something_is_behind_the_fence() -> None:
    cold = {path.stem for path in cold_modules()}
    found = {
        f"{module.rpartition('.')[2]}.{name}"
        for module, _, name in (each.partition(":") for each in Source().without_the_fence())
        if module.rpartition(".")[2] in cold
    }
    assert found == BEHIND_ANOTHERS_FENCE


def test_a_transaction_that_does_not_pass_the_fence_says_that_it_reads() -> None:
    """Of those that only read, the database itself refuses a write, or they are cursors."""
    drain = dict(functions(STORE / "requests" / "outbox.py"))["Outbox.drain"]
    assert "readonly=True" in ast.unparse(drain)
