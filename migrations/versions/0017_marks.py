"""Every commit leaves a mark, and what was lost is left out of counts.

Revision ID: 0017
Revises: 0019
"""

from __future__ import annotations

from migrations import statements

revision = "0017"
down_revision: str | None = "0019"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    statements.run("0017_marks.sql")


def downgrade() -> None:
    statements.run("0017_down.sql")
