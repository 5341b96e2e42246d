"""A listener with AMQP 0.9.1 behind it, on a real socket and a core whose store is a fake."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from protocols.amqp091.connection import Connection
from protocols.amqp091.context import Context
from protocols.amqp091.settings import Settings
from protocols.amqp091.wire.codec import decode_method, method_frame
from protocols.amqp091.wire.frames import METHOD, PROTOCOL_HEADER, split
from protocols.amqp091.wire.methods import (
    ChannelOpen,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    Method,
)
from tests.support.amqp091_conversation import anns_gateway
from tests.support.fake_services import FakeServices
from tests.support.until import PATIENCE_SECONDS

CAPABLE = {"capabilities": {"connection.blocked": True, "authentication_failure_close": True}}


class Client:
    """Raw frames over a socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._buffer = b""

    def send(self, *data: bytes | Method, channel: int = 1) -> None:
        for each in data:
            self.writer.write(each if isinstance(each, bytes) else method_frame(channel, each))

    async def hear(self) -> Method | int:
        """The next method; of other frames their kind."""
        while (found := split(self._buffer, 0, 1 << 20)) is None:
            data = await asyncio.wait_for(self.reader.read(65_536), PATIENCE_SECONDS)
            if not data:
                raise EOFError
            self._buffer += data
        payload = self._buffer[found.start : found.end]
        self._buffer = self._buffer[found.end + 1 :]
        return decode_method(payload) if found.kind == METHOD else found.kind

    async def open(self, heartbeat: int = 0) -> Client:
        self.send(PROTOCOL_HEADER)
        await self.hear()
        self.send(ConnectionStartOk(CAPABLE, "PLAIN", b"\0ann\0secret", "en_US"), channel=0)
        await self.hear()
        self.send(ConnectionTuneOk(0, 0, heartbeat), ConnectionOpen("/"), channel=0)
        await self.hear()
        self.send(ChannelOpen())
        await self.hear()
        return self

    async def is_ended(self) -> bool:
        """Whether the server ends the connection, without another word."""
        data = await asyncio.wait_for(self.reader.read(), PATIENCE_SECONDS)
        return not self._buffer and not data


class Listener:
    def __init__(self, services: FakeServices, port: int) -> None:
        self.services = services
        self.connections: list[Connection] = []
        self.port = port
        self._clients: list[Client] = []

    async def client(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        self._clients.append(client)
        return client

    async def close(self) -> None:
        for client in self._clients:
            client.writer.close()
            with suppress(OSError):
                await client.writer.wait_closed()


@asynccontextmanager
async def listening(settings: Settings | None = None) -> AsyncIterator[Listener]:
    services = anns_gateway()
    context = Context(services, settings or Settings())
    listener = Listener(services, 0)

    def factory() -> Connection:
        connection = Connection(context)
        listener.connections.append(connection)
        return connection

    server = await asyncio.get_running_loop().create_server(factory, "127.0.0.1", 0)
    listener.port = server.sockets[0].getsockname()[1]
    try:
        yield listener
    finally:
        server.close()
        for connection in listener.connections:
            connection._transport.abort()
        await listener.close()
