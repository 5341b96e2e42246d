"""The history of what clients saw while things broke, and whether it keeps the promises.

Answers for the promises: nothing acknowledged is lost, nothing settled returns, order holds, the
redelivered flag is true, nothing is doubled. Pure: it must not know a protocol, a process or a
clock. One list of events in the order in which the test's one event loop saw them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from tests.support.until import PATIENCE_SECONDS


class Name(NamedTuple):
    """One message: the queue it goes to, who sends it, and its number there. Numbers of a
    publisher ascend in the order in which it sends."""

    queue: str
    publisher: str
    number: int

    def encode(self, size: int = 0) -> bytes:
        return f"{self.queue} {self.publisher} {self.number} ".encode().ljust(size, b".")

    @classmethod
    def decode(cls, body: bytes) -> Name:
        queue, publisher, number = body.split(b" ")[:3]
        return cls(queue.decode(), publisher.decode(), int(number))


@dataclass(frozen=True, slots=True)
class Sent:
    """Handed to the broker; once more for each time that the client sends it again on its own.
    `is_once`: the protocol promises that sending again makes no copy (QoS 2)."""

    name: Name
    is_once: bool = False


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The broker said that it has it."""

    name: Name


@dataclass(frozen=True, slots=True)
class Delivered:
    """`connection` is one life of one consumer: whoever connects again gets another name.
    `is_flagged` is None where the protocol has no way to say it."""

    name: Name
    connection: str
    is_flagged: bool | None
    is_once: bool = False


@dataclass(frozen=True, slots=True)
class Settled:
    """The consumer knows that its settlement is committed."""

    name: Name


@dataclass(frozen=True, slots=True)
class Ended:
    """A consumer's connection is no more: what it held may go to others."""

    connection: str


@dataclass(frozen=True, slots=True)
class Fault:
    """Something broke, and what was in flight may come back."""

    what: str


@dataclass(frozen=True, slots=True)
class Calm:
    """The trouble is over. From the fault until now, clients may hear of each other's losses in any
    order: one gets what another held before that one has noticed its end."""


Event = Sent | Confirmed | Delivered | Settled | Ended | Fault | Calm


class History:
    """The events, with counts that a test can wait for."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.sent: set[Name] = set()
        self.confirmed: set[Name] = set()
        self.delivered: set[Name] = set()
        self.settled: set[Name] = set()
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    def add(self, event: Event) -> None:
        self.events.append(event)
        match event:
            case Sent(name):
                self.sent.add(name)
            case Confirmed(name):
                self.confirmed.add(name)
            case Delivered(name):
                self.delivered.add(name)
            case Settled(name):
                self.settled.add(name)
        for is_true, future in self._waiting:
            if not future.done() and is_true():
                future.set_result(None)

    async def until(
        self, is_true: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Waits for the event that makes it true."""
        if is_true():
            return
        entry = (is_true, asyncio.get_running_loop().create_future())
        self._waiting.append(entry)
        try:
            await asyncio.wait_for(entry[1], seconds)
        except TimeoutError:
            raise AssertionError(f"not within {seconds} s: {what}; {self.summary()}") from None
        finally:
            self._waiting.remove(entry)

    async def grow(
        self, count: int, *, of: str = "confirmed", seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Waits until so many more are confirmed (or sent, delivered, settled)."""
        names: set[Name] = getattr(self, of)
        wanted = len(names) + count
        await self.until(lambda: len(names) >= wanted, f"{count} more {of}", seconds)

    def fail(self, error: BaseException) -> None:
        """A client of the test is broken: nothing is worth waiting for."""
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(error)

    def summary(self) -> str:
        return (
            f"{len(self.sent)} sent, {len(self.confirmed)} confirmed, "
            f"{len(self.delivered)} delivered, {len(self.settled)} settled"
        )


# --- checking


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    name: Name
    detail: str

    def __str__(self) -> str:
        return f"{self.rule}: {' '.join(map(str, self.name))}: {self.detail}"


@dataclass(slots=True)
class _Copy:
    """One message, as far as the events up to now tell of it."""

    sent: int = 0
    is_once: bool = False
    deliveries: list[tuple[int, Delivered]] = field(default_factory=list)
    settled_at: int | None = None

    @property
    def is_single(self) -> bool:
        """There can be no second copy of it in the queue."""
        return self.sent <= 1 or self.is_once


def check(events: Iterable[Event], *, is_complete: bool = True) -> list[Violation]:
    """Every promise that the events break. `is_complete`: traffic was drained to the end, so what
    was confirmed must have been delivered."""
    return list(_Check(list(events)).violations(is_complete))


class _Check:
    def __init__(self, events: list[Event]) -> None:
        self._copies: dict[Name, _Copy] = {}
        self._confirmed: dict[Name, int] = {}
        self._faults: list[int] = []
        self._troubles: list[tuple[int, int]] = []
        self._ends: dict[str, int] = {}
        self._by_connection: dict[str, list[tuple[int, Delivered]]] = {}
        self._first_break: int | None = None
        for at, event in enumerate(events):
            self._note(at, event)

    def _note(self, at: int, event: Event) -> None:
        match event:
            case Sent(name, is_once):
                copy = self._copy(name)
                copy.sent += 1
                copy.is_once = is_once
            case Confirmed(name):
                self._confirmed.setdefault(name, at)
            case Delivered(name, connection):
                self._copy(name).deliveries.append((at, event))
                self._by_connection.setdefault(connection, []).append((at, event))
            case Settled(name):
                copy = self._copy(name)
                copy.settled_at = at if copy.settled_at is None else copy.settled_at
            case Ended(connection):
                self._ends[connection] = at
                self._break(at)
            case Fault():
                self._faults.append(at)
                self._break(at)
            case Calm():
                calm = self._troubles[-1][1] if self._troubles else -1
                start = next((fault for fault in self._faults if fault > calm), at)
                self._troubles.append((start, at))

    def _break(self, at: int) -> None:
        if self._first_break is None:
            self._first_break = at

    def _copy(self, name: Name) -> _Copy:
        return self._copies.setdefault(name, _Copy())

    def violations(self, is_complete: bool) -> Iterator[Violation]:
        if is_complete:
            yield from self._lost()
        for name, copy in self._copies.items():
            yield from self._strange(name, copy)
            if copy.is_single:
                yield from self._returned(name, copy)
                yield from self._unflagged(name, copy)
                yield from self._doubled(name, copy)
            yield from self._falsely_flagged(name, copy)
        yield from self._reordered()

    def _lost(self) -> Iterator[Violation]:
        for name in self._confirmed:
            if not self._copy(name).deliveries:
                yield Violation("lost", name, "confirmed, and never delivered")

    def _strange(self, name: Name, copy: _Copy) -> Iterator[Violation]:
        if copy.deliveries and not copy.sent:
            yield Violation("strange", name, "delivered, but nobody sent it")

    def _returned(self, name: Name, copy: _Copy) -> Iterator[Violation]:
        for at, delivered in copy.deliveries:
            if copy.settled_at is not None and at > copy.settled_at:
                yield Violation(
                    "returned", name, f"came to {delivered.connection} after it was settled"
                )

    def _unflagged(self, name: Name, copy: _Copy) -> Iterator[Violation]:
        for (_, earlier), (_, later) in pairwise(copy.deliveries):
            if later.is_flagged is False:
                yield Violation(
                    "unflagged",
                    name,
                    f"came to {later.connection} as new, after {earlier.connection} had it",
                )

    def _doubled(self, name: Name, copy: _Copy) -> Iterator[Violation]:
        for (first, earlier), (second, later) in pairwise(copy.deliveries):
            if later.is_once:
                yield Violation("doubled", name, f"twice to {later.connection}, exactly once asked")
            elif earlier.connection == later.connection:
                yield Violation("doubled", name, f"twice to {later.connection}")
            elif not self._is_released(earlier.connection, first, second):
                yield Violation(
                    "doubled", name, f"to {later.connection} while {earlier.connection} held it"
                )

    def _is_released(self, connection: str, first: int, second: int) -> bool:
        """Whether whoever had it may have lost it between two events."""
        ended = self._ends.get(connection)
        if ended is not None and ended < second:
            return True
        if any(start < second < end for start, end in self._troubles):
            return True
        return any(first < at < second for at in self._faults)

    def _falsely_flagged(self, name: Name, copy: _Copy) -> Iterator[Violation]:
        for at, delivered in copy.deliveries[:1]:
            is_early = self._first_break is None or at < self._first_break
            if delivered.is_flagged and is_early:
                yield Violation("falsely flagged", name, "before anything went wrong")

    def _reordered(self) -> Iterator[Violation]:
        """Deliveries on one connection ascend, for each queue and publisher. Where others consume
        the same queue only first deliveries do: what they held comes back at its own place, which
        may be behind what this one has seen."""
        for connection, deliveries in self._by_connection.items():
            last: dict[tuple[str, str], int] = {}
            is_alone = self._is_alone(connection)
            for at, each in deliveries:
                copy = self._copy(each.name)
                is_first = copy.deliveries[0][0] == at and not each.is_flagged
                if not copy.is_single or not (is_first or is_alone):
                    continue
                key = (each.name.queue, each.name.publisher)
                if each.name.number < last.get(key, -1):
                    yield Violation("reordered", each.name, f"after {last[key]} on {connection}")
                last[key] = max(each.name.number, last.get(key, -1))

    def _is_alone(self, connection: str) -> bool:
        """Whether nobody else consumed its queues while it did."""
        own = self._by_connection[connection]
        queues = {each.name.queue for _, each in own}
        first, last = own[0][0], own[-1][0]
        for other, deliveries in self._by_connection.items():
            if other == connection or all(d.name.queue not in queues for _, d in deliveries):
                continue
            is_over = self._ends.get(other, last + 1) < first
            if not is_over and deliveries[0][0] < last:
                return False
        return True
