"""Arguments that one kind of exchange reads are named and read here. An argument of the wrong type
or value is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from queue_core.errors import InvalidArgument

Arguments = Mapping[str, object]

HASH_HEADER: Final = "hash-header"
HASH_PROPERTY: Final = "hash-property"
HASH_PROPERTIES: Final = ("message_id", "correlation_id", "timestamp")
HISTORY_LENGTH: Final = "x-recent-history-length"
DEFAULT_HISTORY_LENGTH: Final = 20
MOST_HISTORY_LENGTH: Final = 10_000  # each new binding gets all of it at once
CACHE_SIZE: Final = "x-cache-size"
CACHE_TTL: Final = "x-cache-ttl"
CACHE_PERSISTENCE: Final = "x-cache-persistence"
MOST_CACHE_TTL_MS: Final = 10 * 365 * 86_400_000
LONGEST_NUMBER: Final = 20  # digits of a number that is written as text


def check_hash(exchange: str, arguments: Arguments) -> None:
    """Raises InvalidArgument unless a consistent hash is taken of one thing that there is."""
    header, name = arguments.get(HASH_HEADER), arguments.get(HASH_PROPERTY)
    if header is not None and name is not None:
        raise InvalidArgument(
            f"exchange '{exchange}': use either '{HASH_HEADER}' or '{HASH_PROPERTY}'"
        )
    if header is not None and not (isinstance(header, str) and header):
        raise InvalidArgument(f"exchange '{exchange}': '{HASH_HEADER}' is a header's name")
    if name is not None and name not in HASH_PROPERTIES:
        raise InvalidArgument(
            f"exchange '{exchange}': '{HASH_PROPERTY}' is one of {', '.join(HASH_PROPERTIES)}"
        )


def history_length(exchange: str, arguments: Arguments) -> int:
    """Reads how many messages a recent-history exchange remembers."""
    length = arguments.get(HISTORY_LENGTH, DEFAULT_HISTORY_LENGTH)
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        raise InvalidArgument(
            f"exchange '{exchange}': '{HISTORY_LENGTH}' must be a positive integer"
        )
    if length > MOST_HISTORY_LENGTH:
        raise InvalidArgument(
            f"exchange '{exchange}': '{HISTORY_LENGTH}' is {length}, and {MOST_HISTORY_LENGTH} is "
            "the most, as every new binding gets all of them at once; use a stream for more"
        )
    return length


def cache_size(exchange: str, arguments: Arguments) -> int:
    """Reads how many values a deduplication exchange remembers, which must be given."""
    size = whole_number(arguments.get(CACHE_SIZE))
    if size is None or size < 1:
        raise InvalidArgument(
            f"exchange '{exchange}': '{CACHE_SIZE}' is missing or invalid; it must be an integer "
            "greater than 0"
        )
    return size


def cache_ttl(exchange: str, arguments: Arguments) -> float | None:
    """Reads for how many seconds a deduplication exchange remembers a value; None: while there is
    room."""
    if CACHE_TTL not in arguments:
        return None
    milliseconds = whole_number(arguments[CACHE_TTL])
    if milliseconds is None or not 0 < milliseconds <= MOST_CACHE_TTL_MS:
        raise InvalidArgument(
            f"exchange '{exchange}': '{CACHE_TTL}' must be an integer from 1 to "
            f"{MOST_CACHE_TTL_MS}, in milliseconds"
        )
    return milliseconds / 1000


def is_cache_stored(exchange: str, arguments: Arguments, *, durable: bool) -> bool:
    """Reads whether a deduplication exchange remembers over a restart. A durable one does unless
    told otherwise; one that is not durable is gone by then."""
    persistence = arguments.get(CACHE_PERSISTENCE, "disk")
    if persistence not in ("disk", "memory"):
        raise InvalidArgument(
            f"exchange '{exchange}': '{CACHE_PERSISTENCE}' must be either 'disk' or 'memory'"
        )
    return durable and persistence == "disk"


def whole_number(value: object) -> int | None:
    """Reads a number, also one that is written as text, as some clients send them."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value) if len(value) <= LONGEST_NUMBER else None
    return None
