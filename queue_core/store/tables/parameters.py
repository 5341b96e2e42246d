"""The tables of parameters: what RabbitMQ's tools keep in a virtual host, or for all of them. The
gateway itself goes by none of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Table, delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from queue_core.errors import InvalidArgument, VhostNotFound
from queue_core.queues.spec import is_storable
from queue_core.store.schema import global_parameter, parameter
from queue_core.store.tables.row_versions import IS_NEW
from queue_core.store.tables.table_transactions import reading, transaction

LONGEST_NAME_BYTES = 255


@dataclass(frozen=True, slots=True)
class StoredParameter:
    component: str
    vhost: str
    name: str
    value: Any


class Parameters:
    """Reads and changes parameters; each call is one transaction."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def all(
        self, component: str | None = None, vhost: str | None = None, name: str | None = None
    ) -> list[StoredParameter]:
        """Lists the parameters of virtual hosts, by component, virtual host and name."""
        asked = {"component": component, "vhost": vhost, "name": name}
        same = [parameter.c[key] == value for key, value in asked.items() if value is not None]
        order = (parameter.c.component, parameter.c.vhost, parameter.c.name)
        async with reading(self._engine) as connection:
            rows = await connection.execute(select(parameter).where(*same).order_by(*order))
            return [StoredParameter(row.component, row.vhost, row.name, row.value) for row in rows]

    async def put(self, component: str, vhost: str, name: str, value: Any) -> bool:
        """Keeps a parameter in place of the one before; True if it is new."""
        keys = {"component": component, "vhost": vhost, "name": name}
        try:
            return await self._put(parameter, keys, value)
        except IntegrityError as error:
            raise VhostNotFound(f"there is no virtual host '{vhost}'") from error

    async def remove(self, component: str, vhost: str, name: str) -> bool:
        """Removes a parameter; False if there was none of that name."""
        keys = {"component": component, "vhost": vhost, "name": name}
        return await self._remove(parameter, keys)

    async def all_global(self) -> dict[str, Any]:
        """Lists the parameters of all virtual hosts, by name."""
        statement = select(global_parameter).order_by(global_parameter.c.name)
        async with reading(self._engine) as connection:
            return {row.name: row.value for row in await connection.execute(statement)}

    async def put_global(self, name: str, value: Any) -> bool:
        return await self._put(global_parameter, {"name": name}, value)

    async def remove_global(self, name: str) -> bool:
        return await self._remove(global_parameter, {"name": name})

    async def _put(self, table: Table, keys: dict[str, str], value: Any) -> bool:
        for each in keys.values():
            if not is_storable(each) or not 0 < len(each.encode()) <= LONGEST_NAME_BYTES:
                raise InvalidArgument(
                    f"the name of a parameter is text of 1 to {LONGEST_NAME_BYTES} bytes, without "
                    "NUL"
                )
        made = insert(table).values(**keys, value=value)
        statement = made.on_conflict_do_update(index_elements=list(keys), set_={"value": value})
        async with transaction(self._engine) as connection:
            return bool((await connection.execute(statement.returning(IS_NEW))).scalar_one())

    async def _remove(self, table: Table, keys: dict[str, str]) -> bool:
        same = [table.c[key] == value for key, value in keys.items()]
        async with transaction(self._engine) as connection:
            return (await connection.execute(delete(table).where(*same))).rowcount > 0
