"""Draws plots over time as SVG: bars for counts, curves for durations.

Answers for scales and shapes. It must not know what is plotted. Colours are classes of the page:
.s<n> for lines, .f<n> for areas and text.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Final

_LEFT, _RIGHT, _HEIGHT = 62, 760, 110
_TITLE: Final = 24  # above the plot
_FOOT: Final = 20
_MOST_COLUMNS: Final = 360  # values side by side: more cannot be told apart, and fill the page
_TICKS: Final = 4
_MINUTE: Final = timedelta(minutes=1)

# A colour and its values, by name; a value that is not known leaves a gap.
Series = Mapping[str, tuple[int, Sequence[float | None]]]
Columns = dict[int, float]


@dataclass(frozen=True, slots=True)
class Axis:
    """The time axis that all plots of a page share, in columns of some minutes each."""

    start: datetime
    count: int
    minutes: int

    @classmethod
    def of(cls, times: Sequence[datetime]) -> Axis:
        if not times:
            return cls(datetime(1970, 1, 1, tzinfo=UTC), 1, 1)
        whole = (max(times) - min(times)) // _MINUTE + 1
        minutes = -(-whole // _MOST_COLUMNS)
        return cls(min(times), -(-whole // minutes), minutes)

    @property
    def end(self) -> datetime:
        return self.start + self.count * self.minutes * _MINUTE

    def column(self, time: datetime) -> int:
        return (time - self.start) // (self.minutes * _MINUTE)

    def left(self, column: float) -> float:
        """Returns the x at which a column begins; half of one more is its middle."""
        return _LEFT + (_RIGHT - _LEFT) * column / self.count


def bars(title: str, axis: Axis, times: Sequence[datetime], series: Series) -> str:
    """Draws counts, one on the other; a column of several minutes shows their mean."""
    heights: Columns = defaultdict(float)
    paths = []
    for colour, values in series.values():
        sums: Columns = defaultdict(float)
        for time, value in zip(times, values, strict=True):
            sums[axis.column(time)] += (value or 0.0) / axis.minutes
        paths.append((colour, [(c, heights[c], heights[c] + v) for c, v in sums.items() if v]))
        for column, value in sums.items():
            heights[column] += value
    top = _nice(max(heights.values(), default=0.0))
    marks = {top * part: _count(top * part) for part in (0, 0.5, 1)}
    drawn = "".join(
        f'<path class="f{colour}" d="{_bars(axis, spans, top)}"/>' for colour, spans in paths
    )
    places = {_HEIGHT * (1 - mark / top): text for mark, text in marks.items()}
    return _framed(title, axis, series, places, drawn)


def _bars(axis: Axis, spans: list[tuple[int, float, float]], top: float) -> str:
    gap = 0.0 if axis.count > 200 else 0.5
    found = []
    for column, low, high in spans:
        left, right = axis.left(column) + gap, axis.left(column + 1) - gap
        base, peak = (_HEIGHT * (1 - value / top) for value in (low, high))
        found.append(f"M{left:.1f} {base:.1f}V{peak:.1f}H{max(right, left + 1):.1f}V{base:.1f}z")
    return "".join(found)


def curves(title: str, axis: Axis, times: Sequence[datetime], series: Series) -> str:
    """Draws milliseconds on a logarithmic scale; a column of several minutes shows the worst of
    them."""
    worst: dict[str, Columns] = {name: {} for name in series}
    for name, (_, values) in series.items():
        for time, value in zip(times, values, strict=True):
            if value is not None:
                column = axis.column(time)
                worst[name][column] = max(value, worst[name].get(column, 0.0))
    known = [max(v, 0.001) for columns in worst.values() for v in columns.values()] or [1.0]
    low, high = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)))
    high = max(high, low + 1)
    step = -(-(high - low) // _TICKS)
    marks = range(low, high + 1, step)

    def place(value: float) -> float:
        return _HEIGHT * (high - math.log10(max(value, 0.001))) / (high - low)

    drawn = "".join(
        f'<path class="curve s{colour}" d="{_curve(axis, worst[name], place)}"/>'
        for name, (colour, _) in series.items()
    )
    places = {place(10.0**mark): duration(10.0**mark) for mark in marks}
    return _framed(title, axis, series, places, drawn)


def _curve(axis: Axis, columns: Columns, place: Callable[[float], float]) -> str:
    """Draws a line through neighbours; a column without them is a dash."""
    found = []
    for column in sorted(columns):
        x, y = axis.left(column + 0.5), place(columns[column])
        if column - 1 in columns:
            found.append(f"L{x:.1f} {y:.1f}")
        elif column + 1 in columns:
            found.append(f"M{x:.1f} {y:.1f}")
        else:
            found.append(f"M{x - 2:.1f} {y:.1f}h4")
    return "".join(found)


def _framed(title: str, axis: Axis, series: Series, marks: dict[float, str], drawn: str) -> str:
    """Draws a plot with its title, names of the series, grid and times."""
    grid = "".join(
        f'<path class="grid" d="M{_LEFT} {y:.1f}H{_RIGHT}"/>'
        f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
        for y, text in marks.items()
    )
    names = "".join(
        f'<tspan dx="12" class="f{colour}">{escape(name)}</tspan>'
        for name, (colour, _) in series.items()
        if name
    )
    return (
        f'<svg viewBox="0 {-_TITLE} {_RIGHT + 4} {_HEIGHT + _TITLE + _FOOT}" role="img">'
        f"<title>{title}</title>"
        f'<text class="title" x="{_LEFT}" y="-10">{title}{names}</text>{grid}{drawn}'
        f"{_times(axis)}</svg>"
    )


def _times(axis: Axis) -> str:
    """Labels the axis with its begin, its end, and moments between them."""
    parts = min(_TICKS, axis.count)
    found = []
    for number in range(parts + 1):
        column = axis.count * number // parts
        moment = axis.start + column * axis.minutes * _MINUTE
        anchor = {0: "start", parts: "end"}.get(number, "middle")
        found.append(
            f'<text x="{axis.left(column):.1f}" y="{_HEIGHT + 15}" text-anchor="{anchor}">'
            f"{moment:%m-%d %H:%M}</text>"
        )
    return "".join(found)


def _nice(value: float) -> float:
    """Rounds up to 1, 2 or 5 times a power of ten, so that halves of it are easy to read."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if value <= step * power * (1 + 1e-9))


def _count(value: float) -> str:
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:g}{unit}"
    return f"{value:g}"


def duration(milliseconds: float) -> str:
    """Formats milliseconds for people: 1.5 ms, 12 s, 3.2 h."""
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if milliseconds >= length:
            return f"{_figures(milliseconds / length)} {unit}"
    return f"{_figures(milliseconds)} ms"


def _figures(number: float) -> str:
    """Formats a number with two figures, where there are no more before the point."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"
