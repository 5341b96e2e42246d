"""Who gets what next: one turn of handing out what is ready to consumers that have credit.

The cursor has the state, and ends what is begun here; this knows the order and the short ways. A
sink gets its deliveries when the turn is over, in one list.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final

from queue_core.delivery.consumer import Consumer, Delivery, Entry
from queue_core.delivery.delayed import end_delays, is_early, put_off
from queue_core.delivery.runs import take_run
from queue_core.outcomes import RELEASED

if TYPE_CHECKING:
    from queue_core.delivery.cursor import Cursor
    from queue_core.delivery.filtered_view import Selection

BATCH: Final = 256  # deliveries before sinks get theirs, and may say that it is enough
LOOK_SECONDS: Final = 0.000_01  # that a filter may take for one message before it counts for more


def hand_out(cursor: Cursor) -> None:
    """Some of what is ready, in turn to those with credit; `cursor.again`: there may be more."""
    now = cursor.context.clock()
    if cursor.due_times is not None:
        cursor.due_times.end_due(now)
    elif cursor.delayed.next_time <= now:
        end_delays(cursor, now)
    if len(cursor.consumers) == 1 and _hand_out_run(cursor, cursor.consumers[0], now):
        return
    batches: dict[Consumer, list[Delivery]] = {}
    passed: list[Consumer] = []  # nothing is ready that may go to them
    for _ in range(BATCH):
        consumer = cursor.line.next()
        if consumer is None:
            break
        entry = _take(cursor, consumer, now)
        if entry is None and cursor.selections:  # another may be asked
            cursor.line.leave(consumer)
            passed.append(consumer)
            continue
        if entry is None:
            cursor.line.keep_turn(consumer)
            break
        delivery = _delivery(cursor, entry, consumer)
        batch = batches.get(consumer)
        if batch is None:
            batches[consumer] = [delivery]
        else:
            batch.append(delivery)
    else:
        cursor.again = True
    for consumer in passed:
        cursor.line.join(consumer)
    for consumer, deliveries in batches.items():
        if consumer.is_closed:  # by what another's sink did meanwhile
            cursor.settle(deliveries, RELEASED)
            continue
        if consumer.auto_settle:
            cursor.context.counters.settled += len(deliveries)
        _deliver(cursor, consumer, deliveries)


def _hand_out_run(cursor: Cursor, consumer: Consumer, now: float) -> bool:
    """The short way: to the only consumer, what has no history and no time of its own. False:
    nothing was handed out. Measured on 100 entries: 0.5 us each against 0.9."""
    if (
        not consumer.is_waiting
        or consumer.auto_settle
        or consumer.selection is not None
        or cursor.spec.ack_timeout_seconds is not None
        or cursor.history
        or not consumer.has_credit()
    ):
        return False
    most = min(consumer.credit, BATCH)
    if consumer.shared is not None:
        most = min(most, consumer.shared.free)
    deliveries, other = take_run(consumer, cursor.ready, most, cursor.recovered_mark, cursor.lease)
    count = len(deliveries)
    cursor.in_flight += count
    consumer.credit -= count
    if consumer.shared is not None:
        consumer.shared.free -= count
    if other is not None and (found := _take(cursor, consumer, now, other)) is not None:
        deliveries.append(_delivery(cursor, found, consumer))
    if not deliveries:
        return False
    # Something may be left. A window that is used up is to be waited for: the long way does it.
    cursor.again = count == BATCH or other is not None or consumer.shared is not None
    _deliver(cursor, consumer, deliveries)
    return True


def _deliver(cursor: Cursor, consumer: Consumer, deliveries: list[Delivery]) -> None:
    cursor.context.counters.delivered += len(deliveries)
    try:
        consumer.sink.deliver(consumer, deliveries)
    except Exception as error:
        cursor.end_broken(consumer, error)


def _delivery(cursor: Cursor, entry: Entry, consumer: Consumer) -> Delivery:
    offset = entry.offset
    redelivered, failures = False, 0
    if offset < cursor.recovered_mark or cursor.history:
        failures = cursor.history.failures.get(offset, 0)
        if failures == 0 and offset < cursor.recovered_mark:
            failures = 1  # it was, or may have been, in somebody's hands when the gateway died
        redelivered = failures > 0 or offset in cursor.history.released
    delivery = Delivery(entry, entry.message, offset, consumer, redelivered, failures)
    consumer.credit -= 1
    if consumer.shared is not None:
        consumer.shared.free -= 1
    if consumer.auto_settle:
        delivery.is_open = False
        cursor.return_credit(consumer)
        cursor.drop(entry)
    else:
        consumer.unsettled[offset] = delivery
        cursor.in_flight += 1
        if cursor.spec.ack_timeout_seconds is not None:
            cursor.start_clock(delivery, cursor.spec.ack_timeout_seconds)
    return delivery


def _take(
    cursor: Cursor, consumer: Consumer, now: float, entry: Entry | None = None
) -> Entry | None:
    """The next entry for this consumer that is neither expired nor delayed; `entry` was taken
    already, and is the first in question."""
    if consumer.selection is not None:
        return _take_selected(cursor, consumer, consumer.selection, now)
    while entry is not None or (entry := cursor.ready.take()) is not None:
        if entry.expires_at is not None and cursor.has_expired(entry, now):
            cursor.policy.on_expired(cursor, entry)
        elif entry.not_before is not None and is_early(cursor, entry, now):
            put_off(cursor, entry, entry.not_before)
        elif not cursor.requeues and entry.offset < cursor.settled.floor:
            cursor.release_memory(entry)  # of a stream, a commit of the position was faster
        elif entry.offset >= cursor.lease:
            cursor.ready.give_back(entry)
            cursor.ask_lease(entry.offset)
            return None
        else:
            return entry
        entry = None
    return None


def _take_selected(
    cursor: Cursor, consumer: Consumer, selection: Selection, now: float
) -> Entry | None:
    """The same for a consumer with a filter: what it refuses stays in its place for others."""
    while cursor.looks > 0:
        entry = selection.take()
        if entry is None:
            return None
        cursor.looks -= 1
        is_expired = cursor.has_expired(entry, now)
        is_due = not is_early(cursor, entry, now)
        if not is_expired and is_due:
            if cursor.history.is_barred(entry.offset, consumer):
                continue
            if not _accepts(cursor, selection, entry):
                _pass_by(cursor, entry)
                continue
            if entry.offset >= cursor.lease:
                selection.give_back(entry)
                cursor.ask_lease(entry.offset)
                return None
        if not cursor.ready.claim(entry):
            continue  # somebody else has it, or had it
        if is_expired:
            cursor.policy.on_expired(cursor, entry)
        elif entry.not_before is not None and not is_due:
            put_off(cursor, entry, entry.not_before)
        elif not cursor.requeues and entry.offset < cursor.settled.floor:
            cursor.release_memory(entry)
        else:
            return entry
    if not cursor.is_unfinished:
        cursor.is_unfinished = True
        cursor.policy.on_unfinished(cursor)
    return None


def _accepts(cursor: Cursor, selection: Selection, entry: Entry) -> bool:
    """Whether the filter takes it. A filter that takes long over one has fewer looks left."""
    began = perf_counter()
    is_wanted = selection.accepts(entry.message)
    cursor.looks -= int((perf_counter() - began) / LOOK_SECONDS)
    return is_wanted


def _pass_by(cursor: Cursor, entry: Entry) -> None:
    """Of a stream, what nobody in the group wants counts as read: the group's cursor moves on,
    and what is written down of it stays small."""
    if cursor.requeues:
        return
    for consumer in cursor.consumers:
        selection = consumer.selection
        if selection is None or selection.accepts(entry.message):
            return
    if cursor.ready.claim(entry):
        cursor.drop(entry)
