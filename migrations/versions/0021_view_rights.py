"""GRANT SELECT on a view is all that its reader needs.

Revision ID: 0021
Revises: 0018
"""

from __future__ import annotations

from migrations import statements

revision = "0021"
down_revision: str | None = "0018"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    statements.run("0021_view_rights.sql")


def downgrade() -> None:
    statements.run("0021_down.sql")
