"""The doctor's look at replication: whether a failover to a standby loses what was confirmed."""

from __future__ import annotations

from typing import Final

import asyncpg

from queue_core.store.operator.finding import Finding, fail, ok, warn

# Standbys and not subscribers. Of a session that this login may not see, PostgreSQL shows no state.
STANDBYS: Final = """
    SELECT current_setting('synchronous_standby_names') AS waited_for,
           current_setting('synchronous_commit') AS level,
           count(*) FILTER (WHERE r.pid IS NOT NULL) AS standbys,
           count(*) FILTER (WHERE r.sync_state IN ('sync', 'quorum')) AS synchronous,
           count(*) FILTER (WHERE r.pid IS NOT NULL AND r.sync_state IS NULL) AS hidden
    FROM (VALUES (1)) AS one (row)
    LEFT JOIN pg_stat_replication r ON coalesce(r.state, 'streaming') = 'streaming'
        AND NOT EXISTS (SELECT FROM pg_replication_slots s
                        WHERE s.active_pid = r.pid AND s.slot_type = 'logical')
"""
WAIT_FOR_ONE: Final = (
    "with Patroni set synchronous_mode: true; otherwise ALTER SYSTEM SET "
    "synchronous_standby_names = 'ANY 1 (*)'; SELECT pg_reload_conf(); What a failover loses is "
    "noticed and told either way"
)


async def replication(connection: asyncpg.Connection) -> list[Finding]:
    """Says what a failover would cost. A server without a standby has none, and is not blamed for
    it: a backup may be all that somebody wants."""
    row = await connection.fetchrow(STANDBYS)
    assert row is not None  # an aggregate without GROUP BY has one row
    standbys = f"{row['standbys']} standby{'' if row['standbys'] == 1 else 's'}"
    if not row["waited_for"]:
        if not row["standbys"]:
            return ok("no standby follows this server")
        lost = f"{standbys}, and commits wait for none: a failover may lose confirmed messages"
        return [warn(lost, WAIT_FOR_ONE)]
    if row["level"] == "local":
        return [
            warn(
                "synchronous_commit is local for this login: commits do not wait for "
                f"synchronous_standby_names ({row['waited_for']}), and a failover may lose "
                "confirmed messages",
                "ALTER ROLE ... SET synchronous_commit = on for the gateway's login",
            )
        ]
    if not row["synchronous"] and not row["hidden"]:
        return [
            fail(
                f"synchronous_standby_names is {row['waited_for']}, and no such standby is "
                "connected: every commit waits for one",
                "start the standby, or take its name out of synchronous_standby_names",
            )
        ]
    return ok(f"{standbys}; commits wait for {row['waited_for']}")
