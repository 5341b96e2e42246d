"""The rows of howdah.node: who a gateway is, and which of its lives this is."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import asyncpg

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
STATE: Final = "SELECT state FROM howdah.node WHERE id = $1 AND started_at = $2"

JOINING: Final = "joining"
UP: Final = "up"
LEAVING: Final = "leaving"
GONE: Final = "gone"


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
