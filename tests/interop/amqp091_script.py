"""Scripted conversations in AMQP 0.9.1, and what a server answers to each step.

A step is a method on a channel of one of two connections. What comes back until the server falls
silent is written down in words that do not depend on names the server invents.
"""

from __future__ import annotations

import asyncio
import re
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from protocols.amqp091.codec import decode_method, method_frame
from protocols.amqp091.content import decode_properties, encode_properties
from protocols.amqp091.frames import BODY, HEADER, METHOD, PROTOCOL_HEADER, frame, split
from protocols.amqp091.methods import (
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    Method,
)

SILENCE = 0.25  # seconds without a frame, after which a server has said all it had to say
PATIENCE = 5.0  # seconds for the first frame of an answer that must come

INVENTED = re.compile(r"amq\.(gen|ctag|rabbitmq\.reply-to\.)[-\w.+/=]*")


@dataclass(frozen=True, slots=True)
class Step:
    method: Method | bytes  # bytes go out as they are
    channel: int = 1
    connection: int = 0
    body: bytes | None = None
    properties: dict[str, Any] = field(default_factory=dict)
    echoes: bool = False  # the other connection hears something, too
    wait: float = 0.0  # seconds more, for what takes time (an expiry)
    difference: str = ""  # why the answers are meant to differ


@dataclass(frozen=True, slots=True)
class Script:
    name: str
    steps: Sequence[Step]


class Peer:
    """One connection, raw."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._buffer = b""
        self._has_ended = False

    @classmethod
    async def login(cls, port: int) -> Peer:
        peer = cls(*await asyncio.open_connection("127.0.0.1", port))
        peer._writer.write(PROTOCOL_HEADER)
        await peer._frame(PATIENCE)
        capabilities = {"consumer_cancel_notify": True, "connection.blocked": True}
        peer.send(
            0,
            ConnectionStartOk({"capabilities": capabilities}, "PLAIN", b"\0guest\0guest", "en_US"),
        )
        await peer._frame(PATIENCE)
        peer.send(0, ConnectionTuneOk(100, 131_072, 0))
        peer.send(0, ConnectionOpen("/"))
        await peer._frame(PATIENCE)
        peer.send(1, ChannelOpen())
        await peer._frame(PATIENCE)
        return peer

    def send(self, channel: int, method: Method) -> None:
        self._writer.write(method_frame(channel, method))

    def take(self, step: Step) -> None:
        data = step.method
        self._writer.write(data if isinstance(data, bytes) else method_frame(step.channel, data))
        if step.body is not None:
            native = encode_properties(step.properties)
            head = struct.pack(">HHQ", 60, 0, len(step.body)) + native
            self._writer.write(frame(HEADER, step.channel, head))
            if step.body:
                self._writer.write(frame(BODY, step.channel, step.body))

    async def answers(self) -> list[str]:
        """In words, until there is silence. Closes are answered, as a client does."""
        words: list[str] = []
        while (found := await self._frame(SILENCE)) is not None:
            kind, channel, payload = found
            if kind == METHOD:
                method = decode_method(payload)
                words.append(f"{channel} {described(method)}")
                if isinstance(method, ChannelClose):
                    self.send(channel, ChannelCloseOk())
                if isinstance(method, ConnectionClose):
                    self.send(0, ConnectionCloseOk())
            elif kind == HEADER:
                words.append(f"{channel} properties {properties_in_words(payload[12:])}")
            elif kind == BODY:
                words.append(f"{channel} body {invented_away(payload.decode())}")
        self._has_ended = self._has_ended or any("ConnectionClose" in word for word in words)
        if self._reader.at_eof() and not self._has_ended:
            self._has_ended = True
            words.append("connection ended")
        return words

    async def _frame(self, seconds: float) -> tuple[int, int, bytes] | None:
        while (found := split(self._buffer, 0, 1 << 20)) is None:
            try:
                data = await asyncio.wait_for(self._reader.read(65_536), seconds)
            except (TimeoutError, ConnectionError):
                return None
            if not data:
                return None
            self._buffer += data
        payload = self._buffer[found.start : found.end]
        self._buffer = self._buffer[found.end + 1 :]
        return found.kind, found.channel, payload

    def close(self) -> None:
        self._writer.close()


def described(method: Method) -> str:
    """A method with its fields, but for what each server words in its own way."""
    if isinstance(method, ChannelClose | ConnectionClose):
        return (
            f"{type(method).__name__} {method.reply_code} of {method.class_id}.{method.method_id}"
        )
    values = [
        f"{each.name}={invented_away(str(getattr(method, each.name)))}"
        for each in fields(method)  # type: ignore[arg-type]
        if not each.name.startswith("reserved") and each.name != "reply_text"
    ]
    return " ".join([type(method).__name__, *values])


def properties_in_words(native: bytes) -> str:
    found = decode_properties(native)
    headers = found.get("headers")
    if isinstance(headers, dict):
        found["headers"] = {
            name: _without_times(value)
            for name, value in sorted(headers.items())
            if not name.startswith("x-last-death")  # newer than Debian's RabbitMQ
        }
    return invented_away(str(found))


def _without_times(value: object) -> object:
    if isinstance(value, list):
        return [_without_times(each) for each in value]
    if isinstance(value, dict):
        return {name: each for name, each in sorted(value.items()) if name != "time"}
    return value


def invented_away(text: str) -> str:
    return INVENTED.sub(r"<\1>", text)


class Conversation:
    """One server's side of a script: two connections, and what each step was answered with."""

    def __init__(self, peers: list[Peer]) -> None:
        self._peers = peers

    @classmethod
    async def open(cls, port: int) -> Conversation:
        return cls([await Peer.login(port), await Peer.login(port)])

    async def follow(self, step: Step) -> list[str]:
        self._peers[step.connection].take(step)
        await asyncio.sleep(step.wait)
        return await self.hear(step)

    async def hear(self, step: Step) -> list[str]:
        """What else comes; also what a server that is slow today says later."""
        words = await self._peers[step.connection].answers()
        others = await self._peers[1 - step.connection].answers() if step.echoes else []
        return [*words, *(f"other: {word}" for word in others)]

    def close(self) -> None:
        for peer in self._peers:
            peer.close()


async def answers_of_both(script: Script, *ports: int) -> list[tuple[list[str], ...]]:
    """What the servers at those ports answer to each step. Where they differ and should not, the
    one that has said less may only be slow: both are listened to for a while longer."""
    sides = [await Conversation.open(port) for port in ports]
    found: list[tuple[list[str], ...]] = []
    for step in script.steps:
        words = await asyncio.gather(*(side.follow(step) for side in sides))
        deadline = time.monotonic() + PATIENCE
        while not step.difference and words[0] != words[1] and time.monotonic() < deadline:
            more = await asyncio.gather(*(side.hear(step) for side in sides))
            words = [[*before, *later] for before, later in zip(words, more, strict=True)]
        found.append(tuple(words))
    for side in sides:
        side.close()
    return found
