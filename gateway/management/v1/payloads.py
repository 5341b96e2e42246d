"""Bodies of messages in JSON: text where they are UTF-8, base64 otherwise, cut to a length."""

from __future__ import annotations

from base64 import b64encode
from typing import Final, Literal

Encoding = Literal["auto", "base64", "text"]
PayloadEncoding = Literal["string", "base64"]

LONGEST_CHARACTER_BYTES: Final = 4


def payload(body: bytes, encoding: Encoding, *, is_cut: bool) -> tuple[str, PayloadEncoding]:
    """Writes a body, or its beginning. `text` writes what is not UTF-8 with replacements; `auto`
    falls back to base64."""
    if encoding == "base64":
        return b64encode(body).decode(), "base64"
    if encoding == "text":
        return body.decode(errors="replace"), "string"
    text = _as_text(body, is_cut=is_cut)
    return (b64encode(body).decode(), "base64") if text is None else (text, "string")


def _as_text(body: bytes, *, is_cut: bool) -> str | None:
    """A body as text; a character that was cut in two at the end is left out."""
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        is_at_end = is_cut and error.start > len(body) - LONGEST_CHARACTER_BYTES
        if not is_at_end or error.reason != "unexpected end of data":
            return None
        return body[: error.start].decode()
