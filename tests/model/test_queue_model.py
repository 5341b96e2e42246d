"""The manager against a plain model of what a queue is, over random steps, crashes and restarts."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from queue_core.delivery.consumer import Consumer, ConsumerSpec, Delivery
from queue_core.errors import QueueFull
from queue_core.message.message import Message
from queue_core.outcomes import (
    ACCEPTED,
    FAILED,
    REJECTED,
    RELEASED,
    Outcome,
    Published,
    Verdict,
)
from queue_core.queues.spec import QueueSpec
from tests.model.machine import Machine, examine, in_time, make_tight, written
from tests.model.plain_queue import Item, PlainQueue
from tests.support.inbox import Inbox
from tests.support.until import turns as pass_turns

Model = Callable[[], PlainQueue]
REFUSES, REFUSES_DLX = "reject-publish", "reject-publish-dlx"
KINDS: dict[str, tuple[dict[str, object], Model]] = {
    "plain": ({}, PlainQueue),
    "priority": ({"x-max-priority": 2}, lambda: PlainQueue(has_priorities=True)),
    "brief": ({"x-message-ttl": 10_000}, lambda: PlainQueue(ttl=10)),
    "brief priority": (
        {"x-message-ttl": 10_000, "x-max-priority": 2},
        lambda: PlainQueue(ttl=10, has_priorities=True),
    ),
    "impatient": ({"x-delivery-limit": 1}, lambda: PlainQueue(delivery_limit=1)),
    "single": ({"x-single-active-consumer": True}, PlainQueue),
    "single impatient": (
        {"x-single-active-consumer": True, "x-delivery-limit": 1},
        lambda: PlainQueue(delivery_limit=1),
    ),
    "timed": (
        {"x-consumer-timeout": 5_000, "x-delivery-limit": 1},
        lambda: PlainQueue(ack_timeout=5, delivery_limit=1),
    ),
    "timed single": (
        {"x-consumer-timeout": 5_000, "x-single-active-consumer": True},
        lambda: PlainQueue(ack_timeout=5),
    ),
    "once": ({"x-deduplication-window": 10_000}, lambda: PlainQueue(window=10)),
    "once refusing": (
        {"x-deduplication-window": 10_000, "x-max-length": 3, "x-overflow": REFUSES_DLX},
        lambda: PlainQueue(window=10, max_length=3, overflow=REFUSES_DLX),
    ),
    "dropping": ({"x-max-length": 3}, lambda: PlainQueue(max_length=3)),
    "dropping bytes": ({"x-max-length-bytes": 30}, lambda: PlainQueue(max_bytes=30)),
    "dropping priority": (
        {"x-max-length": 3, "x-max-length-bytes": 60, "x-max-priority": 2},
        lambda: PlainQueue(max_length=3, max_bytes=60, has_priorities=True),
    ),
    "refusing": (
        {"x-max-length": 3, "x-overflow": REFUSES},
        lambda: PlainQueue(max_length=3, overflow=REFUSES),
    ),
    "refusing bytes": (
        {"x-max-length-bytes": 30, "x-overflow": REFUSES},
        lambda: PlainQueue(max_bytes=30, overflow=REFUSES),
    ),
    "refusing with letters": (
        {"x-max-length": 3, "x-overflow": REFUSES_DLX},
        lambda: PlainQueue(max_length=3, overflow=REFUSES_DLX),
    ),
    "refusing priority": (
        {"x-max-length-bytes": 30, "x-overflow": REFUSES_DLX, "x-max-priority": 2},
        lambda: PlainQueue(max_bytes=30, overflow=REFUSES_DLX, has_priorities=True),
    ),
}
LATER = 6.0  # seconds
_names = itertools.count()


class QueueMachine(Machine):
    """One queue with consumers, and a dead-letter queue beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.count = itertools.count()
        self.consumers: list[tuple[Consumer, Inbox, int]] = []
        self.open: dict[Delivery, Item] = {}
        self.is_ephemeral = False
        self.is_single = False
        self.spec = QueueSpec.parse("-")
        self.model = PlainQueue()

    @initialize(
        kind=st.sampled_from(sorted(KINDS)),
        is_ephemeral=st.booleans(),
        has_dead_letters=st.sampled_from([True, True, True, False]),
    )
    def declare(self, kind: str, is_ephemeral: bool, has_dead_letters: bool) -> None:
        arguments, model = KINDS[kind]
        number = next(_names)
        self.dead = f"dead-{number}"
        self.model = model()
        letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.dead}
        if not has_dead_letters and self.model.overflow != REFUSES_DLX:
            letters, self.model.has_dead_letters = {}, False
        self.is_ephemeral = is_ephemeral and self.model.window is None
        self.is_single = "x-single-active-consumer" in arguments
        self.spec = QueueSpec.parse(
            f"q-{number}", {**arguments, **letters}, durable=not self.is_ephemeral
        )
        self.run(self.house.vhost.declare_queue(QueueSpec.parse(self.dead)))
        self.run(self.house.vhost.declare_queue(self.spec))

    # --- after each step, both have done all they can

    def meet(self) -> None:
        """Lets the manager finish, and holds what it handed out to what the model would have."""
        self.model.make_fit(self._room(), self.now)
        self.quiet()
        for consumer, inbox, _ in self.consumers:
            self._check_deliveries(consumer, inbox.take())
        ready, room = self.model.ready(self.now), self._room()
        assert not ready or not room, f"{[i.body for i in ready]} ready, and room for {room}"

    def _check_deliveries(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            self._check(delivery, consumer)
        assert len(consumer.unsettled) <= consumer.spec.credit
        if self.is_single and deliveries:
            assert consumer is self.consumers[0][0]

    def _check(self, delivery: Delivery, holder: object) -> None:
        item = self._item(delivery)
        assert item.holder is None, "handed out twice"
        assert item in self.model.ready(self.now), "not ready"
        told = (delivery.redelivered, delivery.failures)
        may = [(item.was_handed_out, item.failures)]
        if item.is_suspect and item.failures == 0:
            may = [(True, 1)] if item.was_lost else [(True, 1), *may]
        assert told in may, f"{item.body!r}: {told}, expected one of {may}"
        item.failures = delivery.failures
        self.model.hand_over(item, holder, self.now)
        self.open[delivery] = item

    def _item(self, delivery: Delivery) -> Item:
        body = delivery.message.body
        found = [item for item in self.model.items if item.body == body]
        assert found, f"{body!r} came, and should not exist any more"
        return found[0]

    def _room(self) -> int:
        """Returns how many more consumers may be given, by what they asked for and have."""
        asked = self.consumers[:1] if self.is_single else self.consumers
        held = [item.holder for item in self.model.items]
        return sum(credit - held.count(consumer) for consumer, _, credit in asked)

    def order_is_kept(self, before: list[Item]) -> None:
        """Checks that what was handed out now is what stood first."""
        taken = [item for item in before if item.holder is not None]
        assert taken == before[: len(taken)], [item.body for item in before]

    # --- rules

    @rule(
        count=st.integers(1, 4),
        size=st.sampled_from([1, 9, 14]),
        priority=st.integers(0, 3),
        lifetime=st.sampled_from([None, None, 4.0]),
        delay=st.sampled_from([0.0, 0.0, 0.0, 3.0, 8.0]),
        message_id=st.sampled_from([None, "a", "b"]),
        is_transaction=st.booleans(),
    )
    def publish(
        self,
        count: int,
        size: int,
        priority: int,
        lifetime: float | None,
        delay: float,
        message_id: str | None,
        is_transaction: bool,
    ) -> None:
        """Some messages at once, one by one or in a transaction; the id is the first one's."""
        if self.model.is_limited:
            # what has expired, or waits for its time, counts until it is found: when, is nobody's
            # promise
            lifetime, delay = None, 0.0
        ids = [message_id if self.model.window else None] + [None] * (count - 1)
        messages = [self._message(size, priority, lifetime, delay, each) for each in ids]
        if is_transaction:
            self._commit(messages)
            self._arrive(messages, lifetime, delay)
        elif self.is_ephemeral:  # there each one arrives by itself
            for message in messages:
                self._publish([message], lifetime, delay)
        else:
            self._publish(messages, lifetime, delay)

    def _message(
        self,
        size: int,
        priority: int = 0,
        lifetime: float | None = None,
        delay: float = 0.0,
        message_id: str | None = None,
    ) -> Message:
        return Message(
            (b"%d." % next(self.count)).ljust(size, b"x"),
            "",
            routing_key=self.spec.name,
            **written(message_id),
            priority=priority,
            expires_at=None if lifetime is None else self.now + lifetime,
            not_before=self.now + delay if delay else None,
        )

    def _commit(self, messages: list[Message]) -> None:
        """All of them, or none; the model is told of those that came."""
        transaction = self.house.vhost.transaction()
        for message in messages:
            transaction.publish(message)
        try:
            self.run(transaction.commit())
        except QueueFull:
            assert self.model.overflow != "drop-head"
            assert not self._fits(messages), "refused, and there was room"
            messages.clear()
        else:
            assert self.model.overflow == "drop-head" or self._fits(messages), "no room for it"

    def _fits(self, messages: list[Message]) -> bool:
        trial = PlainQueue(
            max_length=self.model.max_length,
            max_bytes=self.model.max_bytes,
            overflow=REFUSES,
            window=self.model.window,
            items=list(self.model.items),
            seen=dict(self.model.seen),
        )
        return all(trial.publish(each.body, self.now, message_id=_id(each)) for each in messages)

    def _publish(self, messages: list[Message], lifetime: float | None, delay: float) -> None:
        answers = self.call(lambda: [self.house.vhost.publish(each) for each in messages])
        refused = [answer is Published.REFUSED for answer in answers]
        self._arrive(messages, lifetime, delay, refused)

    def _arrive(
        self,
        messages: list[Message],
        lifetime: float | None = None,
        delay: float = 0.0,
        refused: list[bool] | None = None,
    ) -> None:
        taken = [
            self.model.publish(
                message.body,
                self.now,
                priority=min(message.priority or 0, 2),
                lifetime=lifetime,
                delay=delay,
                message_id=_id(message),
            )
            for message in messages
        ]
        assert refused is None or refused == [not each for each in taken]
        before = self.model.ready(self.now)
        self.meet()
        self.order_is_kept(before)

    @precondition(lambda self: len(self.consumers) < 3)
    @rule(credit=st.integers(1, 3))
    def consume(self, credit: int) -> None:
        inbox = Inbox()
        before = self.model.ready(self.now)
        spec = ConsumerSpec(credit=credit)
        consumer = self.run(self.house.vhost.consume(self.spec.name, inbox, spec))
        self.consumers.append((consumer, inbox, credit))
        self.call(consumer.wake)
        self.meet()
        self.order_is_kept(before)

    @precondition(lambda self: self.consumers)
    @rule(which=st.integers(0, 2), verdict=st.sampled_from([FAILED, RELEASED, None]))
    def end_consumer(self, which: int, verdict: Verdict | None) -> None:
        consumer, _, _ = self.consumers.pop(which % len(self.consumers))
        held = [(d, item) for d, item in self.open.items() if d.consumer is consumer]
        self.call(lambda: self.house.vhost.end_consumer(consumer, verdict))
        if verdict is not None:
            for delivery, item in held:
                del self.open[delivery]
                self._return(item, verdict)
        self.meet()

    def _return(self, item: Item, verdict: Verdict) -> None:
        until = self.now + verdict.delay if verdict.delay else 0.0
        if verdict.outcome is Outcome.RELEASED:
            self.model.release(item, until)
        else:
            self.model.fail(item, until)

    @precondition(lambda self: self.open)
    @rule(
        which=st.lists(st.integers(0, 7), min_size=1, max_size=3),
        verdict=st.sampled_from(
            [
                ACCEPTED,
                ACCEPTED,
                RELEASED,
                REJECTED,
                FAILED,
                Verdict(Outcome.MODIFIED, delay=LATER),
                Verdict(Outcome.RELEASED, delay=LATER),
            ]
        ),
        how=st.sampled_from(["settle", "transaction", "rollback"]),
    )
    def settle(self, which: list[int], verdict: Verdict, how: str) -> None:
        if verdict.delay and self.model.is_limited:
            verdict = Verdict(verdict.outcome)  # as for publishes
        deliveries = list(self.open)
        chosen = list({deliveries[i % len(deliveries)]: None for i in which})
        if how == "settle":
            self.call(lambda: self.house.vhost.settle(chosen, verdict))
        else:
            transaction = self.house.vhost.transaction()
            transaction.settle(chosen, verdict)
            if how == "rollback":
                transaction.rollback()
                return
            self.run(transaction.commit())
        for delivery in chosen:
            item = self.open.pop(delivery)
            if verdict is ACCEPTED:
                self.model.accept(item)
            elif verdict is REJECTED:
                self.model.bury(item, "rejected")
            else:
                self._return(item, verdict)
        self.meet()

    @rule(verdict=st.sampled_from([None, ACCEPTED, RELEASED]), is_settled=st.booleans())
    def get(self, verdict: Verdict | None, is_settled: bool) -> None:
        before = self.model.ready(self.now)
        name = self.spec.name
        delivery = self.run(self.house.vhost.get(name, auto_settle=is_settled))
        if delivery is None:
            assert not before or (self.is_single and self.consumers)
            return
        assert self._item(delivery) is before[0]
        self._check(delivery, "getter")
        if is_settled:
            self.model.accept(self.open.pop(delivery))
        elif verdict is not None:
            item = self.open.pop(delivery)
            self.call(lambda: self.house.vhost.settle([delivery], verdict))
            if verdict is ACCEPTED:
                self.model.accept(item)
            else:
                self.model.release(item)
        self.meet()

    @rule(seconds=st.sampled_from([1.0, 5.0, 11.0]))
    def wait(self, seconds: float) -> None:
        self.run(self.house.later(seconds))
        for delivery, item in list(self.open.items()):
            if item.due_at is not None and item.due_at <= self.now:
                del self.open[delivery]
                self.model.fail(item)
        self.meet()

    @precondition(lambda self: self.model.items)
    @rule()
    def purge(self) -> None:
        self.run(self.house.vhost.purge_queue(self.spec.name))
        self.model.purge(self.now)
        self.meet()

    @rule()
    def keep_up(self) -> None:
        """Segments in which nothing is needed any more go, and what little is moves on."""
        self.run(self.house.upkeep())

    @precondition(lambda self: self.model.items and self.lives > 0)
    @rule()
    def crash(self) -> None:
        self.lives -= 1
        self.run(self.house.crash_and_reopen())
        self._start_again()
        self.model.crash()
        self._overflow_again()
        self.meet()

    @precondition(lambda self: self.lives > 0 and not self.is_ephemeral)
    @rule(
        count=st.integers(1, 3),
        which=st.lists(st.integers(0, 7), max_size=2),
        turns=st.integers(0, 8),
        is_transaction=st.booleans(),
    )
    def crash_amid(self, count: int, which: list[int], turns: int, is_transaction: bool) -> None:
        """Nobody can say how far it came; but the messages came in order, and what was to become
        true together did, or did not."""
        if self.model.is_limited or self.model.window:
            return
        self.lives -= 1
        messages = [self._message(1) for _ in range(count)]
        held = list(self.open)
        chosen = list({held[i % len(held)]: None for i in which}) if held else []
        self.run(self._begin(messages, chosen, turns, is_transaction))
        self.run(self.house.crash_and_reopen())
        entries = self.run(self.house.vhost.browse(self.spec.name, 0, 10_000))
        left = {entry.message.body for entry in entries}
        came = [message for message in messages if message.body in left]
        gone = [self.open[d] for d in chosen if d.message.body not in left]
        assert came == messages[: len(came)]
        if is_transaction:
            assert (len(came), len(gone)) in ((0, 0), (count, len(chosen)))
        for item in gone:
            self.model.accept(item)
        for message in came:
            self.model.publish(message.body, self.now)
        self._start_again()
        self.model.crash()
        self.meet()

    async def _begin(
        self, messages: list[Message], chosen: list[Delivery], turns: int, is_transaction: bool
    ) -> None:
        vhost, committing = self.house.vhost, None
        if is_transaction:
            transaction = vhost.transaction()
            for message in messages:
                transaction.publish(message)
            transaction.settle(chosen, ACCEPTED)
            committing = asyncio.ensure_future(transaction.commit())
        else:
            vhost.settle(chosen, ACCEPTED)
            for message in messages:
                vhost.publish(message)
        await pass_turns(turns)
        if committing is not None:  # whoever waits for it is gone
            committing.cancel()
            await asyncio.gather(committing, return_exceptions=True)

    @precondition(lambda self: self.model.items and self.lives > 0)
    @rule()
    def restart(self) -> None:
        self.lives -= 1
        self._release_all()
        self.run(self.house.reopen())
        self._start_again()
        self.model.restart()
        self.meet()

    def _release_all(self) -> None:
        """Ends one consumer after the other, as adapters do before an orderly end."""
        vhost, consumers = self.house.vhost, [consumer for consumer, _, _ in self.consumers]
        for consumer in consumers:
            consumer.pause()
        for consumer in consumers:
            self.call(partial(vhost.end_consumer, consumer, RELEASED))
            self.quiet()  # a message that is too many may have to be read back before it goes
            self._released([d for d in self.open if d.consumer is consumer])
        self.call(lambda: vhost.settle(list(self.open), RELEASED))
        self._released(list(self.open))
        self.consumers.clear()

    def _released(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            self.model.release(self.open.pop(delivery))
        self.model.make_fit(0, self.now)

    def _start_again(self) -> None:
        self.consumers.clear()
        self.open.clear()
        if self.is_ephemeral:
            self.run(self.house.vhost.declare_queue(self.spec))
            self.model.doubtful += [item.body for item in self.model.expired(self.now)]
            self.model.items.clear()

    def _overflow_again(self) -> None:
        """Messages that consumers had are back, maybe more than fit: the next message tells."""
        if self.model.drops:
            self._publish([self._message(1)], None, 0.0)

    # --- what always holds

    @invariant()
    def nothing_is_lost(self) -> None:
        if not self.house.is_open or self.spec.name not in self.house.vhost.queues:
            return
        counts = self.house.vhost.queue(self.spec.name).counts()
        expired = len(self.model.expired(self.now))
        held = sum(item.holder is not None for item in self.model.items)
        assert counts.in_flight == held
        waiting, most = counts.ready + counts.delayed, len(self.model.items) - held
        assert most - expired <= waiting <= most - self.model.expired_at_the_head(self.now)

    def compare_what_is_left(self) -> None:
        if self.spec.name not in self.house.vhost.queues:
            return
        self._release_all()
        self.run(self.house.later(1000))
        self.quiet()
        for item in self.model.expired(self.now):
            self.model.bury(item, "expired")
        left = self.run(self.house.drain(self.spec.name))
        found, expected = [d.message.body for d in left], self.model.ready(self.now)
        assert found == [item.body for item in expected], (found, expected)
        self.quiet()
        dead = self.run(self.house.drain(self.dead))
        buried = Counter((d.message.body, d.message.deaths[0].reason) for d in dead)
        doubtful = Counter((body, "expired") for body in self.model.doubtful)
        certain = Counter(self.model.dead)
        assert certain <= buried <= certain + doubtful, (certain, buried)
        self.run(self.house.vhost.delete_queue(self.spec.name))
        self.run(self.house.vhost.delete_queue(self.dead))
        assert self.house.manager._budget.used == 0, "memory of messages that are gone"


def _id(message: Message) -> str | None:
    found = message.properties.message_id
    return None if found is None else str(found)


@in_time
def test_the_manager_behaves_like_a_plain_queue(migrated_url: str) -> None:
    examine(QueueMachine, migrated_url, examples=20, steps=40)


@in_time
def test_it_does_where_every_bound_is_reached(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tight(monkeypatch, QueueMachine)
    examine(QueueMachine, migrated_url, examples=20, steps=40)
