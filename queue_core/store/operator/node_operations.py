"""What operators ask of the nodes of a cluster: who is there, and that one hands its work over."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import asyncpg

from queue_core.store.nodes.locks import NODE_LOCKS
from queue_core.store.operator.queue_operations import OperationError

LIST: Final = f"""
    SELECT n.id, n.name, n.cluster, n.host, n.address, n.schema_version, n.started_at,
           CASE n.state
               WHEN 'up' THEN 'active' WHEN 'joining' THEN 'standby' ELSE n.state
           END AS role,
           EXISTS (
               SELECT FROM pg_locks l
               WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
                 AND l.classid = {NODE_LOCKS}::oid AND l.objid = n.id::oid
                 AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
           ) AS has_session
    FROM howdah.node n WHERE n.state <> 'gone' OR $1 ORDER BY n.id
"""
DRAIN: Final = "SELECT howdah.drain_node($1)"
SUCCESSOR: Final = """
    SELECT o.name FROM howdah.node n, howdah.node o
    WHERE n.id = $1 AND n.state = 'gone' AND o.state = 'up'
"""
REFUSALS: Final = (
    asyncpg.UndefinedObjectError,
    asyncpg.ObjectNotInPrerequisiteStateError,
)


@dataclass(frozen=True, slots=True)
class ListedNode:
    """A node as people see it."""

    id: int
    name: str
    role: str  # active, standby, leaving or gone
    has_session: bool  # False: its process has ended, or lost every connection
    cluster: str | None
    host: str
    address: str | None
    schema_version: str
    started_at: datetime


async def list_nodes(connection: asyncpg.Connection, *, with_gone: bool) -> list[ListedNode]:
    rows = await connection.fetch(LIST, with_gone)
    return [ListedNode(**row) for row in rows]


async def drain_node(connection: asyncpg.Connection, name: str) -> int:
    """Asks the node of that name to hand its work over, and returns its id. Raises
    OperationError."""
    try:
        node: int = await connection.fetchval(DRAIN, name)
    except REFUSALS as error:
        hint = getattr(error, "hint", None)
        raise OperationError(f"{error.args[0]}. {hint}" if hint else str(error)) from error
    return node


async def successor(connection: asyncpg.Connection, node: int) -> str | None:
    """Names the node that serves after `node` has gone; None: that is not so yet."""
    name: str | None = await connection.fetchval(SUCCESSOR, node)
    return name
