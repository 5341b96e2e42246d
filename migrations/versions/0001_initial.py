"""The first schema: definitions, log, journal, work from SQL; functions, views and roles.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

from migrations import statements

revision = "0001"
down_revision: str | None = None
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    for name in ("tables", "segments", "views", "publish", "operations", "roles", "rows"):
        statements.run(f"0001_{name}.sql")


def downgrade() -> None:
    statements.run("0001_down.sql")
