"""A conversation with the machine without a socket: bytes in, words out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from protocols.amqp091.client import Client
from protocols.amqp091.consume.deliveries import CONTENT
from protocols.amqp091.context import Context
from protocols.amqp091.machine import Machine
from protocols.amqp091.output import Output
from protocols.amqp091.settings import Settings
from protocols.amqp091.wire.codec import decode_method, method_frame
from protocols.amqp091.wire.content import encode_properties
from protocols.amqp091.wire.frames import BODY, HEADER, METHOD, PROTOCOL_HEADER, frame, split
from protocols.amqp091.wire.methods import (
    BasicPublish,
    ChannelClose,
    ChannelOpen,
    ConnectionClose,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    Method,
)
from queue_core.access.auth import Credentials, Identity, Peer
from queue_core.access.mechanisms import PLAIN
from queue_core.errors import AccessRefused
from tests.support.fake_carrier import FakeCarrier
from tests.support.fake_services import FakeServices

PLAIN_PROPERTIES = encode_properties({})
GREETING = ConnectionStartOk(
    {"capabilities": {"consumer_cancel_notify": True, "authentication_failure_close": True}},
    "PLAIN",
    b"\0ann\0secret",
    "en_US",
)


class Ann:
    """The only user, by her password."""

    def mechanisms(self, peer: Peer) -> Sequence[str]:
        return (PLAIN,)

    async def authenticate(self, credentials: Credentials, peer: Peer) -> Identity | None:
        if (credentials.username, credentials.password) != ("ann", b"secret"):
            raise AccessRefused("wrong user name or password")
        return Identity("ann")


def anns_gateway() -> FakeServices:
    return FakeServices(Ann())


class Conversation:
    """One client's side."""

    def __init__(
        self, services: FakeServices | None = None, settings: Settings | None = None
    ) -> None:
        self.services = services or anns_gateway()
        self.output = Output(lambda: None, lambda: None)
        context = Context(self.services, settings or Settings())
        self.counters = context.counters
        self.carrier = FakeCarrier()
        self.machine = Machine(context, self.output, self.carrier)

    @property
    def client(self) -> Client:
        """The open connection's own part of the machine."""
        assert self.machine.client is not None
        return self.machine.client

    async def say(self, *data: bytes | Method, channel: int = 1) -> list[object]:
        """Sends all of it in one piece, and hears everything that comes back."""
        whole = b"".join(
            each if isinstance(each, bytes) else method_frame(channel, each) for each in data
        )
        await self.receive(whole)
        return self.heard()

    async def receive(self, data: bytes) -> None:
        command = self.machine.receive(data)
        while command is not None or self.machine.is_unfinished:
            if command is not None:
                await self.machine.perform(command)
                self.machine.proceed()
            command = self.machine.receive(b"")

    def heard(self) -> list[object]:
        """Methods, and the bytes of headers' properties and of bodies, in order."""
        return list(_parts(self.output.take()))

    async def open(self, greeting: ConnectionStartOk = GREETING) -> Conversation:
        """Up to an open channel 1."""
        await self.receive(
            PROTOCOL_HEADER
            + method_frame(0, greeting)
            + method_frame(0, ConnectionTuneOk(0, 0, 0))
            + method_frame(0, ConnectionOpen("/"))
            + method_frame(1, ChannelOpen())
        )
        self.heard()
        return self


def _parts(data: bytes) -> Iterator[object]:
    position = 0
    if data.startswith(PROTOCOL_HEADER):
        yield PROTOCOL_HEADER
        position = len(PROTOCOL_HEADER)
    while position < len(data):
        found = split(data, position, 1 << 20)
        assert found is not None, "half a frame was sent"
        payload = data[found.start : found.end]
        if found.kind == METHOD:
            yield decode_method(payload)
        else:
            yield payload[CONTENT.size :] if found.kind == HEADER else payload
        position = found.end + 1


def published(
    key: str,
    body: bytes = b"body",
    *,
    exchange: str = "",
    channel: int = 1,
    mandatory: bool = False,
    step: int = 1 << 16,
    **properties: object,
) -> bytes:
    """A publish with its content, the body in frames of `step` bytes."""
    native = encode_properties(properties)
    frames = [
        method_frame(channel, BasicPublish(0, exchange, key, mandatory=mandatory)),
        frame(HEADER, channel, CONTENT.pack(60, 0, len(body)) + native),
    ]
    frames += [
        frame(BODY, channel, body[start : start + step]) for start in range(0, len(body), step)
    ]
    return b"".join(frames)


def closes(heard: list[object]) -> list[tuple[int, int, int]]:
    """Code, class and method of what was closed."""
    return [
        (each.reply_code, each.class_id, each.method_id)
        for each in heard
        if isinstance(each, ChannelClose | ConnectionClose)
    ]
