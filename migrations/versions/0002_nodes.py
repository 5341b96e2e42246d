"""Nodes: a row for each life of a gateway, which the fence looks at.

Revision ID: 0002_nodes
Revises: 0001_initial
"""

from __future__ import annotations

from migrations import statements

revision = "0002_nodes"
down_revision: str | None = "0001_initial"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    statements.run("0002_nodes.sql")


def downgrade() -> None:
    statements.run("0002_down.sql")
