"""The transport of a connection that asyncio has not given one yet.

asyncio constructs a protocol first and hands it its transport later, in `connection_made`. Until
then a connection has this one, so that it is complete from the start: it is closing, takes nothing
and says nothing, just as the transport of a connection that is gone.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final


class NoTransport(asyncio.Transport):
    """Behaves as a transport whose peer has gone."""

    def is_closing(self) -> bool:
        return True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Drops the bytes: nobody is there to take them."""

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def pause_reading(self) -> None:
        """Does nothing: nothing is read."""

    def resume_reading(self) -> None:
        """Does nothing: nothing is read."""

    def close(self) -> None:
        """Does nothing: nothing is open."""

    def abort(self) -> None:
        """Does nothing: nothing is open."""


NO_TRANSPORT: Final = NoTransport()
