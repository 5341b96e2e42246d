"""Who consumes, and which messages are in whose hands.

Revision ID: 0019
Revises: 0021
"""

from __future__ import annotations

from migrations import statements

revision = "0019"
down_revision: str | None = "0021"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    statements.run("0019_consumers.sql")


def downgrade() -> None:
    statements.run("0019_down.sql")
