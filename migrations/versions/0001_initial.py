"""The first schema's tables: definitions, sessions, log, requests from SQL. Functions, views and
grants are no part of a revision: see migrations/repeatable.py.

Revision ID: 0001_initial
Revises:
"""

from __future__ import annotations

from migrations import statements

revision = "0001_initial"
down_revision: str | None = None
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    for name in ("definitions", "sessions", "log", "requests", "rows"):
        statements.run(f"0001_{name}.sql")


def downgrade() -> None:
    statements.run("0001_down.sql")
