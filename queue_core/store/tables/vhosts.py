"""The table of virtual hosts: changed by operators, noticed by a running gateway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import delete, func, not_, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from queue_core.errors import InvalidArgument, NameReserved, QueueNotEmpty, VhostNotFound
from queue_core.policies.policy_set import QUEUE_TYPES
from queue_core.policies.vhost_settings import VhostSettings
from queue_core.queues.reserved_names import MEMORY_PREFIXES
from queue_core.queues.spec import is_storable
from queue_core.store.schema import queue, vhost
from queue_core.store.tables.limits import checked_limit
from queue_core.store.tables.table_transactions import reading, transaction

LONGEST_NAME: Final = 255  # bytes: what AMQP 0.9.1 can say
DEFAULT: Final = "/"


@dataclass(frozen=True, slots=True)
class VhostView:
    name: str
    created_at: datetime
    queues: int  # durable ones, those of sessions among them
    description: str
    tags: list[str]
    default_queue_type: str | None
    metadata: dict[str, Any]
    max_connections: int | None
    max_queues: int | None


@dataclass(frozen=True, slots=True)
class VhostDescription:
    """Changes of what is said of a virtual host; None: it stays as it is."""

    description: str | None = None
    tags: Sequence[str] | None = None
    default_queue_type: str | None = None
    metadata: Mapping[str, Any] | None = None

    def values(self) -> dict[str, Any]:
        """Gives the columns that change. Raises InvalidArgument."""
        if self.default_queue_type not in (None, *QUEUE_TYPES):
            raise InvalidArgument(
                f"default queue type '{self.default_queue_type}' is unknown; use one of "
                f"{', '.join(QUEUE_TYPES)}"
            )
        given = {
            "description": self.description,
            "tags": None if self.tags is None else list(self.tags),
            "default_queue_type": self.default_queue_type,
            "metadata": None if self.metadata is None else dict(self.metadata),
        }
        return {name: value for name, value in given.items() if value is not None}


# The limits of a virtual host, as RabbitMQ names them, and their columns.
LIMITS: Final = {"max-connections": vhost.c.max_connections, "max-queues": vhost.c.max_queues}


class Vhosts:
    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def settings(self) -> dict[str, VhostSettings]:
        """Reads the names of all virtual hosts, and what the gateway goes by in each."""
        said = (vhost.c.description, vhost.c.tags, vhost.c.metadata)
        columns = (vhost.c.default_queue_type, *LIMITS.values(), *said)
        async with reading(self._engine) as connection:
            rows = await connection.execute(select(vhost.c.name, *columns))
            return {name: VhostSettings(*settings) for name, *settings in rows}

    async def all(self) -> list[VhostView]:
        count = select(func.count()).where(queue.c.vhost == vhost.c.name).scalar_subquery()
        said = (vhost.c.description, vhost.c.tags, vhost.c.default_queue_type, vhost.c.metadata)
        columns = (vhost.c.name, vhost.c.created_at, count, *said, *LIMITS.values())
        statement = select(*columns).order_by(vhost.c.name)
        async with reading(self._engine) as connection:
            return [VhostView(*row) for row in await connection.execute(statement)]

    async def describe(self, name: str, description: VhostDescription) -> None:
        """Changes what is said of a virtual host."""
        values = description.values()
        if values:
            await self._update(name, values)

    async def set_limit(self, name: str, limit: str, value: int | None) -> None:
        """Sets a limit of a virtual host; None takes it away."""
        await self._update(name, {checked_limit(limit, LIMITS, value).name: value})

    async def _update(self, name: str, values: dict[str, Any]) -> None:
        statement = update(vhost).where(vhost.c.name == name).values(**values)
        async with transaction(self._engine) as connection:
            if not (await connection.execute(statement)).rowcount:
                raise VhostNotFound(f"no virtual host '{name}': see `howdah vhost list`")

    async def add(self, name: str, description: VhostDescription | None = None) -> bool:
        """Adds a virtual host; False if there is one of that name, which stays as it is."""
        said = {} if description is None else description.values()
        if not name or not is_storable(name) or len(name.encode()) > LONGEST_NAME:
            raise InvalidArgument(
                f"the name of a virtual host is text of 1 to {LONGEST_NAME} bytes, without NUL"
            )
        statement = insert(vhost).values(name=name, **said).on_conflict_do_nothing()
        async with transaction(self._engine) as connection:
            return (await connection.execute(statement)).rowcount == 1

    async def remove(self, name: str) -> None:
        """Removes a virtual host with its exchanges, their memories, permissions and retained
        messages; refuses one that has durable queues. Nobody can declare a queue meanwhile: that
        would wait for the row that is locked here."""
        if name == DEFAULT:
            raise NameReserved("virtual host '/' is where everybody starts, and stays")
        own = or_(*(queue.c.name.startswith(prefix, autoescape=True) for prefix in MEMORY_PREFIXES))
        held = select(func.count()).where(queue.c.vhost == name, not_(own))
        async with transaction(self._engine) as connection:
            row = select(vhost.c.name).where(vhost.c.name == name).with_for_update()
            if (await connection.execute(row)).first() is None:
                raise VhostNotFound(f"no virtual host '{name}': see `howdah vhost list`")
            count = await connection.scalar(held)
            if count:
                raise QueueNotEmpty(
                    f"virtual host '{name}' has {count} durable queues: delete them first, with "
                    f"`howdah queue list --vhost {name}` and `howdah queue delete`; those of "
                    "sessions end with their sessions"
                )
            await connection.execute(delete(vhost).where(vhost.c.name == name))
