"""Renders results as text: a line for each measure while it runs, tables for the terminal and for
Markdown.

The ratio comes first; where Howdah is behind, the line says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from typing import Final, NamedTuple

from bench.results import HOWDAH, Failure, Results, Sample, Verdict, all_cpu_us

MIB: Final = 2**20
BEHIND: Final = "behind"
BARE: Final = "bare loop"  # a ceiling, not a peer


Draw = Callable[[tuple[str, ...], list[tuple[str, ...]]], str]


class Line(NamedTuple):
    """One broker in one scenario, ready to be shown."""

    broker: str
    ratio: str  # Howdah's figure to this one's
    figure: str
    spread: str
    cpu: str
    postgres_cpu: str
    memory: str


HEADINGS: Final = Line(
    "broker", "Howdah is", "median", "lowest to highest", "CPU each", "PostgreSQL", "memory"
)


def progress(outcome: Sample | Failure) -> str:
    if isinstance(outcome, Failure):
        return f"{outcome.scenario:20} {outcome.broker:11} left out: {outcome.reason}"
    sample = outcome
    name = f"{sample.broker} {sample.variant}".strip()
    parts = [f"{sample.scenario:20} round {sample.round + 1}  {name:36}", figure_of(sample)]
    if sample.cpu_us:
        parts.append(f"{all_cpu_us(sample):7.1f} us CPU")
    if sample.delivery_seconds:
        parts.append(f"p99 {sample.delivery_seconds[2] * 1e3:.1f} ms")
    return "  ".join(parts)


def figure_of(sample: Sample) -> str:
    if sample.connection_bytes:
        return f"{sample.connection_bytes / 1024:9.1f} KiB each"
    return f"{sample.per_second:11,.0f}/s"


def lines_of(results: Results, scenario: str) -> Iterator[Line]:
    """Yields one line for each broker and variant."""
    for broker, variant in results.keys(scenario):
        samples = results.of(scenario, broker, variant)
        read = _connection if samples[0].connection_bytes else _speed
        middle = results.median(scenario, broker, variant, read) or 0.0
        low, high = results.spread(scenario, broker, variant, read)
        yield Line(
            f"{broker} {variant}".strip(),
            _ratio_text(results, scenario, broker, variant),
            _quantity(samples[0], middle),
            f"{_short(samples[0], low)} to {_short(samples[0], high)}",
            _us(results.median(scenario, broker, variant, lambda s: s.cpu_us)),
            _us(results.median(scenario, broker, variant, lambda s: s.postgres_cpu_us)),
            _mib(results.median(scenario, broker, variant, lambda s: s.resident_bytes)),
        )


def _speed(sample: Sample) -> float:
    return sample.per_second


def _connection(sample: Sample) -> float:
    return sample.connection_bytes


def _ratio_text(results: Results, scenario: str, broker: str, variant: str) -> str:
    if broker == HOWDAH:
        return ""
    memory = results.ratio(scenario, broker, _connection, variant)
    if memory:
        return f"{memory:.2f}x the size" + ("" if memory <= 1 else f" ({BEHIND})")
    speed = results.ratio(scenario, broker, _speed, variant)
    if speed is None or results.of(scenario, broker, variant)[0].rate:
        return ""
    is_behind = speed < 1 and broker != BARE
    return f"{speed:.2f}x as fast" + (f" ({BEHIND})" if is_behind else "")


def _quantity(sample: Sample, value: float) -> str:
    return f"{value / 1024:,.1f} KiB each" if sample.connection_bytes else f"{value:,.0f}/s"


def _short(sample: Sample, value: float) -> str:
    return f"{value / 1024:,.1f}" if sample.connection_bytes else f"{value:,.0f}"


def _us(value: float | None) -> str:
    return f"{value:.1f} us" if value else ""


def _mib(value: float | None) -> str:
    return f"{value / MIB:,.0f} MiB" if value else ""


def latency_rows(results: Results, scenario: str) -> Iterator[tuple[str, ...]]:
    """Yields broker, what, rate, and the percentiles in milliseconds."""
    for broker, variant in results.keys(scenario):
        samples = results.of(scenario, broker, variant)
        rate = results.median(scenario, broker, variant, lambda s: s.rate) or 0.0
        for what in ("send", "confirm", "delivery"):
            times = [getattr(sample, f"{what}_seconds") for sample in samples]
            if rate and times[0]:
                middle = [median(each) for each in zip(*times, strict=True)]
                cells = [f"{seconds * 1e3:.2f}" for seconds in middle]
                yield (broker, f"{what} at {variant}", f"{rate:,.0f}/s", *cells)


LATENCY_HEADINGS: Final = (
    "broker",
    "time to",
    "rate",
    "p50 ms",
    "p95 ms",
    "p99 ms",
    "p99.9 ms",
    "max ms",
)


def verdict_text(verdict: Verdict) -> str:
    if verdict.value is None:
        return "not taken"
    value = f"{verdict.value:,.0f}" if verdict.value >= 1000 else f"{verdict.value:.2f}"
    return f"{value}, {'met' if verdict.is_met else 'MISSED'}"


def table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Formats columns for a terminal."""
    widths = [max(len(row[i]) for row in [headings, *rows]) for i in range(len(headings))]
    out = []
    for row in [headings, *rows]:
        cells = [
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        out.append("  " + "  ".join(cells).rstrip())
    return "\n".join(out)


def markdown_table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    out = ["| " + " | ".join(headings) + " |", "|---" * len(headings) + "|"]
    out += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(out)


def text(results: Results) -> str:
    return "\n\n".join(_parts(results, table, "", ""))


def markdown(results: Results) -> str:
    machine = ", ".join(f"{name}: {value}" for name, value in results.machine.items())
    head = (
        f"Taken {results.started}; {results.rounds} rounds of {results.seconds:g} s, medians. "
        f"{machine}; a small write with fdatasync takes {results.fsync_seconds * 1e3:.2f} ms."
    )
    return "\n\n".join([head, *_parts(results, markdown_table, "### ", "`")])


def _parts(results: Results, draw: Draw, mark: str, quote: str) -> Iterator[str]:
    peers: list[tuple[str, ...]] = [(p.name, p.version, p.settings) for p in results.peers]
    if peers:
        yield f"{mark}Who ran"
        yield draw(("broker", "version", "settings"), peers)
    if results.verdicts:
        yield f"{mark}Goals"
        rows: list[tuple[str, ...]] = [
            (each.scenario, each.text, verdict_text(each)) for each in results.verdicts
        ]
        yield draw(("scenario", "goal", "result"), rows)
    for name, title in results.titles.items():
        lines: list[tuple[str, ...]] = [tuple(line) for line in lines_of(results, name)]
        if lines:
            yield f"{mark}{quote}{name}{quote}: {title}"
            yield f"{results.loads.get(name, '')}"
            yield draw(tuple(HEADINGS), lines)
            times = list(latency_rows(results, name))
            if times:
                yield draw(LATENCY_HEADINGS, times)
    if results.failures:
        yield f"{mark}Left out"
        yield draw(
            ("scenario", "broker", "reason"),
            [(f.scenario, f.broker, f.reason) for f in results.failures],
        )
