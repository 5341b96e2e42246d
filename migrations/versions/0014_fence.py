"""A gateway commits only while it owns the database.

Revision ID: 0014
Revises: 0013
"""

from __future__ import annotations

from migrations import statements

revision = "0014"
down_revision: str | None = "0013"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    statements.run("0014_fence.sql")


def downgrade() -> None:
    statements.run("0014_fence_down.sql")
