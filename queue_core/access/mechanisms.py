"""SASL mechanisms: their names, and the order in which they are offered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

SCRAM_SHA_256: Final = "SCRAM-SHA-256"  # the password is proven, and never sent
EXTERNAL: Final = "EXTERNAL"  # the name stands in the client's certificate
PLAIN: Final = "PLAIN"  # the password as it is
ANONYMOUS: Final = "ANONYMOUS"

# Clients that know several take the first one that they know.
BEST_FIRST: Final = (SCRAM_SHA_256, EXTERNAL, PLAIN, ANONYMOUS)
UNGUESSABLE: Final = frozenset((ANONYMOUS, EXTERNAL))  # nothing is tried out, and nothing computed


def best_first(names: Iterable[str]) -> tuple[str, ...]:
    """Sorts the mechanisms to offer, each once; those without a place in `BEST_FIRST` come last, in
    the order in which they were given."""
    return tuple(sorted(dict.fromkeys(names), key=_place))


def _place(name: str) -> int:
    return BEST_FIRST.index(name) if name in BEST_FIRST else len(BEST_FIRST)
