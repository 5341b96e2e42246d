"""The table of retained messages. Values enter and leave it with the writer's transactions; here
they are read, and deleted when they have expired."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import bindparam, delete, func, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.sql.expression import any_
from sqlalchemy.types import Text

from queue_core.message.message import utc
from queue_core.sessions.retained import Kept, KeptTopic
from queue_core.store.schema import retained
from queue_core.store.tables.table_transactions import reading, transaction
from queue_core.store.write.rows import Forms, message_from_row

PAGE_ROWS: Final = 10_000  # of the index that are read at once


class RetainedTable:
    def __init__(self, engine: AsyncEngine, forms: Forms) -> None:
        self._engine = engine
        self._forms = forms

    async def topics(self) -> AsyncIterator[list[KeptTopic]]:
        # Bodies are stored as they are, so their length is known without reading them.
        size = func.coalesce(func.octet_length(retained.c.body), 0) + func.coalesce(
            func.octet_length(retained.c.native), 0
        )
        statement = select(
            retained.c.vhost, retained.c.topic, size.label("size"), retained.c.expires_at
        )
        async with reading(self._engine) as connection:
            result = await connection.stream(statement)
            async for rows in result.partitions(PAGE_ROWS):
                yield [
                    KeptTopic(row.vhost, row.topic, row.size, _seconds(row.expires_at))
                    for row in rows
                ]

    async def read(self, vhost: str, topics: Sequence[str]) -> dict[str, Kept]:
        wanted = bindparam("topics", list(topics), ARRAY(Text))
        statement = select(retained).where(
            retained.c.vhost == vhost, retained.c.topic == any_(wanted)
        )
        found: dict[str, Kept] = {}
        async with reading(self._engine) as connection:
            for row in (await connection.execute(statement)).mappings():
                message = message_from_row(dict(row), self._forms)
                message.retain = True
                found[row["topic"]] = Kept(message, row["qos"], row["retained_at"].timestamp())
        return found

    async def delete_expired(self, vhost: str, topics: Sequence[str], now: float) -> None:
        wanted = bindparam("topics", list(topics), ARRAY(Text))
        async with transaction(self._engine) as connection:
            await connection.execute(
                delete(retained).where(
                    retained.c.vhost == vhost,
                    retained.c.topic == any_(wanted),
                    retained.c.expires_at <= utc(now),
                )
            )


def _seconds(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()
