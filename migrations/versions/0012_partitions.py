"""Partitions have no rights of their own but the gateway's.

Revision ID: 0012
Revises: 0011
"""

from __future__ import annotations

from migrations import statements

revision = "0012"
down_revision: str | None = "0011"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    statements.run("0012_partitions.sql")


def downgrade() -> None:
    statements.run("0012_down.sql")
