"""Policies, parameters, and limits and descriptions of virtual hosts and users.

Revision ID: 0005_policies
Revises: 0004_definitions
"""

from __future__ import annotations

from migrations import statements

revision = "0005_policies"
down_revision: str | None = "0004_definitions"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    statements.run("0005_policies.sql")


def downgrade() -> None:
    statements.run("0005_policies_down.sql")
