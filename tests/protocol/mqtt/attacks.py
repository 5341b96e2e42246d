"""Hostile clients, all at the same time, for a minute. Each kind goes on until the minute is over,
and counts what it did; what it hears must be what the standard says about it."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from protocols.mqtt.wire.encoder import encode
from protocols.mqtt.wire.packets import (
    Connect,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    SubscribeRequest,
)
from tests.support.mqtt_raw_client import Mqtt, RawClient
from tests.support.names import fresh

SECONDS = 60
HALF_OPEN = 1000
DRIPPING = 10
PAUSE_SECONDS = 0.2  # between two attacks of one kind
HUGE = bytes.fromhex("ffffff7f")  # 256 MB, as a length
REFUSED = (EOFError, ConnectionError)  # what an attacker must be ready for


class Attacks:
    def __init__(self, port: int, generator: random.Random) -> None:
        self._mqtt = Mqtt(port)
        self._random = generator
        self._end = 0.0
        self.counts: Counter[str] = Counter()
        self.most_half_open = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """A failure of any of them is the test's."""
        self._end = asyncio.get_running_loop().time() + SECONDS
        async with asyncio.TaskGroup() as group:
            for name, kind in self.KINDS.items():
                group.create_task(self._repeat(name, kind))
            yield
        await self._mqtt.close()

    @property
    def is_over(self) -> bool:
        return asyncio.get_running_loop().time() >= self._end

    async def _repeat(
        self, name: str, kind: Callable[[Attacks], Coroutine[Any, Any, None]]
    ) -> None:
        while not self.is_over:
            await kind(self)
            self.counts[name] += 1

    async def _stranger(self) -> RawClient:
        """A connection that nobody keeps a list of: thousands come and go."""
        return await RawClient.open(self._mqtt.port)

    async def _guest(self) -> RawClient:
        client = await self._stranger()
        await client.connect(Connect(fresh("hostile")))
        return client

    # --- each kind

    async def half_open(self) -> None:
        """A thousand that never say CONNECT. Whom the gateway has enough of comes again."""
        clients = [await self._stranger() for _ in range(HALF_OPEN)]
        for client in clients[::2]:
            client.send_bytes(b"\x10")  # and never the rest
        self.most_half_open = max(self.most_half_open, len(clients))
        for client in clients:
            if not self.is_over:
                assert await client.is_closed(60)
            client.abort()

    async def byte_by_byte(self) -> None:
        """Some before they are let in, and some after."""
        dripping = [await self._stranger() for _ in range(DRIPPING)]
        dripping += [await self._guest() for _ in range(DRIPPING)]
        whole = encode(Connect("x" * SECONDS), 5), encode(Publish("drip", b"x" * SECONDS), 5)
        for i in range(SECONDS // 4):
            for number, client in enumerate(dripping):
                client.send_bytes(whole[number // DRIPPING][i : i + 1])
            await asyncio.sleep(1)  # a byte a second is the attack
        for client in dripping:
            client.abort()

    async def huge(self) -> None:
        stranger, guest = await self._stranger(), await self._guest()
        stranger.send_bytes(b"\x10" + HUGE + bytes(65_536))
        guest.send_bytes(b"\x30" + HUGE + bytes(65_536))
        with contextlib.suppress(ConnectionError):  # cut off while it still sends
            assert await stranger.is_closed()
        with contextlib.suppress(*REFUSED):
            assert await guest.disconnected() == 0x95
        for client in (stranger, guest):
            client.abort()
        await asyncio.sleep(PAUSE_SECONDS)  # other attacks have their turn

    async def levels(self) -> None:
        guest = await self._guest()
        endless = "/" * 65_000
        guest.send(Publish(endless, b"", 1, packet_id=1))
        assert (await guest.find(PubAck)).reason == 0x90
        assert await guest.subscribe(endless) == 0x8F
        for _ in range(20):  # of as many levels as are allowed, and never the same
            topic = "/".join(f"{self._random.getrandbits(32):x}" for _ in range(128))
            await guest.publish(topic, b"", 1)
        guest.abort()
        await asyncio.sleep(PAUSE_SECONDS)  # other attacks have their turn

    async def bombs(self) -> None:
        guest = await self._guest()
        for _ in range(5):
            names = [f"{self._random.getrandbits(64):x}" for _ in range(300)]
            requests = tuple(SubscribeRequest(name + "/x" * 99) for name in names)
            guest.send(Subscribe(1, requests))
            reasons = (await guest.find(SubAck)).reasons
        assert reasons == (0x97,) * 300
        guest.abort()
        await asyncio.sleep(PAUSE_SECONDS)  # other attacks have their turn

    async def random_bytes(self) -> None:
        client = await self._stranger()
        if self._random.random() < 0.7:
            client.send(Connect(fresh("random")))
        client.send_bytes(self._random.randbytes(self._random.randrange(1, 3000)))
        with contextlib.suppress(ConnectionError):
            await client.drained()
        client.abort()
        await asyncio.sleep(PAUSE_SECONDS / 10)  # other attacks have their turn

    KINDS: ClassVar[dict[str, Callable[[Attacks], Coroutine[Any, Any, None]]]] = {
        "half-open": half_open,
        "byte by byte": byte_by_byte,
        "huge": huge,
        "levels": levels,
        "bombs": bombs,
        "random bytes": random_bytes,
    }
