"""Definitions files and the tables: what is present in them, and what a plan sets (users, virtual
hosts, permissions, policies, parameters), written in one transaction. Exchanges, queues and
bindings are the gateway's to make; see
`queue_core.definitions.topology_import`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import Executable, Row, Table, delete, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queue_core.access.accounts import Permission, TopicPermission
from queue_core.definitions.items import Section
from queue_core.definitions.plan import Account, Step, Value, VhostLimits
from queue_core.definitions.present import (
    KeptSettings,
    Present,
    PresentBinding,
    PresentVhost,
    VhostFacts,
)
from queue_core.policies.policy import ApplyTo, Policy
from queue_core.queues.reserved_names import is_own
from queue_core.store import schema
from queue_core.store.tables.definitions import DefinitionStore
from queue_core.store.tables.table_transactions import reading, transaction
from queue_core.store.tables.users import StoredRoll

KEPT_RECORDS: Final = 1000
USER_LIMITS: Final = {"max-connections": "max_connections", "max-channels": "max_channels"}
VHOST_LIMITS: Final = {"max-connections": "max_connections", "max-queues": "max_queues"}


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
    settings = await DefinitionsImports(engine).settings()
    return Present(await StoredRoll(engine).read(), vhosts, settings)


class DefinitionsImports:
    """Writes the rights of imports, and keeps a record of them."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def settings(self) -> KeptSettings:
        """Reads facts of virtual hosts, limits, policies and parameters, as of one moment."""
        async with reading(self._engine) as connection:
            await connection.execution_options(isolation_level="REPEATABLE READ")
            return await _settings(connection)

    async def write_rights(self, steps: Iterable[Step]) -> None:
        """Writes all that a plan makes or changes and that is no queue, exchange or binding: users,
        virtual hosts, permissions, policies and parameters, all of them or none."""
        made = [step for step in steps if step.is_made]
        async with transaction(self._engine) as connection:
            for table, keys, rows in (
                (schema.user, ["name"], _users(made)),
                (schema.vhost, ["name"], _vhosts(made)),
                (schema.permission, ["user_name", "vhost"], _permissions(made)),
                (
                    schema.topic_permission,
                    ["user_name", "vhost", "exchange"],
                    _topic_permissions(made),
                ),
                (schema.policy, ["vhost", "name", "is_operator"], _policies(made)),
                (schema.parameter, ["component", "vhost", "name"], _parameters(made)),
                (schema.global_parameter, ["name"], _global_parameters(made)),
            ):
                await _put(connection, table, keys, rows)
            for statement in _limits(made):
                await connection.execute(statement)

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
    if "changed_at" in table.columns:
        others["changed_at"] = func.now()
    conflict: Any = (
        statement.on_conflict_do_update(index_elements=list(keys), set_=others)
        if others
        else statement.on_conflict_do_nothing()
    )
    await connection.execute(conflict, rows)


def _users(steps: Iterable[Step]) -> list[dict[str, Any]]:
    accounts = [step.wanted for step in steps if isinstance(step.wanted, Account)]
    return [
        {
            "name": account.user.name,
            "password_hash": account.user.password_hash,
            "scram_verifier": account.user.verifier and str(account.user.verifier),
            "tags": sorted(account.user.tags),
            **{column: account.limits.get(limit) for limit, column in USER_LIMITS.items()},
        }
        for account in accounts
    ]


def _vhosts(steps: Iterable[Step]) -> list[dict[str, Any]]:
    return [
        {
            "name": step.name,
            "description": step.wanted.description,
            "tags": list(step.wanted.tags),
            "default_queue_type": step.wanted.default_queue_type,
            "metadata": dict(step.wanted.metadata),
            **{column: step.wanted.limits.get(limit) for limit, column in VHOST_LIMITS.items()},
        }
        for step in steps
        if isinstance(step.wanted, VhostFacts)
    ]


def _limits(steps: Iterable[Step]) -> list[Executable]:
    """Makes the statements for limits that a file has among its parameters."""
    return [
        update(schema.vhost)
        .where(schema.vhost.c.name == step.vhost)
        .values({column: step.wanted.limits.get(name) for name, column in VHOST_LIMITS.items()})
        for step in steps
        if isinstance(step.wanted, VhostLimits)
    ]


def _permissions(steps: Iterable[Step]) -> list[dict[str, Any]]:
    return [
        {"user_name": step.name, "vhost": step.vhost, **asdict(step.wanted)}
        for step in steps
        if isinstance(step.wanted, Permission)
    ]


def _topic_permissions(steps: Iterable[Step]) -> list[dict[str, Any]]:
    return [
        {
            "user_name": step.name,
            "vhost": step.vhost,
            "exchange": step.exchange,
            **asdict(step.wanted),
        }
        for step in steps
        if isinstance(step.wanted, TopicPermission)
    ]


def _policies(steps: Iterable[Step]) -> list[dict[str, Any]]:
    return [
        {
            "vhost": step.vhost,
            "name": step.wanted.name,
            "is_operator": step.wanted.is_operator,
            "pattern": step.wanted.pattern,
            "apply_to": step.wanted.apply_to.value,
            "priority": step.wanted.priority,
            "definition": dict(step.wanted.definition),
        }
        for step in steps
        if isinstance(step.wanted, Policy)
    ]


def _parameters(steps: Iterable[Step]) -> list[dict[str, Any]]:
    return [
        {
            "component": step.wanted.component,
            "vhost": step.vhost,
            "name": step.name.removeprefix(f"{step.wanted.component}/"),
            "value": step.wanted.value,
        }
        for step in steps
        if step.section is Section.PARAMETERS and isinstance(step.wanted, Value)
    ]


def _global_parameters(steps: Iterable[Step]) -> list[dict[str, Any]]:
    return [
        {"name": step.name, "value": step.wanted.value}
        for step in steps
        if step.section is Section.GLOBAL_PARAMETERS and isinstance(step.wanted, Value)
    ]


async def _settings(connection: AsyncConnection) -> KeptSettings:
    vhosts = await connection.execute(select(schema.vhost))
    users = await connection.execute(select(schema.user))
    policies = await connection.execute(select(schema.policy))
    parameters = await connection.execute(select(schema.parameter))
    global_parameters = await connection.execute(select(schema.global_parameter))
    return KeptSettings(
        {row.name: _facts(row) for row in vhosts},
        {row.name: limits for row in users if (limits := _limits_in(row, USER_LIMITS))},
        {(row.vhost, row.name, row.is_operator): _policy(row) for row in policies},
        {(row.vhost, row.component, row.name): row.value for row in parameters},
        {row.name: row.value for row in global_parameters},
    )


def _facts(row: Row[Any]) -> VhostFacts:
    limits = _limits_in(row, VHOST_LIMITS)
    return VhostFacts(
        row.description, tuple(row.tags), row.default_queue_type, row.metadata, limits
    )


def _limits_in(row: Row[Any], columns: Mapping[str, str]) -> dict[str, int]:
    found = {limit: getattr(row, column) for limit, column in columns.items()}
    return {limit: value for limit, value in found.items() if value is not None and value >= 0}


def _policy(row: Row[Any]) -> Policy:
    """Reads a row as it is: what somebody wrote by hand is exported, whether or not it acts."""
    names = (row.name, row.pattern, row.definition)
    return Policy(*names, ApplyTo(row.apply_to), row.priority, row.is_operator)
