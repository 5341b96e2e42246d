"""Measures what a long export costs the gateway: durable throughput with and without one, in turns.

    python -m bench.etl_beside --rounds 5 --seconds 5

A real gateway carries persistent AMQP 0.9.1 messages with confirms, while a Spark job exports
a stream of the same database over and over, or does not. Each kind of job is measured in turn:

    stands_back   Spark at nice 19: as if it had machines of its own; what its sessions and
                  snapshots do to the gateway is measured, and little of what its JVM does
    paced         Spark on the same cores, at the rate that a long export has by default
    competes      Spark on the same cores, as fast as it goes

A load counts only if rows flowed to the job nearly all the time; where they did not, the run fails.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from math import inf
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from bench.brokers import Broker, howdah
from bench.etl import QUEUE, fill
from bench.results import Sample
from bench.runner import measured
from bench.scenarios import SCENARIOS
from gateway.postgres.cluster import DATABASE, HOST, ROLE
from gateway.postgres.server import EmbeddedPostgres
from spark_etl.export import GENTLE_RATE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCENARIO: Final = SCENARIOS["amqp091-durable"]
WANTED: Final = 0.9  # of the throughput is left
OVERLAP: Final = 0.8  # of a load, in which rows must have flowed
ALONE: Final = "alone"
_WARM: Final = "bench.warm"
_WARM_MESSAGES: Final = 20_000
_STAND_BACK: Final = 19
_EXPORTS: Final = 2
_LOOK_SECONDS: Final = 0.02
_START_SECONDS: Final = 60.0

Span = tuple[float, float]


# --- the reader: a process of its own, told by its standard input


class Reader:
    """Exports all after `start`, again and again, until `stop`; keeps when rows flowed.

    Two exports with half of the connections each: while one begins or ends, rows flow to the other.
    """

    def __init__(self, spark: SparkSession, url: str, folder: Path, rate: float | None) -> None:
        self._spark = spark
        self._url = url
        self._targets = (folder / str(number) for number in count())
        self._rate = rate
        self._threads: list[threading.Thread] = []
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._error = ""
        self._spans: list[Span] = []

    def export(self, queue: str, rate: float | None) -> None:
        from spark_etl.export import ExportSettings, export
        from spark_etl.messages import CONNECTIONS

        with self._lock:
            target = next(self._targets)
        try:
            settings = ExportSettings(target, connections=CONNECTIONS // _EXPORTS, rate=rate or inf)
            export(self._spark, self._url, [queue], settings)
        finally:
            shutil.rmtree(target, ignore_errors=True)

    def start(self) -> None:
        """Starts the exports; returns when rows flow."""
        self._is_over.clear()
        self._spans.clear()
        self._error = ""
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(_EXPORTS)]
        for thread in (*self._threads, threading.Thread(target=self._watch, daemon=True)):
            thread.start()
        deadline = time.monotonic() + _START_SECONDS
        while not self._spans and not self._error:
            if time.monotonic() > deadline:
                self._error = f"no row came in {_START_SECONDS:.0f} s"
            time.sleep(_LOOK_SECONDS)

    def stop(self) -> dict[str, object]:
        self._is_over.set()
        while any(thread.is_alive() for thread in self._threads):
            self._spark.sparkContext.cancelAllJobs()
            time.sleep(_LOOK_SECONDS)
        return {"spans": self._spans, "error": self._error}

    def _work(self) -> None:
        try:
            while not self._is_over.is_set():
                self.export(QUEUE, self._rate and self._rate / _EXPORTS)
        except Exception as error:
            # One that is told to stop is cancelled in the middle.
            if not self._is_over.is_set():
                self._error = f"{type(error).__name__}: {error}"

    def _watch(self) -> None:
        """Records spans: times in which tasks, and so their queries, run without a pause."""
        tracker, was_reading = self._spark.sparkContext.statusTracker(), False
        while not self._is_over.is_set():
            now, is_reading = time.time(), False
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                is_reading = is_reading or (info is not None and info.numActiveTasks > 0)
            if is_reading and was_reading:
                self._spans[-1] = (self._spans[-1][0], now)
            elif is_reading:
                self._spans.append((now, now))
            was_reading = is_reading
            self._is_over.wait(_LOOK_SECONDS)


def read_on_demand(url: str, rate: float | None) -> None:
    from spark_etl.spark_session import local_session

    spark = local_session("howdah bench reader")
    with tempfile.TemporaryDirectory(prefix="howdah-bench-") as folder:
        reader = Reader(spark, url, Path(folder), rate)
        for _ in range(3):
            reader.export(_WARM, None)
        print("ready", flush=True)
        for line in sys.stdin:
            if line == "go\n":
                reader.start()
                print("reading", flush=True)
            else:
                print(json.dumps(reader.stop()), flush=True)


# --- the measure


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to read beside the gateway."""

    name: str
    niceness: int
    rate: float | None


class Job:
    """A reader's process, seen from here."""

    def __init__(self, process: subprocess.Popen[str], kind: Kind) -> None:
        self._process = process
        self._kind = kind

    def say(self, word: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        return self.hear()

    def hear(self) -> str:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline().strip()
        if not answer:
            raise RuntimeError(f"the Spark job ({self._kind.name}) ended: see above")
        return answer

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keeps rows flowing to the job while the block lasts; raises an error where they did
        not."""
        self.say("go")
        began = time.time()
        yield
        ended = time.time()
        told = json.loads(self.say("stop"))
        if told["error"]:
            raise RuntimeError(f"the Spark job ({self._kind.name}) failed: {told['error']}")
        share = overlap(told["spans"], (began, ended))
        print(f"{self._kind.name}: rows flowed {share:.0%} of the load", file=sys.stderr)
        if share < OVERLAP:
            raise RuntimeError(
                f"rows flowed to the Spark job ({self._kind.name}) in {share:.0%} of the load "
                f"only, and {OVERLAP:.0%} is wanted: give more --messages"
            )


def overlap(spans: list[Span], window: Span) -> float:
    """Returns the share of the window that the spans cover."""
    low, high = window
    covered = sum(max(0.0, min(end, high) - max(start, low)) for start, end in spans)
    return covered / (high - low)


@contextmanager
def running_job(url: str, kind: Kind) -> Iterator[Job]:
    command = ["nice", "-n", str(kind.niceness), sys.executable, "-m", "bench.etl_beside"]
    command += ["--reader", *(["--rate", str(kind.rate)] if kind.rate else [])]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOWDAH_ETL_URL": url},
    )
    try:
        job = Job(process, kind)
        job.hear()
        yield job
    finally:
        assert process.stdin is not None
        process.stdin.close()  # it ends when nobody tells it anything any more
        process.wait()


def filled(data: Path, messages: int) -> None:
    """Makes streams to read, before the gateway starts."""
    with EmbeddedPostgres(data) as server:
        asyncio.run(fill(server.url, messages))
        asyncio.run(fill(server.url, _WARM_MESSAGES, _WARM))


def database_url(data: Path) -> str:
    password = (data / "postgres.password").read_text().strip()
    port = (data / "postgres.port").read_text().strip()
    return f"postgresql://{ROLE}:{password}@{HOST}:{port}/{DATABASE}"


def measure(
    kinds: list[Kind], rounds: int, seconds: float, messages: int
) -> dict[str, list[Sample]]:
    """Measures without a reader and with each, in turns; another one begins in each round."""
    spec = replace(SCENARIO.spec, seconds=seconds)
    found: dict[str, list[Sample]] = {ALONE: [], **{kind.name: [] for kind in kinds}}
    with tempfile.TemporaryDirectory(prefix="howdah-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o711)
        filled(folder / "data", messages)
        broker: Broker = stack.enter_context(howdah(folder))
        url = database_url(folder / "data")
        jobs = {kind.name: stack.enter_context(running_job(url, kind)) for kind in kinds}
        measured(broker, SCENARIO.name, spec)  # everybody warms up
        for number in range(rounds):
            for each in _turn(list(found), number):
                if each == ALONE:
                    found[each].append(measured(broker, SCENARIO.name, spec))
                    continue
                with jobs[each].reading():
                    found[each].append(measured(broker, SCENARIO.name, spec))
    return found


def _turn(names: list[str], number: int) -> list[str]:
    first = number % len(names)
    return names[first:] + names[:first]


def figures(found: dict[str, list[Sample]]) -> dict[str, object]:
    rates = {kind: median(s.per_second for s in each) for kind, each in found.items()}
    costs = {kind: median(s.cpu_us for s in each) for kind, each in found.items()}
    shares = {kind: rate / rates[ALONE] for kind, rate in rates.items() if kind != ALONE}
    return {
        "per_second": {kind: round(rate) for kind, rate in rates.items()},
        "gateway_cpu_us": {kind: round(cost, 2) for kind, cost in costs.items()},
        "left_of_alone": {kind: round(share, 3) for kind, share in shares.items()},
        "wanted": WANTED,
        "is_met": {kind: share >= WANTED for kind, share in shares.items()},
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load")
    parser.add_argument("--messages", type=int, default=2_000_000, help="in the stream to read")
    parser.add_argument("--rate", type=float, help=f"of the paced job (default: {GENTLE_RATE:g})")
    parser.add_argument("--kinds", nargs="+", choices=("stands_back", "paced", "competes"),
                        default=["stands_back", "paced", "competes"])  # fmt: skip
    parser.add_argument("--reader", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.reader:
        read_on_demand(os.environ["HOWDAH_ETL_URL"], options.rate)
        return 0
    known = {
        "stands_back": Kind("stands_back", _STAND_BACK, None),
        "paced": Kind("paced", 0, options.rate or GENTLE_RATE),
        "competes": Kind("competes", 0, None),
    }
    kinds = [known[name] for name in options.kinds]
    found = measure(kinds, options.rounds, options.seconds, options.messages)
    print(json.dumps(figures(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
