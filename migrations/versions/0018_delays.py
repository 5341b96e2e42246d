"""Delayed messages are told apart from those that are ready.

Revision ID: 0018
Revises: 0016
"""

from __future__ import annotations

from migrations import statements

revision = "0018"
down_revision: str | None = "0016"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    statements.run("0018_delays.sql")


def downgrade() -> None:
    statements.run("0018_down.sql")
