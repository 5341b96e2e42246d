"""SCRAM verifiers beside the password hashes.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

from migrations import statements

revision = "0003"
down_revision: str | None = "0002"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    statements.run("0003_scram.sql")


def downgrade() -> None:
    statements.run("0003_down.sql")
