"""Routes worked out from the tables: howdah.routed_queues, whose text is in
migrations/sql/repeatable/routing.sql. No table changes.

Revision ID: 0008_routed_queues
Revises: 0007_pause
"""

from __future__ import annotations

from migrations import statements

revision = "0008_routed_queues"
down_revision: str | None = "0007_pause"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Changes no table: the texts of functions, views and grants run after the revisions."""


def downgrade() -> None:
    statements.run("0008_down.sql")
