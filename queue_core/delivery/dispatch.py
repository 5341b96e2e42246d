"""Dispatch tells who gets what next: in turns, a cursor hands out what is ready to consumers that
have credit.

A turn knows the order and the shortcuts; what becomes of a message that cannot be delivered is the
`Policy`'s business. A sink gets its deliveries when a batch is complete, in one list.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Final

from queue_core.delivery.bulk_delivery import take_run
from queue_core.delivery.consumer import Consumer, Delivery, Entry
from queue_core.delivery.filtered_view import FilteredView
from queue_core.delivery.lease import BEYOND_ALL_OFFSETS
from queue_core.errors import DeliveryFailed
from queue_core.message.message import Message
from queue_core.outcomes import RELEASED

if TYPE_CHECKING:
    from queue_core.delivery.cursor import Cursor

log = logging.getLogger(__name__)

BATCH_DELIVERIES: Final = 256  # before sinks get theirs, and may say that it is enough
TURN_BATCHES: Final = 8  # handed out in one turn, before other queues get theirs
TURN_LOOKS: Final = 1024  # messages that filters look at in one turn, likewise
LOOK_SECONDS: Final = 0.000_01  # that a filter may take for one message before it counts for more
EXPIRY_GRACE_SECONDS: Final = 5.0  # from a publisher to a queue; no message expires on that way
CONSUMER_BUG: Final = "a bug: consumer '%s' of queue '%s' ends, and what it had goes back"
UNDELIVERED: Final = DeliveryFailed("the gateway could not deliver a message; its log says why")


class Dispatch:
    """The turns of one cursor: which consumers take part, and how far the present turn is."""

    __slots__ = (
        "_consumers",
        "_cursor",
        "_draining",
        "_has_returned",
        "_is_continued",
        "_is_running",
        "_looks_left",
        "_returned_count",
        "_trust",
        "arriving_from",
        "goes_on",
    )

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._consumers = cursor.consumer_set
        self._trust = cursor.context.trust if cursor.spec.queue_id else None
        self._draining: list[Consumer] = []
        self._is_running = False
        self.goes_on = False  # the turn may leave something that could be handed out
        self.arriving_from = BEYOND_ALL_OFFSETS  # offsets from here on arrive at this moment
        self._looks_left = 0  # that filters may still take in this turn
        self._is_continued = False  # a next turn is planned for what this one leaves
        self._has_returned = False  # messages came back since the policy was told,
        self._returned_count = 0  # so many of them by consumers

    # --- turns

    def run(self) -> None:
        """Hands out what is ready to consumers that have credit. Called again from within a turn,
        by what a sink does, it lets that turn go on."""
        if self._is_running:
            self.goes_on = True
            return
        trust = self._trust
        if trust is not None and not trust.is_given():  # another gateway may hand out the same
            trust.wait(self)
            return
        cursor = self._cursor
        backpressure = cursor.policy.backpressure
        before = 0 if backpressure is None else cursor.ready.count()
        self._is_running = True
        self._looks_left = TURN_LOOKS
        self._is_continued = False
        try:
            self.goes_on, left = True, TURN_BATCHES
            while self.goes_on and left:
                self.goes_on = False
                left -= 1
                self._hand_out()
            if self.goes_on:
                self._continue_later()
        finally:
            self._is_running = False
        if backpressure is not None and cursor.ready.count() < before:
            backpressure.on_taken()
        if self._has_returned:
            count, self._returned_count, self._has_returned = self._returned_count, 0, False
            cursor.policy.on_returned(cursor, count)
        if cursor.policy.may_expire:
            cursor.policy.on_turn(cursor)
        if self._draining:
            self._end_drains()

    def _continue_later(self) -> None:
        if not self._is_continued:
            self._is_continued = True
            self._cursor.policy.on_unfinished(self._cursor)

    def note_returned(self, count: int) -> None:
        """Notes that messages are ready again: so many that consumers gave back, or, with 0, some
        whose time has come. The policy is told after the turn."""
        self._has_returned = True
        if count:
            self._returned_count += count
            self.goes_on = True

    # --- consumers

    def enqueue(self, consumer: Consumer) -> None:
        """Lets a consumer take part that has, or may have, credit."""
        if self._consumers.may_take(consumer):
            if consumer.credit > 0 and not consumer.is_paused:
                self._consumers.line.join(consumer)
            self.run()

    def enqueue_active(self) -> None:
        """Lets the next single active consumer take part, after the one before it has left."""
        active = self._consumers.active
        if self._consumers.is_single_active and active is not None:
            self.enqueue(active)

    def return_credit(self, consumer: Consumer, count: int = 1) -> None:
        """Gives back the credit of so many deliveries that ended. Those of a window over several
        consumers go to whoever has waited longest."""
        shared = consumer.shared
        if consumer.replenish:
            consumer.credit += count
            if not consumer.is_waiting and not consumer.is_closed and not consumer.is_paused:
                if shared is not None:
                    shared.wait(consumer)  # behind those that wait already
                elif self._consumers.may_take(consumer):
                    self._consumers.line.join(consumer)
                self.goes_on = True
        if shared is not None:
            shared.grant(count)

    def give_view(self, consumer: Consumer, accepts: Callable[[Message], bool]) -> None:
        """Lets a consumer look through the queue at a pace of its own from now on."""
        cursor = self._cursor
        is_stored = bool(cursor.spec.queue_id)
        view = FilteredView(accepts, cursor.ready, cursor.pump, is_stored=is_stored)
        self._consumers.add_view(consumer, view)

    def drain(self, consumer: Consumer) -> None:
        """Hands out to a consumer what its credit allows, and tells it when that is all."""
        if consumer not in self._draining:
            self._draining.append(consumer)
        self.enqueue(consumer)
        self.run()

    def _end_drains(self) -> None:
        """Tells consumers that have no credit left, or for whom nothing is left, that they are
        drained."""
        draining, self._draining = self._draining, []
        count = self._cursor.ready.count()
        for consumer in draining:
            done = consumer.on_drained
            if done is None:
                continue
            view = consumer.view
            is_empty = count == 0 if view is None else view.is_done
            is_idle = not self._consumers.may_take(consumer)
            if is_empty or is_idle or consumer.credit <= 0 or consumer.is_closed:
                consumer.on_drained = None
                done()
            else:
                self._draining.append(consumer)

    def end_broken(self, consumer: Consumer, error: Exception) -> None:
        """Ends a consumer whose sink has a bug. Neither the other consumers nor whoever made the
        queue hand out are harmed by it."""
        cursor = self._cursor
        log.error(CONSUMER_BUG, consumer.tag, cursor.queue_name, exc_info=error)
        cursor.close(consumer)
        consumer.sink.on_cancel(consumer, UNDELIVERED)
        cursor.policy.on_consumer_gone()

    # --- one batch of a turn

    def _hand_out(self) -> None:
        """Hands out one batch, in turn to consumers with credit; `goes_on` tells whether there may
        be more."""
        cursor, consumers = self._cursor, self._consumers
        now = cursor.context.clock()
        if cursor.delayed.next_time <= now:
            cursor.delayed.end_due(now)
            cursor.traffic.note()
        if len(consumers.all) == 1 and self._hand_out_run(consumers.all[0], now):
            return
        line = consumers.line
        batches: dict[Consumer, list[Delivery]] = {}
        passed: list[Consumer] = []  # nothing is ready that may go to them
        for _ in range(BATCH_DELIVERIES):
            consumer = line.next()
            if consumer is None:
                break
            entry = self._take(consumer, now)
            if entry is None and consumers.views:  # another may be asked
                line.leave(consumer)
                passed.append(consumer)
                continue
            if entry is None:
                line.keep_turn(consumer)
                break
            delivery = self._begin(entry, consumer)
            batch = batches.get(consumer)
            if batch is None:
                batches[consumer] = [delivery]
            else:
                batch.append(delivery)
        else:
            self.goes_on = True
        for consumer in passed:
            line.join(consumer)
        for consumer, deliveries in batches.items():
            self._deliver_batch(consumer, deliveries)

    def _hand_out_run(self, consumer: Consumer, now: float) -> bool:
        """Hands out a run to the only consumer, as far as entries have no history and no time of
        their own; False where nothing was handed out. Measured on 100 entries: 0.5 us each against
        0.9."""
        cursor = self._cursor
        if (
            not consumer.is_waiting
            or consumer.auto_settle
            or consumer.view is not None
            or cursor.deadlines is not None
            or cursor.history
            or not consumer.has_credit()
        ):
            return False
        most = min(consumer.credit, BATCH_DELIVERIES)
        shared = consumer.shared
        if shared is not None:
            most = min(most, shared.free)
        deliveries, other = take_run(consumer, cursor.ready, most, cursor.lease)
        count = len(deliveries)
        cursor.in_flight += count
        consumer.credit -= count
        if shared is not None:
            shared.free -= count
        if other is not None and (found := self._take(consumer, now, other)) is not None:
            deliveries.append(self._begin(found, consumer))
        if not deliveries:
            return False
        # A shared window that is used up is to be waited for: the next batch does it.
        self.goes_on = count == BATCH_DELIVERIES or other is not None or shared is not None
        self._deliver(consumer, deliveries)
        return True

    def _deliver_batch(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        if consumer.is_closed:  # by what another's sink did meanwhile
            self._cursor.settle(deliveries, RELEASED)
            return
        if consumer.auto_settle:
            self._cursor.context.counters.settled += len(deliveries)
        self._deliver(consumer, deliveries)

    def _deliver(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        cursor, count, traffic = self._cursor, len(deliveries), self._cursor.traffic
        cursor.context.counters.delivered += count
        consumer.delivered += count
        if consumer.is_plain:  # most are: 0.1 us less
            traffic.delivered += count
            if not traffic.is_noted:
                traffic.note()
        else:
            is_got = consumer.spec.is_passing
            traffic.count_handed_out(count, is_settled=consumer.auto_settle, is_got=is_got)
        try:
            consumer.sink.deliver(consumer, deliveries)
        except Exception as error:
            self.end_broken(consumer, error)

    def _begin(self, entry: Entry, consumer: Consumer) -> Delivery:
        """Makes a delivery of an entry, and takes it from the consumer's credit."""
        cursor, offset = self._cursor, entry.offset
        history, mark = cursor.history, cursor.lease.recovered_mark
        redelivered, failures = False, 0
        if offset < mark or history:
            failures = history.failures.get(offset, 0)
            if failures == 0 and offset < mark:
                failures = 1  # the gateway may have ended while a consumer had it
            redelivered = failures > 0 or offset in history.released
            cursor.traffic.redelivered += redelivered
        delivery = Delivery(entry, entry.message, offset, consumer, redelivered, failures)
        consumer.credit -= 1
        if consumer.shared is not None:
            consumer.shared.free -= 1
        if consumer.auto_settle:
            delivery.is_open = False
            self.return_credit(consumer)
            cursor.drop(entry)
        else:
            consumer.unsettled[offset] = delivery
            cursor.in_flight += 1
            if cursor.deadlines is not None:
                cursor.deadlines.start(delivery)
        return delivery

    # --- the next entry

    def _take(self, consumer: Consumer, now: float, entry: Entry | None = None) -> Entry | None:
        """Takes the next entry for a consumer that is neither expired nor delayed, nor beyond the
        lease. An `entry` that was taken already is the first in question."""
        if consumer.view is not None:
            return self._take_viewed(consumer, consumer.view, now)
        cursor = self._cursor
        while entry is not None or (entry := cursor.ready.take()) is not None:
            if entry.expires_at is not None and self.has_expired(entry, now):
                cursor.policy.on_expired(cursor, entry)
            elif entry.not_before is not None and cursor.delayed.is_early(entry, now):
                cursor.delayed.put_off(entry, entry.not_before)
            elif not cursor.requeues and entry.offset < cursor.settled.floor:
                cursor.memory.release(entry)  # the group of a stream committed a later position
            elif entry.offset >= cursor.lease.committed:
                cursor.ready.give_back(entry)
                self._ask_lease(entry.offset)
                return None
            else:
                return entry
            entry = None
        return None

    def _take_viewed(self, consumer: Consumer, view: FilteredView, now: float) -> Entry | None:
        """Takes the next entry that the filter of a consumer accepts; what the filter refuses stays
        in its place for others."""
        cursor = self._cursor
        while self._looks_left > 0:
            entry = view.take()
            if entry is None:
                return None
            self._looks_left -= 1
            is_expired = self.has_expired(entry, now)
            is_due = not cursor.delayed.is_early(entry, now)
            if not is_expired and is_due:
                if cursor.history.is_barred(entry.offset, consumer):
                    continue
                if not self._accepts(view, entry):
                    self._pass_by(entry)
                    continue
                if entry.offset >= cursor.lease.committed:
                    view.give_back(entry)
                    self._ask_lease(entry.offset)
                    return None
            if not cursor.ready.claim(entry):
                continue  # somebody else has it, or had it
            if is_expired:
                cursor.policy.on_expired(cursor, entry)
            elif entry.not_before is not None and not is_due:
                cursor.delayed.put_off(entry, entry.not_before)
            elif not cursor.requeues and entry.offset < cursor.settled.floor:
                cursor.memory.release(entry)
            else:
                return entry
        self._continue_later()
        return None

    def _accepts(self, view: FilteredView, entry: Entry) -> bool:
        """Asks the filter. One that takes long over a message has fewer looks left."""
        began = perf_counter()
        is_wanted = view.accepts(entry.message)
        self._looks_left -= int((perf_counter() - began) / LOOK_SECONDS)
        return is_wanted

    def _pass_by(self, entry: Entry) -> None:
        """Settles a message of a stream that nobody in the group wants: the group moves on, and
        what is written down of it stays small."""
        cursor = self._cursor
        if cursor.requeues:
            return
        for consumer in self._consumers.all:
            view = consumer.view
            if view is None or view.accepts(entry.message):
                return
        if cursor.ready.claim(entry):
            cursor.drop(entry)

    def _ask_lease(self, offset: int) -> None:
        if self._cursor.lease.ask(offset):
            self._cursor.note_progress()

    def has_expired(self, entry: Entry, now: float) -> bool:
        """Tells whether an entry may not be handed out any more. A message whose delivery was begun
        never expires."""
        if entry.offset in self._cursor.history.begun:
            entry.expires_at = None
            return False
        if entry.expires_at is None or entry.expires_at > now:
            return False
        # A message that arrives and finds a consumer waiting is in time, however short its time is:
        # with none at all it is for those who wait, as in RabbitMQ, and a commit takes a while.
        is_arriving = entry.offset >= self.arriving_from
        return not is_arriving or entry.expires_at <= now - EXPIRY_GRACE_SECONDS
