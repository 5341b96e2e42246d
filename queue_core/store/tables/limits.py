"""Limits of virtual hosts and users: which there are, and which numbers they may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Column

from queue_core.errors import InvalidArgument

LARGEST_LIMIT: Final = 2**31 - 1


def checked_limit(limit: str, columns: Mapping[str, Column[Any]], value: int | None) -> Column[Any]:
    """Finds the column of a limit. Raises InvalidArgument for one that there is not, and for a
    number that the column cannot hold."""
    if limit not in columns:
        raise InvalidArgument(f"there is no limit '{limit}'; use {' or '.join(columns)}")
    if value is not None and not -1 <= value <= LARGEST_LIMIT:
        raise InvalidArgument(
            f"limit '{limit}' is {value}; it must be from 0 to {LARGEST_LIMIT}, or -1 for no limit"
        )
    return columns[limit]
