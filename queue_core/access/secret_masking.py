"""Hides secrets in values that people are shown: passwords in URIs, and whatever a key's name calls
a secret. Hides rather too much than too little, and takes time in proportion to the value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

MASK: Final = "***"
SECRET_NAME: Final = re.compile(
    r"passw(or)?d|passphrase|secret|token|credential|authorization|(private|api|access)[-_]?key",
    re.IGNORECASE,
)
QUERY_FIELD: Final = re.compile(r"([?&;][^?&;=\s]*)=([^?&;#\s]*)")


def masked(value: object) -> object:
    """Returns a JSON value with its secrets hidden."""
    if isinstance(value, str):
        return _masked_text(value) if "://" in value else value
    if isinstance(value, Mapping):
        return {key: masked_field(str(key), inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [masked(inner) for inner in value]
    return value


def masked_field(name: str, value: object) -> object:
    """Returns the value of a field with its secrets hidden: all of it where the name says that it
    is one."""
    if SECRET_NAME.search(name) and not isinstance(value, bool) and value is not None:
        return MASK
    return masked(value)


def _masked_text(text: str) -> str:
    """Hides the password before the last `@`, as one that is not percent-encoded may hold any
    character, and secrets among the fields of the query."""
    scheme, separator, rest = text.partition("://")
    login, at, place = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    if colon:
        rest = f"{user}:{MASK}{at}{place}"
    return scheme + separator + QUERY_FIELD.sub(_masked_query_field, rest)


def _masked_query_field(found: re.Match[str]) -> str:
    return f"{found[1]}={MASK}" if SECRET_NAME.search(found[1]) else found[0]
