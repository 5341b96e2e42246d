"""AMQP 0.9.1 when things break: what was confirmed is there, whatever was killed.

A history is kept of what was confirmed, what came and how it was flagged; after the fault the rest
is read, and the whole is checked.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import aiormq
import pytest
from aiormq.abc import AbstractChannel, AbstractConnection, DeliveredMessage

from tests.support.gateway_process import GatewayProcess
from tests.support.until import PATIENCE_SECONDS, turns

PERSISTENT = aiormq.spec.Basic.Properties(delivery_mode=2)
QUEUE = "history"


@dataclass(slots=True)
class History:
    confirmed: set[int] = field(default_factory=set)
    received: list[tuple[int, bool]] = field(default_factory=list)  # with the redelivered flag
    progress: asyncio.Event = field(default_factory=asyncio.Event)

    def check(self) -> None:
        bodies = [body for body, _ in self.received]
        assert self.confirmed <= set(bodies), "a confirmed message is lost"
        seen: set[int] = set()
        for body, redelivered in self.received:
            assert body not in seen or redelivered, f"{body} came twice and was not flagged"
            seen.add(body)
        firsts = list(dict.fromkeys(bodies))
        assert firsts == sorted(firsts), "out of order"


async def opened(gateway: GatewayProcess) -> tuple[AbstractConnection, AbstractChannel]:
    connection = await aiormq.connect(gateway.amqp_url())
    return connection, await connection.channel()


async def publish_until_cut(gateway: GatewayProcess, history: History, start: int) -> None:
    """Publishes as fast as a window of confirms allows, until the connection breaks."""
    _, channel = await opened(gateway)
    number = start
    window = asyncio.Semaphore(200)

    async def one(body: int) -> None:
        async with window:
            confirm = await channel.basic_publish(
                str(body).encode(), routing_key=QUEUE, properties=PERSISTENT
            )
        assert isinstance(confirm, aiormq.spec.Basic.Ack)
        history.confirmed.add(body)
        if len(history.confirmed) >= 2000:
            history.progress.set()

    tasks: set[asyncio.Task[None]] = set()
    try:
        while not channel.is_closed and number < start + 20_000:
            tasks.add(asyncio.create_task(one(number)))
            number += 1
            if number % 50 == 0:
                await turns()  # the client reads its confirms
    finally:
        await asyncio.gather(*tasks, return_exceptions=True)


async def consume(channel: AbstractChannel, history: History) -> None:
    async def on_message(message: DeliveredMessage) -> None:
        history.received.append((int(message.body), bool(message.redelivered)))
        if len(history.received) % 20 == 0:
            await channel.basic_ack(message.delivery_tag or 0, multiple=True)

    await channel.basic_qos(prefetch_count=100)
    await channel.basic_consume(QUEUE, on_message)


async def read_rest(gateway: GatewayProcess, history: History) -> None:
    connection, channel = await opened(gateway)
    try:
        while True:
            got = await channel.basic_get(QUEUE)
            if isinstance(got.delivery, aiormq.spec.Basic.GetEmpty):
                return
            history.received.append((int(got.body), bool(got.redelivered)))
            await channel.basic_ack(got.delivery_tag or 0)
    finally:
        await connection.close()


async def run(gateway: GatewayProcess, fault: Callable[[], Awaitable[None]]) -> History:
    history = History()
    _, channel = await opened(gateway)
    await channel.queue_declare(QUEUE, durable=True)
    await consume(channel, history)
    publishing = asyncio.create_task(publish_until_cut(gateway, history, 0))
    await asyncio.wait_for(history.progress.wait(), 60)
    await fault()
    await asyncio.wait_for(publishing, PATIENCE_SECONDS)
    await channel.connection.close()
    return history


async def test_kill_nine_of_the_gateway_loses_no_confirmed_message(
    gateway: GatewayProcess,
) -> None:
    async def fault() -> None:
        gateway.kill()

    history = await run(gateway, fault)
    await asyncio.to_thread(gateway.restart)
    await read_rest(gateway, history)
    history.check()


async def test_kill_nine_of_postgresql_loses_no_confirmed_message(gateway: GatewayProcess) -> None:
    async def fault() -> None:
        os.kill(gateway.postgres_pid, signal.SIGKILL)

    history = await run(gateway, fault)
    if not gateway.is_running:
        await asyncio.to_thread(gateway.restart)
    await read_rest(gateway, history)
    history.check()


ASKED: dict[str, Any] = {  # of a header: a value of each kind, each asked for by a queue of its own
    "truth": True,
    "int": -7,
    "long": 1 << 40,
    "double": 1.5,
    "decimal": Decimal("2.50"),
    "text": "text",
    "bytes": bytearray(b"\xff\x00"),
    "time": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "nothing": None,  # asks for any
    "array": [1, "two", [3.0]],
    "table": {"a": 1, "b": {"c": False}},
}


async def check_headers(channel: AbstractChannel) -> None:
    """Each binding takes its own value and no other, and is undone by the words that made it."""
    for is_bound in (True, False):
        for value in ASKED.values():
            properties = aiormq.spec.Basic.Properties(headers={"h": value}, delivery_mode=2)
            await channel.basic_publish(b"", exchange="amq.headers", properties=properties)
        for name, value in ASKED.items():
            purged = await channel.queue_purge(name)
            expected = 1 if value is not None else len(ASKED)
            assert (name, purged.message_count) == (name, expected * is_bound)
            await channel.queue_unbind(name, "amq.headers", arguments={"h": value})


async def test_durable_definitions_survive_a_restart_and_others_do_not(
    gateway: GatewayProcess,
) -> None:
    _, channel = await opened(gateway)
    await channel.exchange_declare("kept", exchange_type="topic", durable=True)
    await channel.exchange_declare("spare", exchange_type="fanout", durable=True)
    await channel.exchange_declare("gone", exchange_type="fanout")
    await channel.exchange_bind("spare", "kept", routing_key="x.#")
    arguments: dict[str, Any] = {"x-max-length": 10, "x-dead-letter-exchange": "spare"}
    await channel.queue_declare("kept", durable=True, arguments=arguments)
    await channel.queue_declare("gone", durable=False)
    await channel.queue_bind("kept", "kept", routing_key="a.*")
    await channel.queue_bind("kept", "gone")
    for name, value in ASKED.items():
        await channel.queue_declare(name, durable=True)
        await channel.queue_bind(name, "amq.headers", arguments={"h": value})
    await channel.basic_publish(b"1", exchange="kept", routing_key="a.b", properties=PERSISTENT)
    await asyncio.to_thread(gateway.restart)
    connection, channel = await opened(gateway)
    try:
        declared = await channel.queue_declare("kept", durable=True, arguments=arguments)
        assert declared.message_count == 1
        await channel.exchange_declare("kept", exchange_type="topic", durable=True)
        await channel.basic_publish(b"2", exchange="kept", routing_key="a.c", properties=PERSISTENT)
        bodies = [(await channel.basic_get("kept", no_ack=True)).body for _ in range(2)]
        assert bodies == [b"1", b"2"]
        await check_headers(channel)
        for check in (channel.queue_declare, channel.exchange_declare):
            other = await connection.channel()
            with pytest.raises(aiormq.exceptions.ChannelNotFoundEntity):
                await getattr(other, check.__name__)("gone", passive=True)
    finally:
        await connection.close()


async def test_a_restart_says_goodbye_with_320(gateway: GatewayProcess) -> None:
    connection, _ = await opened(gateway)
    closed: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    def on_closing(future: asyncio.Future[Any]) -> None:
        if not closed.done():
            closed.set_result(future.exception())

    connection.closing.add_done_callback(on_closing)
    await asyncio.to_thread(gateway.terminate)
    reason = await asyncio.wait_for(closed, PATIENCE_SECONDS)
    assert "CONNECTION_FORCED" in str(reason)
