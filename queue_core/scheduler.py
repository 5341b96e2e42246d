"""The loop's time, shared between those who bring it more work than one turn should hold.

A turn of the event loop serves every socket that is ready, and each may bring a quarter of a
megabyte: work for a tenth of a second and more. So everybody takes time in slices. Whoever has
used little lately goes first, whatever the others do; the rest stand in one line, which gets a
bounded part of each turn. Knows nothing of sockets, protocols or queues.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final
from weakref import WeakKeyDictionary

TURN_SECONDS: Final = 0.005  # of one turn of the loop, for all who stand in line
SLICE_SECONDS: Final = 0.001  # at a time for one of them, while others wait
WINDOW_SECONDS: Final = 0.1
LIGHT_SECONDS: Final = 0.001  # who used no more in a window does not stand in line
HEAVY_BYTES: Final = 256 * 1024  # of one message: to put its pieces together takes time
UNPLANNED_SECONDS: Final = TURN_SECONDS / 8  # used before it matters in which turn that was
COMMAND_SECONDS: Final = 0.0001  # that are charged for one, however long it waited

Clock = Callable[[], float]

_schedulers: WeakKeyDictionary[asyncio.AbstractEventLoop, Scheduler] = WeakKeyDictionary()


def scheduler() -> Scheduler:
    """The running loop's own; there is one for each loop."""
    loop = asyncio.get_running_loop()
    found = _schedulers.get(loop)
    if found is None:
        found = _schedulers[loop] = Scheduler(loop.call_soon)
    return found


class Effort:
    """Counts work that takes longer the more others have declared, such as finding a route. Whoever
    does many pieces of it at a stretch sees by the count when to look at the time."""

    __slots__ = ("spent",)

    def __init__(self) -> None:
        self.spent = 0  # units of about a microsecond, since the start


class Scheduler:
    """Gives slices of the event loop to those who wait, in the order they came, and knows what is
    left of this turn."""

    __slots__ = ("_call_soon", "_is_planned", "_line", "clock", "counted", "left")

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], clock: Clock = perf_counter
    ) -> None:
        self.clock = clock
        self.left = TURN_SECONDS
        self.counted = 0  # times that somebody had to stand in line
        self._call_soon = call_soon
        self._line: deque[Callable[[], None]] = deque()
        self._is_planned = False

    def share(self) -> Share:
        return Share(self)

    @property
    def is_crowded(self) -> bool:
        return bool(self._line)

    def stand_in_line(self, go_on: Callable[[], None]) -> None:
        """Calls `go_on` once, in a later turn of the loop, when all before it had their slice."""
        self.counted += 1
        self._line.append(go_on)
        self._plan()

    def later(self, work: Callable[[], None]) -> None:
        """Runs work of somebody without a share in a later slice: what `work` takes is charged to
        the turn."""
        self.stand_in_line(lambda: self._charged(work))

    def _charged(self, work: Callable[[], None]) -> None:
        began = self.clock()
        try:
            work()
        finally:
            self.spend(self.clock() - began)

    def spend(self, seconds: float) -> None:
        self.left -= seconds
        if self.left < TURN_SECONDS - UNPLANNED_SECONDS:
            self._plan()

    def _plan(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            self._call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._is_planned = False
        self.left = TURN_SECONDS
        line = self._line
        try:
            for _ in range(len(line)):
                if self.left <= 0:
                    break
                line.popleft()()
        finally:
            if line:
                self._plan()


class Share:
    """Measures what one connection, or one queue, uses of the loop.

    if share.begin():                   # False: stand in line
        while there is work:
            do a little of it
            if share.is_over():
                break                   # keep the rest, and stand in line
        share.end()
    """

    __slots__ = (
        "_began",
        "_go_on",
        "_scheduler",
        "_since",
        "_until",
        "_used",
        "is_heavy",
        "is_known",
        "is_waiting",
    )

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._since = self._began = self._until = self._used = 0.0
        self._go_on: Callable[[], None] | None = None
        self.is_known = False  # somebody has logged in: strangers never go first
        self.is_heavy = False  # what comes next is known to take long: it does not go first
        self.is_waiting = False

    def begin(self) -> bool:
        """Starts a slice. False when this turn has been used up and the share is a stranger's,
        brings something heavy, or has had more than its part lately: it is to stand in line."""
        scheduler = self._scheduler
        now = scheduler.clock()
        if now - self._since > WINDOW_SECONDS:
            self._since, self._used = now, 0.0
        if scheduler.left <= 0 and (
            self._used > LIGHT_SECONDS or self.is_heavy or not self.is_known
        ):
            return False
        self._start(now)
        return True

    def _start(self, now: float) -> None:
        left = self._scheduler.left
        self._began = now
        is_short = left < SLICE_SECONDS or self._scheduler.is_crowded
        self._until = now + (SLICE_SECONDS if is_short else left)

    def is_over(self) -> bool:
        return self._scheduler.clock() >= self._until

    def end(self) -> None:
        spent = self._scheduler.clock() - self._began
        self._used += spent
        self._scheduler.spend(spent)

    def charge(self) -> None:
        """Charges a fixed time for a command: it may have waited for something else meanwhile."""
        self._used += COMMAND_SECONDS
        self._scheduler.spend(COMMAND_SECONDS)

    def wait(self, go_on: Callable[[], None]) -> None:
        """Stands in line, once."""
        if not self.is_waiting:
            self.is_waiting = True
            self._go_on = go_on
            self._scheduler.stand_in_line(self._called)

    def _called(self) -> None:
        self.is_waiting = False
        go_on, self._go_on = self._go_on, None
        if go_on is not None:
            go_on()

    async def come(self) -> None:
        """Begins a slice, at once or when its time in the line has come."""
        if not self.begin():
            await self.turn()

    async def turn(self) -> None:
        """Begins a slice in a later turn of the loop, when all who stood in line before had one."""
        come: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._scheduler.stand_in_line(lambda: self._call(come))
        await come
        self._start(self._scheduler.clock())

    def _call(self, come: asyncio.Future[None]) -> None:
        """A task goes on in the turn after this one: its time is set aside in this."""
        if not come.done():
            self._scheduler.spend(SLICE_SECONDS)
            come.set_result(None)

    def close(self) -> None:
        """Ends the share of a connection or queue that is gone."""
        self._go_on = None
