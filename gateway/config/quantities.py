"""Parses and writes sizes and durations as people write them: 16MiB, 30s, 1h30m.

Answers for the notation, both ways. It must not know which settings use it.
"""

from __future__ import annotations

import re
from typing import Final, Self

_SIZE_UNITS: Final = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_DURATION_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.ASCII)
_DURATION_PART: Final = r"(\d+(?:\.\d+)?)(ms|s|m|h|d)"
_DURATION: Final = re.compile(f"(?:{_DURATION_PART})+", re.ASCII)
LARGEST_SIZE: Final = 2**63 - 1  # PostgreSQL's bigint
LONGEST_SECONDS: Final = 36_500 * 86_400  # a hundred years, which MQTT can still say in seconds


class Size(int):
    """A size in bytes."""

    @classmethod
    def parse(cls, given: object) -> Self:
        """Parses a whole number or a text with a unit. Raises ValueError."""
        if isinstance(given, int) and not isinstance(given, bool) and 0 <= given <= LARGEST_SIZE:
            return cls(given)
        found = _SIZE.fullmatch(given.strip().lower()) if isinstance(given, str) else None
        if found is None or found.group(2) not in _SIZE_UNITS:
            raise ValueError("not a size")
        count = float(found.group(1)) * _SIZE_UNITS[found.group(2)]
        if count >= LARGEST_SIZE:
            raise ValueError("not a size that anything has")
        return cls(round(count))

    def __str__(self) -> str:
        for unit in ("TiB", "GiB", "MiB", "KiB"):
            factor = _SIZE_UNITS[unit.lower()]
            if self and self % factor == 0:
                return f"{self // factor}{unit}"
        return int.__repr__(self)


class Duration(float):
    """A duration in seconds."""

    @classmethod
    def parse(cls, given: object) -> Self:
        """Parses a text with units: a bare number would leave everyone to guess which. Raises
        ValueError."""
        text = given.strip().lower() if isinstance(given, str) else ""
        if _DURATION.fullmatch(text) is None:
            raise ValueError("not a duration with its unit, such as 30s, 5m or 1h")
        parts = re.findall(_DURATION_PART, text)
        seconds = sum(float(number) * _DURATION_UNITS[unit] for number, unit in parts)
        if seconds > LONGEST_SECONDS:
            raise ValueError(f"longer than {LONGEST_SECONDS // 86_400}d")
        return cls(seconds)

    def __str__(self) -> str:
        for unit in ("d", "h", "m", "s"):
            factor = _DURATION_UNITS[unit]
            if self and self % factor == 0:
                return f"{int(self // factor)}{unit}"
        return f"{round(self * 1000)}ms"
