"""Draws the page of `stats`: one file with its plots inside, which opens without a network.

Answers for HTML and what is on the page. It must not know Spark or PostgreSQL: it is given rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Final

from spark_etl.plots import Axis, bars, curves, duration

_STYLE: Final = """
:root { --text: #1c2733; --faint: #5b6b7b; --line: #d5dce3; --back: #fff;
  --c0: #1668a8; --c1: #c2571a; --c2: #8a2f6b; --c3: #3d7a2e; --c4: #77641c; --c5: #5b6b7b }
@media (prefers-color-scheme: dark) { :root { --text: #dfe6ec; --faint: #97a6b4; --line: #36414d;
  --back: #14191f; --c0: #5aa9e6; --c1: #ef8f52; --c2: #d67fb8; --c3: #86c06f; --c4: #cdb75a;
  --c5: #97a6b4 } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: var(--text); background: var(--back) }
h2 { margin: 2.5rem 0 .5rem; border-bottom: 1px solid var(--line); overflow-wrap: anywhere }
a { color: inherit } .wide { overflow-x: auto } table { border-collapse: collapse; width: 100% }
td, th { padding: .2rem 0 .2rem 1rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums }
td:first-child, th:first-child { text-align: left; padding-left: 0; white-space: normal;
  overflow-wrap: anywhere; min-width: 12rem }
tr.empty, .faint { color: var(--faint) }
svg { width: 100%; height: auto; margin-top: .6rem; display: block }
svg text { font-size: 11px; fill: var(--faint) } svg .title { font-size: 12px; fill: var(--text) }
.grid { stroke: var(--line); stroke-width: 1 }
.curve { fill: none; stroke-width: 1.6; stroke-linecap: round; stroke-linejoin: round }
"""
_COLOURS: Final = 6


@dataclass(frozen=True, slots=True)
class Minute:
    """The figures of one queue in one minute."""

    vhost: str
    queue: str
    minute: datetime
    messages: int
    bytes: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    redeliveries: int
    dead_letters: dict[str, int]


Key = tuple[str, str]  # virtual host and queue


def page(rows: Sequence[Minute], made_at: datetime, queues: Iterable[Key] = ()) -> str:
    """Makes the whole page; of `queues`, those without a row are named as empty."""
    found: dict[Key, list[Minute]] = {key: [] for key in queues}
    for row in sorted(rows, key=lambda row: row.minute):
        found.setdefault((row.vhost, row.queue), []).append(row)
    by_queue = dict(sorted(found.items()))
    axis = Axis.of([row.minute for row in rows])
    sections = "".join(
        _section(number, key, each, axis)
        for number, (key, each) in enumerate(by_queue.items())
        if each
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>Howdah: queues</title>'
        f"<style>{_STYLE}{_colours()}</style><h1>Queues</h1>"
        f'<p class="faint">{_counted(len(by_queue), "queue")}, as of {made_at:%Y-%m-%d %H:%M} UTC. '
        f"{_reach(axis, bool(rows))}</p>{_summary(by_queue)}{sections}</html>\n"
    )


def _reach(axis: Axis, has_rows: bool) -> str:
    if not has_rows:
        return "There is nothing to show."
    each = "minute" if axis.minutes == 1 else f"{axis.minutes} minutes, worst percentiles"
    return (
        f"Plots are from {axis.start:%Y-%m-%d %H:%M} to {axis.end:%Y-%m-%d %H:%M} UTC, "
        f"one value for each {each}."
    )


def _summary(by_queue: dict[Key, list[Minute]]) -> str:
    heads = ("queue", "messages", "bytes", "worst p99", "redeliveries", "dead letters")
    lines = "".join(_line(n, key, rows) for n, (key, rows) in enumerate(by_queue.items()))
    head = "".join(f"<th>{each}</th>" for each in heads)
    return f'<div class="wide"><table><tr>{head}</tr>{lines}</table></div>'


def _line(number: int, key: Key, rows: list[Minute]) -> str:
    if not rows:
        nothing = "<td>0</td><td>0</td><td></td><td>0</td><td>0</td>"
        return f'<tr class="empty"><td>{_name(key)}</td>{nothing}</tr>'
    slowest = max((row.p99_ms for row in rows if row.p99_ms is not None), default=None)
    cells = (
        f"{sum(row.messages for row in rows):,}",
        size(sum(row.bytes for row in rows)),
        "" if slowest is None else duration(slowest),
        f"{sum(row.redeliveries for row in rows):,}",
        f"{sum(_deaths(rows).values()):,}",
    )
    told = "".join(f"<td>{cell}</td>" for cell in cells)
    return f'<tr><td><a href="#q{number}">{_name(key)}</a></td>{told}</tr>'


def _section(number: int, key: Key, rows: list[Minute], axis: Axis) -> str:
    times = [row.minute for row in rows]
    deaths = _deaths(rows)
    counts = {"": (0, [float(row.messages) for row in rows])}
    plots = [bars("messages a minute", axis, times, counts)]
    if any(row.p50_ms is not None for row in rows):
        lines = {
            "p50": (0, [row.p50_ms for row in rows]),
            "p95": (1, [row.p95_ms for row in rows]),
            "p99": (2, [row.p99_ms for row in rows]),
        }
        plots.append(curves("time in queue, logarithmic", axis, times, lines))
    if any(row.redeliveries for row in rows):
        again = {"": (1, [float(row.redeliveries) for row in rows])}
        plots.append(bars("redeliveries a minute", axis, times, again))
    if deaths:
        stacks = {
            f"{reason} {total:,}": (
                min(place, _COLOURS - 1),
                [float(row.dead_letters.get(reason, 0)) for row in rows],
            )
            for place, (reason, total) in enumerate(deaths.most_common())
        }
        plots.append(bars("dead letters a minute, by reason", axis, times, stacks))
    return f'<h2 id="q{number}">{_name(key)}</h2>{"".join(plots)}'


def _deaths(rows: list[Minute]) -> Counter[str]:
    """Counts dead letters by reason."""
    found: Counter[str] = Counter()
    for row in rows:
        found.update(row.dead_letters)
    return +found


def _name(key: Key) -> str:
    vhost, queue = key
    return escape(queue if vhost == "/" else f"{vhost} {queue}")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def size(count: float) -> str:
    """Formats bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def _colours() -> str:
    return "".join(
        f".s{n} {{ stroke: var(--c{n}) }} svg .f{n} {{ fill: var(--c{n}) }}"
        for n in range(_COLOURS)
    )
