"""Joining a cluster: a new node's row, and what has to be said of those that are there already.

Whatever is wrong with the newcomer is its own affair: it is told by name, and the node that serves
goes on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

import asyncpg

from queue_core.errors import StoreUnavailable
from queue_core.store.nodes.fencing import PATIENCE, without_session
from queue_core.store.nodes.locks import (
    ALONE_HOLDERS,
    ALONE_LOCK,
    TRY_TOGETHER,
    keep_node,
    lock_members,
)
from queue_core.store.nodes.rows import (
    JOINING,
    LONGEST_LEASE,
    Member,
    NodeLife,
    NodeTerms,
    add_node,
    members,
)
from queue_core.store.ownership import DatabaseInUse

log = logging.getLogger(__name__)

SKEW_SECONDS: Final = 2.0  # between the clocks of this machine and of the server, to be told of
JOIN_ATTEMPTS: Final = 20
JOIN_PAUSE_SECONDS: Final = 0.1
NOW: Final = "SELECT extract(epoch FROM clock_timestamp())::float8"


class NameTaken(StoreUnavailable):
    """A node of the same name lives."""


class OtherCluster(StoreUnavailable):
    """The database belongs to a cluster of another name."""


async def join(connection: asyncpg.Connection, terms: NodeTerms) -> tuple[NodeLife, float]:
    """Adds this gateway to the cluster as a standby, whose lock the connection holds for life;
    returns the longest lease of nodes that are there or were fenced, and that may not know of it
    when this node serves. Raises DatabaseInUse, OtherCluster, NameTaken."""
    await hold_together(connection)
    there = await _living(connection)
    _require_cluster(terms, there)
    await _require_name(connection, terms, there)
    async with connection.transaction():
        await connection.execute(PATIENCE)
        await lock_members(connection)
        fenced_ms: int = await connection.fetchval(LONGEST_LEASE)
        life = await add_node(connection, terms, JOINING)
        await keep_node(connection, life.id)  # before anybody sees the row
    _compare_limits(terms, there)
    await _compare_clocks(connection)
    return life, fenced_ms / 1000


async def hold_together(connection: asyncpg.Connection) -> None:
    """Takes the lock that keeps out gateways that are in no cluster. Raises DatabaseInUse."""
    for _ in range(JOIN_ATTEMPTS):
        if await connection.fetchval(TRY_TOGETHER, ALONE_LOCK):
            return
        holder = await connection.fetchrow(ALONE_HOLDERS, ALONE_LOCK)
        if holder is not None:
            place = f" from {holder['address']}" if holder["address"] else ""
            raise DatabaseInUse(
                "a gateway that is in no cluster owns this database, by the session of server "
                f"process {holder['pid']}{place}; stop it and start it with cluster.enabled: true, "
                "or give this one a database of its own"
            )
        await asyncio.sleep(JOIN_PAUSE_SECONDS)
    raise DatabaseInUse("the lock of this database cannot be had; try again in a moment")


async def _living(connection: asyncpg.Connection) -> list[Member]:
    """Reads the nodes whose process lives, as far as their sessions tell."""
    there = await members(connection)
    dead = await without_session(connection, [each.id for each in there])
    return [each for each in there if each.id not in dead]


def _require_cluster(terms: NodeTerms, there: list[Member]) -> None:
    for each in there:
        if each.cluster != terms.cluster:
            raise OtherCluster(
                f"this database belongs to the cluster '{each.cluster}' ({each}), and this gateway "
                f"to '{terms.cluster}'; correct database.url, or give both the same "
                "cluster.cluster_name"
            )


async def _require_name(
    connection: asyncpg.Connection, terms: NodeTerms, there: list[Member]
) -> None:
    """Raises NameTaken where a node of the same name beats. One that does not is dead, and may be
    this gateway's own life before."""
    namesakes = {each.id: each for each in there if each.name == terms.name}
    if not namesakes:
        return
    await asyncio.sleep(max(each.lease_ms for each in namesakes.values()) / 1000)
    for each in await _living(connection):
        before = namesakes.get(each.id)
        if before is not None and each.beat != before.beat:
            raise NameTaken(
                f"the name '{terms.name}' is taken by {each}, which lives; give this gateway "
                "another cluster.name"
            )


def _compare_limits(terms: NodeTerms, there: list[Member]) -> None:
    for each in there:
        if each.state != JOINING:
            different = [
                f"{key} ({each.limits.get(key)} there, {terms.limits.get(key)} here)"
                for key in sorted(each.limits.keys() | terms.limits.keys())
                if each.limits.get(key) != terms.limits.get(key)
            ]
            if different:
                log.warning(
                    "%s serves with other limits: %s. What it takes now may be refused after a "
                    "takeover. Way out: give all nodes of the cluster the same configuration",
                    each,
                    ", ".join(different),
                )


async def _compare_clocks(connection: asyncpg.Connection) -> None:
    """Warns of clocks that are apart. Who owns what does not depend on them; when a message
    expires does."""
    before = time.time()
    there: float = await connection.fetchval(NOW)
    after = time.time()
    apart = max(before - there, there - after)
    if apart > SKEW_SECONDS:
        log.warning(
            "the clocks of this machine and of the database server are %.0f s apart. Who serves "
            "does not depend on them, but messages expire, and delays end, by the clock of the "
            "node that serves. Way out: run NTP on both",
            apart,
        )
