"""The identity of a value in headers or arguments: equal for values that a client calls the same.
An identity can be written as text."""

from __future__ import annotations

from collections.abc import Hashable, Mapping


def identity_of(value: object) -> Hashable:
    """Equal for values that a client would call the same: numbers by value whatever their type,
    while true is not 1, and text is not bytes. Python's own `==` does not tell true from 1."""
    if isinstance(value, bool):
        return ("flag", value)
    if isinstance(value, str | int | float | bytes) or value is None:
        return value
    if isinstance(value, Mapping):
        return ("table", frozenset((name, identity_of(item)) for name, item in value.items()))
    if isinstance(value, list | tuple):
        return ("array", tuple(identity_of(item) for item in value))
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return (type(value).__name__, str(value))  # times, decimals and the like


def text_of(identity: Hashable) -> str:
    """An identity as text, the same for equal ones; a NaN is the same as any other NaN here."""
    if isinstance(identity, float) and identity.is_integer():
        return str(int(identity))
    if isinstance(identity, tuple):
        return f"({','.join(map(text_of, identity))})"
    if isinstance(identity, frozenset):
        return f"{{{','.join(sorted(map(text_of, identity)))}}}"
    return repr(identity)
