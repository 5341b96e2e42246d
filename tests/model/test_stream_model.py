"""Streams against a plain model of them: groups and positions, retention, crashes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from queue_core.delivery.consumer import Consumer, ConsumerSpec, Delivery, Position
from queue_core.errors import InvalidArgument, ResourceLocked
from queue_core.message.message import Message
from queue_core.outcomes import ACCEPTED, FAILED, REJECTED, RELEASED, Verdict
from queue_core.queues.spec import QueueSpec
from queue_core.queues.stream import StreamQueue
from queue_core.store.write.segments import SegmentLimits
from tests.model.machine import Machine, examine, in_time, make_tight
from tests.model.plain_stream import Group, PlainStream, Reading
from tests.support.inbox import Inbox
from tests.support.managers import BRISK

LENGTH, BYTES, AGE = 4, 150_000, 20
ON_DISK = 50_000  # bytes of tables and indexes around a few messages
KINDS: dict[str, dict[str, object]] = {
    "whole": {},
    "short": {"x-max-length": LENGTH},
    "small": {"x-max-length-bytes": BYTES},
    "young": {"x-max-age": f"{AGE}s"},
}
GROUPS = ("g", "h")
_names = itertools.count()

positions = st.one_of(
    st.sampled_from(["first", "last", "next"]),
    st.tuples(st.just("offset"), st.integers(0, 12)),
    st.tuples(st.just("time"), st.integers(0, 40)),
)
Where = str | tuple[str, int]


@dataclass(eq=False)
class Reader:
    consumer: Consumer
    inbox: Inbox
    credit: int
    name: str | None  # of its group
    reading: Reading
    held: dict[Delivery, Group] = field(default_factory=dict)


class StreamMachine(Machine):
    house_settings = replace(
        BRISK, store=replace(BRISK.store, segments=SegmentLimits(bytes=1, age=3600.0))
    )

    def __init__(self) -> None:
        super().__init__()
        self.count = itertools.count()
        self.begun_at = self.now
        self.queue = f"stream-{next(_names)}"
        self.kind = ""
        self.model = PlainStream()
        self.readers: list[Reader] = []
        self.orphans: dict[Delivery, Group] = {}  # of readers that left, and may still settle

    @initialize(kind=st.sampled_from(sorted(KINDS)))
    def declare(self, kind: str) -> None:
        self.kind = kind
        words = {"x-queue-type": "stream", **KINDS[kind]}
        self.run(self.house.vhost.declare_queue(QueueSpec.parse(self.queue, words)))

    @property
    def stream(self) -> StreamQueue:
        queue = self.house.vhost.queue(self.queue)
        assert isinstance(queue, StreamQueue)
        return queue

    # --- after each step, both have done all they can

    def meet(self) -> None:
        self.quiet()
        readings = {id(reader.reading): reader.reading for reader in self.readers}
        for reading in readings.values():
            self._check([each for each in self.readers if each.reading is reading], reading)

    def _check(self, readers: list[Reader], reading: Reading) -> None:
        """Checks that deliveries are what comes next, as far as there was room."""
        room = sum(each.credit - len(each.held) for each in readers)
        came = {each.offset: (reader, each) for reader in readers for each in reader.inbox.take()}
        coming = reading.coming(self.model.first, self.model.tail)
        found = sorted(came)
        # what went by retention may have been in memory, and be handed out all the same
        late = [offset for offset in found if offset < self.model.first]
        assert all(offset >= reading.next for offset in late)
        assert found == late + coming[: room - len(late)], (found, coming, room)
        for offset in found:
            reader, delivery = came[offset]
            self._check_one(delivery, offset, reader, reading.group)
        reading.next = max([reading.next, *[offset + 1 for offset in found]])

    def _check_one(self, delivery: Delivery, offset: int, reader: Reader, group: Group) -> None:
        assert delivery.message.body == self.model.log[offset][0]
        if reader.name is not None:
            assert delivery.redelivered or offset not in group.handed, f"{offset} came before"
            assert not delivery.redelivered or offset in group.handed or group.is_suspect
        reader.held[delivery] = group
        group.handed.add(offset)

    # --- rules

    @rule(count=st.integers(1, 3), is_large=st.booleans())
    def publish(self, count: int, is_large: bool) -> None:
        size = 70_000 if is_large and self.kind == "small" else 1
        bodies = [(b"%d." % next(self.count)).ljust(size, b"x") for _ in range(count)]
        messages = [Message(body, "", routing_key=self.queue) for body in bodies]
        self.call(lambda: [self.house.vhost.publish(each) for each in messages])
        self.model.log += [(body, self.now) for body in bodies]
        self.meet()

    @precondition(lambda self: len(self.readers) < 4)
    @rule(
        group=st.one_of(st.none(), st.sampled_from(GROUPS)),
        where=positions,
        credit=st.integers(1, 4),
    )
    def read(self, group: str | None, where: Where, credit: int) -> None:
        inbox = Inbox()
        position, start = self._position(where)
        spec = ConsumerSpec(credit=credit, group=group, start=position)
        consumer = self.run(self.house.vhost.consume(self.queue, inbox, spec))
        reading = self.model.join(group, start)
        self.readers.append(Reader(consumer, inbox, credit, group, reading))
        self.call(consumer.wake)
        self.meet()

    def _position(self, where: Where) -> tuple[Position, int]:
        if isinstance(where, str):
            return Position(name=where), self.model.place(where, None, None)
        kind, number = where
        if kind == "offset":
            return Position(offset=number), self.model.place(None, number, None)
        time = self.begun_at + number
        return Position(time=time), self.model.place(None, None, time)

    @precondition(lambda self: self.readers)
    @rule(which=st.integers(0, 3), verdict=st.sampled_from([FAILED, RELEASED, None]))
    def leave(self, which: int, verdict: Verdict | None) -> None:
        reader = self.readers.pop(which % len(self.readers))
        self.call(lambda: self.house.vhost.end_consumer(reader.consumer, verdict))
        if verdict is None:
            self.orphans |= reader.held
        if reader.name is not None and all(r.name != reader.name for r in self.readers):
            self.model.leave(reader.name)
        self.meet()

    @precondition(lambda self: self.orphans or any(r.held for r in self.readers))
    @rule(
        which=st.lists(st.integers(0, 9), min_size=1, max_size=4),
        verdict=st.sampled_from([ACCEPTED, ACCEPTED, ACCEPTED, RELEASED, REJECTED, FAILED]),
        is_transaction=st.booleans(),
    )
    def settle(self, which: list[int], verdict: Verdict, is_transaction: bool) -> None:
        places = [reader.held for reader in self.readers] + [self.orphans]
        held = [delivery for place in places for delivery in place]
        chosen = list({held[i % len(held)]: None for i in which})
        if is_transaction:
            transaction = self.house.vhost.transaction()
            transaction.settle(chosen, verdict)
            self.run(transaction.commit())
        else:
            self.call(lambda: self.house.vhost.settle(chosen, verdict))
        for delivery in chosen:
            place = next(place for place in places if delivery in place)
            group = place.pop(delivery)
            if verdict is ACCEPTED:
                group.settle(delivery.offset)
        self.meet()

    @rule(group=st.sampled_from(GROUPS), offset=st.integers(0, 12))
    def commit(self, group: str, offset: int) -> None:
        if offset >= self.model.tail:
            self._refused(InvalidArgument, lambda: self.stream.commit_cursor(group, offset))
            return
        self.call(lambda: self.stream.commit_cursor(group, offset))
        if group not in self.model.groups:
            self.model.groups[group] = Group(0)
        self.model.groups[group].commit(max(offset, self.model.first - 1))
        self.meet()

    def _refused(self, error: type[Exception], work: Callable[[], object]) -> None:
        with pytest.raises(error):
            self.call(work)

    @rule(group=st.sampled_from(GROUPS), where=positions)
    def send_elsewhere(self, group: str, where: Where) -> None:
        position, start = self._position(where)
        work = self.stream.reset_group(group, position)
        if group not in self.model.groups or group in self.model.readings:
            with pytest.raises((InvalidArgument, ResourceLocked)):
                self.run(work)
            return
        assert self.run(work) == self.model.reset(group, start).floor
        self.meet()

    @rule(start=st.integers(0, 12), limit=st.integers(1, 5))
    def browse(self, start: int, limit: int) -> None:
        entries = self.run(self.house.vhost.browse(self.queue, start, limit))
        expected = range(max(start, self.model.first), self.model.tail)[:limit]
        found = [(each.offset, each.message.body) for each in entries]
        assert found == [(offset, self.model.log[offset][0]) for offset in expected]

    @rule(seconds=st.sampled_from([1.0, 5.0, 15.0]))
    def wait(self, seconds: float) -> None:
        self.run(self.house.later(seconds))
        self.meet()

    @rule()
    def keep_up(self) -> None:
        """Retention takes no more than it may."""
        before = self.model.first
        self.run(self.house.upkeep())
        first = self.stream.first_offset
        assert before <= first <= max(before, self.model.tail - 1)
        for offset in range(before, first):
            assert self._may_go(offset, first), f"{offset} of {self.model.tail} went"
        self.model.lose(first)
        self.meet()

    def _may_go(self, offset: int, first: int) -> bool:
        left = self.model.log[first:]
        match self.kind:
            case "short":
                return len(left) >= LENGTH
            case "small":
                # what was open at a restart is measured by its size on disk
                slack = (self.most_lives - self.lives) * ON_DISK
                return sum(len(body) for body, _ in left) >= BYTES - slack
            case "young":
                return self.model.log[offset][1] < self.now - AGE
            case _:
                return False

    @precondition(lambda self: self.lives > 0)
    @rule(is_crash=st.booleans())
    def restart(self, is_crash: bool) -> None:
        self.lives -= 1
        if is_crash:
            self.run(self.house.crash_and_reopen())
        else:
            self.call(self._release_all)
            self.run(self.house.reopen())
        self.readers.clear()
        self.orphans.clear()
        self.model.restart(is_crash=is_crash)

    def _release_all(self) -> None:
        for reader in self.readers:
            reader.consumer.pause()
        for reader in self.readers:
            self.house.vhost.end_consumer(reader.consumer, RELEASED)
        self.house.vhost.settle(list(self.orphans), RELEASED)

    # --- what always holds

    @invariant()
    def the_log_is_whole(self) -> None:
        if self.house.is_open and self.queue in self.house.vhost.queues:
            assert (self.stream.first_offset, self.stream.log.tail) == (
                self.model.first,
                self.model.tail,
            )

    @invariant()
    def groups_are_where_they_should_be(self) -> None:
        if self.house.is_open and self.queue in self.house.vhost.queues:
            for name, settled in self.stream.groups().items():
                group = self.model.groups[name]
                above = {offset for start, end in settled.above for offset in range(start, end)}
                assert (settled.floor, above) == (group.floor, group.above), name

    def compare_what_is_left(self) -> None:
        if self.queue not in self.house.vhost.queues:
            return
        self.call(self._release_all)
        self.run(self.house.vhost.delete_queue(self.queue))
        self.quiet()
        assert self.house.manager._budget.used == 0, "memory of messages that are gone"


@in_time
def test_streams_behave_like_plain_ones(migrated_url: str) -> None:
    examine(StreamMachine, migrated_url, examples=20, steps=40)


@in_time
def test_they_do_where_every_bound_is_reached(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tight(monkeypatch, StreamMachine)
    examine(StreamMachine, migrated_url, examples=15, steps=40)
