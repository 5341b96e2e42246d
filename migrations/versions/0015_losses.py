"""What was lost is remembered, and offsets are never given twice.

Revision ID: 0015
Revises: 0014
"""

from __future__ import annotations

from migrations import statements

revision = "0015"
down_revision: str | None = "0014"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    statements.run("0015_losses.sql")


def downgrade() -> None:
    statements.run("0015_losses_down.sql")
