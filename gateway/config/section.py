"""The base of every section of the configuration."""

from __future__ import annotations

import msgspec


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group of keys. Every key is honoured, and a misspelt one is an error."""
