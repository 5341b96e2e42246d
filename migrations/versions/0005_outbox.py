"""What SQL publishes waits for a full queue, and has a largest size.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

from migrations import statements

revision = "0005"
down_revision: str | None = "0004"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    statements.run("0005_outbox.sql")


def downgrade() -> None:
    statements.run("0005_down.sql")
