"""Connections for the management API's looks into the database: few, read only, and each statement
with a time limit, so that no question of a person holds up a message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg
import msgspec
from asyncpg.pool import PoolConnectionProxy

from queue_core.errors import StoreUnavailable
from queue_core.store.planner_settings import PooledConnection
from queue_core.store.primary import connect_to_primary

CONNECTIONS: Final = 2
IDLE_SECONDS: Final = 60.0  # then a connection that nobody asks by is closed
WAIT_SECONDS: Final = 5.0  # for a connection that others ask by
STATEMENT_SECONDS: Final = 5
OUT_OF_REACH: Final = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
)
LIMITS: Final = (
    f"SET statement_timeout = '{STATEMENT_SECONDS}s'; SET lock_timeout = '1s'; "
    "SET default_transaction_read_only = on; SET work_mem = '16MB';"
)


class LookTooLong(StoreUnavailable):
    """A look took too long, or too many look at once; says what to do."""


class InspectingConnection(PooledConnection):
    """Keeps the limits when the pool resets the connection for its next user."""

    def get_reset_query(self) -> str:
        return f"{super().get_reset_query()};\n{LIMITS}"


class InspectionPool:
    """The connections that people's questions are asked by. There are none while nobody asks."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    @classmethod
    async def open(
        cls, url: str, prepare: Callable[[asyncpg.Connection], Awaitable[None]]
    ) -> InspectionPool:
        """Makes the pool, without a connection yet. `prepare` refuses one to a server that was not
        looked at."""

        async def prepared(connection: asyncpg.Connection) -> None:
            await prepare(connection)
            await connection.execute(LIMITS)
            await connection.set_type_codec(
                "jsonb",
                schema="pg_catalog",
                encoder=lambda value: msgspec.json.encode(value).decode(),
                decoder=msgspec.json.decode,
            )

        async def connect(dsn: str | None = None, **options: Any) -> asyncpg.Connection:
            return await connect_to_primary(dsn or url, **options)

        pool = await asyncpg.create_pool(
            connect=connect,
            min_size=0,
            max_size=CONNECTIONS,
            max_inactive_connection_lifetime=IDLE_SECONDS,
            connection_class=InspectingConnection,
            init=prepared,
            server_settings={"application_name": "howdah gateway (look)", "timezone": "UTC"},
        )
        return cls(pool)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[PoolConnectionProxy]:
        """Lends a connection. Raises LookTooLong, or StoreUnavailable while the database is
        away."""
        try:
            async with self._pool.acquire(timeout=WAIT_SECONDS) as connection:
                yield connection
        except TimeoutError:
            raise LookTooLong(
                f"others look into the database, for {WAIT_SECONDS:.0f} s already; ask again later"
            ) from None
        except (asyncpg.QueryCanceledError, asyncpg.LockNotAvailableError) as error:
            raise LookTooLong(
                f"the look took longer than {STATEMENT_SECONDS} s ({error}); ask for less: a "
                "narrower range, a smaller scan, or in psql by the SQL that is shown"
            ) from error
        except OUT_OF_REACH as error:
            raise StoreUnavailable(f"the database cannot be asked: {error}") from error

    async def close(self) -> None:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    def terminate(self) -> None:
        self._pool.terminate()
