"""Sessions without a database: turns, outages, and the small parts that decide by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.access.auth import Identity
from queue_core.commit.unit import PacketRecord, Unit
from queue_core.errors import SessionNotFound, StoreUnavailable
from queue_core.keyed_lock import Turns
from queue_core.message.message import Message
from queue_core.queues.queue import Queue
from queue_core.queues.reserved_names import is_reserved
from queue_core.routing.topics import filter_tokens, levels_of
from queue_core.routing.trie import Trie
from queue_core.sessions.inflight import PacketLedger
from queue_core.sessions.retained import (
    CACHED_VALUE_OVERHEAD_BYTES,
    MAX_CACHED_VALUE_BYTES,
    MOST_COMING,
    Retained,
    RetainedSettings,
    TopicIndex,
)
from queue_core.sessions.sessions import KEEP
from queue_core.sessions.subscription import Subscription, is_worth_storing
from queue_core.timers import Agenda
from tests.support.until import turns
from tests.unit.queue_core.session_world import FakeRetainedStore, Owner, World


@pytest.fixture
async def here() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.idle()


# --- one client's affairs, one after another


NOBODY = Identity("nobody")


async def test_of_many_connections_that_come_at_once_the_last_has_the_session(here: World) -> None:
    owners = [Owner() for _ in range(5)]
    sessions = await asyncio.gather(*(here.open(owner=owner) for owner in owners))
    assert [session.is_attached for session in sessions] == [False] * 4 + [True]
    assert [owner.told for owner in owners] == [["takeover"]] * 4 + [[]]
    assert [session.is_present for session in sessions] == [False] + [True] * 4
    assert here.outage.calls.count("add sensor") == 1


async def test_a_connection_that_fails_when_taken_over_does_not_stop_the_next(
    here: World,
) -> None:
    class Broken(Owner):
        def on_takeover(self) -> None:
            raise RuntimeError("a bug in the adapter")

    await here.open(owner=Broken())
    assert (await here.open()).is_present


async def test_a_taken_over_session_can_do_nothing_more(here: World) -> None:
    first = await here.open()
    second = await here.open()
    await here.sessions.detach(first, 0, publish_will=True)
    assert second.is_attached
    assert here.sessions.count == 1
    for attempt in (
        first.subscribe(Subscription("a")),
        first.unsubscribe("a"),
        here.sessions.wills.set(first, Message(b"", topic="a"), NOBODY),
    ):
        with pytest.raises(SessionNotFound, match="not this connection's"):
            await attempt


async def test_turns_of_one_key_are_taken_in_order_and_others_do_not_wait() -> None:
    turns = Turns()
    seen: list[str] = []
    gate = asyncio.Event()

    async def hold(key: str, name: str) -> None:
        async with turns.of(key):
            if name == "first":
                await gate.wait()
            seen.append(name)

    tasks = [asyncio.create_task(hold("a", name)) for name in ("first", "second", "third")]
    await asyncio.create_task(hold("b", "other"))
    gate.set()
    await asyncio.gather(*tasks)
    assert seen == ["other", "first", "second", "third"]
    assert not turns._locks


# --- the database is away


async def test_without_a_database_lasting_sessions_are_refused_and_passing_ones_are_not(
    here: World,
) -> None:
    here.outage.is_on = True
    with pytest.raises(StoreUnavailable):
        await here.open()
    passing = await here.open(expiry=0)
    await passing.subscribe(Subscription("a", 1))
    await here.sessions.detach(passing, publish_will=False)
    here.outage.is_on = False
    assert (await here.open()).id


async def test_a_session_that_could_not_be_written_leaves_no_queue(here: World) -> None:
    here.outage.is_on, here.outage.spared = True, ("create", "drop")
    with pytest.raises(StoreUnavailable):
        await here.open()
    await here.idle()
    assert not here.vhost.queues


async def test_a_subscription_that_could_not_be_written_binds_nothing(here: World) -> None:
    session = await here.open()
    here.outage.is_on = True
    shared = Subscription("a", 1, share="g")
    for wanted, spared in (
        (Subscription("a", 1), ()),
        (shared, ()),
        (shared, ("create", "drop")),  # the outage begins after the group has its queue
    ):
        here.outage.spared = spared
        with pytest.raises(StoreUnavailable):
            await session.subscribe(wanted)
        assert not here.vhost.router.route_topic("a")
        assert not session.subscriptions
        assert not here.sessions.shares.has("/", shared.address)
        assert set(here.vhost.queues) == {"$session/sensor", "$live/session/sensor"}


async def test_a_subscription_that_is_cancelled_while_it_waits_for_its_turn_is_undone(
    here: World,
) -> None:
    session = await here.open()
    here.outage.answers.clear()
    first = asyncio.create_task(session.subscribe(Subscription("a", 1)))
    shared = Subscription("c", 1, share="g")
    waiting = [
        asyncio.create_task(session.subscribe(each)) for each in (Subscription("b", 1), shared)
    ]
    dropping = asyncio.create_task(session.unsubscribe("a"))
    await turns()  # all are made, and all but the first wait
    assert here.vhost.router.route_topic("b")
    assert not here.vhost.router.route_topic("a")
    for task in (*waiting, dropping):
        task.cancel()
    await asyncio.wait([*waiting, dropping])
    here.outage.answers.set()
    await first
    assert set(session.subscriptions) == {"a"}
    assert here.vhost.router.route_topic("a")
    assert not here.vhost.router.route_topic("b")
    assert not here.sessions.shares.has("/", shared.address)
    assert set(here.vhost.queues) == {"$session/sensor", "$live/session/sensor"}


async def test_a_disconnection_is_written_when_the_database_is_back(here: World) -> None:
    session = await here.open()
    here.outage.is_on = True
    await here.sessions.detach(session, KEEP, publish_will=False)
    await here.pass_time(5)
    assert "disconnect 1 at 1000" not in here.outage.calls
    here.outage.is_on = False
    await here.pass_time(5)
    assert here.outage.calls[-1] == "disconnect 1 at 1000"
    assert (await here.open()).is_present


async def test_a_disconnection_that_is_written_late_does_not_touch_who_came_back(
    here: World,
) -> None:
    session = await here.open()
    here.outage.is_on = True
    await here.sessions.detach(session, publish_will=False)
    here.outage.is_on = False
    await here.open()
    await here.pass_time(5)
    assert here.outage.calls[-1] == "connect 1"


async def test_a_session_that_is_over_is_removed_when_the_database_is_back(here: World) -> None:
    session = await here.open(expiry=10)
    await here.sessions.detach(session, publish_will=False)
    here.outage.is_on = True
    await here.pass_time(10)
    assert here.sessions.count == 1
    here.outage.is_on = False
    await here.pass_time(5)
    assert here.sessions.count == 0
    assert here.outage.calls[-2:] == ["delete 1", "drop $session/sensor"]


async def test_a_session_that_is_over_but_not_removed_yet_is_not_resumed(here: World) -> None:
    session = await here.open(expiry=10)
    await here.sessions.detach(session, publish_will=False)
    here.now += 10  # the agenda has not run
    assert not (await here.open()).is_present


async def test_a_queue_that_is_dropped_late_is_not_the_one_that_took_its_name(
    here: World,
) -> None:
    session = await here.open()
    await here.sessions.detach(session, publish_will=False)
    dropped: Queue | None = here.vhost.queues["$session/sensor"]
    here.outage.is_on, here.outage.spared = True, ("delete 1",)
    await here.sessions.end(here.vhost, "sensor")
    assert here.vhost.queues["$session/sensor"] is dropped  # could not be dropped yet
    here.outage.is_on = False
    fresh = await here.open()
    await here.pass_time(5)
    assert fresh.stored is not None
    assert fresh.stored is not dropped
    assert not fresh.stored.is_deleted


async def test_a_will_that_was_taken_back_is_deleted_when_the_database_is_back(
    here: World,
) -> None:
    session = await here.open(expiry=0)
    await here.sessions.wills.set(session, Message(b"lost", topic="will"), NOBODY)
    here.outage.is_on = True
    await here.sessions.detach(session, publish_will=False)
    here.outage.is_on = False
    await here.pass_time(5)
    assert here.outage.calls[-1] == "delete will of sensor"
    assert not here.writer.units


async def test_a_will_that_a_writer_without_a_database_refuses_stays_for_the_next_gateway(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await here.open(expiry=0)
    await here.sessions.wills.set(session, Message(b"lost", topic="will"), NOBODY)

    def refuse(unit: Unit) -> None:
        assert unit.publisher is not None
        unit.publisher.on_refused([unit.token], StoreUnavailable("another gateway took over"))

    monkeypatch.setattr(here.writer, "submit", refuse)
    await here.sessions.detach(session, publish_will=True)
    await here.idle()
    assert "delete will of sensor" not in here.outage.calls


async def test_a_large_will_is_published_when_it_can_be_read_again(here: World) -> None:
    session = await here.open(expiry=0)
    await here.sessions.wills.set(session, Message(b"x" * 5000, topic="will"), NOBODY)
    here.outage.is_on = True
    await here.sessions.detach(session, publish_will=True)
    await here.idle()
    assert not here.writer.units
    here.outage.is_on = False
    await here.pass_time(5)
    assert len(here.writer.units) == 1


async def test_a_deletion_that_comes_late_does_not_take_the_next_will() -> None:
    here = World()
    session = await here.open(expiry=None)
    await here.sessions.wills.set(session, Message(b"first", topic="will"), NOBODY)
    here.outage.is_on, here.outage.spared = True, ("connect", "disconnect")
    await here.sessions.detach(session, publish_will=False)
    here.outage.is_on = False
    session = await here.open(expiry=None)
    here.outage.calls.clear()
    setting = asyncio.ensure_future(
        here.sessions.wills.set(session, Message(b"second", topic="will"), NOBODY)
    )
    await turns()  # it is being written
    await here.pass_time(5)  # now the first one's row would be deleted
    await setting
    assert here.outage.calls == ["put will of sensor"]


async def test_a_will_that_cannot_be_written_is_not_published() -> None:
    here = World()
    session = await here.open()
    here.outage.is_on = True
    with pytest.raises(StoreUnavailable):
        await here.sessions.wills.set(session, Message(b"x", topic="will"), NOBODY)
    await here.sessions.detach(session, publish_will=True)
    await here.idle()
    assert not here.writer.units


async def test_nothing_of_a_session_is_left_when_its_virtual_host_is_gone() -> None:
    here = World()
    session = await here.open(expiry=60)
    await here.sessions.wills.set(session, Message(b"x", topic="will"), NOBODY, delay=30)
    await here.sessions.detach(session, publish_will=True)
    here.vhosts.clear()
    here.sessions.forget_vhost("/")
    await here.pass_time(100)
    assert here.sessions.count == 0
    assert not here.writer.units


# --- retained messages


class Writing:
    """A way to the table, on which a test holds up what is published."""

    def __init__(self) -> None:
        self.store = FakeRetainedStore()
        self.done = asyncio.Event()
        self.done.set()

    def retained(self, settings: RetainedSettings | None = None) -> Retained:
        return Retained(
            self.store,
            clock=lambda: 1000.0,
            agenda=Agenda(),
            later=_never,
            flushed=self._flushed,
            settings=settings,
        )

    async def _flushed(self) -> None:
        await self.done.wait()


async def test_a_value_that_was_read_slowly_does_not_come_after_or_hide_a_newer_one() -> None:
    writing = Writing()
    retained = writing.retained()
    await retained.recover()
    reading = asyncio.ensure_future(_bodies(retained))
    await turns()  # the readers have begun, and wait
    large = Message(b"n" * (MAX_CACHED_VALUE_BYTES + 1), topic="a")
    retained.committed([retained.record("/", large, 1)])
    writing.store.gate.set()
    assert await reading == []
    assert retained._cache == {}  # what was read is not the value any more, and not kept as such
    assert await _bodies(retained) == [b"old"]


async def test_a_value_that_is_on_its_way_is_waited_for() -> None:
    writing = Writing()
    retained = writing.retained()
    writing.done.clear()
    record = retained.record("/", Message(b"new", topic="b"), 1)
    reading = asyncio.ensure_future(_bodies(retained))
    await turns()  # the readers have begun, and wait
    retained.committed([record])
    writing.done.set()
    assert await reading == [b"new"]


async def test_values_that_are_refused_are_forgotten_when_they_are_many() -> None:
    """Nobody may ever subscribe."""
    writing = Writing()
    tasks: list[asyncio.Future[object]] = []
    retained = writing.retained()
    retained._later = lambda work: tasks.append(asyncio.ensure_future(work))
    for number in range(3 * MOST_COMING):
        retained.record("/", Message(b"full", topic=f"t/{number}"), 1)
        if tasks:
            await tasks.pop()
    assert len(retained._coming) <= MOST_COMING


async def test_nobody_waits_for_a_database_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queue_core.sessions.retained.VALUE_WAIT_SECONDS", 0)
    writing = Writing()
    retained = writing.retained()
    for topic in ("b", "c"):
        retained.committed([retained.record("/", Message(b"old", topic=topic), 1)])
    writing.done.clear()  # and stays so
    retained.record("/", Message(b"new", topic="b"), 1)
    retained.record("/", Message(b"new", topic="other/b"), 1)
    retained.record("/", Message(b"", topic="c"), 1)
    retained.record("second", Message(b"new", topic="d"), 1)
    found = [(kept.message.topic, kept.message.body) async for kept in retained.match("/", "+")]
    assert found == [("b", b"new")]


async def test_a_value_that_is_replaced_meanwhile_is_left_to_its_successor() -> None:
    writing = Writing()
    retained = writing.retained()
    for topic in ("b", "c"):
        retained.committed([retained.record("/", Message(b"old", topic=topic), 1)])
    writing.done.clear()
    clearing = retained.record("/", Message(b"", topic="d"), 1)
    reading = asyncio.ensure_future(_topics(retained))
    await turns()  # the readers have begun, and wait
    retained.record("/", Message(b"new", topic="b"), 1)  # goes to the subscriber by itself
    retained.committed([clearing])
    writing.done.set()
    assert await reading == ["c"]


async def test_a_value_that_was_refused_does_not_hide_the_one_before() -> None:
    retained = Writing().retained()
    retained.committed([retained.record("/", Message(b"old", topic="b"), 1)])
    retained.record("/", Message(b"refused", topic="b"), 1)
    assert await _bodies(retained) == [b"old"]
    assert not retained._coming


async def test_a_value_that_two_read_at_once_is_kept_once() -> None:
    writing = Writing()
    retained = writing.retained()
    await retained.recover()
    readers = [asyncio.ensure_future(_bodies(retained)) for _ in range(2)]
    await turns()  # the readers have begun, and wait
    writing.store.gate.set()
    await asyncio.gather(*readers)
    assert retained.cached_bytes == len(b"old") + CACHED_VALUE_OVERHEAD_BYTES


async def test_nothing_of_a_virtual_host_that_is_gone_is_for_one_of_its_name() -> None:
    retained = Writing().retained()
    for vhost in ("/", "other"):
        retained.committed([retained.record(vhost, Message(b"x", topic="b"), 1)])
        retained.record(vhost, Message(b"y", topic="c"), 1)
    retained.forget_vhost("/")
    assert await _bodies(retained) == []
    assert [kept.message.body async for kept in retained.match("other", "#")] == [b"x"]
    assert (retained.count, retained.bytes) == (1, 1)
    assert retained.cached_bytes == 1 + CACHED_VALUE_OVERHEAD_BYTES


async def _bodies(retained: Retained) -> list[bytes]:
    return [kept.message.body async for kept in retained.match("/", "#")]


async def _topics(retained: Retained) -> list[str]:
    return [kept.message.topic async for kept in retained.match("/", "#")]


def _never(work: Coroutine[Any, Any, object]) -> None:
    raise AssertionError("nothing is to be done later")


async def test_the_cache_of_values_keeps_to_its_size_and_to_what_was_used_last() -> None:
    """The objects around small values count: a million of them are no small matter."""
    each = 10 + CACHED_VALUE_OVERHEAD_BYTES
    retained = Writing().retained(RetainedSettings(cache_bytes=3 * each))

    def put(topic: str) -> None:
        message = Message(b"x" * 10, topic=topic)
        retained.committed([retained.record("/", message, 1)])

    for topic in ("t/1", "t/2", "t/3"):
        put(topic)
    assert [kept.message.topic async for kept in retained.match("/", "t/1")] == ["t/1"]
    put("t/4")
    assert [topic for _, topic in retained._cache] == ["t/3", "t/1", "t/4"]
    put("t/3")
    assert retained.cached_bytes == 3 * each


# --- the small parts


def test_a_subscription_is_the_same_after_json_and_says_only_what_it_must() -> None:
    plain = Subscription("a/b", 1)
    assert msgspec.json.encode(plain) == b'{"filter":"a/b","qos":1}'
    full = Subscription("a/#", 2, True, True, 2, 5, "g", None, {"group": "x", "offset": 7})
    for each in (plain, full):
        assert msgspec.json.decode(msgspec.json.encode(each), type=Subscription) == each
    assert full.address == "$share/g/a/#"


@pytest.mark.parametrize(
    ("durable", "qos", "is_worth_it"),
    [
        (True, (1,), True),
        (True, (0, 2), True),
        (True, (0,), False),
        (False, (2,), False),
        (True, (), True),
        (False, (), False),
    ],
)
def test_only_what_is_durable_and_asked_for_is_stored_for_a_session(
    durable: bool, qos: tuple[int, ...], is_worth_it: bool
) -> None:
    options = tuple(Subscription("a", each) for each in qos)
    assert is_worth_storing(Message(b"", topic="a", durable=durable), options) is is_worth_it


def test_names_of_session_queues_are_not_for_clients() -> None:
    assert all(map(is_reserved, ("$session/a", "$share/g/f", "$live/session/a", "$live/share/a")))
    assert not any(map(is_reserved, ("session", "$queue/a", "amq.gen-1", "")))


def test_the_ledger_knows_what_is_committed_and_forgets_who_has_ended() -> None:
    ledger = PacketLedger()
    ledger.open(1, [PacketRecord(1, False, 5, 1)])
    ledger.commit([PacketRecord(1, True, 5, 2, 9, 10), PacketRecord(2, True, 1, 1)])
    assert set(ledger.records()) == {
        PacketRecord(1, False, 5, 1),
        PacketRecord(1, True, 5, 2, 9, 10),
    }
    ledger.commit([PacketRecord(1, False, 5, 3), PacketRecord(1, True, 5, 0)])
    assert list(ledger.records()) == [PacketRecord(1, False, 5, 3)]
    ledger.forget(1)
    ledger.commit([PacketRecord(1, False, 5, 1)])
    assert not list(ledger.records())


levels = st.sampled_from(["a", "b", "", "$s"])
topics = st.lists(levels, min_size=1, max_size=4).map("/".join).filter(bool)
tokens = st.lists(st.sampled_from(["a", "b", "", "$s", "+"]), min_size=1, max_size=4)
filters = st.builds(lambda t, many: "/".join([*t, "#"] if many else t), tokens, st.booleans())


@given(st.lists(st.tuples(topics, st.booleans())), filters.filter(bool) | st.just("#"))
def test_the_index_of_values_matches_as_the_trie_of_subscriptions_does(
    changes: list[tuple[str, bool]], topic_filter: str
) -> None:
    index, held = TopicIndex(), dict[str, int]()
    for number, (topic, is_put) in enumerate(changes):
        if is_put:
            index.put(topic, number, None)
            held[topic] = number
        else:
            assert index.remove(topic) is (held.pop(topic, None) is not None)
    trie: Trie[int] = Trie(hides_dollar=True)
    trie.add(filter_tokens(topic_filter), 1)
    wanted = sorted(topic for topic in held if trie.match(levels_of(topic)))
    assert sorted(str(node.topic) for node in index.match(filter_tokens(topic_filter))) == wanted
    assert (index.count, index.bytes) == (len(held), sum(held.values()))
    assert sorted(str(node.topic) for node in index.all()) == sorted(held)


def test_topics_may_come_and_go_while_the_index_is_walked() -> None:
    index = TopicIndex()
    for number in range(10):
        index.put(f"a/{number}", 1, None)
    walk = index.match(filter_tokens("a/#"))
    next(walk)
    for number in range(10):
        index.remove(f"a/{number}")
        index.put(f"b/{number}", 1, None)
    assert all(node.topic is None or node.topic.startswith("a/") for node in walk)
