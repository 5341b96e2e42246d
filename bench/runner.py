"""Runs scenarios: brokers started once and loaded in turn, round after round.

Answers for which broker is measured when; what a load does is the load process's own business, what
the figures mean is for results and report.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from bench.brokers import BROKERS, Broker
from bench.flow import Spec
from bench.machine import fsync_seconds, machine
from bench.peers import Missing
from bench.results import HOWDAH, Failure, Peer, Results, Sample, Verdict
from bench.scenarios import SHARES, Kind, Scenario

LOAD_TIMEOUT: Final = 120.0
STORE_TIMEOUT: Final = 400.0
SETTLE_SECONDS: Final = 1.0  # before memory is read, so that buffers are given back

Report = Callable[[Sample | Failure], None]


class LoadFailed(Exception):
    """The load process ended without figures; says why."""


@dataclass(frozen=True, slots=True)
class Options:
    rounds: int = 3
    seconds: float = 3.0
    share: float = 1.0  # of the counts of scenarios that count instead of taking time


class Stage:
    """The brokers of a run: each started when it is first asked for, all stopped at the end."""

    def __init__(self) -> None:
        self._running: dict[str, Broker] = {}
        self._peers: dict[str, Peer] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def broker(self, name: str) -> Broker:
        """Returns a broker, started if need be. Raises Missing."""
        if name not in self._running:
            folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
            folder.chmod(0o755)
            self._running[name] = self._stack.enter_context(BROKERS[name](folder))
            self.note(self._running[name])
        return self._running[name]

    def note(self, broker: Broker) -> None:
        """Notes a broker that ran elsewhere for the report."""
        self._peers[broker.name] = Peer(broker.name, broker.version, broker.settings)

    def peers(self) -> list[Peer]:
        return list(self._peers.values())


def run(scenarios: list[Scenario], options: Options, report: Report) -> Results:
    """Runs all scenarios, one after the other; within each the brokers take turns."""
    results = Results(
        datetime.now(UTC).isoformat(timespec="seconds"),
        machine(),
        options.rounds,
        options.seconds,
        fsync_seconds(),
        {each.name: each.title for each in scenarios},
        {each.name: load_text(each) for each in scenarios},
    )
    with Stage() as stage:
        for scenario in scenarios:
            gone: set[str] = set()
            for number in range(options.rounds):
                for broker in _turn(scenario.brokers, number):
                    if broker not in gone:
                        for outcome in _outcomes(stage, scenario, broker, number, options):
                            _keep(results, outcome)
                            report(outcome)
                            if isinstance(outcome, Failure):
                                gone.add(broker)
        results.peers = stage.peers()
    results.verdicts = judge(scenarios, results)
    return results


def judge(scenarios: list[Scenario], results: Results) -> list[Verdict]:
    return [
        Verdict(scenario.name, goal.text, goal.wanted, goal.at_most, goal.value(results))
        for scenario in scenarios
        for goal in scenario.goals
    ]


def _turn(brokers: tuple[str, ...], number: int) -> tuple[str, ...]:
    """Rotates the brokers, so that another one begins in each round."""
    first = number % len(brokers)
    return brokers[first:] + brokers[:first]


def _keep(results: Results, outcome: Sample | Failure) -> None:
    if isinstance(outcome, Sample):
        results.samples.append(outcome)
    else:
        results.failures.append(outcome)


def _outcomes(
    stage: Stage, scenario: Scenario, broker: str, number: int, options: Options
) -> Iterator[Sample | Failure]:
    try:
        yield from MEASURES[scenario.kind](stage, scenario, broker, number, options)
    except (Missing, LoadFailed) as error:
        yield Failure(scenario.name, broker, str(error))


# --- one measure for each kind


def _throughput(
    stage: Stage, scenario: Scenario, broker: str, number: int, options: Options
) -> Iterator[Sample]:
    spec = replace(spec_for(scenario, broker), seconds=options.seconds)
    yield replace(measured(stage.broker(broker), scenario.name, spec), round=number)


def _latency(
    stage: Stage, scenario: Scenario, broker: str, number: int, options: Options
) -> Iterator[Sample]:
    spec = replace(spec_for(scenario, broker), seconds=options.seconds)
    running = stage.broker(broker)
    top = measured(running, scenario.name, spec)
    yield replace(top, round=number, variant="top rate")
    for variant, share in SHARES.items():
        paced = replace(spec, rate=top.per_second * share)
        sample = measured(running, scenario.name, paced)
        yield replace(sample, round=number, variant=variant, rate=paced.rate)


def _idle(
    stage: Stage, scenario: Scenario, broker: str, number: int, options: Options
) -> Iterator[Sample]:
    """Measures idle connections on a broker of its own: memory that was freed would be taken for
    memory not needed."""
    with Stage() as fresh:
        running = fresh.broker(broker)
        stage.note(running)
        time.sleep(SETTLE_SECONDS)
        before = running.resident_bytes()
        for count in scenario.counts:
            wanted = max(100, int(count * options.share))
            resident = _resident_with(running, scenario.spec, wanted)
            yield Sample(
                scenario.name,
                broker,
                number,
                f"{wanted:,} connections",
                resident_bytes=resident,
                connection_bytes=(resident - before) / wanted,
            )


def _resident_with(running: Broker, spec: Spec, wanted: int) -> int:
    """Measures a broker's memory while it holds that many connections, and the queues of the
    scenario."""
    port, queues = running.amqp_port, [str(spec.queues)]
    if spec.publish == "mqtt":
        port, queues = running.mqtt_port, []
    module = [sys.executable, "-m", "bench.idle_load"]
    command = [*module, spec.publish, str(port), str(wanted), *queues]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        if _line(process) != "ready":
            raise LoadFailed(_complaint(process))
        time.sleep(SETTLE_SECONDS)
        return running.resident_bytes()
    finally:
        process.kill()
        process.communicate()


def _store(
    stage: Stage, scenario: Scenario, broker: str, number: int, options: Options
) -> Iterator[Sample]:
    yield from _figures(scenario, "bench.store", broker, number, options)


def _tables(
    stage: Stage, scenario: Scenario, broker: str, number: int, options: Options
) -> Iterator[Sample]:
    yield from _figures(scenario, "bench.tables", broker, number, options)


def _figures(
    scenario: Scenario, module: str, broker: str, number: int, options: Options
) -> Iterator[Sample]:
    """Runs a module that prints a list of figures as JSON, and yields them as samples."""
    what = scenario.name.removeprefix("store-") if module == "bench.store" else broker
    count = max(10_000, int(scenario.counts[0] * options.share))
    command = [sys.executable, "-m", module, what, "--messages", str(count), "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=STORE_TIMEOUT)
    except subprocess.TimeoutExpired as error:
        raise LoadFailed(f"not done in {STORE_TIMEOUT:.0f} s") from error
    if done.returncode:
        raise LoadFailed(_last_line(done.stderr))
    for figure in json.loads(done.stdout.splitlines()[-1]):
        yield Sample(
            scenario.name,
            broker,
            number,
            figure["name"],
            per_second=figure["per_second"],
            cpu_us=figure["own_cpu_us"],
            postgres_cpu_us=figure["postgres_cpu_us"],
            resident_bytes=figure.get("resident_bytes", 0),
        )


Measure = Callable[[Stage, Scenario, str, int, Options], Iterator[Sample]]
MEASURES: Final[dict[Kind, Measure]] = {
    Kind.THROUGHPUT: _throughput,
    Kind.LATENCY: _latency,
    Kind.IDLE: _idle,
    Kind.STORE: _store,
    Kind.TABLES: _tables,
}


# --- the load process


def spec_for(scenario: Scenario, broker: str) -> Spec:
    """Makes the scenario's load in the broker's own words."""
    if scenario.elsewhere and broker != HOWDAH:
        return replace(scenario.spec, source=scenario.elsewhere, target=scenario.elsewhere)
    return scenario.spec


def measured(broker: Broker, scenario: str, spec: Spec) -> Sample:
    """Runs one load on a broker that runs, and returns its figures. Raises LoadFailed."""
    spec = replace(spec, mqtt_port=broker.mqtt_port or 0, amqp_port=broker.amqp_port or 0)
    command = [sys.executable, "-m", "bench.load", json.dumps(asdict(spec))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        if _line(process) != "ready":
            raise LoadFailed(_complaint(process))
        own, postgres = broker.cpu_seconds(), broker.postgres_cpu_seconds()
        answer = _line(process)
        own = broker.cpu_seconds() - own
        postgres = broker.postgres_cpu_seconds() - postgres
        resident, theirs = broker.resident_bytes(), broker.postgres_resident_bytes()
        if not answer:
            raise LoadFailed(_complaint(process))
        process.wait(LOAD_TIMEOUT)  # it deletes its queues, which nobody measures
    finally:
        process.kill()
        process.communicate()
    figures: dict[str, Any] = json.loads(answer)
    count = figures["deliveries"]
    if not count:
        raise LoadFailed("nothing was delivered")
    return Sample(
        scenario,
        broker.name,
        0,
        per_second=count / figures["seconds"],
        seconds=figures["seconds"],
        cpu_us=own / count * 1e6,
        postgres_cpu_us=postgres / count * 1e6,
        load_cpu_us=figures["load_cpu"] / count * 1e6,
        resident_bytes=resident,
        postgres_resident_bytes=theirs,
        delivery_seconds=tuple(figures["delivery_seconds"]),
        confirm_seconds=tuple(figures["confirm_seconds"]),
        send_seconds=tuple(figures["send_seconds"]),
    )


def _line(process: subprocess.Popen[str]) -> str:
    """Reads one line of the load, which bounds itself in time: it prints, or it ends."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _complaint(process: subprocess.Popen[str]) -> str:
    try:
        _output, errors = process.communicate(timeout=LOAD_TIMEOUT)
    except subprocess.TimeoutExpired:
        return "the load process hangs"
    return _last_line(errors)


def _last_line(errors: str) -> str:
    lines = errors.strip().splitlines()
    return lines[-1] if lines else "no reason given"


def load_text(scenario: Scenario) -> str:
    """Describes how a scenario is loaded, for whoever reads the report."""
    spec = scenario.spec
    if scenario.kind in (Kind.STORE, Kind.TABLES):
        return f"{scenario.counts[0]:,} messages of 256 bytes"
    if scenario.kind is Kind.IDLE:
        counts = " and ".join(f"{count:,}" for count in scenario.counts) + " connections"
        return f"{counts}, {spec.queues:,} durable queues" if spec.queues > 1 else counts
    parts = [f"{spec.payload:,} bytes"]
    if spec.window:
        parts.append(f"at most {spec.window:,} on their way")
    if spec.outstanding:
        parts.append(f"at most {spec.outstanding:,} unconfirmed")
    if spec.consume != "mqtt" and not spec.is_settled:
        parts.append(f"prefetch {spec.prefetch}")
    if spec.topics > 1:
        parts.append(f"{spec.topics} topics in turn")
    if spec.is_paired:
        parts.append(f"{spec.publishers} publishers, each with a queue and a consumer of its own")
    if spec.bystanders:
        parts.append(f"{spec.bystanders:,} more connections that do nothing")
    return ", ".join(parts)
