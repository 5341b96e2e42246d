"""Queues with competing consumers, and their time, without a database."""

from __future__ import annotations

import asyncio

import pytest

from queue_core.commit.queue_log import Log
from queue_core.delivery.consumer import Consumer, ConsumerSpec, Delivery, Position
from queue_core.errors import CoreError, LimitExceeded, QueueNotFound
from queue_core.message.message import Message
from queue_core.outcomes import Published
from queue_core.queues.ephemeral import EphemeralQueue
from queue_core.queues.spec import QueueSpec
from queue_core.queues.stream import StreamQueue
from queue_core.timers import Agenda
from tests.support.until import turns
from tests.unit.queue_core.session_world import NoSource, World


class Broken:
    """A sink with a bug, whichever way it is called."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def deliver(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        raise ValueError("no")

    def deliver_direct(self, consumer: Consumer, message: Message, options: object) -> None:
        raise ValueError("no")

    def on_cancel(self, consumer: Consumer, reason: CoreError) -> None:
        self.reasons.append(str(reason))


async def declared(world: World, auto_delete: bool = False, **arguments: object) -> EphemeralQueue:
    given = {name: value for name, value in arguments.items() if value is not None}
    words = {f"x-{name.replace('_', '-')}": value for name, value in given.items()}
    spec = QueueSpec.parse("q", words, durable=False, auto_delete=auto_delete)
    queue = await world.vhost.declare_queue(spec)
    assert isinstance(queue, EphemeralQueue)
    return queue


def publish(world: World, **values: object) -> Published:
    message = Message(b"x" * 100, "", routing_key="q", **values)  # type: ignore[arg-type]
    return world.vhost.publish(message)


@pytest.mark.parametrize("auto_settle", [False, True])
async def test_a_sink_with_a_bug_harms_no_publisher_and_its_queue_may_end_with_it(
    auto_settle: bool,
) -> None:
    """By the short way for one that settles on delivery, and by the long one."""
    world, broken = World(), Broken()
    queue = await declared(world, auto_delete=True)
    consumer = await world.vhost.consume("q", broken, ConsumerSpec(auto_settle=auto_settle))
    consumer.wake()
    assert publish(world) is Published.DONE
    await world.idle()
    assert broken.reasons == ["the gateway could not deliver a message; its log says why"]
    assert queue.is_deleted
    assert "q" not in world.vhost.queues


async def test_a_get_that_waits_does_not_keep_a_queue_whose_last_consumer_left() -> None:
    world = World()
    queue = await declared(world, auto_delete=True)
    consumer = await world.vhost.consume("q", Broken(), ConsumerSpec(credit=0))
    publish(world)
    queue.cursor.lease.committed = 0  # nothing may be handed out before a commit that never comes
    getting = asyncio.ensure_future(world.vhost.get("q"))
    await turns()  # it has begun, and waits
    world.vhost.end_consumer(consumer, None)
    await world.idle()
    assert not queue.is_deleted
    getting.cancel()
    await asyncio.wait([getting])
    await world.idle()
    assert queue.is_deleted


@pytest.mark.parametrize("limit", [None, 1000])
async def test_what_waits_for_its_time_is_bounded_by_bytes_too(limit: int | None) -> None:
    """A delayed message is not ready, but it is in memory."""
    world = World()
    queue = await declared(world, max_length_bytes=limit)
    queue._max_bytes = 1000
    (await world.vhost.consume("q", Broken(), ConsumerSpec())).wake()
    later = world.now + 60
    answers = [publish(world, not_before=later) for _ in range(20)]
    assert answers == [Published.DONE] * 10 + [Published.REFUSED] * 10
    assert (queue.cursor.delayed.bytes, len(queue.cursor.delayed)) == (1000, 10)
    assert queue.memory() > 1000
    queue.cursor.purge()
    assert (queue.cursor.delayed.bytes, queue.memory()) == (0, 0)


class Slow(NoSource):
    """A source that takes its time to find a place."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    async def offset_at(self, time: float) -> int:
        await self.gate.wait()
        return 0


@pytest.mark.parametrize("group", [None, "g"])
async def test_nobody_consumes_from_a_stream_that_went_while_its_place_was_looked_for(
    group: str | None,
) -> None:
    world, source = World(), Slow()
    spec = QueueSpec.parse("s", {"x-queue-type": "stream"})
    stream = StreamQueue(spec, world.vhost.context, Log(1, 0, is_stream=True), source)
    world.vhost.add_queue(stream)
    wanted = ConsumerSpec(group=group, start=Position(time=1.0))
    coming = asyncio.ensure_future(world.vhost.consume("s", Broken(), wanted))
    await turns()  # it has begun, and waits
    await world.vhost.delete_queue("s")
    source.gate.set()
    with pytest.raises(QueueNotFound):
        await coming
    assert not stream.log.cursors


async def read(stream: StreamQueue, spec: ConsumerSpec) -> Consumer:
    return stream.consume(Broken(), spec, await stream.find_start(spec))


async def test_a_stream_has_so_many_groups_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queue_core.queues.stream.MOST_GROUPS", 2)
    world = World()
    spec = QueueSpec.parse("s", {"x-queue-type": "stream"})
    log = Log(1, 5, is_stream=True)
    stream = StreamQueue(spec, world.vhost.context, log, Slow())
    for group in ("a", "b", "a"):
        consumer = await read(stream, ConsumerSpec(group=group))
        consumer.close()
        stream.on_consumer_gone()
    with pytest.raises(LimitExceeded, match="read without a group"):
        await read(stream, ConsumerSpec(group="c"))
    with pytest.raises(LimitExceeded):
        stream.commit_cursor("c", 1)
    await read(stream, ConsumerSpec())
    assert sorted(stream.groups()) == ["a", "b"]


async def test_a_queue_that_is_used_all_the_time_needs_one_appointment() -> None:
    world = World()
    queue = await declared(world, expires=10_000)
    for _ in range(1000):
        await world.vhost.get("q")
    assert appointments(world.agenda) == 1
    await world.pass_time(9)
    queue.touch()
    await world.pass_time(9)
    assert not queue.is_deleted
    await world.pass_time(1)
    assert queue.is_deleted


async def test_nothing_is_remembered_of_exclusive_queues_that_are_deleted() -> None:
    """A client may make one for each of its requests."""
    world, owner = World(), object()
    for number in range(3):
        spec = QueueSpec.parse(f"q{number}", durable=False, exclusive=True)
        await world.vhost.declare_queue(spec, owner)
    await world.vhost.delete_queue("q0", owner=owner)
    assert [list(queues) for queues in world.vhost._owned.values()] == [["q1", "q2"]]
    world.vhost.release_owner(owner)
    assert not world.vhost._owned
    assert not world.vhost.queues


def appointments(agenda: Agenda) -> int:
    return len(agenda._heap)


async def test_the_time_to_live_of_a_delayed_message_begins_when_it_is_due() -> None:
    world = World()
    queue = await declared(world, message_ttl=1000)
    now = queue.context.clock()
    due = queue.entry(Message(b"", "", "q", not_before=now + 60), ())
    assert due.expires_at == now + 61
    assert queue.entry(Message(b"", "", "q"), ()).expires_at == now + 1
