"""What a long read costs the gateway: its durable throughput with and without one, in turns.

    python -m bench.etl_beside --rounds 5 --seconds 5

A real gateway carries persistent AMQP 0.9.1 messages with confirms, while a Spark job reads a
stream of the same database over and over, or does not. The job stands back from the processor
(nice 19), as if it had machines of its own: measured is what its sessions and snapshots do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.brokers import howdah
from bench.etl import QUEUE, fill
from bench.results import Sample
from bench.runner import measured
from bench.scenarios import SCENARIOS
from gateway.embedded_postgres import EmbeddedPostgres
from gateway.postgres_cluster import DATABASE, HOST, ROLE

SCENARIO: Final = SCENARIOS["amqp091-durable"]
WANTED: Final = 0.9  # of the throughput is left
_STAND_BACK: Final = 19


# --- the reader: a process of its own, told by its standard input


def read_on_demand(url: str) -> None:
    """Reads all after `go`, one snapshot after the other, until `stop`; then says how often."""
    from spark_etl.messages import read_queue
    from spark_etl.runtime import local_session
    from spark_etl.snapshot import held_snapshot

    os.nice(_STAND_BACK)
    spark = local_session("howdah bench reader")
    is_wanted, reading = threading.Event(), threading.Lock()
    reads = 0

    def work() -> None:
        nonlocal reads
        while is_wanted.wait():
            with reading, held_snapshot(spark, url) as snapshot:
                frame = read_queue(spark, url, QUEUE, partitions=2, snapshot=snapshot)
                frame.write.format("noop").mode("overwrite").save()
                reads += 1

    threading.Thread(target=work, daemon=True).start()
    print("ready", flush=True)
    for line in sys.stdin:
        if line == "go\n":
            is_wanted.set()
        else:
            is_wanted.clear()
            with reading:
                print(reads, flush=True)
                reads = 0


class Reader:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def reader(url: str) -> Iterator[Reader]:
    command = [sys.executable, "-m", "bench.etl_beside", "--reader"]
    environment = {**os.environ, "HOWDAH_ETL_URL": url}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        running = Reader(process)
        if running.hear() != "ready":
            raise RuntimeError("the Spark job did not start: see above")
        yield running
    finally:
        process.kill()
        process.communicate()


# --- the measure


def filled(data: Path, messages: int) -> None:
    """A stream to read, made before the gateway starts."""
    with EmbeddedPostgres(data) as server:
        asyncio.run(fill(server.url, messages))


def database_url(data: Path) -> str:
    password = (data / "postgres.password").read_text().strip()
    port = (data / "postgres.port").read_text().strip()
    return f"postgresql://{ROLE}:{password}@{HOST}:{port}/{DATABASE}"


def measure(rounds: int, seconds: float, messages: int) -> dict[str, list[Sample]]:
    """Samples with and without the reader, in turns; another one begins in each round."""
    spec = replace(SCENARIO.spec, seconds=seconds)
    found: dict[str, list[Sample]] = {"alone": [], "beside": []}
    with tempfile.TemporaryDirectory(prefix="howdah-bench-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        filled(folder / "data", messages)
        with howdah(folder) as broker, reader(database_url(folder / "data")) as job:
            measured(broker, SCENARIO.name, spec)  # everybody warms up
            for number in range(rounds):
                for kind in ("alone", "beside") if number % 2 else ("beside", "alone"):
                    if kind == "beside":
                        job.say("go")
                    found[kind].append(measured(broker, SCENARIO.name, spec))
                    if kind == "beside":
                        job.say("stop")
                        print(f"read {job.hear()} times beside it", file=sys.stderr)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load")
    parser.add_argument("--messages", type=int, default=300_000, help="in the stream to read")
    parser.add_argument("--reader", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.reader:
        read_on_demand(os.environ["HOWDAH_ETL_URL"])
        return 0
    found = measure(options.rounds, options.seconds, options.messages)
    rates = {kind: statistics.median(s.per_second for s in all_) for kind, all_ in found.items()}
    costs = {kind: statistics.median(s.cpu_us for s in all_) for kind, all_ in found.items()}
    share = rates["beside"] / rates["alone"]
    figures = {
        "per_second": {kind: round(rate) for kind, rate in rates.items()},
        "gateway_cpu_us": {kind: round(cost, 2) for kind, cost in costs.items()},
        "beside_to_alone": round(share, 3),
        "wanted": WANTED,
        "is_met": share >= WANTED,
    }
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
