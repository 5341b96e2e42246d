"""A stream takes messages one by one and in runs, here without a database."""

from __future__ import annotations

from queue_core.commit.queue_log import Log
from queue_core.delivery.consumer import Entry
from queue_core.message.message import Message
from queue_core.message.message_run import MessageRun
from queue_core.outcomes import Published
from queue_core.queues.queue import Appends, Queue
from queue_core.queues.spec import QueueSpec
from queue_core.queues.stream import StreamQueue
from queue_core.routing.route import Match, Route
from tests.unit.queue_core.session_world import NoSource, World


class NoTimes(NoSource):
    async def offset_at(self, time: float) -> int:
        raise AssertionError("nothing is stored here")


def stream_of(world: World) -> StreamQueue:
    spec = QueueSpec.parse("s", {"x-queue-type": "stream"})
    stream = StreamQueue(spec, world.vhost.context, Log(1, 5, is_stream=True), NoTimes())
    world.vhost.add_queue(stream)
    return stream


def messages(count: int) -> list[Message]:
    return [Message(b"%d" % i, "", routing_key="s") for i in range(count)]


def said_by(entry: Entry) -> tuple[object, ...]:
    return entry.message, entry.options, entry.expires_at, entry.not_before, entry.offset


def test_a_stream_takes_a_run_as_it_takes_messages_one_by_one() -> None:
    options = ("a subscription's",)
    one, other = stream_of(World()), stream_of(World())
    run = messages(3)
    appends: Appends = []
    for message in run:
        assert one.take(message, options, appends)
    taken = other.take_run(run, options)
    assert other.takes_runs
    assert one.pending == other.pending == 3
    assert one.next_offset == other.next_offset == 8
    assert [said_by(entry) for _, entry in taken] == [said_by(entry) for _, entry in appends]
    assert {log for log, _ in taken} == {other.log}


def test_a_run_into_a_stream_is_one_unit_with_a_token_for_each_message() -> None:
    world = World()
    stream, submitted = stream_of(world), len(world.writer.units)
    route: Route[Queue] = (Match(stream, ()),)
    run = MessageRun(messages(4))
    assert world.vhost.publish_run(run, None, 7, route) is Published.PENDING
    (unit,) = world.writer.units[submitted:]
    assert list(unit.tokens) == [7, 8, 9, 10]
    assert [entry.message.body for _, entry in unit.appends] == [b"0", b"1", b"2", b"3"]
    assert [len(each.appends) for each in unit.apart()] == [1, 1, 1, 1]
    assert world.vhost.counters.published == 4
