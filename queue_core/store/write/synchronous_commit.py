"""Durability of commits: makes sure that a commit which is answered is on the disk, in each of the
gateway's sessions, and warns where the server as a whole does not keep it."""

from __future__ import annotations

import logging
from typing import Final

import asyncpg

from queue_core.store.log_once import Complaints

log = logging.getLogger(__name__)
complaints = Complaints(log)

# The setting found, made the session's own: it stays when the server's configuration is read again.
# A commit whose wait for a standby was cancelled is answered like any other, but for a warning.
INSIST: Final = """
    SELECT current_setting('synchronous_commit') AS found,
           set_config('client_min_messages', 'warning', false),
           set_config('synchronous_commit', CASE current_setting('synchronous_commit')
                      WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false)
"""


async def insist_on_commits(connection: asyncpg.Connection) -> None:
    """Switches synchronous_commit on for this session where it is off: a confirm must not go out
    before the message is on the disk, whatever was set since the gateway started."""
    row = await connection.fetchrow(INSIST)
    assert row is not None  # a SELECT without FROM has one row
    if row["found"] == "off":
        complaints.warn(
            "synchronous_commit is off for this login: a crash of the server would lose messages "
            "that were confirmed. The gateway has switched it on for its own sessions. Way out: "
            'ALTER ROLE "%s" SET synchronous_commit = on, and see ALTER DATABASE and '
            "postgresql.conf",
            await connection.fetchval("SELECT current_user"),
        )
