"""Compares messages/s and CPU a message with another commit's: without a cluster, and as the only
node of one. Each variant has a database of its own on one server, and they run in turn."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

import asyncpg

from bench.brokers import ROOT
from bench.results import Results, load

SCENARIOS: Final = ("amqp091-durable", "mqtt-1to1-qos1")


@contextmanager
def checkout(commit: str, folder: Path) -> Iterator[Path]:
    path = folder / "baseline"
    subprocess.run(["git", "worktree", "add", "-q", "--detach", path, commit], cwd=ROOT, check=True)
    try:
        yield path
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", path], cwd=ROOT, check=True)


def scenario_figures(root: Path, output: Path, url: str, *, is_clustered: bool) -> Results:
    """Runs the scenarios once, from a folder with sources, on a database of their own."""
    environment = {**os.environ, "HOWDAH_DATABASE__URL": url}
    if is_clustered:
        environment["HOWDAH_CLUSTER__ENABLED"] = "true"
    command = [
        sys.executable,
        "-m",
        "bench",
        "run",
        *SCENARIOS,
        "--only",
        "howdah",
        "--rounds",
        "1",
    ]
    subprocess.run(
        [*command, "--seconds", "3", "--output", output],
        cwd=root,
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return load(output / "results.json")


def compare(commit: str, rounds: int, folder: Path, url: str) -> int:
    """Prints messages/s and CPU of this tree against the baseline's, in turn, as ratios of
    medians."""
    with checkout(commit, folder) as baseline:
        variants = {
            "baseline": (baseline, False),
            "cluster-off": (ROOT, False),
            "cluster-alone": (ROOT, True),
        }
        urls = {name: asyncio.run(new_database(url, name)) for name in variants}
        figures: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for number in range(rounds):
            for name, (root, is_clustered) in variants.items():
                output = folder / f"{name}-{number}"
                results = scenario_figures(root, output, urls[name], is_clustered=is_clustered)
                for sample in results.samples:
                    key = (sample.scenario, name)
                    figures.setdefault(key, []).append((sample.per_second, sample.cpu_us))
    for scenario in SCENARIOS:
        for name in ("cluster-off", "cluster-alone"):
            speed, cpu = (
                median(each[part] for each in figures[scenario, name])
                / median(each[part] for each in figures[scenario, "baseline"])
                for part in (0, 1)
            )
            print(f"{scenario:18} {name:14} {speed:.3f}x messages/s, {cpu:.3f}x CPU a message")
    return 0


async def new_database(url: str, name: str) -> str:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f'CREATE DATABASE "{name}"')
    finally:
        await connection.close()
    return f"{url.rpartition('/')[0]}/{name}"
