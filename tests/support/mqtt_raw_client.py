"""A client of frames: says exactly what a test wants it to say, and hears every packet."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

from protocols.mqtt.wire.codec import decode, split
from protocols.mqtt.wire.encoder import encode
from protocols.mqtt.wire.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    SubscribeRequest,
    Version,
)
from protocols.mqtt.wire.property_set import NO_PROPERTIES, PropertySet
from tests.support.names import fresh
from tests.support.until import PATIENCE_SECONDS

LIMIT = 64 * 1024 * 1024
P = TypeVar("P", bound=Packet)


class RawClient:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._buffer = b""
        self.version = version
        self.connack = ConnAck()
        self._ids = itertools.count(1)
        self._aside: list[Packet] = []  # came while another one was looked for

    @classmethod
    async def open(cls, port: int, version: int = Version.V5) -> Self:
        """A connection that has said nothing yet."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        return cls(reader, writer, version)

    # --- saying

    def send(self, *packets: Packet) -> None:
        self.send_bytes(b"".join(encode(packet, self.version) for packet in packets))

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    async def drained(self) -> None:
        """Returns when all that was sent is out of this process."""
        await self._writer.drain()

    async def connect(self, connect: Connect) -> ConnAck:
        self.send(connect)
        self.connack = await self.expect(ConnAck)
        return self.connack

    async def subscribe(
        self,
        topic_filter: str,
        qos: int = 0,
        properties: PropertySet = NO_PROPERTIES,
        **options: Any,
    ) -> int:
        """The reason code."""
        request = SubscribeRequest(topic_filter, qos, **options)
        return (await self.subscribe_all((request,), properties)).reasons[0]

    async def subscribe_all(
        self, requests: tuple[SubscribeRequest, ...], properties: PropertySet = NO_PROPERTIES
    ) -> SubAck:
        packet_id = next(self._ids)
        self.send(Subscribe(packet_id, requests, properties))
        answer = await self.find(SubAck)
        assert answer.packet_id == packet_id
        return answer

    async def publish(self, topic: str, payload: bytes = b"", qos: int = 0, **options: Any) -> int:
        """Through to its end; the reason code of PUBACK or PUBREC."""
        packet_id = next(self._ids) if qos else 0
        self.send(Publish(topic, payload, qos, packet_id=packet_id, **options))
        if qos == 0:
            return 0
        if qos == 1:
            answer = await self.find(PubAck)
            assert answer.packet_id == packet_id
            return answer.reason
        received = await self.find(PubRec)
        assert received.packet_id == packet_id
        if received.reason < 0x80:
            self.send(PubRel(packet_id))
            await self.find(PubComp)
        return received.reason

    # --- hearing

    async def receive(self, seconds: float = PATIENCE_SECONDS) -> Packet:
        if self._aside:
            return self._aside.pop(0)
        return await asyncio.wait_for(self._receive(), seconds)

    async def _receive(self) -> Packet:
        while (frame := split(self._buffer, 0, LIMIT)) is None:
            data = await self._reader.read(65536)
            if not data:
                raise EOFError("the gateway closed the connection")
            self._buffer += data
        body = self._buffer[frame.start : frame.end]
        self._buffer = self._buffer[frame.end :]
        return decode(frame.head, body, self.version)

    async def expect(self, kind: type[P]) -> P:
        packet = await self.receive()
        assert isinstance(packet, kind), f"{packet} instead of {kind.__name__}"
        return packet

    async def find(self, kind: type[P]) -> P:
        """The next of that kind; what comes before it is heard later."""
        passed: list[Packet] = []
        while not isinstance(packet := await self.receive(), kind):
            passed.append(packet)
        self._aside = passed + self._aside
        return packet

    async def message(self) -> Publish:
        """The next message, acknowledged as its QoS asks."""
        packet = await self.expect(Publish)
        await self.acknowledge(packet)
        return packet

    async def acknowledge(self, packet: Publish) -> None:
        if packet.qos == 1:
            self.send(PubAck(packet.packet_id))
        elif packet.qos == 2:
            self.send(PubRec(packet.packet_id))
            await self.find(PubRel)
            self.send(PubComp(packet.packet_id))

    async def messages(self, count: int) -> list[Publish]:
        return [await self.message() for _ in range(count)]

    async def hears_nothing(self) -> bool:
        """Nothing was on its way: the answer to a ping comes first."""
        self.send(PingReq())
        packet = await self.receive()
        return isinstance(packet, PingResp)

    async def is_closed(self, seconds: float = PATIENCE_SECONDS) -> bool:
        """The gateway ends the connection, and says nothing more."""
        try:
            packet = await self.receive(seconds)
        except (EOFError, ConnectionError):
            return True
        raise AssertionError(f"{packet} instead of the end")

    async def disconnected(self) -> int:
        """The reason code of the gateway's DISCONNECT, after which it closes."""
        packet = await self.expect(Disconnect)
        assert await self.is_closed()
        return packet.reason

    # --- the end

    async def disconnect(self, reason: int = 0, properties: PropertySet = NO_PROPERTIES) -> None:
        self.send(Disconnect(reason, properties))
        await self.is_closed()
        self.abort()

    def abort(self) -> None:
        """Ends the connection without a word, as a client that is lost does."""
        self._writer.transport.abort()

    async def wait_closed(self) -> None:
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class Mqtt:
    """The gateway as these tests see it: a port."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._opened: list[RawClient] = []

    async def close(self) -> None:
        for client in self._opened:
            client.abort()
            await client.wait_closed()

    @asynccontextmanager
    async def client(
        self,
        client_id: str | None = None,
        version: Version = Version.V5,
        clean: bool = True,
        **options: Any,
    ) -> AsyncIterator[RawClient]:
        """A client that is connected, and cut off at the end."""
        client = await self.connected(client_id, version, clean, **options)
        try:
            yield client
        finally:
            client.abort()

    async def connected(
        self,
        client_id: str | None = None,
        version: Version = Version.V5,
        clean: bool = True,
        **options: Any,
    ) -> RawClient:
        client = await self.open(version)
        name = fresh() if client_id is None else client_id
        answer = await client.connect(Connect(name, version, clean, **options))
        assert answer.reason == 0, answer
        return client

    async def open(self, version: int = Version.V5) -> RawClient:
        client = await RawClient.open(self.port, version)
        self._opened.append(client)
        return client


def lasting(seconds: int = 300) -> PropertySet:
    """The CONNECT properties of a session that outlives its connection."""
    return PropertySet(session_expiry=seconds)
