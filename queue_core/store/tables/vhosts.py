"""The table of virtual hosts: changed by operators, noticed by a running gateway."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import delete, func, not_, or_, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from queue_core.errors import InvalidArgument, NameReserved, QueueNotEmpty, VhostNotFound
from queue_core.queues.reserved_names import MEMORY_PREFIXES
from queue_core.queues.spec import is_storable
from queue_core.store.schema import queue, vhost
from queue_core.store.tables.table_transactions import reading, transaction

LONGEST_NAME: Final = 255  # bytes: what AMQP 0.9.1 can say
DEFAULT: Final = "/"


@dataclass(frozen=True, slots=True)
class VhostView:
    name: str
    created_at: datetime
    queues: int  # durable ones, those of sessions among them


class Vhosts:
    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def names(self) -> set[str]:
        async with reading(self._engine) as connection:
            return set(await connection.scalars(select(vhost.c.name)))

    async def all(self) -> list[VhostView]:
        count = select(func.count()).where(queue.c.vhost == vhost.c.name).scalar_subquery()
        statement = select(vhost.c.name, vhost.c.created_at, count).order_by(vhost.c.name)
        async with reading(self._engine) as connection:
            return [VhostView(*row) for row in await connection.execute(statement)]

    async def add(self, name: str) -> bool:
        """Adds a virtual host; False if there is one of that name."""
        if not name or not is_storable(name) or len(name.encode()) > LONGEST_NAME:
            raise InvalidArgument(
                f"the name of a virtual host is text of 1 to {LONGEST_NAME} bytes, without NUL"
            )
        statement = insert(vhost).values(name=name).on_conflict_do_nothing()
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
