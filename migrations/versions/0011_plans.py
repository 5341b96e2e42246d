"""Views and functions that no server compiles before it runs them.

Revision ID: 0011
Revises: 0010
"""

from __future__ import annotations

from migrations import statements

revision = "0011"
down_revision: str | None = "0010"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    statements.run("0011_plans.sql")


def downgrade() -> None:
    statements.run("0011_down.sql")
