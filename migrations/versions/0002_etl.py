"""How far the Spark jobs have come, and segments that wait for their archive.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

from migrations import statements

revision = "0002"
down_revision: str | None = "0001"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    statements.run("0002_etl.sql")


def downgrade() -> None:
    statements.run("0002_down.sql")
