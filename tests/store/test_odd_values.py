"""Odd values on every way into the database, beside somebody who does nothing odd.

Each is stored, and the same after a crash and a new generation of the journal, or refused to
whoever sent it, in words. Nobody else waits for it or loses anything by it, and the gateway starts
again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from math import isfinite
from typing import Any

import asyncpg
import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from queue_core.delivery.consumer import ConsumerSpec, Entry, Position
from queue_core.errors import CoreError
from queue_core.message.message import Message
from queue_core.message.message_run import MessageRun
from queue_core.outcomes import ACCEPTED, Outcome, Published, Verdict
from queue_core.queues.spec import QueueSpec
from queue_core.queues.stream import StreamQueue
from queue_core.routing.exchanges import ExchangeSpec
from queue_core.sessions.subscription import Subscription
from queue_core.store.write import journal_generation
from queue_core.store.write.rows import plain
from tests.store.odd_values import arguments, floats, integers, messages, texts, values
from tests.store.sessions import ANONYMOUS, Owner
from tests.support.inbox import Inbox
from tests.support.managers import House, Told
from tests.support.until import PATIENCE_SECONDS, until_true

QUEUES = ("plain", "ranked", "once", "short", "log")  # that odd messages go to
WORLD = "howdah.publish($1, $2::bytea, headers => $3::jsonb, priority => $4)"
ALL_DONE = "SELECT count(*) = 0 FROM howdah.command WHERE done_at IS NULL"
# What SQL refuses to its own client, and what is no JSON to begin with.
NOT_SQL = (asyncpg.PostgresError, asyncpg.InterfaceError, ValueError, RecursionError, OverflowError)
Act = Callable[["Run"], Awaitable[object]]


class Run:
    def __init__(self, house: House, db: asyncpg.Connection, patch: pytest.MonkeyPatch) -> None:
        self.house = house
        self.patch = patch
        self.db = db
        self.good = 0
        self.kept: dict[bytes, Message] = {}  # odd ones that were confirmed, by their bodies
        self.come_back = False

    async def begin(self) -> None:
        house = self.house
        await house.queue("good")
        await house.queue("fails")
        await house.queue("plain")
        await house.queue("ranked", max_priority=5)
        await house.queue("once", deduplication_window=3_600_000)
        await house.queue("short", max_length=2, dead_letter_exchange="", message_ttl=60_000)
        await house.stream("log")
        for name in QUEUES:
            await house.vhost.bind("amq.fanout", house.vhost.queue(name))
        await house.ephemeral("memory", dead_letter_exchange="", dead_letter_routing_key="plain")
        await house.vhost.bind("amq.fanout", house.vhost.queue("memory"))

    async def play(self, acts: list[Act], rotates: bool) -> None:
        """One after the other, each beside a good message; then everything is still as it was."""
        told = Told()
        for number, act in enumerate(acts):
            self.house.put("good", b"%d" % self.good, told=told)
            self.good += 1
            doing = asyncio.create_task(self._try(act))
            await told.answers(number + 1)
            await doing
        assert told.refused == []
        self.patch.setattr(journal_generation, "GENERATION_ROWS", 1 if rotates else 1000)
        await self.house.store("good", b"last")
        await self.house.flushed()
        assert self.house.manager.counters.failed_generations == 0
        before = await self._contents()
        await self.house.crash_and_reopen()
        assert await self._contents() == before
        counts = self.house.vhost.queue("fails").counts()
        assert counts.ready + counts.delayed == int(self.come_back)
        for queue in ("plain", "log"):
            found = {facts[1]: facts for facts in before[queue] if facts[2] == "amq.fanout"}
            for body, message in self.kept.items():
                assert found[body][2:6] == _said(message)[2:6]
                assert found[body][-1] == _said(message)[-1]
        assert [delivery.message.body for delivery in await self.house.drain("good")] == [
            *(b"%d" % i for i in range(self.good - len(acts), self.good)),
            b"last",
        ]
        await self._tidy()

    async def _try(self, act: Act) -> None:
        with suppress(CoreError):  # refused, in words
            async with asyncio.timeout(PATIENCE_SECONDS):
                await act(self)

    async def _contents(self) -> dict[str, list[tuple[object, ...]]]:
        await self.house.flushed()
        found = {}
        for name in QUEUES:
            entries = await self.house.vhost.browse(name, 0, 1000)
            found[name] = [_facts(entry) for entry in entries]
        return found

    async def _tidy(self) -> None:
        self.kept.clear()
        self.come_back = False
        await self.house.vhost.delete_queue("log")
        await self.house.vhost.bind("amq.fanout", await self.house.stream("log"))
        for name in (*QUEUES[:-1], "memory", "fails"):
            if name in self.house.vhost.queues:
                await self.house.vhost.purge_queue(name)
        if "memory" not in self.house.vhost.queues:
            await self.house.ephemeral(
                "memory", dead_letter_exchange="", dead_letter_routing_key="plain"
            )
            await self.house.vhost.bind("amq.fanout", self.house.vhost.queue("memory"))

    # --- acts

    async def answered(self, publish: Callable[[Told], Published | None]) -> bool:
        """Whether it was confirmed."""
        told = Told()
        if publish(told) is Published.PENDING:
            await told.answers(1)
        for _, error in told.refused:
            assert "cannot be stored" in str(error)
        return bool(told.committed)


def _facts(entry: Entry) -> tuple[object, ...]:
    expires_at = None if entry.expires_at is None else round(entry.expires_at, 3)
    return (entry.offset, *_said(entry.message)[1:-1], expires_at, _said(entry.message)[-1])


def _said(message: Message) -> tuple[object, ...]:
    """Returns the publisher's words as repr, as nothing equals what is not a number."""
    fields = msgspec.structs.asdict(message.properties)
    return (
        *(None, message.body, message.exchange, message.routing_key, message.priority),
        *(message.publisher, repr(listed(fields))),
    )


def listed(value: object) -> object:
    """Whether it was a list or a tuple makes no difference."""
    if isinstance(value, Mapping):
        return {key: listed(item) for key, item in value.items()}
    return [listed(item) for item in value] if isinstance(value, list | tuple) else value


def publishing(message: Message) -> Act:
    async def act(run: Run) -> None:
        message.body = b"odd %d" % run.good
        is_kept = await run.answered(lambda told: run.house.vhost.publish(message, told))
        if is_kept:
            run.kept[message.body] = message

    return act


def in_a_row(message: Message) -> Act:
    async def act(run: Run) -> None:
        copies = [Message(b"%d" % i, "", "plain", publisher=message.publisher) for i in range(3)]
        await run.answered(lambda told: run.house.vhost.publish_run(MessageRun(copies), told))

    return act


def in_a_transaction(message: Message) -> Act:
    async def act(run: Run) -> None:
        transaction = run.house.vhost.transaction()
        transaction.publish(message)
        transaction.publish(Message(b"with it", "", "plain"))
        await transaction.commit()

    return act


def retaining(message: Message, topic: str) -> Act:
    async def act(run: Run) -> None:
        odd = Message(
            message.body, topic=topic, properties=message.properties, expires_at=message.expires_at
        )
        record = run.house.manager.sessions.retained.record("/", odd, 1)
        await run.answered(lambda told: run.house.vhost.publish(odd, told, 0, (record,)))

    return act


def dying(message: Message) -> Act:
    """In memory, and from there to a queue that is stored."""

    async def act(run: Run) -> None:
        await run.answered(lambda told: run.house.vhost.publish(message, told))
        delivery = await run.house.vhost.get("memory")
        if delivery is not None:
            run.house.vhost.settle([delivery], Verdict(Outcome.REJECTED, reason="odd"))

    return act


def failing(delay: float, reason: str, outcome: Outcome) -> Act:
    async def act(run: Run) -> None:
        await run.house.vhost.purge_queue("fails")
        await run.house.store("fails", b"comes back")
        delivery = await run.house.vhost.get("fails")
        assert delivery is not None
        run.house.vhost.settle([delivery], Verdict(outcome, delay=delay, reason=reason))
        run.come_back = True

    return act


def declaring(name: str, arguments: dict[str, Any]) -> Act:
    async def act(run: Run) -> None:
        await run.house.vhost.declare_queue(QueueSpec.parse("odd" + name, arguments))
        await run.house.vhost.delete_queue("odd" + name)

    return act


def declaring_exchange(name: str, arguments: dict[str, Any]) -> Act:
    async def act(run: Run) -> None:
        spec = ExchangeSpec.parse("odd" + name, "headers", arguments)
        await run.house.vhost.declare_exchange(spec)
        await run.house.vhost.delete_exchange(spec.name)

    return act


def binding(key: str, arguments: dict[str, Any]) -> Act:
    async def act(run: Run) -> None:
        queue = run.house.vhost.queue("plain")
        await run.house.vhost.bind("amq.headers", queue, key, arguments)

    return act


def reading(group: str, position: Position, offset: int) -> Act:
    async def act(run: Run) -> None:
        inbox = Inbox(ACCEPTED)
        inbox.vhost = run.house.vhost
        spec = ConsumerSpec(group=group, start=position)
        consumer = await run.house.vhost.consume("log", inbox, spec)
        consumer.wake()
        run.house.vhost.end_consumer(consumer, ACCEPTED)
        log = run.house.vhost.queue("log")
        assert isinstance(log, StreamQueue)
        log.commit_cursor(group, offset)

    return act


def connecting(client: str, expiry: float, subscription: Subscription, will: Message) -> Act:
    async def act(run: Run) -> None:
        sessions = run.house.manager.sessions
        session = await sessions.open(
            run.house.vhost,
            client,
            clean_start=False,
            expiry=max(0.0, expiry) if isfinite(expiry) else None,
            user=None,
            protocol="MQTT 5",
            owner=Owner(),
        )
        try:
            await sessions.wills.set(session, will, ANONYMOUS, delay=5, qos=1)
            await session.subscribe(subscription)
        finally:
            await sessions.detach(session, publish_will=True)

    return act


def from_sql(body: bytes, headers: object, priority: int) -> Act:
    async def act(run: Run) -> None:
        try:
            text = json.dumps({"odd": plain(headers)})
            await run.db.fetchval(f"SELECT {WORLD}", "plain", body, text, priority)
        except NOT_SQL:
            return  # refused where it was published

    return act


def commanding(arguments: object) -> Act:
    async def act(run: Run) -> None:
        try:
            text = json.dumps({"x-max-length": plain(arguments)})
            await run.db.fetchval("SELECT howdah.declare_queue('ordered', $1::jsonb)", text)
        except NOT_SQL:
            return
        await until_true(run.db, ALL_DONE)
        if "ordered" in run.house.vhost.queues:
            await run.house.vhost.delete_queue("ordered")

    return act


positions = st.builds(Position, offset=integers) | st.builds(Position, time=floats)
subscriptions = st.builds(
    Subscription, filter=texts, qos=st.just(1), share=st.none() | texts, identifier=integers
)
acts = st.one_of(
    st.builds(publishing, messages()),
    st.builds(in_a_row, messages()),
    st.builds(in_a_transaction, messages()),
    st.builds(retaining, messages(), texts),
    st.builds(dying, messages()),
    st.builds(failing, floats, texts, st.sampled_from([Outcome.MODIFIED, Outcome.RELEASED])),
    st.builds(declaring, texts, arguments),
    st.builds(declaring_exchange, texts, arguments),
    st.builds(binding, texts, arguments),
    st.builds(reading, texts, positions, integers),
    st.builds(connecting, texts, floats, subscriptions, messages()),
    st.builds(from_sql, st.binary(max_size=4), values, integers),
    st.builds(commanding, values),
)


def test_odd_values_are_kept_or_refused_and_are_nobody_elses_affair(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with asyncio.Runner() as runner:
        db = runner.run(asyncpg.connect(migrated_url))
        run = Run(runner.run(House(migrated_url).open()), db, monkeypatch)
        try:
            runner.run(run.begin())

            # The same examples each time, and the first that fails is told as it is: with a
            # database that remembers the ones before, there is nothing to shrink.
            @settings(
                max_examples=30,
                derandomize=True,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(st.lists(acts, min_size=1, max_size=6), st.booleans())
            def play(given_acts: list[Act], rotates: bool) -> None:
                runner.run(run.play(given_acts, rotates))

            play()
        finally:
            runner.run(run.house.close())
            runner.run(db.close())
