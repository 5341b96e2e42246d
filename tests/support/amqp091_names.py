"""Names that no other test uses: many tests share one gateway."""

from __future__ import annotations

from uuid import uuid4


def fresh(name: str) -> str:
    return f"{name}-{uuid4().hex[:12]}"
