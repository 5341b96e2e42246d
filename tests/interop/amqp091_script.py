"""Scripted conversations in AMQP 0.9.1, and what a server answers to each of them.

A step is a method on a channel of one of two connections. What comes back is written down by
connection and channel, in words that do not depend on names the server invents: within a channel
the protocol keeps an order, between channels and between connections it promises none. RabbitMQ
runs each channel as a process of its own and does answer them in any order.

No answer is told from another by the time it takes. A step that has a reply of its own is over
when that reply (or a close) is there; one without is followed by a fence, a method that changes
nothing and whose reply shows that the step was read: channel.flow on the same channel, or, where
the step breaks that channel, a new channel. Only what queues send of their own accord is waited for
by the clock, and it counts wherever it comes in its channel.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any, Final

from protocols.amqp091.wire.codec import decode_method, method_frame
from protocols.amqp091.wire.content import decode_properties, encode_properties
from protocols.amqp091.wire.frames import BODY, HEADER, METHOD, PROTOCOL_HEADER, frame, split
from protocols.amqp091.wire.methods import (
    BasicAck,
    BasicNack,
    BasicPublish,
    BasicReject,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    ExchangeBind,
    ExchangeDeclare,
    Method,
    QueueBind,
    QueueDeclare,
)
from tests.support.until import PATIENCE_SECONDS

SILENCE_SECONDS = 0.25  # without a frame, after which a server has said all it had to say
SHORT_SILENCE_SECONDS = 0.05  # the same after a reply to what makes no queue send anything
LONG_SILENCE_SECONDS = 1.0  # the same where the other server's words cannot tell what is missing
LAST_CHANNEL = 100  # of a connection; fences count down from it, scripts up from 1

INVENTED = re.compile(r"amq\.(gen|ctag|rabbitmq\.reply-to\.)[-\w.+/=]*")
DEFINING: Final = (ChannelOpen, ExchangeBind, ExchangeDeclare, QueueBind, QueueDeclare)
UNANSWERED: Final = (BasicPublish, BasicAck, BasicNack, BasicReject)
REPLIES: Final = {"BasicGet": {"BasicGetOk", "BasicGetEmpty"}}  # of the others: the name and Ok

Words = dict[tuple[int, int], list[str]]  # by connection and channel


@dataclass(frozen=True, slots=True)
class Step:
    method: Method | bytes  # bytes go out as they are
    channel: int = 1
    connection: int = 0
    body: bytes | None = None
    properties: dict[str, Any] = field(default_factory=dict)
    wait: float = 0.0  # seconds more, for what takes time (an expiry)
    difference: str = ""  # why the answers are meant to differ
    breaks: bool = False  # no other method may follow on this channel

    def replies(self) -> set[str]:
        """The methods that end this step; none where the protocol has no reply to it."""
        method = self.method
        if isinstance(method, (bytes, *UNANSWERED)) or getattr(method, "nowait", False):
            return set()
        name = type(method).__name__
        return REPLIES.get(name, {f"{name}Ok"})

    @property
    def silence_seconds(self) -> float:
        """How long a server says nothing when it has said all about this step."""
        if self.difference or self.breaks:
            return LONG_SILENCE_SECONDS
        is_short = isinstance(self.method, DEFINING) and self.replies()
        return SHORT_SILENCE_SECONDS if is_short else SILENCE_SECONDS


@dataclass(frozen=True, slots=True)
class Script:
    name: str
    steps: Sequence[Step]


class Peer:
    """One raw connection. A task of its own reads it and writes down what comes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._buffer = b""
        self._due_flows: Counter[int] = Counter()  # by channel, replies to fences
        self._opened: dict[int, bool] = {}  # channels that are fences, and whether they are open
        self._listening: asyncio.Task[None] | None = None
        self._heard = asyncio.Event()
        self.words: defaultdict[int, list[str]] = defaultdict(list)
        self.methods: Counter[tuple[int, str]] = Counter()  # how many came, by channel and name
        self.has_ended = False

    @classmethod
    async def login(cls, port: int) -> Peer:
        peer = cls(*await asyncio.open_connection("127.0.0.1", port))
        peer._writer.write(PROTOCOL_HEADER)
        await peer._frame()
        capabilities = {"consumer_cancel_notify": True, "connection.blocked": True}
        peer.send(
            0,
            ConnectionStartOk({"capabilities": capabilities}, "PLAIN", b"\0guest\0guest", "en_US"),
        )
        await peer._frame()
        peer.send(0, ConnectionTuneOk(LAST_CHANNEL, 131_072, 0))
        peer.send(0, ConnectionOpen("/"))
        await peer._frame()
        peer.send(1, ChannelOpen())
        await peer._frame()
        peer._listening = asyncio.create_task(peer._listen())
        return peer

    def send(self, channel: int, method: Method) -> None:
        self._writer.write(method_frame(channel, method))

    async def take(self, step: Step) -> None:
        """Sends a step and waits until the server has read it."""
        replies, channel = step.replies(), step.channel
        before = self._replied(channel, replies)
        self._send(step)
        if replies:
            await self.until(lambda: self._replied(channel, replies) > before)
        elif step.breaks:
            await self._open_fence()
        else:
            await self._flow_fence(channel)

    async def until(self, is_there: Callable[[], bool]) -> None:
        """Waits for what must come, for the end of the connection, or for no longer than patience
        lasts: what is missing then shows in the words."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not is_there() and not self.has_ended:
                    self._heard.clear()
                    await self._heard.wait()

    async def silence(self, seconds: float) -> None:
        """Waits until the server has said nothing for so long."""
        with suppress(TimeoutError):
            while True:
                self._heard.clear()
                await asyncio.wait_for(self._heard.wait(), seconds)

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()
        if self._listening is not None:
            await self._listening

    async def _flow_fence(self, channel: int) -> None:
        self._due_flows[channel] += 1
        self.send(channel, ChannelFlow(True))
        await self.until(lambda: self._due_flows[channel] == 0)

    async def _open_fence(self) -> None:
        channel = LAST_CHANNEL - len(self._opened)
        self._opened[channel] = False
        self.send(channel, ChannelOpen())
        await self.until(lambda: self._opened[channel])

    def _replied(self, channel: int, replies: set[str]) -> int:
        """How often a method was replied to, or the channel or connection closed instead."""
        names = replies | {"ChannelClose"}
        return sum(self.methods[channel, name] for name in names) + self.has_ended

    def _send(self, step: Step) -> None:
        data = step.method
        self._writer.write(data if isinstance(data, bytes) else method_frame(step.channel, data))
        if step.body is not None:
            native = encode_properties(step.properties)
            head = struct.pack(">HHQ", 60, 0, len(step.body)) + native
            self._writer.write(frame(HEADER, step.channel, head))
            if step.body:
                self._writer.write(frame(BODY, step.channel, step.body))

    async def _listen(self) -> None:
        while (found := await self._frame()) is not None:
            self._hear(*found)
            self._heard.set()
        if not self.has_ended:
            self.words[0].append("connection ended")
        self.has_ended = True
        self._heard.set()

    def _hear(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == METHOD:
            self._hear_method(channel, decode_method(payload))
        elif kind == HEADER:
            self.words[channel].append(f"properties {properties_in_words(payload[12:])}")
        elif kind == BODY:
            self.words[channel].append(f"body {invented_away(payload.decode())}")

    def _hear_method(self, channel: int, method: Method) -> None:
        """Writes a method down, and answers closes as a client does."""
        if isinstance(method, ChannelFlowOk) and self._due_flows[channel]:
            self._due_flows[channel] -= 1
            return
        if channel in self._opened:
            self._opened[channel] = True
            return
        self.words[channel].append(described(method))
        self.methods[channel, type(method).__name__] += 1
        if isinstance(method, ChannelClose):
            self._due_flows[channel] = 0  # nothing else is answered on this channel
            self.send(channel, ChannelCloseOk())
        elif isinstance(method, ConnectionClose):
            self.has_ended = True
            self.send(0, ConnectionCloseOk())
        elif isinstance(method, ConnectionCloseOk):
            self.has_ended = True

    async def _frame(self) -> tuple[int, int, bytes] | None:
        """The next frame; nothing when the connection is over."""
        while (found := split(self._buffer, 0, 1 << 20)) is None:
            try:
                data = await self._reader.read(65_536)
            except ConnectionError:
                return None
            if not data:
                return None
            self._buffer += data
        payload = self._buffer[found.start : found.end]
        self._buffer = self._buffer[found.end + 1 :]
        return found.kind, found.channel, payload


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
    """One server's side of a script: two connections, and all that was said on them."""

    def __init__(self, peers: list[Peer]) -> None:
        self._peers = peers
        self._taken: Counter[tuple[int, int]] = Counter()  # words that are settled already

    @classmethod
    async def open(cls, port: int) -> Conversation:
        return cls([await Peer.login(port), await Peer.login(port)])

    async def follow(self, step: Step) -> None:
        await self._peers[step.connection].take(step)
        await asyncio.sleep(step.wait)  # a rule about time: expiry, delays, time-outs
        await self.silence(step.silence_seconds)

    async def silence(self, seconds: float) -> None:
        await asyncio.gather(*(peer.silence(seconds) for peer in self._peers))

    def words(self) -> Words:
        """All that was said since the last words were taken, by connection and channel."""
        found = {
            (connection, channel): words[self._taken[connection, channel] :]
            for connection, peer in enumerate(self._peers)
            for channel, words in peer.words.items()
        }
        return {place: words for place, words in found.items() if words}

    def take_words(self) -> Words:
        found = self.words()
        self._taken.update({place: len(words) for place, words in found.items()})
        return found

    async def close(self) -> None:
        for peer in self._peers:
            await peer.close()


class Comparison:
    """Two servers that follow one script, and where they say different things."""

    def __init__(self, mine: Conversation, theirs: Conversation) -> None:
        self._sides = (mine, theirs)

    async def follow(self, step: Step) -> None:
        if step.difference:
            await self._follow_apart(step)
        else:
            await asyncio.gather(*(side.follow(step) for side in self._sides))
            await self.agree(str(step.method))

    async def agree(self, what: str) -> None:
        """Waits until both have said the same. The one that has said less may only be slow."""
        mine, theirs = self._sides
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while mine.words() != theirs.words() and asyncio.get_running_loop().time() < deadline:
            await asyncio.gather(*(side.silence(SILENCE_SECONDS) for side in self._sides))
        found, expected = mine.words(), theirs.words()
        assert found == expected, f"{what}: {found} instead of {expected}"
        # what both have said is settled: only what comes later is compared with the next step
        for side in self._sides:
            side.take_words()

    async def end(self) -> None:
        """Listens once more: what comes after the last step is not meant to come at all."""
        await asyncio.gather(*(side.silence(SILENCE_SECONDS) for side in self._sides))
        await self.agree("after the last step")

    async def close(self) -> None:
        for side in self._sides:
            await side.close()

    async def _follow_apart(self, step: Step) -> None:
        await asyncio.gather(*(side.follow(step) for side in self._sides))
        mine, theirs = (side.take_words() for side in self._sides)
        assert mine != theirs, f"{step.method!r}: the difference is gone"


async def assert_same_answers(script: Script, mine: int, theirs: int) -> None:
    """Follows a script at two ports and compares what is said there, channel by channel."""
    comparison = Comparison(await Conversation.open(mine), await Conversation.open(theirs))
    try:
        for step in script.steps:
            await comparison.follow(step)
        await comparison.end()
    finally:
        await comparison.close()
