"""A header tells repetitions; its values are remembered as short text."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from queue_core.message.value_identity import identity_of, text_of

KEY_HEADER: Final = "x-deduplication-header"
KEY_OCTETS: Final = KEY_HEADER.encode()
MAX_ID_CHARACTERS: Final = 256  # that are kept as they are


def key_in(headers: Mapping[str, object]) -> str | None:
    """Gives the header's value as text; None: the header is missing. A value of every type counts,
    void too."""
    if KEY_HEADER not in headers:
        return None
    return shortened(text_of(identity_of(headers[KEY_HEADER])))


def shortened(text: str) -> str:
    """Gives an id as it is remembered. Long ids, and those that PostgreSQL's text does not hold,
    become their digest: publishers decide how long an id is, not how much memory a million of them
    take, nor which ones an index refuses."""
    if len(text) <= MAX_ID_CHARACTERS and text.isprintable():
        return text
    return "sha256:" + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
