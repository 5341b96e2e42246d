"""A function for operators: `drain_node` has a node of a cluster hand its work over. Its text is in
repeatable/fence.sql.

Revision ID: 0006_drain
Revises: 0005_policies
"""

from __future__ import annotations

from migrations import statements

revision = "0006_drain"
down_revision: str | None = "0005_policies"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    pass


def downgrade() -> None:
    statements.run("0006_drain_down.sql")
