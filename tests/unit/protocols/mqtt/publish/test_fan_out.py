"""Fan-out in slices: how much one turn does, whose turn it is, and who has to wait."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from protocols.mqtt.publish import fan_out
from protocols.mqtt.publish.fan_out import SLICE_SUBSCRIBERS, WIDE_SUBSCRIBERS, FanOut
from protocols.mqtt.wire.encoder import encode
from protocols.mqtt.wire.packets import Publish, Version
from queue_core.message.message import Message
from queue_core.queues import ephemeral
from queue_core.queues.backpressure import Backpressure
from queue_core.queues.ephemeral import EphemeralQueue
from queue_core.routing.route import Match
from tests.support.until import turns
from tests.unit.protocols.mqtt.publish.test_packet_runs import TOPICS, Stage

TOPIC = TOPICS[0]


def with_subscribers(count: int, *, is_async: bool = True) -> Stage:
    stage = Stage(Version.V5, is_async=is_async)
    for _ in range(count):
        stage.subscriber(0)
    return stage


def published(count: int, qos: int = 0) -> bytes:
    packets = [Publish(TOPIC, b"%d" % i, qos, packet_id=qos * (i + 1)) for i in range(count)]
    return b"".join(encode(packet, Version.V5) for packet in packets)


def served(stage: Stage) -> int:
    return sum(bool(link.out) for link in stage.outputs)


@pytest.mark.parametrize("count", [1, 2, 200])
def test_one_turn_serves_a_bounded_slice_of_the_subscribers(count: int) -> None:
    stage = with_subscribers(3 * SLICE_SUBSCRIBERS)
    stage.take(published(count))
    lane = stage.publishing.wide_lane()
    lane.hand_over_some()
    assert 0 < served(stage) <= SLICE_SUBSCRIBERS
    while lane.hand_over_some():
        pass
    assert served(stage) == 3 * SLICE_SUBSCRIBERS


def test_a_message_to_very_many_is_handed_over_in_slices_in_the_synchronous_mode_too() -> None:
    stage = with_subscribers(WIDE_SUBSCRIBERS + 1, is_async=False)
    stage.take(published(2, qos=1))
    lane = stage.publishing.wide_lane()
    assert served(stage) == 0
    assert stage.publishing.must_wait  # until everybody has it
    while lane.hand_over_some():
        pass
    assert served(stage) == WIDE_SUBSCRIBERS + 1
    assert not stage.publishing.must_wait


def test_what_goes_to_few_does_not_overtake_what_goes_to_very_many() -> None:
    stage = with_subscribers(WIDE_SUBSCRIBERS + 1, is_async=False)
    stage.take(published(1))
    few = encode(Publish(TOPICS[1], b"few"), Version.V5)
    for queue in list(stage.vhost.queues.values())[1:]:
        stage.vhost.unsubscribe(TOPICS[1], queue)
    assert stage.take(few) == 0
    while stage.publishing.wide_lane().hand_over_some():
        pass
    assert stage.take(few) == len(few)


def test_who_unsubscribed_or_left_meanwhile_is_passed_over() -> None:
    stage = with_subscribers(3)
    stage.take(published(1))
    gone = list(stage.vhost.queues.values())[1]
    gone.is_deleted = True
    while stage.publishing.wide_lane().hand_over_some():
        pass
    assert [bool(link.out) for link in stage.outputs] == [True, False, True]


@pytest.mark.parametrize(
    "limit", [("MOST_MESSAGES", 3), ("MOST_BYTES", 20), ("MOST_DELIVERIES", 3)]
)
async def test_a_publisher_waits_when_its_lane_is_full_and_goes_on_when_it_is_not(
    monkeypatch: pytest.MonkeyPatch, limit: tuple[str, int]
) -> None:
    monkeypatch.setattr(fan_out, *limit)
    stage = with_subscribers(1)
    lane = stage.publishing.wide_lane()
    stage.take(published(1))
    before = lane.must_wait
    stage.take(published(4))
    assert (before, lane.must_wait) == (False, True)
    waiting = asyncio.ensure_future(lane.room())
    await turns()  # it has begun
    assert not waiting.done()
    while lane.hand_over_some():
        pass
    await waiting


async def test_publishers_take_turns_slice_by_slice() -> None:
    stage = with_subscribers(4 * SLICE_SUBSCRIBERS)
    workers = FanOut(1, is_async=True)
    workers.start()
    many = stage.vhost.router.route_topic(TOPIC)
    few = many[:1]
    first, second = workers.lane(stage.vhost, "first"), workers.lane(stage.vhost, "second")
    for _ in range(10):
        first.publish_to(Message(b"", topic=TOPIC), tuple(many), None, 0, ())
    second.publish_to(Message(b"", topic=TOPIC), tuple(Match(*each) for each in few), None, 0, ())
    await turns(6)
    assert not second.is_busy
    assert first.is_busy
    await workers.stop()


async def test_what_was_answered_is_not_lost_to_a_subscriber_without_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ephemeral, "EPHEMERAL_MESSAGES", 5)  # that any queue in memory may have
    stage = with_subscribers(2)
    slow = next(iter(stage.vhost.queues.values()))
    assert isinstance(slow, EphemeralQueue)
    slow.spec = dataclasses.replace(slow.spec, max_length=2)
    slow.backpressure = Backpressure(slow)
    slow.cursor.consumers[0].pause()
    workers = FanOut(1, is_async=True)
    workers.start()
    lanes = [workers.lane(stage.vhost, str(number)) for number in range(4)]
    route = stage.vhost.router.route_topic(TOPIC)
    for lane in lanes:
        for number in range(4):
            lane.publish_to(Message(b"%d" % number, topic=TOPIC), tuple(route), None, 0, ())
    await turns(50)
    assert 2 <= slow.counts().ready <= 5
    assert stage.vhost.context.counters.refused_full == 0
    assert len(stage.heard()[1]) == 16  # the others have everything
    assert any(lane.held_by == [slow] for lane in lanes)
    slow.cursor.consumers[0].resume()
    await turns(50)
    assert len(stage.heard()[0]) == 16
    assert not any(lane.is_busy or lane.held_by or lane.deliveries for lane in lanes)
    await workers.stop()


async def test_workers_stop_while_a_lane_waits_for_a_subscriber() -> None:
    stage = with_subscribers(1)
    slow = next(iter(stage.vhost.queues.values()))
    assert isinstance(slow, EphemeralQueue)
    slow.spec = dataclasses.replace(slow.spec, max_length=1)
    slow.backpressure = Backpressure(slow)
    slow.cursor.consumers[0].pause()
    workers = FanOut(1, is_async=True)
    workers.start()
    lane = workers.lane(stage.vhost, "publisher")
    route = stage.vhost.router.route_topic(TOPIC)
    for _ in range(2):
        lane.publish_to(Message(b"", topic=TOPIC), tuple(route), None, 0, ())
        await turns(5)
    assert lane.held_by == [slow]
    await workers.stop()
