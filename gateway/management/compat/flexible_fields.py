"""Fields of requests that RabbitMQ's tools write in several ways: booleans and numbers as text, an
empty object as an empty list."""

from __future__ import annotations

from typing import Any

from gateway.management.api_errors import bad_request

Flag = bool | str
Number = int | str
Table = dict[str, Any] | list[Any]


def flag(name: str, value: Flag) -> bool:
    """Reads a boolean, also as text. Raises 400."""
    if isinstance(value, bool):
        return value
    match value.lower():
        case "true":
            return True
        case "false" | "":
            return False
    raise bad_request(f"'{name}' must be true or false")


def number(name: str, value: Number) -> int:
    """Reads a number from 0 on, also as text. Raises 400."""
    if isinstance(value, str) and not (value.isascii() and value.isdigit() and len(value) < 16):
        raise bad_request(f"'{name}' must be a whole number")
    if int(value) < 0:
        raise bad_request(f"'{name}' must be 0 or more")
    return int(value)


def table(name: str, value: Table) -> dict[str, Any]:
    """Reads an object; an empty list is one, too. Raises 400."""
    if isinstance(value, dict):
        return value
    if value:
        raise bad_request(f"'{name}' must be an object")
    return {}
