"""The results of a run: samples of scenarios, their medians and spread, and how goals read them.

Plain data that goes to JSON and back; knows neither how it was measured nor how it is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

HOWDAH: Final = "howdah"


@dataclass(frozen=True, slots=True)
class Sample:
    """The figures of one broker, once. What a scenario does not measure is left at its default."""

    scenario: str
    broker: str
    round: int
    variant: str = ""  # which of several points of a scenario: a depth, a share of the top rate
    per_second: float = 0.0
    seconds: float = 0.0
    cpu_us: float = 0.0  # of the broker for each delivery
    postgres_cpu_us: float = 0.0
    load_cpu_us: float = 0.0
    resident_bytes: int = 0
    postgres_resident_bytes: int = 0
    connection_bytes: float = 0.0  # resident memory that each idle connection added
    rate: float = 0.0  # messages a second that were asked for
    delivery_seconds: tuple[float, ...] = ()  # p50, p95, p99, p99.9, all
    confirm_seconds: tuple[float, ...] = ()
    send_seconds: tuple[float, ...] = ()  # how late the load itself was: a part of the others


@dataclass(frozen=True, slots=True)
class Failure:
    scenario: str
    broker: str
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """A goal and what came of it; `value` is None where it could not be taken."""

    scenario: str
    text: str
    wanted: float
    at_most: bool
    value: float | None

    @property
    def is_met(self) -> bool:
        if self.value is None:
            return False
        return self.value <= self.wanted if self.at_most else self.value >= self.wanted


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    version: str
    settings: str


@dataclass(slots=True)
class Results:
    started: str = ""
    machine: dict[str, str] = field(default_factory=dict)
    rounds: int = 0
    seconds: float = 0.0
    fsync_seconds: float = 0.0  # median of a small write with fdatasync
    titles: dict[str, str] = field(default_factory=dict)  # scenario -> what it is, in order
    loads: dict[str, str] = field(default_factory=dict)  # scenario -> how it was loaded
    peers: list[Peer] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)

    def of(self, scenario: str, broker: str, variant: str = "") -> list[Sample]:
        return [
            sample
            for sample in self.samples
            if (sample.scenario, sample.broker, sample.variant) == (scenario, broker, variant)
        ]

    def keys(self, scenario: str) -> list[tuple[str, str]]:
        """Lists broker and variant of each line of a scenario, in the order they came up."""
        return list(
            dict.fromkeys((s.broker, s.variant) for s in self.samples if s.scenario == scenario)
        )

    def median(
        self, scenario: str, broker: str, variant: str, read: Callable[[Sample], float]
    ) -> float | None:
        values = [read(sample) for sample in self.of(scenario, broker, variant)]
        return median(values) if values else None

    def spread(
        self, scenario: str, broker: str, variant: str, read: Callable[[Sample], float]
    ) -> tuple[float, float]:
        values = [read(sample) for sample in self.of(scenario, broker, variant)]
        return min(values), max(values)

    def ratio(
        self, scenario: str, peer: str, read: Callable[[Sample], float], variant: str = ""
    ) -> float | None:
        """Returns Howdah's median to a peer's."""
        own = self.median(scenario, HOWDAH, variant, read)
        theirs = self.median(scenario, peer, variant, read)
        return own / theirs if own is not None and theirs else None


def all_cpu_us(sample: Sample) -> float:
    return sample.cpu_us + sample.postgres_cpu_us


def merged(parts: list[Results]) -> Results:
    """Merges several runs; of a scenario that was run again the later run counts."""
    first, *others = parts
    whole = replace(first)
    for part in others:
        kept = [each for each in whole.samples if each.scenario not in part.titles]
        failed = [each for each in whole.failures if each.scenario not in part.titles]
        judged = [each for each in whole.verdicts if each.scenario not in part.titles]
        peers = {each.name: each for each in [*whole.peers, *part.peers]}
        whole = replace(
            part,
            titles=whole.titles | part.titles,
            loads=whole.loads | part.loads,
            peers=list(peers.values()),
            samples=kept + part.samples,
            failures=failed + part.failures,
            verdicts=judged + part.verdicts,
        )
    return whole


def save(results: Results, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1))


def load(path: Path) -> Results:
    return msgspec.json.decode(path.read_bytes(), type=Results)
