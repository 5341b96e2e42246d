"""The rows of howdah.node: who a gateway is, and which of its lives this is."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import asyncpg

from queue_core.cluster.membership import GONE, JOINING, LEAVING, UP, Sighting

__all__ = ["GONE", "JOINING", "LEAVING", "UP", "NodeLife", "NodeTerms"]

LINK_VERSION: Final = 0  # nodes do not talk to each other but through the database
KEPT_NODES: Final = 1000  # of those that are gone

ADD: Final = """
    INSERT INTO howdah.node (cluster, name, host, address, link_version, schema_version, state,
                             lease_ms, max_message_size, limits)
    SELECT $1, $2, $3, host(inet_client_addr()), $4, v.version_num, $5, $6, $7, $8::jsonb
    FROM howdah.alembic_version v
    RETURNING id, started_at
"""
LIVING: Final = "SELECT id FROM howdah.node WHERE state <> 'gone' ORDER BY id"
END: Final = """
    UPDATE howdah.node SET state = 'gone', gone_at = clock_timestamp(), gone_because = $2
    WHERE id = ANY($1::int4[]) AND state <> 'gone'
"""
FORGET: Final = "DELETE FROM howdah.node WHERE state = 'gone' AND id <= $1"
# The rows are older than the update where that had to wait for whoever fenced this node meanwhile:
# only a beat that was counted says that the node is not gone.
BEAT: Final = """
    WITH mine AS (
        UPDATE howdah.node SET beat = beat + 1
        WHERE id = $1 AND started_at = $2 AND state <> 'gone' RETURNING id
    )
    SELECT n.id, n.name, n.started_at, n.beat, n.lease_ms, n.fenced_by,
           CASE WHEN n.id = $1 AND NOT EXISTS (SELECT FROM mine) THEN 'gone' ELSE n.state END
               AS state
    FROM howdah.node n
    WHERE n.state <> 'gone' OR n.id = $1 OR n.id = ANY($3::int4[])
"""
LOOK: Final = """
    SELECT n.id, n.name, n.started_at, n.state, n.beat, n.lease_ms, n.fenced_by
    FROM howdah.node n
    WHERE n.state <> 'gone' OR n.id = $1 OR n.id = ANY($2::int4[])
"""
MEMBERS: Final = """
    SELECT id, cluster, name, host, address, schema_version, state, beat, lease_ms, limits,
           started_at
    FROM howdah.node WHERE state <> 'gone' ORDER BY id
"""
# Of nodes that were fenced, and of those that may be before the newcomer's first beat sees them.
LONGEST_LEASE: Final = """
    SELECT coalesce(max(lease_ms), 0) FROM howdah.node
    WHERE fenced_by IS NOT NULL OR state <> 'gone'
"""
STATE: Final = "SELECT state FROM howdah.node WHERE id = $1 AND started_at = $2"


@dataclass(frozen=True, slots=True)
class NodeLife:
    """One life of a gateway. Two lives may come to the same id, where the database went back in
    time between them; not at the same moment."""

    id: int
    started_at: datetime


@dataclass(frozen=True, slots=True)
class NodeTerms:
    """Says how a gateway takes part in its database."""

    name: str  # for people
    max_message_size: int  # bytes; SQL publishes nothing larger
    cluster: str | None = None  # None: it has the database for itself
    lease_ms: int = 0  # of silence after which others take it for dead; 0: it gives no signs
    limits: Mapping[str, object] = field(default_factory=dict)


async def add_node(connection: asyncpg.Connection, terms: NodeTerms, state: str) -> NodeLife:
    """Writes the row of a new life, and forgets those that are gone for long."""
    row = await connection.fetchrow(
        ADD,
        *(terms.cluster, terms.name, socket.gethostname(), LINK_VERSION, state),
        *(terms.lease_ms, terms.max_message_size, json.dumps(dict(terms.limits))),
    )
    assert row is not None  # howdah.alembic_version has one row where the schema is migrated
    await connection.execute(FORGET, row["id"] - KEPT_NODES)
    return NodeLife(row["id"], row["started_at"])


async def living(connection: asyncpg.Connection) -> list[int]:
    """Lists the ids of nodes that are not gone."""
    return [row["id"] for row in await connection.fetch(LIVING)]


async def end_nodes(connection: asyncpg.Connection, nodes: list[int], reason: str) -> None:
    """Writes that nodes are gone. Their transactions that are open then commit all the same, so
    whoever calls it takes their locks alone, before or after."""
    await connection.execute(END, nodes, reason)


async def state_of(connection: asyncpg.Connection, life: NodeLife) -> str | None:
    """Reads the state of a life; None: the database does not know it."""
    state: str | None = await connection.fetchval(STATE, life.id, life.started_at)
    return state


@dataclass(frozen=True, slots=True)
class Member:
    """A node that is not gone, as its row describes it."""

    id: int
    cluster: str | None
    name: str
    host: str
    address: str | None
    schema_version: str
    state: str
    beat: int
    lease_ms: int
    limits: Mapping[str, object]
    started_at: datetime

    def __str__(self) -> str:
        place = f" at {self.address}" if self.address else ""
        return f"node {self.id} '{self.name}' on {self.host}{place}"


async def members(connection: asyncpg.Connection) -> list[Member]:
    """Reads the rows of all nodes that are not gone, the eldest first."""
    fields = tuple(name for name in Member.__slots__ if name != "limits")
    return [
        Member(
            **{field: row[field] for field in fields},
            limits=json.loads(row["limits"]),
        )
        for row in await connection.fetch(MEMBERS)
    ]


def sightings(rows: list[asyncpg.Record]) -> list[Sighting]:
    """Reads the answer of BEAT or LOOK."""
    return [
        Sighting(
            row["id"],
            row["state"],
            row["beat"],
            row["lease_ms"] / 1000,
            is_fenced=row["fenced_by"] is not None,
        )
        for row in rows
    ]
