"""Who may use the loop's time, by a clock and a loop that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from queue_core.scheduler import (
    LIGHT_SECONDS,
    SLICE_SECONDS,
    TURN_SECONDS,
    WINDOW_SECONDS,
    Scheduler,
    Share,
    scheduler,
)


class Loop:
    """Calls what was planned, one turn at a time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.planned: list[Callable[[], None]] = []
        self.scheduler = Scheduler(self.planned.append, lambda: self.now)

    def turn(self) -> None:
        planned = self.planned[:]
        self.planned.clear()
        for each in planned:
            each()

    def use(self, share: Share, seconds: float) -> bool:
        """Works for so long in one slice; False: it was not let."""
        if not share.begin():
            return False
        self.now += seconds
        share.end()
        return True


def test_who_used_up_a_turn_waits_and_who_used_little_does_not() -> None:
    loop = Loop()
    heavy, light = loop.scheduler.share(), loop.scheduler.share()
    heavy.is_known = light.is_known = True
    assert loop.use(heavy, TURN_SECONDS)
    assert not loop.use(heavy, 0.0)
    assert loop.use(light, LIGHT_SECONDS / 2)
    loop.turn()
    assert loop.use(heavy, 0.0)


def test_a_stranger_waits_for_a_turn_that_is_not_used_up_however_little_it_used() -> None:
    loop = Loop()
    heavy, stranger = loop.scheduler.share(), loop.scheduler.share()
    assert loop.use(heavy, TURN_SECONDS)
    assert not loop.use(stranger, 0.0)
    loop.turn()
    assert loop.use(stranger, 0.0)


def test_who_brings_something_heavy_waits_for_a_turn_however_little_it_used() -> None:
    loop = Loop()
    first, second = loop.scheduler.share(), loop.scheduler.share()
    for each in (first, second):
        each.is_known = each.is_heavy = True
    assert loop.use(first, TURN_SECONDS)
    assert not loop.use(second, 0.0)
    loop.turn()
    assert loop.use(second, 0.0)


def test_a_slice_is_over_when_its_time_is_used_and_shorter_while_others_wait() -> None:
    loop = Loop()
    alone, crowded = loop.scheduler.share(), loop.scheduler.share()
    assert alone.begin()
    loop.now += TURN_SECONDS - SLICE_SECONDS / 2
    assert not alone.is_over()
    loop.now += SLICE_SECONDS
    assert alone.is_over()
    alone.end()
    loop.turn()
    loop.scheduler.stand_in_line(lambda: None)
    assert crowded.begin()
    loop.now += SLICE_SECONDS
    assert crowded.is_over()


def test_those_in_line_go_on_in_their_order_as_far_as_one_turn_goes() -> None:
    loop, served = Loop(), list[int]()

    def go_on(number: int) -> None:
        served.append(number)
        assert loop.use(shares[number], TURN_SECONDS / 2)

    shares = [loop.scheduler.share() for _ in range(6)]
    for number, share in enumerate(shares):
        share.wait(lambda number=number: go_on(number))  # type: ignore[misc]
        share.wait(lambda: served.append(-1))  # it stands there already
    assert served == []
    loop.turn()
    assert served == [0, 1]
    loop.turn()
    assert served == [0, 1, 2, 3]
    loop.turn()
    assert served == [0, 1, 2, 3, 4, 5]
    assert not any(share.is_waiting for share in shares)


def test_one_that_fails_keeps_nobody_behind_it_from_its_turn() -> None:
    loop, served = Loop(), list[str]()
    loop.scheduler.stand_in_line(lambda: 1 // 0)  # type: ignore[arg-type]
    loop.scheduler.stand_in_line(lambda: served.append("second"))
    try:
        loop.turn()
    except ZeroDivisionError:
        served.append("failed")
    loop.turn()
    assert served == ["failed", "second"]


def test_what_was_used_is_forgotten_after_a_while() -> None:
    loop = Loop()
    share = loop.scheduler.share()
    share.is_known = True
    assert loop.use(share, TURN_SECONDS)
    loop.now += WINDOW_SECONDS * 1.1
    assert loop.use(share, 0.0)  # though the turn is used up


def test_who_has_gone_is_not_called_any_more() -> None:
    loop, served = Loop(), list[int]()
    share = loop.scheduler.share()
    share.wait(lambda: served.append(1))
    share.close()
    loop.turn()
    assert served == []


def test_work_without_a_share_is_charged_to_the_turn() -> None:
    loop, served = Loop(), list[int]()

    def work() -> None:
        loop.now += TURN_SECONDS
        served.append(1)

    loop.scheduler.later(work)
    loop.scheduler.later(work)
    loop.turn()
    assert len(served) == 1
    loop.turn()
    assert len(served) == 2


async def test_there_is_one_for_each_loop() -> None:
    assert scheduler() is scheduler()
    asyncio.get_running_loop().call_soon(lambda: None)
