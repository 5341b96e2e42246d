"""Checks a job before Spark starts, which takes seconds: finds a wrong password, a server that is
not there, a queue that does not exist, a grant that is missing.

Asks over a connection of its own, by asyncpg, where that is installed. What it cannot ask (another
driver's parameters in the URL) the job itself finds later, in the same words.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

from spark_etl.database import advice_for, place
from spark_etl.errors import EtlError
from spark_etl.jdbc_options import jdbc_options

if TYPE_CHECKING:
    import asyncpg

_CONNECT_SECONDS: Final = 10
# Parameters that mean the same to asyncpg as to JDBC.
_SHARED: Final = {"sslmode", "application_name"}

_READS: Final = """
SELECT t.name FROM unnest(ARRAY['queue', 'segment', 'message', 'message_body']) AS t (name)
WHERE NOT has_table_privilege('howdah.' || t.name, 'SELECT')
"""
_CALLS: Final = """
SELECT count(*) > 0 FROM pg_proc p
WHERE p.pronamespace = 'howdah'::regnamespace AND p.proname = $1
  AND has_function_privilege(p.oid, 'EXECUTE')
"""
_QUEUES: Final = "SELECT name FROM howdah.queue WHERE vhost = $1 ORDER BY name"
_NAMED_AT_MOST: Final = 10


@dataclass(frozen=True, slots=True)
class Needs:
    """The queues and rights that a job needs of one database."""

    queues: tuple[str, ...] = ()
    vhost: str = "/"
    function: str | None = None  # that it must be allowed to call
    role: str = "howdah_reader"  # that would allow it


def check_beforehand(url: str, needs: Needs) -> None:
    """Raises EtlError for what the job would fail for; says nothing where it cannot ask."""
    jdbc_options(url)  # a URL that is none
    query = urlsplit(url).query
    if {name for name, _ in parse_qsl(query)} - _SHARED:
        return
    try:
        import asyncpg
    except ImportError:
        return
    try:
        asyncio.run(_check(url, needs))
    except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        state = getattr(error, "sqlstate", None) or "08"
        raise EtlError(f"{place(url)}: {error}: {advice_for(state)}") from error
    except (OSError, TimeoutError) as error:
        said = str(error) or "it does not answer"
        raise EtlError(f"{place(url)}: {said}: {advice_for('08')}") from error


async def _check(url: str, needs: Needs) -> None:
    import asyncpg

    connection = await asyncpg.connect(url, timeout=_CONNECT_SECONDS)
    try:
        await _check_rights(connection, url, needs)
        await _check_queues(connection, url, needs)
    finally:
        await connection.close()


async def _check_rights(connection: asyncpg.Connection, url: str, needs: Needs) -> None:
    missing = [f"howdah.{row['name']}" for row in await connection.fetch(_READS)]
    if missing:
        raise EtlError(
            f"{place(url)}: permission denied for {', '.join(missing)}: {advice_for('42501')}"
        )
    if needs.function is not None and not await connection.fetchval(_CALLS, needs.function):
        raise EtlError(
            f"{place(url)}: permission denied for howdah.{needs.function}: ask a DBA for "
            f"GRANT {needs.role} TO this login"
        )


async def _check_queues(connection: asyncpg.Connection, url: str, needs: Needs) -> None:
    if not needs.queues:
        return
    rows: list[Any] = await connection.fetch(_QUEUES, needs.vhost)
    known = [row["name"] for row in rows]
    for name in needs.queues:
        if name not in known:
            shown = ", ".join(known[:_NAMED_AT_MOST]) or "none"
            more = ", ..." if len(known) > _NAMED_AT_MOST else ""
            raise EtlError(
                f"there is no durable queue '{name}' in virtual host '{needs.vhost}': "
                f"known there: {shown}{more}"
            )
