"""Profiles a scenario by py-spy: a flame graph of where the gateway's time goes, and the top of
it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Final
from zlib import crc32

from bench.results import HOWDAH
from bench.runner import LoadFailed, Stage, measured, spec_for
from bench.scenarios import Kind, Scenario

TOP: Final = 25
IDLE: Final = "_worker (concurrent/futures/thread.py"  # waits, though py-spy takes it for busy
WARM_SECONDS: Final = 0.5  # what is done once at the start is not asked for
RATE: Final = 250  # samples a second
STYLE: Final = "text{font:11px monospace} rect{stroke:#fff;stroke-width:.5}"
WIDTH: Final = 1200
ROW: Final = 17
_LINE: Final = re.compile(r":\d+(?=\)$)")
NARROWEST: Final = 0.001  # of the whole; less is left out

Stacks = Counter[tuple[str, ...]]


def profile(scenario: Scenario, seconds: float, output: Path) -> str:
    """Writes the flame graph, and returns the functions that took most themselves, as text."""
    if scenario.kind not in (Kind.THROUGHPUT, Kind.LATENCY):
        raise LoadFailed(f"{scenario.name} runs no gateway; take a scenario with load")
    spy = Path(sys.executable).with_name("py-spy")
    program = str(spy) if spy.exists() else shutil.which("py-spy")
    if program is None:
        raise LoadFailed("py-spy is not installed: make setup-dev")
    output.parent.mkdir(parents=True, exist_ok=True)
    raw = output.with_suffix(".raw")
    with Stage() as stage:
        broker = stage.broker(HOWDAH)
        spec = replace(spec_for(scenario, HOWDAH), seconds=seconds)
        measured(broker, scenario.name, replace(spec, seconds=WARM_SECONDS))
        command = [program, "record", "--pid", str(broker.pid), "--duration", str(int(seconds))]
        command += ["--rate", str(RATE), "--format", "raw"]
        spying = subprocess.Popen(
            [*command, "--output", str(raw)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        sample = measured(broker, scenario.name, spec)
        _output, errors = spying.communicate(timeout=60)
    if spying.returncode or not raw.exists():
        raise LoadFailed(f"py-spy failed: {errors.decode().strip()[-300:]}")
    stacks = read(raw.read_text())
    output.write_text(flame_graph(stacks, scenario.name))
    raw.unlink()
    speed = f"{sample.per_second:,.0f}/s, {sample.cpu_us:.1f} us of gateway CPU each"
    head = f"{scenario.name}: {speed}"
    return "\n".join([head, *top(stacks)])


def read(raw: str) -> Stacks:
    """Parses py-spy's lines: frames with semicolons between them, a space, a count."""
    stacks: Stacks = Counter()
    for line in raw.splitlines():
        frames, _, count = line.rpartition(" ")
        stack = tuple(frames.split(";"))
        if not stack[-1].startswith(IDLE):
            stacks[stack] += int(count)
    return stacks


def top(stacks: Stacks) -> list[str]:
    """Lists functions by the time that they took themselves, and with all that they called."""
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    for stack, count in stacks.items():
        names = [_LINE.sub("", frame) for frame in stack]
        own[names[-1]] += count
        whole.update(dict.fromkeys(names, count))
    total = own.total() or 1
    return [
        f"{'itself':>8} {'with calls':>11}",
        *(
            f"{count / total:8.1%} {whole[name] / total:11.1%}  {name}"
            for name, count in own.most_common(TOP)
        ),
    ]


def flame_graph(stacks: Stacks, title: str) -> str:
    """Draws callers below, callees above them; the wider, the more time. Titles tell the shares."""
    total = stacks.total() or 1
    depth = max((len(stack) for stack in stacks), default=0)
    height = (depth + 2) * ROW
    out = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}'>",
        f"<style>{STYLE}</style><text x='4' y='13'>{escape(title)}: {total} samples</text>",
    ]
    _draw(out, sorted(stacks.items()), 0, 0.0, total, height)
    out.append("</svg>")
    return "\n".join(out)


def _draw(
    out: list[str],
    stacks: list[tuple[tuple[str, ...], int]],
    level: int,
    start: float,
    total: int,
    height: int,
) -> None:
    deeper = [each for each in stacks if len(each[0]) > level]
    for name, group in groupby(deeper, key=lambda each: each[0][level]):
        members = list(group)
        count = sum(each[1] for each in members)
        share = count / total
        if share >= NARROWEST:
            x, width, y = start * WIDTH, share * WIDTH, height - (level + 1) * ROW
            shown = escape(name[: int(width / 6.7)])
            color = f"hsl({30 + crc32(name.encode()) % 30} 80% 65%)"
            out.append(
                f"<g><title>{escape(name)}: {share:.1%}</title><rect x='{x:.1f}' y='{y}' "
                f"width='{width:.1f}' height='{ROW - 1}' fill='{color}'/>"
                f"<text x='{x + 2:.1f}' y='{y + 12}'>{shown}</text></g>"
            )
            _draw(out, members, level + 1, start, total, height)
        start += share
