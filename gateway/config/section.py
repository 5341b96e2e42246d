"""What every group of configuration keys is."""

from __future__ import annotations

import msgspec


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group of keys; none that is not honoured, none that may be misspelt."""
