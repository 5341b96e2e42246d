"""What consumers add to messages that they give back.

Revision ID: 0006
Revises: 0005
"""

from __future__ import annotations

from migrations import statements

revision = "0006"
down_revision: str | None = "0005"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    statements.run("0006_amendments.sql")


def downgrade() -> None:
    statements.run("0006_down.sql")
