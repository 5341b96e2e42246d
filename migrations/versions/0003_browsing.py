"""Functions and views that look into queues, sessions and segments for the management API. Their
texts are in migrations/sql/repeatable/browsing.sql; no table changes.

Revision ID: 0003_browsing
Revises: 0002_nodes
"""

from __future__ import annotations

from migrations import statements

revision = "0003_browsing"
down_revision: str | None = "0002_nodes"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Changes no table: the texts of functions, views and grants run after the revisions."""


def downgrade() -> None:
    statements.run("0003_down.sql")
