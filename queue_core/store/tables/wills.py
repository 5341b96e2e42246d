"""The table of MQTT wills. A row is written before its client is told that it is connected; it is
deleted in the writer's transaction that publishes it, or here when the client takes it back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from math import ceil
from typing import Any

from sqlalchemy import case, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.types import Text

from queue_core.access.accounts import ANONYMOUS_NAME
from queue_core.access.auth import Identity
from queue_core.errors import InvalidArgument
from queue_core.message.message import Message, utc
from queue_core.sessions.session import ClientKey, given_id
from queue_core.sessions.wills import Will
from queue_core.store.schema import Timestamp, will
from queue_core.store.shards import shard_of_session
from queue_core.store.tables.gathered_transactions import Gathering
from queue_core.store.tables.table_transactions import insert_rows, reading, transaction, unnested
from queue_core.store.write.rows import Forms, content_values, message_from_row


class WillTable:
    def __init__(self, engine: AsyncEngine, forms: Forms) -> None:
        self._engine = engine
        self._forms = forms
        self._putting = Gathering(self._put_all)
        self._deleting = Gathering(self._delete_all)

    async def put(self, key: ClientKey, each: Will) -> None:
        try:
            values = _values(key, each)
        except Exception as error:  # whatever its properties do
            raise InvalidArgument(
                f"the will cannot be stored: {error}; leave out numbers and times out of range, "
                "and what is nested too deep"
            ) from error
        await self._putting.add(values)

    async def _put_all(self, rows: list[dict[str, object]]) -> list[None]:
        statement = insert_rows(will, rows)
        changed = {name: statement.excluded[name] for name in rows[0]}
        async with transaction(self._engine) as connection:
            await connection.execute(
                statement.on_conflict_do_update(index_elements=["vhost", "client_id"], set_=changed)
            )
        return [None] * len(rows)

    async def set_due(self, dues: Mapping[ClientKey, float]) -> None:
        given = unnested(
            **_keys(dues), due_at=([utc(due_at) for due_at in dues.values()], Timestamp)
        )
        async with transaction(self._engine) as connection:
            await connection.execute(
                update(will).where(*_is(given.c)).values(due_at=given.c.due_at)
            )

    async def delete(self, key: ClientKey) -> None:
        await self._deleting.add(key)

    async def _delete_all(self, keys: list[ClientKey]) -> list[None]:
        given = unnested(**_keys(keys))
        async with transaction(self._engine) as connection:
            await connection.execute(delete(will).where(*_is(given.c)))
        return [None] * len(keys)

    async def message(self, key: ClientKey) -> Message | None:
        async with reading(self._engine) as connection:
            statement = select(will).where(will.c.vhost == key[0], will.c.client_id == key[1])
            row = (await connection.execute(statement)).mappings().first()
            return None if row is None else message_from_row(dict(row), self._forms)

    async def all(self, largest: int) -> list[tuple[ClientKey, Will]]:
        size = func.coalesce(func.octet_length(will.c.body), 0) + func.coalesce(
            func.octet_length(will.c.native), 0
        )
        is_small = (size <= largest).label("is_small")
        body = case((is_small, will.c.body)).label("body")
        others = [column for column in will.columns if column.name != "body"]
        async with reading(self._engine) as connection:
            rows = (await connection.execute(select(*others, body, is_small))).mappings().all()
        return [((row["vhost"], row["client_id"]), self._will(dict(row))) for row in rows]

    def _will(self, row: Mapping[str, Any]) -> Will:
        due_at: datetime | None = row["due_at"]
        return Will(
            row["delay_seconds"],
            row["retain"],
            row["qos"],
            row["lifetime_seconds"],
            message_from_row(row, self._forms) if row["is_small"] else None,
            None if due_at is None else due_at.timestamp(),
            identity=_identity(row),
        )


def _identity(row: Mapping[str, Any]) -> Identity | None:
    """Returns the user that left a will; None for a will of an older schema, which did not store
    it."""
    name: str | None = row["user_name"]
    if name is None:
        return None
    return Identity(
        name,
        is_anonymous=name == ANONYMOUS_NAME and bool(row["is_built_in"]),
        client_id=given_id(row["client_id"]),
        is_built_in=bool(row["is_built_in"]),
    )


def _values(key: ClientKey, each: Will) -> dict[str, object]:
    assert each.message is not None
    return content_values(each.message) | {
        "vhost": key[0],
        "client_id": key[1],
        "shard": shard_of_session(*key),
        "delay_seconds": ceil(each.delay),
        "due_at": utc(each.due_at),
        "retain": each.retain,
        "qos": each.qos,
        "lifetime_seconds": None if each.lifetime is None else ceil(each.lifetime),
        "user_name": None if each.identity is None else each.identity.name,
        "is_built_in": None if each.identity is None else each.identity.is_built_in,
    }


def _keys(keys: Iterable[ClientKey]) -> dict[str, tuple[Sequence[object], Any]]:
    vhosts, client_ids = zip(*keys, strict=True)
    return {"vhost": (vhosts, Text), "client_id": (client_ids, Text)}


def _is(given: Any) -> tuple[Any, ...]:
    return will.c.vhost == given.vhost, will.c.client_id == given.client_id
