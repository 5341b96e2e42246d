"""The AMQP port: tells AMQP 0.9.1 and 1.0 apart by the first eight bytes of a connection.

Answers for the protocol header only; the protocol that it names gets the transport, and the header
too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, cast

from gateway.connections import Newcomers
from protocols.graceful_close import part
from queue_core.access.auth import Peer

logger = logging.getLogger(__name__)

HEADER_BYTES: Final = 8
HEADER_SECONDS: Final = 10.0
AMQP_091: Final = b"AMQP\x00\x00\x09\x01"
AMQP_10: Final = b"AMQP\x00\x01\x00\x00"
AMQP_10_SASL: Final = b"AMQP\x03\x01\x00\x00"
PREFERRED: Final = (AMQP_091, AMQP_10)

# What people send to this port by mistake.
MISTAKES: Final = (
    (b"\x16\x03", "TLS: set listeners.amqp.tls, or connect without TLS"),
    (b"GET ", "HTTP: the management listener has another port"),
    (b"POST", "HTTP: the management listener has another port"),
    (b"\x10", "MQTT: that listener has another port"),
)

Factory = Callable[[], asyncio.Protocol]


class AmqpPort(asyncio.Protocol):
    """Accepts connections of both protocols: the transport goes to a HeaderReader at once."""

    def __init__(
        self, protocols: Mapping[bytes, Factory], undecided: Newcomers | None = None
    ) -> None:
        self._protocols = protocols
        self._undecided: Newcomers = {} if undecided is None else undecided

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        made.set_protocol(HeaderReader(made, self._protocols, self._undecided))


class HeaderReader(asyncio.Protocol):
    """Reads the protocol header of one connection, and hands the transport to its protocol."""

    def __init__(
        self,
        transport: asyncio.Transport,
        protocols: Mapping[bytes, Factory],
        undecided: Newcomers,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._transport = transport
        self._protocols = protocols
        self._undecided = undecided
        self._start = b""
        self._timer = loop.call_later(HEADER_SECONDS, self._refuse, "no protocol header in time")
        undecided[self] = (loop.time(), transport)

    def data_received(self, data: bytes) -> None:
        self._start += data
        if len(self._start) < HEADER_BYTES:
            if not AMQP_091.startswith(self._start[:4]):
                self._refuse(_mistake(self._start))
            return
        factory = self._protocols.get(self._start[:HEADER_BYTES])
        if factory is None:
            self._refuse(_mistake(self._start))
            return
        self._timer.cancel()
        self._undecided.pop(self, None)
        connection = factory()
        self._transport.set_protocol(connection)
        connection.connection_made(self._transport)
        connection.data_received(self._start)

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._undecided.pop(self, None)

    def _refuse(self, why: str) -> None:
        """Refuses a connection as both standards say: answers with a header that is supported, and
        closes."""
        self._timer.cancel()
        if self._transport.is_closing():
            return
        peer = Peer.described_by(self._transport.get_extra_info)
        logger.warning("AMQP connection from %s:%d refused: %s", peer.host, peer.port, why)
        answers = PREFERRED if self._start[4:6] != b"\x00\x01" else reversed(PREFERRED)
        for header in answers:
            if header in self._protocols:
                self._transport.write(header)
                break
        part(self._transport, is_stranger=True)


def _mistake(start: bytes) -> str:
    for prefix, words in MISTAKES:
        if start.startswith(prefix):
            return f"it speaks {words}"
    return "it begins with no protocol header of AMQP 0.9.1 or 1.0"
