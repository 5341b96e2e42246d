"""Queues that dead-letter to each other, and exchanges between them, against a plain model of them:
limits, expiry, circles, redriving, transactions over queues, and definitions that change."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from queue_core.delivery.consumer import Delivery
from queue_core.errors import CoreError, ExchangeNotFound, QueueFull
from queue_core.message.message import Message
from queue_core.outcomes import ACCEPTED, FAILED, REJECTED, RELEASED, Published
from queue_core.queues.queue import Queue
from queue_core.queues.spec import QueueSpec
from queue_core.routing.bindings import ExchangeRef
from queue_core.routing.exchanges import ExchangeSpec
from queue_core.store.operator.queue_operations import Operations, connect
from queue_core.transaction import Transaction
from tests.model.machine import Machine, examine, in_time, make_tight, written
from tests.model.plain_broker import (
    Binding,
    Exchange,
    Held,
    Letter,
    PlainBroker,
    Refused,
    Rules,
)
from tests.support.until import PATIENCE_SECONDS

# Halves of a second in one place only: no two things are due in the same moment, and become true in
# an order that nobody promises.
QUEUES = {
    "a": Rules(delivery_limit=1, dlx="", dlx_key="b"),
    "b": Rules(ttl=4, dlx="", dlx_key="c"),
    "c": Rules(max_length=3, dlx="x"),
    "d": Rules(max_length=2, refuses=True, dlx="", dlx_key="a"),
    "e": Rules(expires=7.5, window=5, dlx="y"),
    "f": Rules(max_length=2, dlx="", dlx_key="b", is_ephemeral=True),
}
EXCHANGES = ("x", "y", "z")
KEYS = ("k.a", "k.b", "k")
PATTERNS = (*KEYS, "k.*", "#", "#.b")
VERDICTS = {"accepted": ACCEPTED, "failed": FAILED, "released": RELEASED, "rejected": REJECTED}
_names = itertools.count()

queue_names = st.sampled_from(sorted(QUEUES))
exchange_names = st.sampled_from(EXCHANGES)
addresses = st.one_of(
    st.tuples(st.just(""), queue_names), st.tuples(exchange_names, st.sampled_from(KEYS))
)


class BrokerMachine(Machine):
    """Names have a number behind them: examples share a database."""

    def __init__(self) -> None:
        super().__init__()
        self.count = itertools.count()
        self.number = next(_names)
        self.model = PlainBroker(self.now)

    def name(self, name: str) -> str:
        return f"{name}-{self.number}" if name else ""

    @initialize(
        bound=st.lists(
            st.tuples(exchange_names, queue_names, st.sampled_from(PATTERNS)), max_size=6
        ),
    )
    def begin(self, bound: list[tuple[str, str, str]]) -> None:
        for queue in sorted(QUEUES):
            self.declare_queue(queue)
        for exchange, queue, key in bound:
            self.declare_exchange(exchange, "topic", None, True, False)
            self.bind(exchange, False, queue, exchange, key)

    def meet(self) -> None:
        self.quiet()
        self.house.clock.now = self.model.now

    # --- definitions

    @rule(
        change=st.one_of(
            st.tuples(st.just("declare_queue"), queue_names),
            st.tuples(st.just("delete_queue"), queue_names),
            st.tuples(
                st.just("declare_exchange"),
                exchange_names,
                st.sampled_from(["direct", "fanout", "topic"]),
                st.one_of(st.none(), exchange_names),
                st.booleans(),
                st.booleans(),
            ),
            st.tuples(st.just("delete_exchange"), exchange_names),
            st.tuples(
                st.just("bind"),
                exchange_names,
                st.booleans(),
                queue_names,
                exchange_names,
                st.sampled_from(PATTERNS),
            ),
            st.tuples(st.just("unbind"), st.integers(0, 9)),
        )
    )
    def define(self, change: tuple[str, ...]) -> None:
        """One rule for all: messages shall come more often than changes."""
        name, *arguments = change
        getattr(self, name)(*arguments)

    def declare_queue(self, name: str) -> None:
        rules = QUEUES[name]
        words = {
            "x-message-ttl": _milliseconds(rules.ttl),
            "x-expires": _milliseconds(rules.expires),
            "x-deduplication-window": _milliseconds(rules.window),
            "x-max-length": rules.max_length,
            "x-overflow": "reject-publish-dlx" if rules.refuses else None,
            "x-delivery-limit": rules.delivery_limit,
            "x-dead-letter-exchange": None if rules.dlx is None else self.name(rules.dlx),
            "x-dead-letter-routing-key": rules.dlx_key and self.name(rules.dlx_key),
        }
        given = {word: value for word, value in words.items() if value is not None}
        spec = QueueSpec.parse(self.name(name), given, durable=not rules.is_ephemeral)
        self.run(self.house.vhost.declare_queue(spec))
        self.model.declare(name, rules)
        self.meet()

    def delete_queue(self, name: str) -> None:
        if name in self.model.queues:
            count = self.run(self.house.vhost.delete_queue(self.name(name)))
            assert count == len(self.model.queues[name].items)
            self.model.delete(name)
            self.meet()

    def declare_exchange(
        self, name: str, kind: str, alternate: str | None, is_durable: bool, auto_deletes: bool
    ) -> None:
        if name in self.model.exchanges:
            return
        arguments = {} if alternate is None else {"alternate-exchange": self.name(alternate)}
        spec = ExchangeSpec.parse(
            self.name(name), kind, arguments, durable=is_durable, auto_delete=auto_deletes
        )
        self.run(self.house.vhost.declare_exchange(spec))
        self.model.exchanges[name] = Exchange(kind, alternate, is_durable, auto_deletes)

    def delete_exchange(self, name: str) -> None:
        if name in self.model.exchanges:
            self.run(self.house.vhost.delete_exchange(self.name(name)))
            self.model.delete_exchange(name)
            self.meet()

    def bind(self, source: str, to_exchange: bool, queue: str, exchange: str, key: str) -> None:
        binding = Binding(source, to_exchange, exchange if to_exchange else queue, key)
        if self._has_ends(binding):
            destination = self._destination(binding)
            self.run(self.house.vhost.bind(self.name(source), destination, key))
            if binding not in self.model.bindings:
                self.model.bindings.append(binding)

    def unbind(self, which: int) -> None:
        if not self.model.bindings:
            return
        binding = self.model.bindings[which % len(self.model.bindings)]
        destination = self._destination(binding)
        assert self.run(
            self.house.vhost.unbind(self.name(binding.source), destination, binding.key)
        )
        self.model.unbind([binding])
        self.meet()

    def _has_ends(self, binding: Binding) -> bool:
        ends = self.model.exchanges if binding.to_exchange else self.model.queues
        return binding.source in self.model.exchanges and binding.destination in ends

    def _destination(self, binding: Binding) -> Queue | ExchangeRef:
        name = self.name(binding.destination)
        return ExchangeRef(name) if binding.to_exchange else self.house.vhost.queue(name)

    # --- messages

    def _letter(self, address: tuple[str, str], message_id: str | None = None) -> Letter:
        return Letter(b"%d" % next(self.count), *address, message_id)

    def _message(self, letter: Letter) -> Message:
        key = self.name(letter.key) if letter.key in QUEUES else letter.key
        return Message(
            letter.body,
            self.name(letter.exchange),
            routing_key=key,
            **written(letter.message_id),
        )

    @rule(address=addresses, message_id=st.sampled_from([None, None, "m"]), count=st.integers(1, 3))
    def publish(self, address: tuple[str, str], message_id: str | None, count: int) -> None:
        for _ in range(count):
            self._publish(self._letter(address, message_id))

    def _publish(self, letter: Letter) -> None:
        if letter.exchange and letter.exchange not in self.model.exchanges:
            with pytest.raises(ExchangeNotFound):
                self.call(lambda: self.house.vhost.publish(self._message(letter)))
            return
        answer = self.call(lambda: self.house.vhost.publish(self._message(letter)))
        is_routed, is_refused = self.model.publish(letter)
        assert (answer is not Published.NOWHERE, answer is Published.REFUSED) == (
            is_routed,
            is_refused,
        )
        self.meet()

    @rule(name=queue_names, verdict=st.sampled_from(sorted(VERDICTS)), count=st.integers(1, 3))
    def get(self, name: str, verdict: str, count: int) -> None:
        for _ in range(count):
            if (found := self._get(name)) is not None:
                self._settle(name, *found, verdict)

    def _settle(self, name: str, delivery: Delivery, held: Held, verdict: str) -> None:
        self.call(lambda: self.house.vhost.settle([delivery], VERDICTS[verdict]))
        self.model.settle(name, held, verdict)
        self.meet()

    def _get(self, name: str) -> tuple[Delivery, Held] | None:
        if name not in self.model.queues:
            return None
        delivery = self.run(self.house.vhost.get(self.name(name)))
        held = self.model.get(name)
        if held is None:
            assert delivery is None, delivery
            return None
        assert delivery is not None, f"{held} is ready"
        assert self._read(delivery.message) == self._plain(held.letter)
        held.failures = delivery.failures  # held to what it should be by the other model
        return delivery, held

    @rule(
        published=st.lists(addresses, max_size=4),
        settled=st.lists(st.tuples(queue_names, st.sampled_from(sorted(VERDICTS))), max_size=3),
        is_committed=st.sampled_from([True, True, False]),
    )
    def transact(
        self,
        published: list[tuple[str, str]],
        settled: list[tuple[str, str]],
        is_committed: bool,
    ) -> None:
        letters = [
            self._letter(each) for each in published if each[0] in ("", *self.model.exchanges)
        ]
        transaction = self.house.vhost.transaction()
        for letter in letters:
            is_routed = transaction.publish(self._message(letter)) is Published.PENDING
            assert is_routed == bool(self.model.route(letter.exchange, letter.key))
        taken: list[tuple[str, Held, str]] = []
        deliveries: list[Delivery] = []
        for name, verdict in settled:
            if (found := self._get(name)) is not None:
                transaction.settle([found[0]], VERDICTS[verdict])
                deliveries.append(found[0])
                taken.append((name, found[1], verdict))
        if is_committed and self._commit(transaction, letters, taken):
            self.meet()
            return
        transaction.rollback()
        self.call(lambda: self.house.vhost.settle(deliveries, RELEASED))
        for name, held, _ in taken:
            self.model.settle(name, held, "released")
        self.meet()

    def _commit(
        self, transaction: Transaction, letters: list[Letter], taken: list[tuple[str, Held, str]]
    ) -> bool:
        try:
            self.run(transaction.commit())
        except QueueFull:
            with pytest.raises(Refused):
                self.model.commit(letters, taken)
            return False
        self.model.commit(letters, taken)
        return True

    @rule(name=queue_names)
    def redrive(self, name: str) -> None:
        """From SQL, as people do it."""
        if name in self.model.queues and not QUEUES[name].is_ephemeral:
            moved = self.run(self._redrive(self.name(name)))
            assert moved == self.model.redrive(name)
            self.meet()

    async def _redrive(self, name: str) -> object:
        connection = await connect(self.url, "howdah model")
        try:
            operations = Operations(connection)
            number = await operations.redrive("/", name, "true")
            return (await operations.outcome(number, PATIENCE_SECONDS))["moved"]
        finally:
            await connection.close()

    # --- time and restarts

    @rule(seconds=st.sampled_from([1, 3, 5, 8]))
    def wait(self, seconds: int) -> None:
        """From one thing that is due to the next."""
        end = self.now + seconds
        agenda = self.house.manager.agenda
        while (when := agenda.next_time()) is not None and when <= end:
            self.house.clock.now = max(when, self.now)
            self.quiet()
        self.house.clock.now = end
        self.model.until(end)
        self.meet()

    @rule()
    def keep_up(self) -> None:
        self.run(self.house.upkeep())

    @precondition(lambda self: self.lives > 0)
    @rule(is_crash=st.booleans())
    def restart(self, is_crash: bool) -> None:
        self.lives -= 1
        self.run(self.house.crash_and_reopen() if is_crash else self.house.reopen())
        self.model.restart()
        self.meet()

    # --- what always holds

    @invariant()
    def every_message_is_where_it_should_be(self) -> None:
        if not self.house.is_open:
            return
        found = {
            name: len(self.model.queues[name].items) if name in self.model.queues else None
            for name in QUEUES
        }
        queues = self.house.vhost.queues
        counts = {
            name: queues[self.name(name)].counts().ready if self.name(name) in queues else None
            for name in QUEUES
        }
        assert counts == found

    @invariant()
    def the_same_exchanges_are_there(self) -> None:
        if self.house.is_open:
            there = {each.name for each in self.house.vhost.router.exchanges()}
            assert {x for x in EXCHANGES if self.name(x) in there} == set(self.model.exchanges)

    def compare_what_is_left(self) -> None:
        for name, shelf in sorted(self.model.queues.items()):
            found = self.run(self.house.drain(self.name(name)))
            left = Counter(self._read(each.message) for each in found)
            assert left == Counter(self._plain(each.letter) for each in shelf.items), name
        self._leave_nothing()

    def _leave_nothing(self) -> None:
        for name in list(self.model.queues):
            self.run(self.house.vhost.delete_queue(self.name(name)))
        self.quiet()
        for name in EXCHANGES:
            try:
                self.run(self.house.vhost.delete_exchange(self.name(name)))
            except CoreError:
                pass
        assert self.house.manager._budget.used == 0, "memory of messages that are gone"

    def _read(self, message: Message) -> tuple[object, ...]:
        deaths = tuple((d.queue, d.reason, d.count, d.exchange) for d in message.deaths)
        return message.body, message.exchange, message.routing_key, deaths

    def _plain(self, letter: Letter) -> tuple[object, ...]:
        deaths = tuple(
            (self.name(d.queue), d.reason, d.count, self.name(d.exchange)) for d in letter.deaths
        )
        key = self.name(letter.key) if letter.key in QUEUES else letter.key
        return letter.body, self.name(letter.exchange), key, deaths


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)


@in_time
def test_queues_and_exchanges_behave_like_plain_ones(migrated_url: str) -> None:
    examine(BrokerMachine, migrated_url, examples=15, steps=40)


@in_time
def test_they_do_where_every_bound_is_reached(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tight(monkeypatch, BrokerMachine)
    examine(BrokerMachine, migrated_url, examples=10, steps=40)
