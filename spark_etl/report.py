"""The page of `stats`: one file with its plots inside, which opens without a network.

Answers for HTML and SVG. It must not know Spark or PostgreSQL: it is given rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Final

_WIDTH: Final = 760
_HEIGHT: Final = 120
_MARGIN: Final = 46
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1c2733; background: #fff }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #d5dce3 } td, th { padding: .15rem .8rem .15rem 0;
  text-align: right } td:first-child, th:first-child { text-align: left }
svg { width: 100%; height: auto } svg text { font-size: 11px; fill: #5b6b7b }
.a { stroke: #1668a8; fill: none; stroke-width: 1.6 } .b { stroke: #c2571a; fill: none;
  stroke-width: 1.6 } .c { stroke: #8a2f6b; fill: none; stroke-width: 1.6 }
svg .name-a { fill: #1668a8 } svg .name-b { fill: #c2571a } svg .name-c { fill: #8a2f6b }
.axis { stroke: #d5dce3 }
@media (prefers-color-scheme: dark) { body { color: #dfe6ec; background: #14191f }
  h2 { border-color: #36414d } svg text { fill: #97a6b4 } .axis { stroke: #36414d } }
"""


@dataclass(frozen=True, slots=True)
class Minute:
    """One row of the figures."""

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


def page(rows: Sequence[Minute], made_at: datetime) -> str:
    """The whole page."""
    by_queue: dict[tuple[str, str], list[Minute]] = defaultdict(list)
    for row in rows:
        by_queue[row.vhost, row.queue].append(row)
    sections = "".join(_section(key, found) for key, found in sorted(by_queue.items()))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>Howdah: queues</title>'
        f"<style>{_STYLE}</style><h1>Queues</h1><p>{len(by_queue)} queues, "
        f"as of {made_at:%Y-%m-%d %H:%M} UTC.</p>{_summary(by_queue)}{sections}</html>\n"
    )


def _summary(by_queue: dict[tuple[str, str], list[Minute]]) -> str:
    lines = []
    for key, rows in sorted(by_queue.items()):
        deaths = sum(sum(row.dead_letters.values()) for row in rows)
        slowest = max((row.p99_ms for row in rows if row.p99_ms is not None), default=None)
        cells = (
            f"{sum(row.messages for row in rows):,}",
            f"{sum(row.bytes for row in rows):,}",
            "" if slowest is None else f"{slowest:,.1f}",
            f"{sum(row.redeliveries for row in rows):,}",
            f"{deaths:,}",
        )
        lines.append(
            f"<tr><td>{_name(key)}</td>" + "".join(f"<td>{c}</td>" for c in cells) + "</tr>"
        )
    heads = ("queue", "messages", "bytes", "worst p99 (ms)", "redeliveries", "dead letters")
    return (
        "<table><tr>" + "".join(f"<th>{h}</th>" for h in heads) + "</tr>" + "".join(lines)
        + "</table>"
    )  # fmt: skip


def _section(key: tuple[str, str], rows: list[Minute]) -> str:
    rows = sorted(rows, key=lambda row: row.minute)
    reasons: dict[str, int] = defaultdict(int)
    for row in rows:
        for reason, count in row.dead_letters.items():
            reasons[reason] += count
    died = ", ".join(f"{escape(reason)} {count:,}" for reason, count in sorted(reasons.items()))
    times = [row.minute for row in rows]
    plots = _plot("messages a minute", times, {"a": [float(row.messages) for row in rows]})
    if any(row.p50_ms is not None for row in rows):
        percentiles = {
            "a": [row.p50_ms for row in rows],
            "b": [row.p95_ms for row in rows],
            "c": [row.p99_ms for row in rows],
        }
        names = {"a": "p50", "b": "p95", "c": "p99"}
        plots += _plot("time in queue in ms", times, percentiles, names)
    if any(row.redeliveries for row in rows):
        plots += _plot("redeliveries", times, {"b": [float(row.redeliveries) for row in rows]})
    letters = f"<p>Dead letters: {died}.</p>" if died else ""
    return f"<h2>{_name(key)}</h2>{letters}{plots}"


def _name(key: tuple[str, str]) -> str:
    vhost, queue = key
    return escape(queue if vhost == "/" else f"{vhost} {queue}")


def _plot(
    title: str,
    times: Sequence[datetime],
    lines: dict[str, list[float | None]] | dict[str, list[float]],
    names: dict[str, str] | None = None,
) -> str:
    """Lines over time; a value that is not known leaves its line out there."""
    first, last = times[0], times[-1]
    span = max((last - first).total_seconds(), 1.0)
    top = max((v for line in lines.values() for v in line if v is not None), default=0.0) or 1.0
    paths = []
    for style, values in lines.items():
        points = [
            f"{_MARGIN + (_WIDTH - _MARGIN) * (t - first).total_seconds() / span:.1f},"
            f"{_HEIGHT - _HEIGHT * value / top:.1f}"
            for t, value in zip(times, values, strict=True)
            if value is not None
        ]
        if len(points) == 1:
            x, _, y = points[0].partition(",")
            paths.append(f'<circle class="{style}" cx="{x}" cy="{y}" r="3"/>')
        else:
            paths.append(f'<polyline class="{style}" points="{" ".join(points)}"/>')
    return (
        f'<svg viewBox="0 -20 {_WIDTH + 4} {_HEIGHT + 40}" role="img"><title>{title}</title>'
        f'<text x="{_MARGIN}" y="-7">{title}{_legend(names or {})}</text>'
        f'<line class="axis" x1="{_MARGIN}" x2="{_WIDTH}" y1="{_HEIGHT}" y2="{_HEIGHT}"/>'
        f'<text x="0" y="6">{top:,.0f}</text><text x="0" y="{_HEIGHT}">0</text>'
        f'<text x="{_MARGIN}" y="{_HEIGHT + 16}">{first:%m-%d %H:%M}</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT + 16}" text-anchor="end">{last:%m-%d %H:%M}</text>'
        f"{''.join(paths)}</svg>"
    )


def _legend(names: dict[str, str]) -> str:
    """What each line is, in its colour."""
    return "".join(f' <tspan class="name-{key}">{name}</tspan>' for key, name in names.items())
