"""A publisher that waits for a slow subscriber: what ends its wait, and what passes meanwhile."""

from __future__ import annotations

import dataclasses

import pytest

from protocols.mqtt.publish.held_input import MOST_HELD_BYTES
from protocols.mqtt.wire.packets import (
    PingReq,
    PingResp,
    PubAck,
    Publish,
    Subscribe,
    SubscribeRequest,
)
from queue_core.queues.backpressure import Backpressure
from queue_core.queues.ephemeral import EphemeralQueue
from tests.unit.protocols.mqtt.wired import Broking, Wire

TOPIC = "t"


async def held(broking: Broking) -> tuple[Wire, Wire, Backpressure]:
    """A slow subscriber, and a publisher that waits for it with nine messages more."""
    slow, publisher = await broking.client("slow"), await broking.client("publisher")
    slow.gets(Subscribe(1, (SubscribeRequest(TOPIC, 1),)))
    await broking.settle()
    live = broking.world.vhost.queues["$live/session/slow"]
    assert isinstance(live, EphemeralQueue)
    live.spec = dataclasses.replace(live.spec, max_length=1)
    publisher.gets(*(Publish(TOPIC, b"%d" % i, 1, packet_id=i) for i in range(1, 12)))
    await broking.settle()
    assert len(slow.bodies) == 1
    assert len(publisher.of(PubAck)) == 2
    assert live.backpressure is not None
    assert len(live.backpressure._waiters) == 1
    return slow, publisher, live.backpressure


@pytest.mark.parametrize("end", ["it is lost", "it is taken over"])
async def test_nobody_waits_for_a_subscriber_when_the_publisher_has_gone(end: str) -> None:
    broking = Broking(max_inflight=1)
    _, publisher, pressure = await held(broking)
    if end == "it is lost":
        publisher.close()
    else:
        await broking.client("publisher")
    await broking.settle()
    assert pressure._waiters == []
    assert broking.world.agenda.next_time() is None


async def test_a_publisher_that_waits_goes_on_in_order_behind_what_overtook() -> None:
    broking = Broking(max_inflight=1)
    slow, publisher, _ = await held(broking)
    publisher.gets(Publish(TOPIC, b"12", 1, packet_id=12), PingReq())
    publisher.gets(Publish(TOPIC, b"13", 1, packet_id=13))
    await publisher.until(PingResp)
    while len(slow.bodies) < 13:
        slow.gets(PubAck(slow.of(Publish)[-1].packet_id))
        await broking.settle()
    assert slow.bodies == [b"%d" % i for i in range(1, 14)]
    assert [each.packet_id for each in publisher.of(PubAck)] == list(range(1, 14))


async def test_a_publisher_that_waits_is_not_read_without_end() -> None:
    broking = Broking(max_inflight=1)
    _, publisher, _ = await held(broking)
    large = Publish(TOPIC, bytes(MOST_HELD_BYTES // 4))
    for _ in range(4):
        assert publisher.connection._gate.is_open
        publisher.gets(large)
    assert not publisher.connection._gate.is_open
