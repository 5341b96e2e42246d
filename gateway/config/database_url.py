"""Checks database.url: that its parts are what they seem to be, and that it leads to a server which
the gateway can write to. The value is never shown: it holds a password."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qs, urlsplit

# A host, or an IPv6 address in brackets, and a port; what has a colon too much is no host.
_PLACE: Final = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\[\]:]*)(?::(\d{1,5}))?", re.ASCII)
WRITABLE: Final = ("read-write", "primary", "any")
NO_URL: Final = (
    "expected postgresql://user:password@host:port/database, with %40 for @, "
    "%2F for / and so on in user and password"
)
NO_WRITES: Final = (
    "the gateway writes, so target_session_attrs must be read-write (as it is without a word), "
    "primary or any"
)


def url_problem(url: str) -> str | None:
    """Says what is wrong with a URL; None: nothing that could be known here."""
    if not _is_server_url(url):
        return NO_URL
    wanted = parse_qs(urlsplit(url).query).get("target_session_attrs", WRITABLE)[-1]
    return None if wanted in WRITABLE else NO_WRITES


def _is_server_url(url: str) -> bool:
    """Tells if a URL's parts are what they seem to be: with a / or # in the password, the rest of
    it would be taken for a database, and shown in messages."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    if parts.scheme not in ("postgresql", "postgres") or parts.fragment or "@" in parts.path:
        return False
    places = [_PLACE.fullmatch(place) for place in parts.netloc.rpartition("@")[2].split(",")]
    return all(found is not None and int(found[1] or 1) in range(1, 65_536) for found in places)
