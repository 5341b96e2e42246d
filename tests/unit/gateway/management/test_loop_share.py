"""The share of the loop that long answers take."""

from __future__ import annotations

from gateway.management.loop_share import MOST_OWED_SECONDS, REST_FACTOR, LoopShare


async def test_rest_is_owed_for_a_while_and_then_taken_in_full() -> None:
    share = LoopShare()
    now = share._worked_at
    work = MOST_OWED_SECONDS / REST_FACTOR
    assert share._rest(now, now + work) < 1e-9
    assert abs(share._rest(now + work, now + 2 * work) - REST_FACTOR * work) < 1e-9


async def test_time_in_which_nothing_was_written_pays_what_is_owed() -> None:
    share = LoopShare()
    now = share._worked_at
    work = MOST_OWED_SECONDS / REST_FACTOR
    share._rest(now, now + work)
    later = now + work + MOST_OWED_SECONDS
    assert share._rest(later, later + work) < 1e-9
