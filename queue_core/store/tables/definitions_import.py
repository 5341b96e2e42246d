"""Definitions files and the tables: what is present in them, and the rights of a plan, written in
one transaction. Exchanges, queues and bindings are the gateway's to make; see
`queue_core.definitions.topology_import`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import Table, delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queue_core.access.accounts import Permission, TopicPermission, User
from queue_core.definitions.items import Section
from queue_core.definitions.plan import Step
from queue_core.definitions.present import Present, PresentBinding, PresentVhost
from queue_core.queues.reserved_names import is_own
from queue_core.store import schema
from queue_core.store.tables.definitions import DefinitionStore
from queue_core.store.tables.table_transactions import reading, transaction
from queue_core.store.tables.users import StoredRoll

KEPT_RECORDS: Final = 1000


@dataclass(frozen=True, slots=True)
class ImportRecord:
    """One import: from where, by whom, of which file, and what became of it."""

    source: str  # start, HTTP or command
    imported_by: str | None
    sha256: str
    made: int
    changed: int
    left_out: list[str]


async def present_in_tables(engine: AsyncEngine) -> Present:
    """Reads all durable definitions."""
    found = await DefinitionStore(engine).load()
    vhosts = {name: PresentVhost() for name in found.vhosts}
    for vhost, exchange in found.exchanges:
        vhosts[vhost].exchanges[exchange.name] = exchange
    for queue in found.queues:
        if not is_own(queue.spec.name):
            vhosts[queue.vhost].queues[queue.spec.name] = queue.spec
    for each in found.bindings:
        ends = (each.source, each.destination_kind, each.destination, each.key)
        vhosts[each.vhost].bindings[PresentBinding(*ends, each.arguments)] = None
    return Present(await StoredRoll(engine).read(), vhosts)


class DefinitionsImports:
    """Writes the rights of imports, and keeps a record of them."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def write_rights(self, steps: Iterable[Step]) -> None:
        """Writes the users, virtual hosts and permissions that a plan makes or changes, all of them
        or none."""
        made = [step for step in steps if step.is_made]
        async with transaction(self._engine) as connection:
            await _put(connection, schema.user, ["name"], _users(made))
            await _put(connection, schema.vhost, ["name"], _vhosts(made))
            permissions = _permissions(made, Section.PERMISSIONS)
            await _put(connection, schema.permission, ["user_name", "vhost"], permissions)
            topics = _permissions(made, Section.TOPIC_PERMISSIONS)
            keys = ["user_name", "vhost", "exchange"]
            await _put(connection, schema.topic_permission, keys, topics)

    async def note(self, record: ImportRecord) -> None:
        """Adds an import to the record, which keeps the newest."""
        table = schema.definitions_import
        statement = insert(table).values(**asdict(record)).returning(table.c.id)
        async with transaction(self._engine) as connection:
            number = (await connection.execute(statement)).scalar_one()
            await connection.execute(delete(table).where(table.c.id <= number - KEPT_RECORDS))

    async def last_digest(self, source: str) -> str | None:
        """Returns the digest of the file that was imported last from a source."""
        table = schema.definitions_import.c
        newest = select(table.sha256).where(table.source == source).order_by(table.id.desc())
        async with reading(self._engine) as connection:
            found: str | None = await connection.scalar(newest.limit(1))
        return found


async def _put(
    connection: AsyncConnection, table: Table, keys: Sequence[str], rows: list[dict[str, Any]]
) -> None:
    """Inserts rows, or updates those that are there."""
    if not rows:
        return
    statement = insert(table)
    others: dict[str, Any] = {
        name: statement.excluded[name] for name in rows[0] if name not in keys
    }
    if table is schema.user:
        others["changed_at"] = func.now()
    conflict: Any = (
        statement.on_conflict_do_update(index_elements=list(keys), set_=others)
        if others
        else statement.on_conflict_do_nothing()
    )
    await connection.execute(conflict, rows)


def _users(steps: Iterable[Step]) -> list[dict[str, Any]]:
    users = (step.wanted for step in steps if step.section is Section.USERS)
    return [
        {
            "name": user.name,
            "password_hash": user.password_hash,
            "scram_verifier": None if user.verifier is None else str(user.verifier),
            "tags": sorted(user.tags),
        }
        for user in users
        if isinstance(user, User)
    ]


def _vhosts(steps: Iterable[Step]) -> list[dict[str, Any]]:
    return [{"name": step.name} for step in steps if step.section is Section.VHOSTS]


def _permissions(steps: Iterable[Step], section: Section) -> list[dict[str, Any]]:
    return [
        {"user_name": step.name, "vhost": step.vhost, **_patterns(step)}
        for step in steps
        if step.section is section
    ]


def _patterns(step: Step) -> Mapping[str, str]:
    match step.wanted:
        case Permission(configure, write, read):
            return {"configure": configure, "write": write, "read": read}
        case TopicPermission(write, read):
            return {"exchange": step.exchange, "write": write, "read": read}
    raise AssertionError(step)
