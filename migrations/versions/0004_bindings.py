"""Bindings from SQL.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

from migrations import statements

revision = "0004"
down_revision: str | None = "0003"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    statements.run("0004_bindings.sql")


def downgrade() -> None:
    statements.run("0004_down.sql")
