"""Imports of definitions files: their record, and hashes of passwords that come from RabbitMQ.

Revision ID: 0004_definitions
Revises: 0003_browsing
"""

from __future__ import annotations

from migrations import statements

revision = "0004_definitions"
down_revision: str | None = "0003_browsing"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    statements.run("0004_definitions.sql")


def downgrade() -> None:
    statements.run("0004_definitions_down.sql")
