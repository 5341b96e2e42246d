"""Clients that mean harm, or know no better: others are served all along, in bounded memory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from pathlib import Path

import pytest

from protocols.mqtt.wire.encoder import encode
from protocols.mqtt.wire.packets import (
    Connect,
    PingReq,
    Publish,
    SubAck,
    Subscribe,
    SubscribeRequest,
)
from tests.protocol.mqtt.attacks import HALF_OPEN, Attacks
from tests.support.gateway_process import GatewayProcess
from tests.support.mqtt_raw_client import Mqtt
from tests.support.names import fresh
from tests.support.until import turns

HELD = "howdah_mqtt_held_publishers_total"
MEGABYTE = 1024 * 1024


def resident(gateway: GatewayProcess) -> int:
    """Bytes of memory that the gateway has."""
    fields = Path(f"/proc/{gateway.pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


async def check_served(mqtt: Mqtt) -> None:
    topic = fresh("t")
    async with mqtt.client() as client:
        await client.subscribe(topic, 1)
        await client.publish(topic, b"still here", 1)
        assert (await client.message()).payload == b"still here"


async def test_a_client_that_sends_byte_by_byte_is_understood(mqtt: Mqtt) -> None:
    topic = fresh("t")
    async with mqtt.client() as subscriber:
        await subscriber.subscribe(topic)
        slow = await mqtt.open()
        for byte in encode(Connect(fresh()), 5) + encode(Publish(topic, b"at last"), 5):
            slow.send_bytes(bytes((byte,)))
            await turns()  # each byte is written by itself
        assert (await subscriber.message()).payload == b"at last"


async def test_a_large_packet_that_never_comes_takes_no_memory(
    mqtt: Mqtt, shared_gateway: GatewayProcess
) -> None:
    before = resident(shared_gateway)
    for _ in range(50):
        client = await mqtt.connected()
        client.send_bytes(bytes.fromhex("30ffff7f") + b"\0\1a" + b"x" * 1000)  # 2 MB announced
    await check_served(mqtt)
    assert resident(shared_gateway) - before < 20 * MEGABYTE


async def test_256_megabytes_are_refused_before_they_come(mqtt: Mqtt) -> None:
    client = await mqtt.open()
    client.send_bytes(bytes.fromhex("10ffffff7f"))
    assert await client.is_closed()
    client = await mqtt.connected()
    client.send_bytes(bytes.fromhex("30ffffff7f"))
    assert await client.disconnected() == 0x95


async def test_a_subscription_bomb_is_refused(mqtt: Mqtt) -> None:
    async with mqtt.client() as client:
        name = fresh("t")
        for start in range(0, 5000, 500):
            requests = tuple(SubscribeRequest(f"{name}/{i}/+/#") for i in range(start, start + 500))
            client.send(Subscribe(1, requests))
            reasons = set((await client.expect(SubAck)).reasons)
            assert reasons == ({0} if start < 1000 else {0x97})
    await check_served(mqtt)


async def test_many_levels_take_as_much_as_many_subscriptions(mqtt: Mqtt) -> None:
    name = fresh("t")
    async with mqtt.client() as client:
        deep = [f"{name}/{i}" + "/x" * 98 for i in range(200)]  # of 100 levels each
        answer = await client.subscribe_all(tuple(SubscribeRequest(each) for each in deep))
        assert answer.reasons == (0,) * 160 + (0x97,) * 40
        assert await client.subscribe(deep[0]) == 0  # it has that one


async def test_a_flood_of_pings_from_one_who_does_not_listen_is_bounded(
    mqtt: Mqtt, shared_gateway: GatewayProcess
) -> None:
    before = resident(shared_gateway)
    async with mqtt.client() as deaf:
        pings = encode(PingReq(), 5) * 20_000
        for _ in range(100):  # 2 million
            deaf.send_bytes(pings)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(deaf.drained(), 0.01)
        await check_served(mqtt)
        assert resident(shared_gateway) - before < 40 * MEGABYTE


async def test_a_subscriber_that_does_not_read_is_bounded(
    mqtt: Mqtt, shared_gateway: GatewayProcess
) -> None:
    """The publisher of a deaf subscriber waits for it, and nobody else does."""
    topic = fresh("t")
    before, held = resident(shared_gateway), shared_gateway.metric(HELD)
    async with mqtt.client() as deaf, mqtt.client() as publisher:
        await deaf.subscribe(topic)
        payload = b"x" * 10_000
        for _ in range(100):  # 100 MB
            publisher.send(*[Publish(topic, payload)] * 100)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(publisher.drained(), 0.5)  # it may not be read any more
            if shared_gateway.metric(HELD) > held:
                break
        else:
            raise AssertionError("the publisher was not made to wait")
        await check_served(mqtt)
        assert resident(shared_gateway) - before < 60 * MEGABYTE


async def test_damaged_packets_harm_nobody(mqtt: Mqtt) -> None:
    generator = random.Random(7)
    sound = [
        encode(Publish("a/b", b"payload", 1, packet_id=5), 5),
        encode(Subscribe(3, (SubscribeRequest("a/#", 1),)), 5),
        encode(Publish("a", b"x", 2, packet_id=6), 5),
    ]
    for _ in range(200):
        damaged = bytearray(generator.choice(sound))
        for _ in range(generator.randrange(1, 4)):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        client = await mqtt.connected()
        client.send_bytes(bytes(damaged))
        client.abort()
    await check_served(mqtt)


async def test_10_000_idle_connections_would_fit(
    mqtt: Mqtt, shared_gateway: GatewayProcess
) -> None:
    """A tenth of them, so that the test takes seconds: 12 KiB of memory each."""
    count = 1000
    for _ in range(100):  # whatever is made once is made
        await mqtt.connected(keep_alive=60)
    before = resident(shared_gateway)
    for _ in range(count):
        client = await mqtt.connected(keep_alive=60)
    assert client.connack.reason == 0
    assert (resident(shared_gateway) - before) / count < 12 * 1024


# --- all at once


@pytest.mark.slow
@pytest.mark.timeout(330)
async def test_a_client_is_served_while_everything_hostile_happens_at_once(
    mqtt: Mqtt, shared_gateway: GatewayProcess
) -> None:
    """For a minute: a thousand half-open connections, a byte a second, packets of 256 MB, endless
    levels, subscription bombs, random bytes."""
    before = resident(shared_gateway)
    attacks = Attacks(shared_gateway.ports["mqtt"], random.Random(20261116))
    peak = served = 0
    async with mqtt.client() as client, attacks.running():
        topic = fresh("normal")
        await client.subscribe(topic, 1)
        async with asyncio.timeout(300):
            while not attacks.is_over:
                await client.publish(topic, b"%d" % served, 1)
                assert (await client.message()).payload == b"%d" % served
                served += 1
                peak = max(peak, resident(shared_gateway))
                await asyncio.sleep(0.05)  # a client among others, not a flood
    assert served
    assert attacks.counts.keys() == attacks.KINDS.keys()
    assert attacks.most_half_open == HALF_OPEN
    assert peak - before < 100 * MEGABYTE
    await check_served(mqtt)
