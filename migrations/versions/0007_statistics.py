"""Segments are analysed from a small sample.

Revision ID: 0007
Revises: 0006
"""

from __future__ import annotations

from migrations import statements

revision = "0007"
down_revision: str | None = "0006"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    statements.run("0007_statistics.sql")


def downgrade() -> None:
    statements.run("0007_down.sql")
