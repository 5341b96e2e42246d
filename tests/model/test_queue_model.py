"""The manager against a plain model of what a queue is, over random steps, crashes and restarts."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from queue_core.consumers import Consumer, ConsumerSpec, Delivery
from queue_core.message import Message
from queue_core.outcomes import (
    ACCEPTED,
    FAILED,
    REJECTED,
    RELEASED,
    Outcome,
    Published,
    Verdict,
)
from queue_core.specs import QueueSpec
from tests.model.plain_queue import Item, PlainQueue
from tests.store.managers import PATIENCE, House, Inbox

T = TypeVar("T")
Model = Callable[[], PlainQueue]
KINDS: dict[str, tuple[dict[str, object], Model]] = {
    "plain": ({}, PlainQueue),
    "priority": ({"x-max-priority": 2}, lambda: PlainQueue(has_priorities=True)),
    "refusing": (
        {"x-max-length": 3, "x-overflow": "reject-publish"},
        lambda: PlainQueue(max_length=3),
    ),
    "brief": ({"x-message-ttl": 10_000}, lambda: PlainQueue(ttl=10)),
    "impatient": ({"x-delivery-limit": 1}, lambda: PlainQueue(delivery_limit=1)),
    "single": ({"x-single-active-consumer": True}, PlainQueue),
}
_names = itertools.count()


class QueueMachine(RuleBasedStateMachine):
    """One queue with consumers, and a dead-letter queue beside it."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.house = House(self.url)
        self.run(self.house.open())
        self.count = itertools.count()
        self.consumers: list[tuple[Consumer, Inbox, int]] = []
        self.open: dict[Delivery, Item] = {}
        self.lives = 4  # a start takes as long as some hundred steps
        self.is_ephemeral = False
        self.is_single = False
        self.spec = QueueSpec.parse("-")
        self.model = PlainQueue()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, PATIENCE))

    def call(self, work: Callable[[], T]) -> T:
        """In the loop, as an adapter would."""

        async def turn() -> T:
            return work()

        return self.run(turn())

    @initialize(kind=st.sampled_from(sorted(KINDS)), is_ephemeral=st.booleans())
    def declare(self, kind: str, is_ephemeral: bool) -> None:
        arguments, model = KINDS[kind]
        number = next(_names)
        self.dead = f"dead-{number}"
        words = {
            **arguments,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": self.dead,
        }
        self.is_ephemeral, self.is_single = is_ephemeral, kind == "single"
        self.spec = QueueSpec.parse(f"q-{number}", words, durable=not is_ephemeral)
        self.model = model()
        self.run(self.house.vhost.declare_queue(QueueSpec.parse(self.dead)))
        self.run(self.house.vhost.declare_queue(self.spec))

    @property
    def now(self) -> float:
        return self.house.clock()

    # --- after each step, both have done all they can

    def meet(self) -> None:
        """Lets the manager finish, and holds what it handed out to what the model would have."""
        self.run(self._settle_down())
        for consumer, inbox, _ in self.consumers:
            self._check_deliveries(consumer, inbox.take())
        ready = self.model.ready(self.now)
        room = self._room()
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
        item.failures, item.holder = delivery.failures, holder
        item.was_handed_out = item.was_handed_out_now = True
        self.open[delivery] = item

    def _item(self, delivery: Delivery) -> Item:
        body = delivery.message.body
        found = [item for item in self.model.items if item.body == body]
        assert found, f"{body!r} came, and should not exist any more"
        return found[0]

    def _room(self) -> int:
        asked = self.consumers[:1] if self.is_single else self.consumers
        return sum(consumer.credit for consumer, _, _ in asked)

    async def _settle_down(self) -> None:
        database = self.house.manager._database
        quiet = 0
        while quiet < 2:
            await self.house.flushed()
            tasks = list(database._reader._tasks)
            if tasks:
                await asyncio.gather(*tasks, return_exceptions=True)
            quiet = 0 if tasks else quiet + 1

    def order_is_kept(self, before: list[Item]) -> None:
        """What was handed out now is what stood first."""
        taken = [item for item in before if item.holder is not None]
        assert taken == before[: len(taken)], [item.body for item in before]

    # --- rules

    @rule(
        count=st.integers(1, 4),
        priority=st.integers(0, 3),
        lifetime=st.sampled_from([None, None, 4.0]),
        is_transaction=st.booleans(),
    )
    def publish(
        self, count: int, priority: int, lifetime: float | None, is_transaction: bool
    ) -> None:
        """Some messages at once, one by one or in a transaction."""
        if self.model.max_length is not None:
            lifetime = None  # what has expired counts until it is found: when, is nobody's promise
        if self.model.max_length is not None:
            is_transaction = False
        expires_at = None if lifetime is None else self.now + lifetime
        messages = [
            Message(
                b"%d" % next(self.count),
                "",
                routing_key=self.spec.name,
                priority=priority,
                expires_at=expires_at,
            )
            for _ in range(count)
        ]
        if is_transaction:
            self.run(self._commit(messages))
            self._arrive(messages, lifetime)
        elif self.is_ephemeral:  # there each one arrives by itself
            for message in messages:
                self._publish([message], lifetime)
        else:
            self._publish(messages, lifetime)

    async def _commit(self, messages: list[Message]) -> None:
        transaction = self.house.vhost.transaction()
        for message in messages:
            transaction.publish(message)
        await transaction.commit()

    def _publish(self, messages: list[Message], lifetime: float | None) -> None:
        answers = self.call(lambda: [self.house.vhost.publish(each) for each in messages])
        room = self.model.room()
        refused = [answer is Published.REFUSED for answer in answers]
        assert refused == [i >= room for i in range(len(messages))]
        self._arrive(messages[:room], lifetime)

    def _arrive(self, messages: list[Message], lifetime: float | None) -> None:
        for message in messages:
            priority = min(message.priority or 0, 2)
            self.model.publish(message.body, priority, lifetime, self.now)
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
        if verdict.outcome is Outcome.RELEASED:
            self.model.release(item)
        else:
            self.model.fail(item, self.now + verdict.delay)

    @precondition(lambda self: self.open)
    @rule(
        which=st.lists(st.integers(0, 7), min_size=1, max_size=3),
        verdict=st.sampled_from(
            [ACCEPTED, ACCEPTED, RELEASED, REJECTED, FAILED, Verdict(Outcome.MODIFIED, delay=6.0)]
        ),
        how=st.sampled_from(["settle", "transaction", "rollback"]),
    )
    def settle(self, which: list[int], verdict: Verdict, how: str) -> None:
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

    @rule(verdict=st.sampled_from([None, ACCEPTED, RELEASED]))
    def get(self, verdict: Verdict | None) -> None:
        before = self.model.ready(self.now)
        delivery = self.run(self.house.vhost.get(self.spec.name))
        if delivery is None:
            assert not before or (self.is_single and self.consumers)
            return
        assert self._item(delivery) is before[0]
        self._check(delivery, "getter")
        if verdict is not None:
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
        self.meet()

    @precondition(lambda self: self.model.items)
    @rule()
    def purge(self) -> None:
        self.run(self.house.vhost.purge_queue(self.spec.name))
        self.model.purge(self.now)
        self.meet()

    @precondition(lambda self: self.model.items and self.lives > 0)
    @rule()
    def crash(self) -> None:
        self.lives -= 1
        self.run(self.house.crash_and_reopen())
        self._start_again()
        self.model.crash()

    @precondition(lambda self: self.model.items and self.lives > 0)
    @rule()
    def restart(self) -> None:
        self.lives -= 1
        self.call(self._release_all)
        for item in self.open.values():
            self.model.release(item)
        self.consumers.clear()
        self.run(self.house.reopen())
        self._start_again()
        self.model.restart()

    def _release_all(self) -> None:
        """As adapters do before an orderly end."""
        for consumer, _, _ in self.consumers:
            consumer.pause()
        for consumer, _, _ in self.consumers:
            self.house.vhost.end_consumer(consumer, RELEASED)
        self.house.vhost.settle(list(self.open), RELEASED)

    def _start_again(self) -> None:
        self.consumers.clear()
        self.open.clear()
        if self.is_ephemeral:
            self.run(self.house.vhost.declare_queue(self.spec))
            self.model.doubtful += [item.body for item in self.model.expired(self.now)]
            self.model.items.clear()

    # --- what always holds

    @invariant()
    def nothing_is_lost(self) -> None:
        if not self.house.is_open or self.spec.name not in self.house.vhost.queues:
            return
        counts = self.house.vhost.queue(self.spec.name).counts()
        expired = len(self.model.expired(self.now))
        held = sum(item.holder is not None for item in self.model.items)
        assert counts.in_flight == held
        waiting = counts.ready + counts.delayed
        assert len(self.model.items) - held - expired <= waiting <= len(self.model.items) - held

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None and self.spec.name in self.house.vhost.queues:
                self._compare_what_is_left()
        finally:
            self.run(self.house.close())
            self.loop.close()

    def _compare_what_is_left(self) -> None:
        self.call(self._release_all)
        for item in self.model.items:
            item.holder = None
        self.run(self.house.later(1000))
        self.run(self._settle_down())
        for item in self.model.expired(self.now):
            self.model.bury(item, "expired")
        left = self.run(self.house.drain(self.spec.name))
        found, expected = [d.message.body for d in left], self.model.ready(self.now)
        assert found == [item.body for item in expected], (found, expected)
        self.run(self._settle_down())
        dead = self.run(self.house.drain(self.dead))
        buried = Counter((d.message.body, d.message.deaths[0].reason) for d in dead)
        doubtful = Counter((body, "expired") for body in self.model.doubtful)
        certain = Counter(self.model.dead)
        assert certain <= buried <= certain + doubtful, (certain, buried)
        self.run(self.house.vhost.delete_queue(self.spec.name))
        self.run(self.house.vhost.delete_queue(self.dead))


@pytest.mark.timeout(300)
def test_the_manager_behaves_like_a_plain_queue(migrated_url: str) -> None:
    QueueMachine.url = migrated_url
    run_state_machine_as_test(
        QueueMachine,
        settings=settings(
            max_examples=20,
            stateful_step_count=40,
            deadline=None,
            database=None,
            phases=[Phase.generate],  # each example is a database's life: no time to shrink them
            suppress_health_check=list(HealthCheck),
        ),
    )
