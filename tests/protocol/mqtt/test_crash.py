"""kill -9 of the gateway amid QoS 1 and QoS 2 traffic, and both sides' histories compared."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

from protocols.mqtt.wire.packets import (
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
)
from protocols.mqtt.wire.property_set import PropertySet
from tests.support.gateway_process import GatewayProcess
from tests.support.mqtt_raw_client import Mqtt, RawClient

LASTING = PropertySet(session_expiry=3600, receive_maximum=50)
WINDOW = 50


class Publisher:
    """A client that keeps its state as the standard asks, over connections."""

    def __init__(self, qos: int, count: int) -> None:
        self._qos = qos
        self._todo = list(range(count))
        self._sent: dict[int, int] = {}  # packet id -> message, PUBACK or PUBREC not seen
        self._received: set[int] = set()  # packet ids whose PUBCOMP was not seen
        self._next = 0
        self.confirmed: list[int] = []

    @property
    def is_done(self) -> bool:
        return not (self._todo or self._sent or self._received)

    async def run(self, client: RawClient) -> None:
        for packet_id, number in self._sent.items():
            client.send(self._publish(packet_id, number, dup=True))
        for packet_id in self._received:
            client.send(PubRel(packet_id))
        while not self.is_done:
            while self._todo and len(self._sent) + len(self._received) < WINDOW:
                packet_id = self._free_id()
                self._sent[packet_id] = self._todo.pop(0)
                client.send(self._publish(packet_id, self._sent[packet_id]))
            self._take(client, await client.receive())

    def _free_id(self) -> int:
        while True:
            self._next = self._next % 60_000 + 1
            if self._next not in self._sent and self._next not in self._received:
                return self._next

    def _publish(self, packet_id: int, number: int, *, dup: bool = False) -> Publish:
        return Publish("history", b"%d" % number, self._qos, dup=dup, packet_id=packet_id)

    def _take(self, client: RawClient, packet: object) -> None:
        match packet:
            case PubAck(packet_id):
                self.confirmed.append(self._sent.pop(packet_id))
            case PubRec(packet_id):
                if packet_id in self._sent:
                    self.confirmed.append(self._sent.pop(packet_id))
                    self._received.add(packet_id)
                client.send(PubRel(packet_id))
            case PubComp(packet_id):
                self._received.discard(packet_id)
            case _:
                raise AssertionError(packet)


class Subscriber:
    """The other side: hands a QoS 2 message on when it comes first, and never again."""

    def __init__(self) -> None:
        self._held: set[int] = set()
        self._goal = 0
        self._must_be_released = False
        self._is_there = asyncio.Event()
        self.history: list[int] = []

    async def has(self, count: int, *, released: bool = False) -> None:
        """Returns when so many different messages have come, and, with `released`, the PUBREL of
        each as well."""
        self._goal, self._must_be_released = count, released
        self._is_there.clear()
        self._look()
        await self._is_there.wait()

    def _look(self) -> None:
        if self._held and self._must_be_released:
            return
        if len(self.history) >= self._goal and len(set(self.history)) >= self._goal:
            self._is_there.set()

    async def run(self, client: RawClient) -> None:
        while True:
            self._look()
            match await client.receive(60):
                case Publish(payload=payload, qos=1, packet_id=packet_id):
                    self.history.append(int(payload))
                    client.send(PubAck(packet_id))
                case Publish(payload=payload, qos=2, packet_id=packet_id):
                    if packet_id not in self._held:
                        self._held.add(packet_id)
                        self.history.append(int(payload))
                    client.send(PubRec(packet_id))
                case PubRel(packet_id):
                    self._held.discard(packet_id)
                    client.send(PubComp(packet_id))


async def through_crashes(
    gateway: GatewayProcess, qos: int, count: int
) -> tuple[Publisher, Subscriber]:
    publisher, subscriber = Publisher(qos, count), Subscriber()
    mqtt = Mqtt(gateway.ports["mqtt"])
    first = await mqtt.connected("subscriber", properties=LASTING)
    await first.subscribe("history", qos)
    await first.disconnect()
    crashes = 0
    while True:
        p = await mqtt.connected("publisher", clean=False, properties=LASTING)
        s = await mqtt.connected("subscriber", clean=False, properties=LASTING)
        assert s.connack.session_present
        work = [asyncio.ensure_future(publisher.run(p)), asyncio.ensure_future(subscriber.run(s))]
        if crashes < 3:
            goal = (crashes + 1) * count // 5
            await asyncio.wait_for(subscriber.has(goal), 60)
            gateway.kill()
            await end(work)
            await mqtt.close()
            gateway.restart()
            crashes += 1
            continue
        await asyncio.wait_for(work[0], 60)
        await asyncio.wait_for(subscriber.has(count, released=True), 60)
        await end(work)
        assert await s.hears_nothing()  # what came twice would come now
        await mqtt.close()
        return publisher, subscriber


async def end(work: Sequence[asyncio.Future[None]]) -> None:
    for task in work:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, EOFError, OSError):
            await task


async def test_qos_1_loses_nothing_when_the_gateway_is_killed(gateway: GatewayProcess) -> None:
    publisher, subscriber = await through_crashes(gateway, 1, 3000)
    assert sorted(publisher.confirmed) == list(range(3000))
    assert set(subscriber.history) >= set(publisher.confirmed)


async def test_qos_2_loses_and_repeats_nothing_when_the_gateway_is_killed(
    gateway: GatewayProcess,
) -> None:
    publisher, subscriber = await through_crashes(gateway, 2, 3000)
    assert sorted(publisher.confirmed) == list(range(3000))
    assert sorted(subscriber.history) == list(range(3000))


async def test_mqtt_4_4_0_1_a_crash_changes_neither_identifiers_nor_owners(
    gateway: GatewayProcess,
) -> None:
    """Messages sent and not acknowledged come again under their identifiers, with DUP; what a
    member of a group began to receive is that member's; what was sent does not expire."""
    mqtt = Mqtt(gateway.ports["mqtt"])
    client = await mqtt.connected("client", properties=LASTING)
    member = await mqtt.connected("member", properties=LASTING)
    publisher = await mqtt.connected("publisher")
    await client.subscribe("own", 2)
    await member.subscribe("$share/g/shared", 2)
    for i in range(10):
        await publisher.publish("own", b"%d" % i, 1 + i % 2)
    expiring = PropertySet(message_expiry=1)
    await publisher.publish("own", b"expiring", 2, properties=expiring)
    await publisher.publish("shared", b"begun", 2)
    before = [await client.expect(Publish) for _ in range(11)]
    begun = await member.expect(Publish)
    assert not any(message.dup for message in (*before, begun))
    expired = time.monotonic() + 1
    gateway.kill()
    await mqtt.close()
    gateway.restart()
    await asyncio.sleep(max(0.0, expired - time.monotonic()))  # a rule about time
    other = await mqtt.connected("other")
    await other.subscribe("$share/g/shared", 2)
    client = await mqtt.connected("client", clean=False, properties=LASTING)
    again = [await client.expect(Publish) for _ in range(11)]
    assert [(m.payload, m.qos, m.packet_id) for m in again] == [
        (m.payload, m.qos, m.packet_id) for m in before
    ]
    assert all(message.dup for message in again)
    assert await other.hears_nothing()
    member = await mqtt.connected("member", clean=False, properties=LASTING)
    returned = await member.expect(Publish)
    assert (returned.payload, returned.packet_id, returned.dup) == (b"begun", begun.packet_id, True)
    for message in again:
        await client.acknowledge(message)
    await member.acknowledge(returned)
    assert await client.hears_nothing()
    assert await other.hears_nothing()
    await mqtt.close()
