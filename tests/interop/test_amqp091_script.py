"""The comparison of two servers itself: what it may overlook, and what it must not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from protocols.amqp091.wire.codec import decode_method, method_frame
from protocols.amqp091.wire.frames import METHOD, PROTOCOL_HEADER, split
from protocols.amqp091.wire.methods import (
    BasicCancel,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    Method,
    QueueDeclare,
    QueueDeclareOk,
    QueuePurge,
)
from tests.interop.amqp091_script import SILENCE_SECONDS, Script, Step, assert_same_answers

Said = tuple[int, Method]  # on which channel
Answer = Callable[[int, Method], list[Said]]

OPENING: dict[type[Method], Method] = {
    ConnectionStartOk: ConnectionTune(),
    ConnectionOpen: ConnectionOpenOk(),
    ChannelOpen: ChannelOpenOk(),
    ChannelFlow: ChannelFlowOk(True),
}


@asynccontextmanager
async def server(answer: Answer, delay_seconds: float = 0.0) -> AsyncIterator[int]:
    """Logs everybody in, opens channels, and says to all else what `answer` says, a while later."""

    serving: list[asyncio.Task[None] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.current_task())
        await reader.readexactly(len(PROTOCOL_HEADER))
        writer.write(method_frame(0, ConnectionStart()))
        data = b""
        while chunk := await reader.read(65_536):
            data += chunk
            while (found := split(data, 0, 1 << 20)) is not None:
                payload, data = data[found.start : found.end], data[found.end + 1 :]
                if found.kind != METHOD:
                    continue
                method = decode_method(payload)
                known = OPENING.get(type(method))
                said = [(found.channel, known)] if known else answer(found.channel, method)
                if said and not known:
                    await asyncio.sleep(delay_seconds)  # this server is slow: that is the test
                for channel, each in said:
                    writer.write(method_frame(channel, each))
        writer.close()
        await writer.wait_closed()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield listening.sockets[0].getsockname()[1]
        await asyncio.gather(*(task for task in serving if task is not None))


def in_order(*said: Said) -> Answer:
    """To a method without a reply: these, in this order. A declaration gets its reply."""

    def answer(channel: int, method: Method) -> list[Said]:
        if isinstance(method, QueueDeclare):
            return [(channel, QueueDeclareOk(method.queue, 0, 0))]
        return list(said) if isinstance(method, QueuePurge) else []

    return answer


UNASKED = Step(QueuePurge(0, "q", nowait=True))
ONE, TWO = BasicCancel("one", True), BasicCancel("two", True)
SCRIPT = Script("", [Step(ChannelOpen(), 2), UNASKED, Step(QueueDeclare(0, "q"), 2)])


async def test_the_order_between_channels_is_not_compared() -> None:
    async with (
        server(in_order((1, ONE), (2, TWO))) as mine,
        server(in_order((2, TWO), (1, ONE))) as theirs,
    ):
        await assert_same_answers(SCRIPT, mine, theirs)


async def test_the_order_within_a_channel_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.interop.amqp091_script.PATIENCE_SECONDS", 0.5)
    async with (
        server(in_order((2, ONE), (2, TWO))) as mine,
        server(in_order((2, TWO), (2, ONE))) as theirs,
    ):
        with pytest.raises(AssertionError):
            await assert_same_answers(SCRIPT, mine, theirs)


async def test_an_answer_that_only_one_server_gives_is_a_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.interop.amqp091_script.PATIENCE_SECONDS", 0.5)
    async with server(in_order((1, ONE))) as mine, server(in_order()) as theirs:
        with pytest.raises(AssertionError):
            await assert_same_answers(SCRIPT, mine, theirs)


async def test_a_late_answer_belongs_to_the_step_that_it_answers() -> None:
    said = in_order((1, ONE), (2, TWO))
    async with server(said) as mine, server(said, 3 * SILENCE_SECONDS) as theirs:
        await assert_same_answers(SCRIPT, mine, theirs)
