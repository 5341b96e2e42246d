"""A connection that a gateway refuses because another one serves: it hears so in its protocol's own
terms, and ends.

Each protocol says what is to be answered to the bytes so far, as a function of them; this file is
the socket, the bound and the deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from protocols.graceful_close import part

MOST_BYTES: Final = 64 * 1024  # that a stranger may send before it has heard everything
PATIENCE_SECONDS: Final = 10.0

# From all bytes received so far and a reason to all bytes to be said so far, and whether that is
# the end. More input never changes what was said before.
Answer = Callable[[bytes, str], tuple[bytes, bool]]


class RefusingConnection(asyncio.Protocol):
    """Answers one client with a refusal."""

    def __init__(self, answer: Answer, reason: Callable[[], str]) -> None:
        self._answer = answer
        self._reason = reason()
        self._received = b""
        self._said = 0
        self._transport: asyncio.Transport | None = None  # None: asyncio has not given one yet
        self._deadline = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._end)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None  # asyncio calls `connection_made` first
        self._received += data
        try:
            words, is_over = self._answer(self._received, self._reason)
        except Exception:  # whatever a stranger sends: it is refused anyway
            self._end()
            return
        self._transport.write(words[self._said :])
        self._said = len(words)
        if is_over or len(self._received) > MOST_BYTES:
            self._end()

    def connection_lost(self, error: Exception | None) -> None:
        self._deadline.cancel()

    def _end(self) -> None:
        self._deadline.cancel()
        if self._transport is not None:
            part(self._transport, is_stranger=True)
