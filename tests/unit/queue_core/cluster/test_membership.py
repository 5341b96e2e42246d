"""Membership over a simulated PostgreSQL, network and clocks: at most one node hands out, a fenced
node writes nothing, and somebody serves in the end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queue_core.cluster.membership import (
    GONE,
    JOINING,
    LEAVING,
    SERVING,
    UP,
    Decision,
    Membership,
    Move,
    Sighting,
)

LEASE = 2.0
TICK = 0.1
EXAMPLES = int(os.environ.get("HOWDAH_MODEL_EXAMPLES", "150"))


@dataclass
class Row:
    state: str = JOINING
    beat: int = 0
    is_fenced: bool = False
    has_session: bool = True


@dataclass
class Database:
    """The rows as one serial list of changes: what PostgreSQL answers, in the order of commits."""

    rows: dict[int, Row] = field(default_factory=dict)

    def join(self) -> int:
        id_ = len(self.rows) + 1
        self.rows[id_] = Row()
        return id_

    def beat(self, own: int) -> None:
        row = self.rows[own]
        if row.state != GONE:
            row.beat += 1

    def seen(self) -> list[Sighting]:
        return [
            Sighting(id_, row.state, row.beat, LEASE, is_fenced=row.is_fenced)
            for id_, row in self.rows.items()
        ]

    def fence(self, target: int, beat: int) -> None:
        row = self.rows[target]
        if row.beat == beat and row.state != GONE:
            row.state, row.is_fenced, row.has_session = GONE, True, False

    def rise(self, own: int, known: set[int]) -> bool:
        there = {id_: row for id_, row in self.rows.items() if id_ != own}
        is_news = any(id_ > max({own, *known}) for id_ in there) or any(
            self.rows[id_].state == GONE for id_ in known
        )
        if is_news or self.rows[own].state != JOINING:
            return False
        if any(row.state in SERVING for row in there.values()):
            return False
        self.rows[own].state = UP
        return True

    def may_commit(self, own: int) -> bool:
        """What howdah.hold() answers."""
        return self.rows[own].state in SERVING

    def without_session(self) -> set[int]:
        return {i for i, row in self.rows.items() if row.state != GONE and not row.has_session}


@dataclass
class Node:
    """One process: a membership, and the trust that it draws from it. Its clock has an offset of
    its own, and runs at the same pace as the others'."""

    database: Database
    offset: float
    id: int = 0
    membership: Membership = field(init=False)
    is_stopped: bool = False
    is_cut_off: bool = False
    is_dead: bool = False
    trust_begins: float = float("inf")
    next_beat: float = 0.0
    dawdles: bool = False  # it does what it decided one round later, whatever happens meanwhile
    decided: Decision | None = None

    def __post_init__(self) -> None:
        self.join(0.0)

    def join(self, now: float) -> None:
        self.id = self.database.join()
        clock = now + self.offset
        self.membership = Membership(self.id, LEASE, clock + 0.75 * LEASE)
        self.trust_begins = float("inf")
        self.next_beat = now
        self.decided = None

    def hands_out(self, now: float) -> bool:
        """The question of each turn: this node's own clock, and nothing else."""
        clock = now + self.offset
        return (
            not (self.is_stopped or self.is_dead)
            and self.membership.state in SERVING
            and self.trust_begins <= clock < self.membership.trusted_until
        )

    def step(self, now: float, began: float) -> None:
        """One round with the database; its question was sent at `began`."""
        if self.is_stopped or self.is_dead:
            return
        if self.is_cut_off:
            self.membership.on_failure()
            return
        if self.decided is not None:
            decision, self.decided = self.decided, None
            self.follow(now, decision)
            return
        clock, asked, machine = now + self.offset, began + self.offset, self.membership
        self.database.rows[self.id].has_session = self.database.rows[self.id].state != GONE
        if now >= self.next_beat:
            self.next_beat = now + machine.period
            self.database.beat(self.id)
            machine.on_beat(asked, clock, self.database.seen())
        else:
            machine.on_look(
                asked, clock, self.database.seen(), self.database.without_session() - {self.id}
            )
        decision = machine.decide(clock)
        if self.dawdles and decision.move is not Move.WAIT:
            self.decided = decision
        else:
            self.follow(now, decision)

    def follow(self, now: float, decision: Decision) -> None:
        machine = self.membership
        if decision.move is Move.FENCE:
            self.database.fence(decision.target, decision.beat)
        elif decision.move is Move.RISE and self.database.rise(self.id, set(machine.peers)):
            machine.state = UP
            self.trust_begins = machine.trust_begins
        elif decision.move is Move.DRAIN:
            self.database.rows[self.id].state = GONE
            self.join(now)
        elif decision.move is Move.STOP:
            self.join(now)

    def crash(self) -> None:
        self.is_dead = True
        self.database.rows[self.id].has_session = False


EVENTS = (
    *("stop", "go on", "cut", "mend", "crash", "restart", "lose sessions", "drain", "stall"),
    *("dawdle", "hurry"),
)
schedules = st.lists(
    st.tuples(st.integers(1, 40), st.sampled_from(EVENTS), st.integers(0, 2)), max_size=25
)


class Simulation:
    def __init__(self, count: int, offsets: list[float]) -> None:
        self.database = Database()
        self.nodes = [Node(self.database, offsets[n]) for n in range(count)]
        self.now = 0.0
        self.is_stalled = False

    def run(self, ticks: int) -> None:
        for _ in range(ticks):
            began, self.now = self.now, round(self.now + TICK, 3)
            if self.is_stalled:
                continue
            for node in self.nodes:
                node.step(self.now, began)
            self.check()

    def check(self) -> None:
        giving = [node for node in self.nodes if node.hands_out(self.now)]
        assert len(giving) <= 1, f"two nodes hand out at {self.now}"
        for node in giving:
            others = [n.id for n in self.nodes if n is not node and self.database.may_commit(n.id)]
            if others:  # it is fenced, and another one serves: that one must still wait
                assert all(not n.hands_out(self.now) for n in self.nodes if n.id in others)
        assert sum(row.state in SERVING for row in self.database.rows.values()) <= 1

    def happen(self, event: str, node: Node) -> None:
        match event:
            case "stop":
                node.is_stopped = True
            case "go on":
                node.is_stopped = False
                self.check()  # before it hears of anything, it looks at its clock
            case "cut":
                node.is_cut_off = True
                self.database.rows[node.id].has_session = False
            case "mend":
                node.is_cut_off = False
            case "crash":
                node.crash()
            case "restart":
                if node.is_dead:
                    node.is_dead = node.is_stopped = node.is_cut_off = False
                    node.join(self.now)
            case "lose sessions":
                self.database.rows[node.id].has_session = False
                node.membership.on_failure()
            case "drain":
                row = self.database.rows[node.id]
                row.state = LEAVING if row.state == UP else row.state
            case "dawdle":
                node.dawdles = True
            case "hurry":
                node.dawdles = False
            case "stall":
                self.is_stalled = not self.is_stalled

    def heal(self) -> None:
        self.is_stalled = False
        for node in self.nodes:
            node.is_stopped = node.is_cut_off = False
            if node.is_dead:
                node.is_dead = False
                node.join(self.now)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)
@given(
    schedule=schedules,
    offsets=st.lists(st.sampled_from([-3600.0, 0.0, 17.3, 3600.0]), min_size=3, max_size=3),
)
def test_at_most_one_node_hands_out_and_somebody_serves_in_the_end(
    schedule: list[tuple[int, str, int]], offsets: list[float]
) -> None:
    world = Simulation(3, offsets)
    for ticks, event, number in schedule:
        world.run(ticks)
        world.happen(event, world.nodes[number])
    world.heal()
    world.run(round(12 * LEASE / TICK))
    serving = [node for node in world.nodes if node.hands_out(world.now)]
    assert len(serving) == 1, "nobody serves although all are well"


def sighted(*rows: tuple[int, str, int]) -> list[Sighting]:
    return [Sighting(id_, state, beat, LEASE) for id_, state, beat in rows]


def beats(machine: Membership, rows: list[Sighting], *times: float) -> Iterator[Move]:
    for now in times:
        machine.on_beat(now - 0.01, now, rows)
        yield machine.decide(now).move


def test_a_node_is_suspect_after_a_lease_of_healthy_rounds_and_not_before() -> None:
    machine = Membership(2, LEASE, 0.0)
    rows = sighted((1, UP, 7), (2, JOINING, 0))
    assert list(beats(machine, rows, 0.0, 0.5, 1.0, 1.5)) == [Move.WAIT] * 4
    assert list(beats(machine, rows, 2.0)) == [Move.FENCE]


def test_rounds_that_a_stalled_database_answers_late_make_nobody_suspect() -> None:
    machine = Membership(2, LEASE, 0.0)
    rows = sighted((1, UP, 7), (2, JOINING, 0))
    for now in range(1, 60):
        machine.on_beat(now - 0.9, float(now), rows)
        assert machine.decide(float(now)).move is Move.WAIT


def test_after_a_lost_connection_an_observer_gives_the_others_time_to_come_back() -> None:
    machine = Membership(2, LEASE, 0.0)
    rows = sighted((1, UP, 7), (2, JOINING, 0))
    assert list(beats(machine, rows, 0.0)) == [Move.WAIT]
    machine.on_failure()
    assert machine.decide(1.0).move is Move.WAIT
    times = [1.0 + 0.5 * n for n in range(10)]
    assert list(beats(machine, rows, *times)) == [Move.WAIT] * 10
    assert list(beats(machine, rows, 6.0)) == [Move.FENCE]


def test_an_observer_that_was_stopped_itself_counts_one_round_of_silence() -> None:
    machine = Membership(2, LEASE, 0.0)
    rows = sighted((1, UP, 7), (2, JOINING, 0))
    assert list(beats(machine, rows, 0.0, 600.0)) == [Move.WAIT, Move.WAIT]


def test_the_eldest_standby_goes_first_and_the_next_one_after_a_while() -> None:
    eldest, younger = Membership(2, LEASE, 0.0), Membership(3, LEASE, 0.0)
    rows = sighted((2, JOINING, 0), (3, JOINING, 0))
    assert list(beats(eldest, rows, 0.0)) == [Move.RISE]
    waits: list[Move] = []
    for n in range(9):  # the eldest goes on beating, and does not rise
        seen = sighted((2, JOINING, n), (3, JOINING, n))
        waits += beats(younger, seen, 0.5 * n)
    assert waits == [Move.WAIT] * 8 + [Move.RISE]


def test_whoever_takes_over_hands_out_when_the_fenced_node_distrusts_itself() -> None:
    machine = Membership(2, LEASE, 0.0)
    list(beats(machine, sighted((1, UP, 7), (2, JOINING, 0)), 10.0))
    machine.on_look(10.1, 10.1, sighted((1, UP, 7), (2, JOINING, 0)), {1})
    assert machine.decide(10.1).move is Move.FENCE
    fenced = Sighting(1, GONE, 7, LEASE, is_fenced=True)
    machine.on_look(10.2, 10.2, [fenced, *sighted((2, JOINING, 0))], ())
    assert machine.decide(10.2).move is Move.RISE
    assert machine.trust_begins == 10.0 + 0.75 * LEASE


def test_after_a_node_that_left_in_order_nobody_waits() -> None:
    machine = Membership(2, LEASE, 0.0)
    list(beats(machine, sighted((1, LEAVING, 7), (2, JOINING, 0)), 10.0))
    machine.on_look(10.1, 10.1, sighted((1, GONE, 7), (2, JOINING, 0)), ())
    assert machine.decide(10.1).move is Move.RISE
    assert machine.trust_begins == 0.0
