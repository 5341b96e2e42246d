"""A will says whose it is.

Revision ID: 0013
Revises: 0012
"""

from __future__ import annotations

from migrations import statements

revision = "0013"
down_revision: str | None = "0012"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    statements.run("0013_wills.sql")


def downgrade() -> None:
    statements.run("0013_down.sql")
