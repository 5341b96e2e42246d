"""The last words of a cursor that ends in order: which messages the next life need not suspect of
having been handed out, and which of them it must flag as redelivered all the same."""

from __future__ import annotations

from queue_core.delivery.cursor import WRITE_ALL, Cursor
from queue_core.delivery.delayed import delays_of
from queue_core.delivery.ports import Journal
from queue_core.delivery.ready import FifoReady


def end_lease(cursor: Cursor) -> None:
    """What was never handed out need not be suspected of it."""
    if cursor.journal is None:
        return
    if cursor.requeues and not cursor.in_flight:
        cursor.lease_asked = 0  # nothing is left to suspect: those that came back are named
        _note_flags(cursor, cursor.journal)
    elif isinstance(cursor.ready, FifoReady):
        # those below the mark may have been handed out in an earlier life, or reading
        reach = max(cursor.ready.reach, cursor.recovered_mark)
        cursor.lease_asked = min(cursor.lease_asked, reach)
    cursor.seq = WRITE_ALL
    cursor.journal.note(cursor)


def _note_flags(cursor: Cursor, journal: Journal) -> None:
    mark, history = cursor.recovered_mark, cursor.history
    suspects = {
        *cursor.ready.offsets_below(mark),
        *(offset for offset in cursor.delayed.offsets() if offset < mark),
    }
    delays = delays_of(cursor)  # the same rows as before, if those are not written yet
    counted = {offset for offset, count in history.failures.items() if count}
    noted = dict.fromkeys(suspects - counted, 1)
    noted |= dict.fromkeys(history.released - suspects - history.failures.keys(), 0)
    history.failures |= noted  # should the journal start again with this last word, too
    for offset, count in noted.items():
        journal.note_failure(cursor, offset, count, delays.get(offset), "")
