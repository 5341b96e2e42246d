"""Changes of users, permissions and virtual hosts are announced to the gateway.

Revision ID: 0010
Revises: 0009
"""

from __future__ import annotations

from migrations import statements

revision = "0010"
down_revision: str | None = "0009"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    statements.run("0010_rights.sql")


def downgrade() -> None:
    statements.run("0010_down.sql")
