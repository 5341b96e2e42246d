"""Operators may read which virtual hosts there are; two comments say what is true.

Revision ID: 0008
Revises: 0007
"""

from __future__ import annotations

from migrations import statements

revision = "0008"
down_revision: str | None = "0007"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    statements.run("0008_operators.sql")


def downgrade() -> None:
    statements.run("0008_down.sql")
