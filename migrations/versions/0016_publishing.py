"""Queues that there are not are refused; many messages at once; what was asked for.

Revision ID: 0016
Revises: 0015
"""

from __future__ import annotations

from migrations import statements

revision = "0016"
down_revision: str | None = "0015"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    statements.run("0016_publishing.sql")


def downgrade() -> None:
    statements.run("0016_down.sql")
