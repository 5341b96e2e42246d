"""The last two looks at a connection, from which its rates come.

A look costs some microseconds, and there may be a hundred thousand connections: the sampler takes
them in turn, and the time between two looks at one is written with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import sub
from typing import Final

from gateway.statistics.figures import CHANNEL_STATS, channel_figures
from protocols.connection_report import ConnectionReport, Flow, Volume

NO_FLOW: Final = (0,) * len(CHANNEL_STATS)


@dataclass(frozen=True, slots=True)
class Look:
    """What a connection had counted at one time."""

    time: float
    received: int  # bytes
    sent: int
    flow: tuple[int, ...]  # of all its channels, those that are closed as well
    channels: dict[int, tuple[int, ...]]


NEVER: Final = Look(0.0, 0, 0, NO_FLOW, {})  # of a connection that was not looked at yet


class Samples:
    """The last two looks at one connection. One that is idle has a single look, without channels: a
    hundred thousand of them are to take little memory."""

    __slots__ = ("_before", "_last")

    def __init__(self) -> None:
        self._before = self._last = NEVER

    def put(self, now: float, report: ConnectionReport, volume: Volume) -> tuple[int, ...]:
        """Keeps a look, and returns what has grown since the last one."""
        flow, last = flow_of(report), self._last
        if (flow, volume.received, volume.sent) == (last.flow, last.received, last.sent):
            self._before = last  # nothing happened: all rates are zero
            return NO_FLOW
        found = {each.number: channel_figures(each.flow) for each in report.channels}
        channels = {number: each for number, each in found.items() if any(each)} or NEVER.channels
        self._before, self._last = last, Look(now, volume.received, volume.sent, flow, channels)
        return tuple(map(sub, flow, last.flow))

    def _rate(self, newest: int, before: int) -> float:
        seconds = self._last.time - self._before.time
        if not self._before.time or seconds <= 0:
            return 0.0  # seen once: nothing is known of its pace
        return max(0.0, (newest - before) / seconds)

    @property
    def received_rate(self) -> float:
        return self._rate(self._last.received, self._before.received)

    @property
    def sent_rate(self) -> float:
        return self._rate(self._last.sent, self._before.sent)

    def flow_rates(self) -> list[float]:
        """Returns the rates of the connection's messages, in the order of CHANNEL_STATS."""
        return list(map(self._rate, self._last.flow, self._before.flow))

    def channel_rates(self, number: int) -> list[float]:
        """Returns the rates of a channel's messages, in the order of CHANNEL_STATS."""
        newest = self._last.channels.get(number, NO_FLOW)
        return list(map(self._rate, newest, self._before.channels.get(number, NO_FLOW)))


def flow_of(report: ConnectionReport) -> tuple[int, ...]:
    """Counts the messages of all channels of a connection, those that are closed as well."""
    total = Flow()
    total.add(report.ended_flow)
    for channel in report.channels:
        total.add(channel.flow)
    figures = channel_figures(total)
    return figures if any(figures) else NO_FLOW
