"""Durable definitions: the tables of vhosts, exchanges, queues and bindings. They are cold: written
when they change, read when the gateway starts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.types import Text

from queue_core.errors import CoreError, InvalidArgument, NotEquivalent
from queue_core.message.json_arguments import declared, stored
from queue_core.queues.spec import QueueSpec
from queue_core.routing.bindings import Binding, ExchangeRef
from queue_core.routing.exchanges import ExchangeSpec
from queue_core.store import schema
from queue_core.store.shards import shard_of_queue
from queue_core.store.tables.gathered_transactions import Gathering
from queue_core.store.tables.table_transactions import insert_rows, transaction, unnested
from queue_core.store.tables.unanswered_changes import UnansweredChanges

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredBinding:
    id: int
    vhost: str
    source: str
    destination_kind: str
    destination: str
    key: str
    arguments: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class StoredQueue:
    id: int
    vhost: str
    spec: QueueSpec
    created_by: str | None = None
    is_paused: bool = False


@dataclass(frozen=True, slots=True)
class Definitions:
    vhosts: list[str]
    exchanges: list[tuple[str, ExchangeSpec]]
    queues: list[StoredQueue]
    bindings: list[StoredBinding]


class DefinitionStore:
    """Implements the core's `Keeper`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._adding = Gathering(self._add_queues)
        self._removing = Gathering(self._remove_queues)
        self._binding = Gathering(self._add_bindings)
        self._unanswered: UnansweredChanges[tuple[str, str, str]] = UnansweredChanges()
        self._tasks: set[asyncio.Task[object]] = set()

    def later(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            level = logging.INFO if isinstance(error, CoreError) else logging.ERROR
            log.log(level, "could not finish: %s", error)

    async def close(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _execute(self, statement: Any) -> Any:
        async with transaction(self._engine) as connection:
            return await connection.execute(statement)

    # --- changes

    async def add_vhost(self, name: str) -> None:
        await self._execute(upsert(schema.vhost).values(name=name).on_conflict_do_nothing())

    async def add_exchange(self, vhost: str, spec: ExchangeSpec) -> None:
        """Stores a new exchange. Raises NotEquivalent if there is one that this gateway did not
        store."""
        key = ("exchange", vhost, spec.name)
        is_own = key in self._unanswered
        statement = upsert(schema.exchange).values(
            vhost=vhost,
            name=spec.name,
            kind=spec.kind.value,
            auto_delete=spec.auto_delete,
            internal=spec.internal,
            arguments=stored(spec.arguments),
        )
        with self._unanswered.of(key):
            async with transaction(self._engine) as connection:
                if is_own:
                    await _delete_exchange(connection, vhost, spec.name)
                result = await connection.execute(statement.on_conflict_do_nothing())
                if not result.rowcount:
                    raise _taken("exchange", vhost, spec.name)

    async def remove_exchange(self, vhost: str, name: str) -> None:
        with self._unanswered.of(("exchange", vhost, name)):
            async with transaction(self._engine) as connection:
                await _delete_exchange(connection, vhost, name)

    async def add_queue(self, vhost: str, spec: QueueSpec, created_by: str | None) -> int:
        """Stores a new queue, and returns its id. Raises NotEquivalent if there is one that this
        gateway did not store."""
        row: dict[str, object] = {
            "vhost": vhost,
            "name": spec.name,
            "kind": spec.kind.value,
            "arguments": stored(spec.arguments),
            "created_by": created_by,
            "shard": shard_of_queue(vhost, spec.name),
        }
        with self._unanswered.of(("queue", vhost, spec.name)):
            queue_id = await self._adding.add(row)
            if queue_id is None:
                raise _taken("queue", vhost, spec.name)
            return queue_id

    async def _add_queues(self, rows: list[dict[str, object]]) -> list[int | None]:
        """Stores queues; None: there is a row that is not this gateway's to replace."""
        table = schema.queue.c
        names = [(str(row["vhost"]), str(row["name"])) for row in rows]
        own = [name for name in names if ("queue", *name) in self._unanswered]
        statement = insert_rows(schema.queue, rows).on_conflict_do_nothing()
        async with transaction(self._engine) as connection:
            if own:
                await _delete_queues(connection, own)
            result = await connection.execute(
                statement.returning(table.id, table.vhost, table.name)
            )
            ids = {(row.vhost, row.name): int(row.id) for row in result}
        return [ids.get(name) for name in names]

    async def remove_queue(self, vhost: str, name: str) -> None:
        await self._removing.add((vhost, name))

    async def _remove_queues(self, keys: list[tuple[str, str]]) -> list[None]:
        async with transaction(self._engine) as connection:
            await _delete_queues(connection, keys)
        return [None] * len(keys)

    async def set_paused(self, vhost: str, queue: str, *, is_paused: bool) -> None:
        table = schema.queue
        since = func.coalesce(table.c.paused_at, func.now()) if is_paused else None
        where = (table.c.vhost == vhost, table.c.name == queue)
        await self._execute(update(table).where(*where).values(paused_at=since))

    async def add_binding(self, vhost: str, binding: Binding[Any]) -> None:
        arguments = stored(binding.arguments or {})
        row: dict[str, object] = {"vhost": vhost, "arguments": arguments, **_ends(binding)}
        adding = asyncio.ensure_future(self._binding.add(row))
        try:
            await asyncio.shield(adding)
        except asyncio.CancelledError:
            await asyncio.wait((adding,))  # its row goes with others', and nobody is told of it
            if adding.exception() is None:
                await self.remove_binding(vhost, binding)
            raise

    async def _add_bindings(self, rows: list[dict[str, object]]) -> list[None]:
        async with transaction(self._engine) as connection:
            await connection.execute(insert_rows(schema.binding, rows).on_conflict_do_nothing())
        return [None] * len(rows)

    async def remove_binding(self, vhost: str, binding: Binding[Any]) -> None:
        table = schema.binding
        same = [table.c[name] == value for name, value in _ends(binding).items()]
        arguments = stored(binding.arguments or {})
        await self._execute(
            delete(table).where(table.c.vhost == vhost, table.c.arguments == arguments, *same)
        )

    # --- all of it, at start

    async def load(self) -> Definitions:
        async with self._engine.connect() as connection:
            vhosts = await connection.execute(select(schema.vhost.c.name))
            exchanges = await connection.execute(select(schema.exchange))
            queues = await connection.execute(select(schema.queue).order_by(schema.queue.c.id))
            bindings = await connection.execute(
                select(schema.binding).order_by(schema.binding.c.id)
            )
        return Definitions(
            [row.name for row in vhosts],
            [(row.vhost, _exchange(row)) for row in exchanges],
            [_stored_queue(row) for row in queues],
            [
                StoredBinding(
                    row.id,
                    row.vhost,
                    row.source,
                    row.destination_kind,
                    row.destination,
                    row.routing_key,
                    declared(row.arguments),
                )
                for row in bindings
            ],
        )


async def _delete_exchange(connection: AsyncConnection, vhost: str, name: str) -> None:
    """Deletes an exchange with its bindings."""
    bound, table = schema.binding.c, schema.exchange
    leads_here = (bound.destination_kind == "exchange") & (bound.destination == name)
    await connection.execute(
        delete(schema.binding).where(bound.vhost == vhost, (bound.source == name) | leads_here)
    )
    await connection.execute(delete(table).where(table.c.vhost == vhost, table.c.name == name))


async def _delete_queues(connection: AsyncConnection, keys: Sequence[tuple[str, str]]) -> None:
    """Deletes queues with their bindings."""
    vhosts, names = zip(*keys, strict=True)
    gone = unnested(vhost=(vhosts, Text), name=(names, Text))
    bound, table = schema.binding.c, schema.queue.c
    await connection.execute(
        delete(schema.binding).where(
            bound.vhost == gone.c.vhost,
            bound.destination_kind == "queue",
            bound.destination == gone.c.name,
        )
    )
    await connection.execute(
        delete(schema.queue).where(table.vhost == gone.c.vhost, table.name == gone.c.name)
    )


def _taken(kind: str, vhost: str, name: str) -> NotEquivalent:
    return NotEquivalent(
        f"{kind} '{name}' of virtual host '{vhost}' is in howdah.{kind} already, and this gateway "
        "did not write that row: another gateway or a person did. Start this gateway again, so "
        "that it takes it over, or delete the row"
    )


def _stored_queue(row: Any) -> StoredQueue:
    is_paused = row.paused_at is not None
    return StoredQueue(row.id, row.vhost, _queue(row), row.created_by, is_paused)


def _queue(row: Any) -> QueueSpec:
    """Reads a queue's spec from its row. Raises InvalidArgument, with the way out, for a row that
    was changed by hand and cannot be used."""
    try:
        spec = QueueSpec.parse(row.name, declared(row.arguments))
    except CoreError as error:
        raise InvalidArgument(
            f"howdah.queue has a row that was changed by hand, and cannot be used: {error}. Way "
            f"out: UPDATE howdah.queue SET arguments = ... WHERE id = {row.id}"
        ) from error
    if spec.kind.value != row.kind:
        log.error(
            "queue '%s' is a %s by its arguments, which count, and a %s by the column kind, which "
            "the views look at: somebody changed howdah.queue by hand (id %d)",
            *(row.name, spec.kind, row.kind, row.id),
        )
    return spec


def _exchange(row: Any) -> ExchangeSpec:
    try:
        return ExchangeSpec.parse(
            row.name,
            row.kind,
            declared(row.arguments),
            auto_delete=row.auto_delete,
            internal=row.internal,
        )
    except CoreError as error:
        raise InvalidArgument(
            f"howdah.exchange has a row that was changed by hand, and cannot be used: {error}. Way "
            f"out: put the row '{row.name}' of virtual host '{row.vhost}' right"
        ) from error


def _ends(binding: Binding[Any]) -> dict[str, str]:
    destination = binding.destination
    is_exchange = isinstance(destination, ExchangeRef)
    return {
        "source": binding.source,
        "destination_kind": "exchange" if is_exchange else "queue",
        "destination": destination.name,
        "routing_key": binding.key,
    }
