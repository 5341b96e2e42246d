"""A stream: a list that only loses its beginning, and for each group a place in it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(eq=False)
class Group:
    """Whose place it is: what is settled, kept over restarts. One that nobody else can join, and
    that ends with its reader, is a group of one."""

    floor: int  # all below is settled
    above: set[int] = field(default_factory=set)
    handed: set[int] = field(default_factory=set)  # ever
    is_suspect: bool = False  # a crash came between: flags may be set for no reason

    def settle(self, offset: int) -> None:
        if offset >= self.floor:
            self.above.add(offset)
            self._raise()

    def commit(self, offset: int) -> None:
        self.floor = max(self.floor, offset + 1)
        self._raise()

    def _raise(self) -> None:
        while self.floor in self.above:
            self.floor += 1
        self.above = {each for each in self.above if each > self.floor}


@dataclass(eq=False)
class Reading:
    """A group that somebody reads by at the moment."""

    group: Group
    next: int
    skipped: set[int]  # settled before it began

    def coming(self, first: int, tail: int) -> list[int]:
        start = max(self.next, self.group.floor, first)
        return [offset for offset in range(start, tail) if offset not in self.skipped]


@dataclass
class PlainStream:
    log: list[tuple[bytes, float]] = field(default_factory=list)  # body, and when it came
    first: int = 0  # all before it is gone
    groups: dict[str, Group] = field(default_factory=dict)
    readings: dict[str, Reading] = field(default_factory=dict)

    @property
    def tail(self) -> int:
        return len(self.log)

    def place(self, name: str | None, offset: int | None, time: float | None) -> int:
        """Where somebody begins who asks for a name, an offset or a time."""
        if offset is not None:
            return offset
        if time is not None:
            later = [i for i in range(self.first, self.tail) if self.log[i][1] >= time]
            return later[0] if later else self.tail
        return {"first": self.first, "last": max(self.first, self.tail - 1)}.get(
            name or "next", self.tail
        )

    def join(self, name: str | None, start: int) -> Reading:
        """The group's place counts, where it has one."""
        if name is None:
            return Reading(Group(start), start, set())
        group = self.groups.setdefault(name, Group(start))
        group.commit(self.first - 1)
        if name not in self.readings:
            self.readings[name] = Reading(group, group.floor, set(group.above))
        return self.readings[name]

    def leave(self, name: str) -> None:
        """The last one did."""
        del self.readings[name]

    def reset(self, name: str, start: int) -> Group:
        group = self.groups[name] = Group(max(start, self.first))
        return group

    def lose(self, first: int) -> None:
        """Drops all entries before `first`, as retention does."""
        self.first = first
        for reading in self.readings.values():
            reading.group.commit(first - 1)

    def restart(self, *, is_crash: bool) -> None:
        self.readings.clear()
        for group in self.groups.values():
            group.is_suspect = group.is_suspect or is_crash
