"""The socket's side of AMQP 0.9.1: time, back-pressure, and the end."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from protocols import amqp_connection
from protocols.amqp091.settings import Settings
from protocols.amqp091.wire.codec import method_frame
from protocols.amqp091.wire.frames import FRAME_START, HEADER, HEARTBEAT, PROTOCOL_HEADER
from protocols.amqp091.wire.methods import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetOk,
    BasicPublish,
    BasicRecover,
    ChannelOpen,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionUnblocked,
    QueueDeclare,
    QueueDeclareOk,
)
from protocols.read_gate import UNREAD
from queue_core.delivery.consumer import Consumer
from tests.protocol.amqp091.listener import Client, Listener, listening
from tests.support.amqp091_conversation import published
from tests.support.until import until


async def test_a_client_that_does_not_open_in_time_is_cut_off() -> None:
    async with listening(Settings(handshake_seconds=0.1)) as listener:
        client = await listener.client()
        client.send(PROTOCOL_HEADER)
        await client.hear()
        with pytest.raises((EOFError, ConnectionResetError)):
            await client.hear()


async def test_an_idle_server_sends_heartbeats() -> None:
    async with listening() as listener:
        client = await (await listener.client()).open(heartbeat=1)
        assert [await client.hear(), await client.hear()] == [HEARTBEAT, HEARTBEAT]


async def test_a_client_that_falls_silent_is_taken_for_dead() -> None:
    async with listening() as listener:
        client = await (await listener.client()).open(heartbeat=1)
        client.send(QueueDeclare(0, "mine", exclusive=True))
        assert isinstance(await client.hear(), QueueDeclareOk)
        with pytest.raises((EOFError, ConnectionResetError)):
            await only_heartbeats(client)
        await gone(listener, "mine")


async def only_heartbeats(client: Client) -> None:
    while True:
        assert await client.hear() == HEARTBEAT


async def gone(listener: Listener, queue: str) -> None:
    await until(lambda: queue not in listener.services.root.queues)


async def test_a_publisher_is_held_while_the_database_is_behind() -> None:
    async with listening() as listener:
        writer = listener.services.writer
        caught_up = asyncio.Event()
        writer.uncongested = caught_up.wait  # type: ignore[method-assign,assignment]
        client = await (await listener.client()).open()
        other = await (await listener.client()).open()
        client.send(QueueDeclare(0, "q"))
        await client.hear()
        writer.is_congested = True
        client.send(published("q"))
        assert isinstance(await client.hear(), ConnectionBlocked)
        client.send(ConfirmSelect())
        other.send(ConfirmSelect())
        assert await other.hear() == ConfirmSelectOk()  # nobody else is held
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.reader.read(1), 0.1)
        writer.is_congested = False
        caught_up.set()
        assert await client.hear() == ConnectionUnblocked()
        assert await client.hear() == ConfirmSelectOk()


async def test_a_publisher_rests_for_a_moment_while_its_queue_grows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("queue_core.queues.ephemeral.CROWD", 300)
    async with listening() as listener:
        client = await (await listener.client()).open()
        client.send(QueueDeclare(0, "q"), ConfirmSelect())
        await client.hear()
        await client.hear()
        last = 0
        for expected in (400, 800, 1200, 1600, 2000):  # all are taken all the same
            client.send(published("q") * 400)
            while last < expected:
                answer = await client.hear()
                assert isinstance(answer, BasicAck)
                last = answer.delivery_tag
        (connection,) = listener.connections
        assert connection._counters.rested_publishers > 0
        client.send(QueueDeclare(0, "q", passive=True))
        assert await client.hear() == QueueDeclareOk("q", 2000, 0)


async def test_a_client_that_does_not_read_stalls_nobody_and_costs_a_bounded_buffer() -> None:
    async with listening() as listener:
        slow = await (await listener.client()).open()
        slow.send(QueueDeclare(0, "q"), BasicConsume(0, "q", "slow"))
        await slow.hear()
        await slow.hear()
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
        publisher = await (await listener.client()).open()
        publisher.send(ConfirmSelect())
        await publisher.hear()
        for _ in range(40):
            publisher.send(published("q", bytes(1 << 20), step=100_000))
            await publisher.hear()
        transport = listener.connections[0]._transport
        assert transport.get_write_buffer_size() < 8 << 20
        fast = await (await listener.client()).open()
        fast.send(BasicConsume(0, "q", "fast"))
        assert isinstance(await fast.hear(), BasicConsumeOk)
        assert isinstance(await fast.hear(), BasicDeliver)


async def test_a_client_that_asks_and_never_listens_is_not_read_any_more() -> None:
    async with listening() as listener:
        client = await (await listener.client()).open()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.send(QueueDeclare(0, "q"), published("q", bytes(1 << 20), step=100_000))
        ask = method_frame(1, BasicGet(0, "q")) + method_frame(1, BasicRecover(requeue=True))
        client.send(ask * 2000)  # two gigabytes of answers
        server = listener.connections[0]
        await until(lambda: server._gate.is_shut_for(UNREAD))
        assert server._transport.get_write_buffer_size() < 32 << 20
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        heard = [await client.hear() for _ in range(300)]
        assert sum(isinstance(each, BasicGetOk) for each in heard) > 20


async def test_a_stopping_gateway_says_goodbye_and_waits_for_the_answer() -> None:
    async with listening() as listener:
        client = await (await listener.client()).open()
        listener.connections[0].shut_down("the gateway stops")
        goodbye = await client.hear()
        assert isinstance(goodbye, ConnectionClose)
        assert goodbye.reply_code == 320
        client.send(ConnectionCloseOk(), channel=0)
        assert await client.is_ended()


async def test_a_client_that_goes_on_talking_after_the_goodbye_gains_no_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(amqp_connection, "CLOSE_SECONDS", 0.3)
    async with listening() as listener:
        client = await (await listener.client()).open()
        listener.connections[0].shut_down("the gateway stops")
        assert isinstance(await client.hear(), ConnectionClose)

        async def talk() -> None:
            while True:
                client.send(ConfirmSelect())
                await client.writer.drain()
                await asyncio.sleep(0.02)  # the pace of its talk

        talking = asyncio.create_task(talk())
        with pytest.raises((EOFError, ConnectionResetError)):
            await client.hear()
        talking.cancel()
        await asyncio.gather(talking, return_exceptions=True)


async def test_a_consumer_that_comes_into_being_after_the_goodbye_is_not_left_behind() -> None:
    async with listening() as listener:
        client = await (await listener.client()).open()
        client.send(QueueDeclare(0, "q"))
        await client.hear()
        root, is_asked, may_go_on = listener.services.root, asyncio.Event(), asyncio.Event()
        consume = root.consume

        async def slow(*facts: Any) -> Consumer:
            is_asked.set()
            await may_go_on.wait()
            return await consume(*facts)

        root.consume = slow  # type: ignore[method-assign,assignment]
        client.send(BasicConsume(0, "q", "late"))
        await is_asked.wait()
        listener.connections[0].shut_down("the gateway stops")
        may_go_on.set()
        await until(lambda: listener.connections[0]._running is None)
        assert root.queues["q"].counts().consumers == 0


async def test_a_clean_close_is_answered_before_the_socket_ends() -> None:
    async with listening() as listener:
        client = await (await listener.client()).open()
        client.send(ConnectionClose(200, "bye"), channel=0)
        assert await client.hear() == ConnectionCloseOk()
        assert await client.is_ended()


async def test_an_oversize_frame_before_tuning_is_refused() -> None:
    async with listening() as listener:
        client = await listener.client()
        client.send(PROTOCOL_HEADER, b"\x01\0\0\0\0\x10\x01")
        await client.hear()
        refusal = await client.hear()
        assert isinstance(refusal, ConnectionClose)
        assert refusal.reply_code == 501
        assert await client.is_ended()


async def test_who_sends_headers_that_fill_more_than_a_frame_hears_why_and_so_does_the_operator(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Although most of the frame was not read yet: a reset would have swallowed the reason."""
    caplog.set_level(logging.INFO, "protocols.amqp091")
    async with listening() as listener:
        client = await (await listener.client()).open()
        client.send(BasicPublish(0, "", "q"), FRAME_START.pack(HEADER, 1, 8_000_000))
        client.send(bytes(8_000_000))
        await client.writer.drain()
        refusal = await client.hear()
        assert isinstance(refusal, ConnectionClose)
        assert refusal.reply_code == 501
        assert "8000008 bytes; 131072 is the negotiated maximum" in refusal.reply_text
        assert await client.is_ended()
    assert "of user 'ann', channel" in caplog.text
    assert "FRAME_ERROR - a frame of 8000008 bytes" in caplog.text


async def test_what_a_lost_connection_was_about_to_make_is_not_left_behind() -> None:
    async with listening() as listener:
        root = listener.services.root
        client: Client = await (await listener.client()).open()
        served = listener.connections[0]
        async with root._turns.of("mine"):  # somebody else's declaration takes its time
            client.send(QueueDeclare(0, "mine", exclusive=True))
            await client.writer.drain()
            await until(lambda: served._running is not None)
            client.writer.transport.abort()
        await until(lambda: served._is_lost and served._running is None)
        assert not root.queues


async def test_a_bug_ends_that_connection_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with listening() as listener:
        client = await (await listener.client()).open()
        other = await (await listener.client()).open()

        def broken(*facts: object, **more: object) -> object:
            raise RuntimeError("a bug")

        machine = listener.connections[0]._machine
        assert machine.client is not None
        machine.client._open_channel = broken  # type: ignore[method-assign,assignment]
        client.send(ChannelOpen(), channel=2)
        answer = await client.hear()
        assert isinstance(answer, ConnectionClose)
        assert answer.reply_code == 541
        assert "a bug" in caplog.text
        other.send(ConfirmSelect())
        assert await other.hear() == ConfirmSelectOk()
