"""The advisory locks that gateways keep each other out with.

`ALONE_LOCK` is held exclusively by a gateway that has the database for itself, and shared by every
node of a cluster. The locks of the class `NODE_LOCKS` have numbers: a node's id, held shared by its
sessions and by each of its transactions; and `MEMBERS`, held exclusively by a transaction that
changes who is a member or who owns what.
"""

from __future__ import annotations

from typing import Final

import asyncpg

ALONE_LOCK: Final = 0x686F7764_6168  # "howdah"
NODE_LOCKS: Final = 0x686F7764  # "howd", a class of locks; howdah.hold() has the number, too
MEMBERS: Final = 0
# A process that is stopped, or cut off, between two statements of a transaction with the members'
# lock would keep everybody from fencing it: the server ends its session after such a pause.
IDLE_SECONDS: Final = 5.0

TRY_ALONE: Final = "SELECT pg_try_advisory_lock($1)"
TRY_TOGETHER: Final = "SELECT pg_try_advisory_lock_shared($1)"
ALONE_HOLDERS: Final = """
    SELECT a.pid, host(a.client_addr) AS address, l.mode = 'ExclusiveLock' AS is_alone
    FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
      AND l.classid = ($1::bigint >> 32)::oid AND l.objid = ($1::bigint & 4294967295)::oid
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    ORDER BY a.backend_start, a.pid
"""
LOCK_MEMBERS: Final = f"SELECT pg_advisory_xact_lock({NODE_LOCKS}, {MEMBERS})"
LIMIT_IDLE: Final = "SET LOCAL idle_in_transaction_session_timeout"
LOCK_NODE: Final = f"SELECT pg_advisory_xact_lock({NODE_LOCKS}, $1)"
KEEP_NODE: Final = f"SELECT pg_advisory_lock_shared({NODE_LOCKS}, $1)"


async def gateways_there(connection: asyncpg.Connection) -> list[str]:
    """Names the sessions of gateways that run on this database, in a cluster or alone, whatever
    release they are of."""
    return [
        f"server process {row['pid']}" + (f" from {row['address']}" if row["address"] else "")
        for row in await connection.fetch(ALONE_HOLDERS, ALONE_LOCK)
    ]


async def lock_members(connection: asyncpg.Connection) -> None:
    """Makes this transaction the only one that changes members and owners until it ends; the server
    ends it where the next statement does not come."""
    await connection.execute(f"{LIMIT_IDLE} = {round(IDLE_SECONDS * 1000)}; {LOCK_MEMBERS}")


async def keep_node(connection: asyncpg.Connection, node: int) -> None:
    """Has the session hold the lock of a node for life. Waits while somebody fences the node."""
    await connection.execute(KEEP_NODE, node)
