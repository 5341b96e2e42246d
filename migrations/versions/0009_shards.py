"""Shards: what is durable belongs to one of 64, and the journal's generations to nodes.

Revision ID: 0009_shards
Revises: 0008_routed_queues
"""

from __future__ import annotations

from migrations import statements

revision = "0009_shards"
down_revision: str | None = "0008_routed_queues"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    statements.run("0009_shards.sql")


def downgrade() -> None:
    statements.run("0009_shards_down.sql")
