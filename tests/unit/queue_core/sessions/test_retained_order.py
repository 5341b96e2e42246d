"""Retained publishes, commits and subscriptions in every order, against a plain model of them.

A subscriber gets each value that is published after it subscribed once, by routing; of those before
only the last of each topic, as a retained one; and never an older value after a newer one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from hypothesis import example, given
from hypothesis import strategies as st

from queue_core.commit.unit import RetainedRecord
from queue_core.message.message import Message
from queue_core.sessions.retained import Kept, KeptTopic, Retained, RetainedSettings
from queue_core.timers import Agenda
from tests.support.until import turns

TOPICS = ("a", "b")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.sampled_from(TOPICS), st.booleans()),
        st.tuples(st.just("commit"), st.integers(1, 3), st.booleans()),
        st.tuples(st.just("subscribe"), st.sampled_from((*TOPICS, "#")), st.booleans()),
        st.tuples(st.just("turn"), st.integers(1, 4), st.booleans()),
    ),
    max_size=25,
)


class Table:
    """The table, and the way there. `flushed` is answered when all that waited is committed."""

    def __init__(self) -> None:
        self.rows: dict[str, Kept] = {}
        self.waiting: list[RetainedRecord] = []
        self.progress = asyncio.Event()
        self.is_away = False

    async def topics(self) -> AsyncIterator[list[KeptTopic]]:
        yield []

    async def read(self, vhost: str, topics: Sequence[str]) -> dict[str, Kept]:
        found = {topic: self.rows[topic] for topic in topics if topic in self.rows}
        await turns()  # a database answers in a later turn
        return found

    async def delete_expired(self, vhost: str, topics: Sequence[str], now: float) -> None: ...

    async def flushed(self) -> None:
        if self.is_away:
            raise TimeoutError  # as the patience of whoever waits ends
        last = self.waiting[-1] if self.waiting else None
        while last is not None and last in self.waiting:
            self.progress.clear()
            await self.progress.wait()

    def commit(self, count: int) -> list[RetainedRecord]:
        done, self.waiting = self.waiting[:count], self.waiting[count:]
        for record in done:
            if record.message is None:
                self.rows.pop(record.topic, None)
            else:
                self.rows[record.topic] = Kept(record.message, record.qos, 0.0)
        return done


@dataclass
class Subscriber:
    topic_filter: str
    last_before: dict[str, bytes]  # the value of each topic when it subscribed
    live: list[tuple[str, bytes]] = field(default_factory=list)
    got: list[tuple[str, bytes, bool]] = field(default_factory=list)  # and whether retained

    def wants(self, topic: str) -> bool:
        return self.topic_filter in (topic, "#")


class House:
    def __init__(self, cache_bytes: int) -> None:
        self.table = Table()
        self.retained = Retained(
            self.table,
            clock=lambda: 1000.0,
            agenda=Agenda(),
            later=lambda work: work.close(),
            flushed=self.table.flushed,
            settings=RetainedSettings(cache_bytes=cache_bytes),
        )
        self.values: dict[str, bytes] = {}
        self.subscribers: list[Subscriber] = []
        self.reading: list[asyncio.Task[None]] = []
        self._next = 0

    def publish(self, topic: str, clears: bool) -> None:
        self._next += 1
        body = b"" if clears else b"%d" % self._next
        self.table.waiting.append(self.retained.record("/", Message(body, topic=topic), 1))
        self.values.pop(topic, None)
        if body:
            self.values[topic] = body
        for each in self.subscribers:
            if each.wants(topic):
                each.live.append((topic, body))
                each.got.append((topic, body, False))

    def commit(self, count: int) -> None:
        self.retained.committed(self.table.commit(count))
        self.table.progress.set()

    def subscribe(self, topic_filter: str) -> None:
        subscriber = Subscriber(topic_filter, dict(self.values))
        self.subscribers.append(subscriber)
        mark = self.retained.mark()
        self.reading.append(asyncio.ensure_future(self._read(subscriber, mark)))

    async def _read(self, subscriber: Subscriber, mark: int) -> None:
        async for kept in self.retained.match("/", subscriber.topic_filter, mark=mark):
            subscriber.got.append((kept.message.topic, kept.message.body, True))
            await turns()  # a socket takes each message in a turn of its own

    def check(self) -> None:
        for each in self.subscribers:
            by_routing = [(topic, body) for topic, body, is_old in each.got if not is_old]
            retained = [(topic, body) for topic, body, is_old in each.got if is_old]
            assert by_routing == each.live
            assert len(set(retained)) == len(retained), "a retained value came twice"
            assert set(retained) <= set(each.last_before.items()), "not what it was"
            changed = {topic for topic, _ in each.live}
            for topic, body in each.last_before.items():
                if each.wants(topic) and topic not in changed:
                    assert (topic, body) in retained, "a value is missing"
            for topic in TOPICS:
                seen = [is_old for name, _, is_old in each.got if name == topic]
                assert seen == sorted(seen, reverse=True), "an older value after a newer one"


@example(
    steps=[
        ("publish", "a", False),
        ("publish", "b", False),
        ("commit", 2, False),
        ("subscribe", "#", False),
        ("turn", 1, False),
        ("publish", "a", False),
        ("publish", "b", False),
    ],
    cache_bytes=1 << 20,
    is_away=False,
)
@given(STEPS, st.sampled_from((0, 1 << 20)), st.booleans())
async def test_each_value_comes_once_and_none_after_a_newer_one(
    steps: list[tuple[str, object, bool]], cache_bytes: int, is_away: bool
) -> None:
    house = House(cache_bytes)
    for step, what, flag in steps:
        if step == "publish":
            house.publish(str(what), flag)
        elif step == "commit":
            assert isinstance(what, int)
            house.commit(what)
        elif step == "subscribe":
            house.table.is_away = is_away and flag
            house.subscribe(str(what))
        else:
            assert isinstance(what, int)
            await turns(what)
    while house.table.waiting or any(not task.done() for task in house.reading):
        house.commit(1)
        await turns()  # each commit lets readers go on, who may wait for the next
    for task in house.reading:
        await task
    house.check()
