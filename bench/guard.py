"""The regression guard: holds three scenarios against a bare asyncio loop in the same run.

The margins are wide: between a ninth and a quarter of what was measured when they were set. A busy
machine passes; a change that costs a multiple does not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from bench.runner import Stage, measured, spec_for
from bench.scenarios import SCENARIOS

ROUNDS: Final = 3
SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Floor:
    """A scenario's messages/s must be at least `share` of the bare loop's in `base`."""

    scenario: str
    base: str
    share: float


FLOORS: Final = (
    Floor("mqtt-1to1-qos0", "mqtt-1to1-qos0", 0.05),
    Floor("mqtt-1to1-qos1", "mqtt-1to1-qos1", 0.06),
    Floor("amqp091-durable", "mqtt-1to1-qos1", 0.04),
)


@dataclass(frozen=True, slots=True)
class Finding:
    floor: Floor
    share: float

    @property
    def is_collapse(self) -> bool:
        return self.share < self.floor.share

    def line(self) -> str:
        word = "COLLAPSED" if self.is_collapse else "holds"
        return (
            f"{self.floor.scenario:18} {self.share:6.3f} of the bare loop, "
            f"floor {self.floor.share:.3f}: {word}"
        )


def shares(pairs: dict[Floor, list[tuple[float, float]]]) -> list[Finding]:
    """Computes the median share from the messages/s of Howdah and of the bare loop, round by
    round."""
    return [
        Finding(floor, median(own / base for own, base in rounds))
        for floor, rounds in pairs.items()
    ]


def run() -> list[Finding]:
    """Runs the guard: Howdah and the bare loop in turn and close together, so that what else the
    machine does meets both."""
    pairs: dict[Floor, list[tuple[float, float]]] = {floor: [] for floor in FLOORS}
    with Stage() as stage:
        for _ in range(ROUNDS):
            for floor in FLOORS:
                base = _speed(stage, floor.base, "bare loop")
                pairs[floor].append((_speed(stage, floor.scenario, "howdah"), base))
    return shares(pairs)


def _speed(stage: Stage, scenario: str, broker: str) -> float:
    spec = replace(spec_for(SCENARIOS[scenario], broker), seconds=SECONDS)
    return measured(stage.broker(broker), scenario, spec).per_second
