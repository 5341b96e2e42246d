"""The changes of members, each in a transaction of its own under the members' lock: a node is
declared gone, or rises from standby to serve.

Fencing has three steps that may be repeated by anybody: the node's row says that it is gone, so
that none of its transactions begins; its sessions are ended; and nobody rises while one is left.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Final

import asyncpg

from queue_core.store.log_once import Complaints
from queue_core.store.nodes.locks import NODE_LOCKS, lock_members
from queue_core.store.nodes.rows import NodeLife

log = logging.getLogger(__name__)
complaints = Complaints(log)

LOCK_SECONDS: Final = 1  # that the members' lock is waited for; it is tried again
PATIENCE: Final = f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'"
FENCE: Final = """
    UPDATE howdah.node
    SET state = 'gone', gone_at = clock_timestamp(), gone_because = $4, fenced_by = $1
    WHERE id = $2 AND beat = $3 AND state <> 'gone'
"""
# Sessions of nodes that are gone, and transactions that they had begun before. Such locks are
# shared; a peer that looks whether a node has a session takes its lock alone, for a moment.
REMAINS: Final = f"""
    SELECT l.pid FROM pg_locks l JOIN howdah.node n ON l.objid = n.id::oid
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.mode = 'ShareLock'
      AND l.classid = {NODE_LOCKS}::oid AND n.state = 'gone' AND l.pid <> pg_backend_pid()
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
RISE: Final = """
    UPDATE howdah.node SET state = 'up'
    WHERE id = $1 AND started_at = $2 AND state = 'joining'
      AND NOT EXISTS (
          SELECT FROM howdah.node o WHERE o.state IN ('up', 'leaving')
              OR o.state = 'gone' AND o.id = ANY($3::int4[])
              OR o.id > (SELECT max(k) FROM unnest($3::int4[] || $1) AS t (k)))
    RETURNING id
"""
FREE: Final = f"""
    SELECT id FROM unnest($1::int4[]) AS t (id)
    WHERE pg_try_advisory_xact_lock({NODE_LOCKS}, id)
"""


async def fence(connection: asyncpg.Connection, by: int, node: int, beat: int, reason: str) -> bool:
    """Declares a node gone, if it has not beaten since; True if this was the call that did it. Then
    its sessions are ended."""
    async with connection.transaction():
        await connection.execute(PATIENCE)
        await lock_members(connection)
        done = await connection.execute(FENCE, by, node, beat, reason)
    await end_remains(connection)
    return bool(done == "UPDATE 1")


async def end_remains(connection: asyncpg.Connection) -> None:
    """Ends the sessions of nodes that are gone; outside a transaction, which a session that this
    login may not end would fail."""
    pids = {row["pid"] for row in await connection.fetch(REMAINS)}
    for pid in pids:
        try:
            await connection.execute("SELECT pg_terminate_backend($1)", pid)
        except asyncpg.InsufficientPrivilegeError as error:
            complaints.warn(
                "server process %d belongs to a gateway that is gone, and this login may not end "
                "it (%s): nobody takes over before it ends by itself. Way out: let all gateways "
                "of the cluster log in as the same user, or GRANT pg_signal_backend to this one",
                pid,
                error,
            )


async def rise(connection: asyncpg.Connection, life: NodeLife, known: Collection[int]) -> bool:
    """Makes a standby the node that serves; False: not yet. `known` are the peers that it has seen
    as not gone: where one is gone meanwhile, or another came, it has to look again first."""
    await end_remains(connection)
    async with connection.transaction():
        await connection.execute(PATIENCE)
        await lock_members(connection)
        if await connection.fetch(REMAINS):
            return False
        risen = await connection.fetchval(RISE, life.id, life.started_at, list(known))
    return risen is not None


async def without_session(connection: asyncpg.Connection, nodes: Iterable[int]) -> set[int]:
    """Returns those of the nodes whose lock no session holds. The lock is tried and not waited for,
    so that a node which takes it meanwhile waits for an instant at most."""
    return {row["id"] for row in await connection.fetch(FREE, list(nodes))}
