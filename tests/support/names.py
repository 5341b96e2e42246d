"""Names that no other test uses: many tests share one gateway."""

from __future__ import annotations

import itertools
import os

_numbers = itertools.count(1)


def fresh(word: str = "client") -> str:
    """A name that begins with the word; no test that runs now, here or elsewhere, has it."""
    return f"{word}-{os.getpid()}-{next(_numbers)}"
