"""Trust of a gateway in itself: while it has none, stored messages stay where they are."""

from __future__ import annotations

from collections.abc import Callable

from queue_core.cluster.trust import LeasedTrust
from tests.unit.queue_core.scenes import Scene, Shelf


def test_what_comes_back_after_the_database_was_lost_goes_to_nobody() -> None:
    scene = Scene(shelf=Shelf(), limit=1 << 20)
    first, leaving = scene.consume(credit=10)
    scene.arrive(3)
    assert first.offsets == [0, 1, 2]
    other, _ = scene.consume(credit=10)
    scene.context.trust.end()
    leaving.close()
    scene.settle_down()
    assert other.offsets == []


def test_messages_in_memory_are_handed_out_without_a_database() -> None:
    scene = Scene()
    scene.context.trust.end()
    basket, _ = scene.consume(credit=10)
    scene.arrive(3)
    assert basket.offsets == [0, 1, 2]


def test_a_node_hands_out_between_the_end_of_a_fenced_ones_trust_and_of_its_own() -> None:
    now = [0.0]
    trust = LeasedTrust(lambda call: call(), clock=lambda: now[0])
    trust.begins, trust.until = 1.0, 2.0

    def is_given(at: float) -> bool:
        now[0] = at
        return trust.is_given()

    assert [is_given(at) for at in (0.9, 1.0, 1.9, 2.0)] == [False, True, True, False]
    trust.can_write = lambda: False
    assert not is_given(1.5)


def test_whoever_waits_runs_once_when_trust_is_given_again() -> None:
    later: list[Callable[[], None]] = []
    trust = LeasedTrust(later.append, clock=lambda: 1.0)
    runs: list[str] = []

    class Waiting:
        def run(self) -> None:
            runs.append("run")

    waiting = Waiting()
    trust.wait(waiting)
    trust.wait(waiting)
    trust.renew()
    assert not later
    trust.begins, trust.until = 0.0, 2.0
    trust.renew()
    trust.renew()
    while later:
        later.pop(0)()
    trust.renew()
    assert runs == ["run"]
