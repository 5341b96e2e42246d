"""Names of a test's own: the gateway is shared."""

from __future__ import annotations

import itertools
import os

_numbers = itertools.count(1)


def fresh(word: str) -> str:
    return f"{word}-{os.getpid()}-{next(_numbers)}"
