"""The last rows that a cursor writes when it ends in order: which messages the next start need not
suspect of having been handed out, and which of them it must flag as redelivered all the same."""

from __future__ import annotations

from queue_core.delivery.cursor import Cursor
from queue_core.delivery.ports import Journal
from queue_core.delivery.ready import FifoReady


def end_lease(cursor: Cursor) -> None:
    """Shortens a cursor's lease, so that what was never handed out is not suspected of it."""
    if cursor.journal is None:
        return
    if cursor.requeues and not cursor.in_flight:
        cursor.lease.give_up()  # the messages that came back are named one by one
        _note_flags(cursor, cursor.journal)
    elif isinstance(cursor.ready, FifoReady):
        cursor.lease.shorten(cursor.ready.reach)
    cursor.settled.demand_full_row()
    cursor.note_progress()


def _note_flags(cursor: Cursor, journal: Journal) -> None:
    """Writes a row for each message that is to be flagged as redelivered."""
    mark, history = cursor.lease.recovered_mark, cursor.history
    suspects = {
        *cursor.ready.offsets_below(mark),
        *(offset for offset in cursor.delayed.offsets() if offset < mark),
    }
    delays = cursor.delayed.returned_until()  # written again, in case they are not written yet
    counted = {offset for offset, count in history.failures.items() if count}
    noted = dict.fromkeys(suspects - counted, 1)
    noted |= dict.fromkeys(history.released - suspects - history.failures.keys(), 0)
    history.failures |= noted  # a snapshot of the journal that comes after this writes them, too
    for offset, count in noted.items():
        journal.note_failure(cursor, offset, count, delays.get(offset), "")
