"""Operators send a consumer group of a stream to another place.

Revision ID: 0009
Revises: 0008
"""

from __future__ import annotations

from migrations import statements

revision = "0009"
down_revision: str | None = "0008"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    statements.run("0009_groups.sql")


def downgrade() -> None:
    statements.run("0009_down.sql")
