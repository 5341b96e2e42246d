"""When a full collection comes, by clocks that the test moves."""

from __future__ import annotations

from gateway.garbage_collector import (
    LEAST_SECONDS,
    LONGEST_WAIT_FACTOR,
    MANY_ENDED,
    PAUSE_REST_FACTOR,
    CollectorCounters,
    PlannedCollector,
)


class Gateway:
    def __init__(self) -> None:
        self.now = self.busy = 0.0
        self.ended = 0
        self.pause = 0.001
        self.counters = CollectorCounters()
        self.collector = PlannedCollector(
            lambda: self.ended, self.counters, lambda: self.now, lambda: self.busy, self.collect
        )

    def collect(self) -> int:
        self.now += self.pause
        return 7

    def after(self, seconds: float, busy_share: float = 0.0) -> bool:
        """All of it was busy to that share; whether it collects then."""
        self.now += seconds
        self.busy += seconds * busy_share
        return self.collector.look()


def test_nothing_is_collected_before_enough_connections_have_ended() -> None:
    gateway = Gateway()
    gateway.ended = MANY_ENDED - 1
    assert not gateway.after(LEAST_SECONDS * 2)
    gateway.ended += 1
    assert gateway.after(1)
    assert gateway.counters.collections == 1
    assert gateway.counters.collected_objects == 7
    assert gateway.counters.pause_seconds > 0


def test_a_quiet_moment_is_waited_for_but_not_for_ever() -> None:
    gateway = Gateway()
    gateway.now += LEAST_SECONDS / 2
    gateway.ended = MANY_ENDED
    assert not gateway.after(1, busy_share=1.0)
    gateway.busy += LEAST_SECONDS * 3
    gateway.now += LEAST_SECONDS * 3
    assert not gateway.collector.look()
    gateway.busy += LEAST_SECONDS * LONGEST_WAIT_FACTOR
    gateway.now += LEAST_SECONDS * LONGEST_WAIT_FACTOR
    assert gateway.collector.look()


def test_a_long_pause_is_followed_by_a_long_wait() -> None:
    gateway = Gateway()
    gateway.pause = 1.0
    gateway.ended = MANY_ENDED
    assert gateway.after(LEAST_SECONDS * 2)
    gateway.ended += MANY_ENDED
    assert not gateway.after(PAUSE_REST_FACTOR * 0.9)
    assert gateway.after(PAUSE_REST_FACTOR * 0.2)
