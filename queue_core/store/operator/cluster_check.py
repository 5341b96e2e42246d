"""The doctor's look at a cluster: whether somebody takes over when the node that serves dies, and
whether nodes may end each other's sessions."""

from __future__ import annotations

from typing import Final

import asyncpg

from queue_core.store.nodes.locks import NODE_LOCKS
from queue_core.store.operator.finding import Finding, ok, warn
from queue_core.store.operator.node_operations import list_nodes

# Logins of nodes whose sessions this login may not end: pg_terminate_backend asks for the rights of
# the session's login or of pg_signal_backend, and for a superuser where the other is one.
OUT_OF_REACH: Final = f"""
    SELECT DISTINCT t.rolname AS login, n.name AS node, current_user AS own
    FROM pg_locks l
    JOIN howdah.node n ON l.objid = n.id::oid
    JOIN pg_stat_activity a ON a.pid = l.pid
    JOIN pg_roles t ON t.oid = a.usesysid
    JOIN pg_roles me ON me.rolname = current_user
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
      AND l.classid = {NODE_LOCKS}::oid AND n.cluster IS NOT NULL
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND NOT me.rolsuper
      AND (t.rolsuper OR NOT pg_has_role(t.oid, 'USAGE')
           AND NOT pg_has_role('pg_signal_backend', 'USAGE'))
    ORDER BY node LIMIT 10
"""
SAME_LOGIN: Final = "let all gateways of the cluster log in to PostgreSQL as the same user"


async def cluster(connection: asyncpg.Connection) -> list[Finding]:
    """Examines the nodes of a cluster, if one runs on this database."""
    nodes = await list_nodes(connection, with_gone=False)
    living = [node for node in nodes if node.cluster is not None and node.has_session]
    active = next((node for node in living if node.role == "active"), None)
    if active is None:
        return ok("no node of a cluster serves")
    standbys = [node.name for node in living if node.role == "standby"]
    found = await _out_of_reach(connection)
    if not standbys:
        found.append(
            warn(
                f"node '{active.name}' of cluster '{active.cluster}' serves, and no other stands "
                "by: nobody takes over when it dies",
                "start another gateway with cluster.enabled on this database, under another "
                "cluster.name; `howdah node list` shows it",
            )
        )
    return found or ok(f"node '{active.name}' serves; standing by: {', '.join(standbys)}")


async def _out_of_reach(connection: asyncpg.Connection) -> list[Finding]:
    """Finds nodes that a node with this login could not fence to the end: nobody takes over before
    their sessions are gone."""
    return [
        warn(
            f"node '{row['node']}' is logged in as {row['login']}, and login {row['own']} may not "
            "end its sessions: when it stands still or is cut off, a gateway with this login does "
            "not take over before they end by themselves",
            f'{SAME_LOGIN}, or GRANT pg_signal_backend TO "{row["own"]}"; which does not do for '
            "a superuser's",
        )
        for row in await connection.fetch(OUT_OF_REACH)
    ]
