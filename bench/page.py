"""Renders results as one self-contained HTML page: inline SVG and CSS, nothing loaded from
anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import log10
from typing import Final

from bench.report import (
    HEADINGS,
    LATENCY_HEADINGS,
    latency_rows,
    lines_of,
    verdict_text,
)
from bench.results import HOWDAH, Results, Sample

STYLE: Final = """
:root { color-scheme: light dark; --own: #2f7d4f; --peer: #8a94a6; --faint: #8884; --bad: #b3432b; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.5rem; font-size: 1.15rem; } p.load { opacity: .7; margin: -.6rem 0 .4rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .5rem 0; }
th, td { padding: .15rem .8rem .15rem 0; text-align: left; border-bottom: 1px solid var(--faint); }
td.behind, td.missed { color: var(--bad); font-weight: 600; }
svg text { fill: currentColor; font: 12px system-ui, sans-serif; }
.own { fill: var(--own); } .peer { fill: var(--peer); }
.range { stroke: currentColor; stroke-width: 1.5; }
.one { stroke: currentColor; stroke-dasharray: 3; }
"""
LEFT: Final = 210
WIDTH: Final = 560
ROW: Final = 24


def page(results: Results) -> str:
    facts = [*results.machine.items(), ("fdatasync", f"{results.fsync_seconds * 1e3:.2f} ms")]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width, initial-scale=1'>",
        f"<title>Howdah beside other brokers</title><style>{STYLE}</style>",
        "<h1>Howdah beside other brokers</h1>",
        f"<p>Taken {escape(results.started)}: {results.rounds} rounds of {results.seconds:g} s. ",
        "Brokers in turn; bars are medians, the thin line is the lowest and highest round. ",
        "Ratios carry over to other machines; absolute figures do not.</p>",
        html_table(("machine", ""), facts),
        html_table(
            ("broker", "version", "settings"),
            [(each.name, each.version, each.settings) for each in results.peers],
        ),
        "<h2>Goals</h2>",
        html_table(
            ("scenario", "goal", "result"),
            [(each.scenario, each.text, verdict_text(each)) for each in results.verdicts],
        ),
        "<h2>Howdah's messages/s to each peer's</h2>",
        ratio_plot(results),
    ]
    parts += [section(results, name) for name in results.titles]
    if results.failures:
        rows = [(each.scenario, each.broker, each.reason) for each in results.failures]
        parts += ["<h2>Left out</h2>", html_table(("scenario", "broker", "reason"), rows)]
    return "\n".join(parts)


def section(results: Results, name: str) -> str:
    if not results.keys(name):
        return ""
    parts = [
        f"<h2 id='{escape(name)}'>{escape(name)}: {escape(results.titles[name])}</h2>",
        f"<p class=load>{escape(results.loads.get(name, ''))}</p>",
        bars(results, name),
        html_table(tuple(HEADINGS), [tuple(line) for line in lines_of(results, name)]),
    ]
    times = list(latency_rows(results, name))
    if times:
        parts += [latency_plot(times), html_table(LATENCY_HEADINGS, times)]
    return "\n".join(parts)


def html_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def cell(text: str) -> str:
        kind = "behind" if "(behind)" in text else "missed" if "MISSED" in text else ""
        return f"<td class='{kind}'>{escape(text)}</td>"

    head = "".join(f"<th>{escape(each)}</th>" for each in headings)
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def svg(rows: int, body: Sequence[str]) -> str:
    width, height = LEFT + WIDTH + 130, rows * ROW + 6
    return f"<svg viewBox='0 0 {width} {height}' width='100%' role=img>{''.join(body)}</svg>"


def bar(row: int, name: str, share: float, value: str, kind: str) -> list[str]:
    y, length = row * ROW + 3, max(share * WIDTH, 1)
    return [
        f"<text x='{LEFT - 8}' y='{y + 14}' text-anchor=end>{escape(name)}</text>",
        f"<rect class={kind} x='{LEFT}' y='{y}' width='{length:.1f}' height='{ROW - 6}' rx=2 />",
        f"<text x='{LEFT + length + 8:.1f}' y='{y + 14}'>{escape(value)}</text>",
    ]


def bars(results: Results, scenario: str) -> str:
    """Draws a bar for each broker, with the range of its rounds."""

    def read(sample: Sample) -> float:
        return sample.connection_bytes or sample.per_second

    keys = results.keys(scenario)
    top = max(results.spread(scenario, *key, read)[1] for key in keys) or 1.0
    body: list[str] = []
    for row, (key, line) in enumerate(zip(keys, lines_of(results, scenario), strict=True)):
        middle = results.median(scenario, *key, read) or 0.0
        low, high = (each / top * WIDTH + LEFT for each in results.spread(scenario, *key, read))
        kind = "own" if key[0] == HOWDAH else "peer"
        body += bar(row, line.broker, middle / top, line.figure, kind)
        y = row * ROW + ROW / 2
        body.append(f"<line class=range x1='{low:.1f}' x2='{high:.1f}' y1='{y}' y2='{y}' />")
    return svg(len(keys), body)


def ratio_plot(results: Results) -> str:
    """Draws ratios on a logarithmic scale from a tenth to a hundred; the dashed line is par."""
    body: list[str] = []
    row = 0
    for name in results.titles:
        for broker, variant in results.keys(name):
            ratio = results.ratio(name, broker, lambda s: s.per_second, variant)
            if broker in (HOWDAH, "bare loop") or not ratio or variant not in ("", "top rate"):
                continue
            share = (min(max(log10(ratio), -1.0), 2.0) + 1) / 3
            kind = "own" if ratio >= 1 else "peer"
            body += bar(row, f"{name} / {broker}", share, f"{ratio:.2f}x", kind)
            row += 1
    par = LEFT + WIDTH / 3
    body.append(f"<line class=one x1='{par}' x2='{par}' y1=0 y2='{row * ROW}' />")
    return svg(row, body).replace("viewBox='0 0", "viewBox='-60 0") if row else ""


def latency_plot(rows: Sequence[tuple[str, ...]]) -> str:
    """Draws p50 to p99.9 as a line and p99 as a dot, on a logarithmic scale from 0.1 ms to 10 s."""

    def x(milliseconds: str) -> float:
        return LEFT + WIDTH * (min(max(log10(max(float(milliseconds), 0.1)), -1), 4) + 1) / 5

    body: list[str] = []
    for row, (broker, what, _rate, p50, _p95, p99, p999, _top) in enumerate(rows):
        y = row * ROW + ROW / 2
        kind = "own" if broker == HOWDAH else "peer"
        name = f"{broker}, {what.replace(' of the top rate', '')}"
        body += [
            f"<text x='{LEFT - 8}' y='{y + 4}' text-anchor=end>{escape(name)}</text>",
            f"<line class=range x1='{x(p50):.1f}' x2='{x(p999):.1f}' y1='{y}' y2='{y}' />",
            f"<circle class={kind} cx='{x(p99):.1f}' cy='{y}' r=6 />",
            f"<text x='{x(p999) + 12:.1f}' y='{y + 4}'>p50 {p50}, p99 {p99} ms</text>",
        ]
    return svg(len(rows), body)
