"""Queues that are paused: nothing is delivered from them until they are resumed.

Revision ID: 0007_pause
Revises: 0006_drain
"""

from __future__ import annotations

from migrations import statements

revision = "0007_pause"
down_revision: str | None = "0006_drain"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    statements.run("0007_pause.sql")


def downgrade() -> None:
    statements.run("0007_pause_down.sql")
