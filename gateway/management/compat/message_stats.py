"""Counts and rates as RabbitMQ writes them: `message_stats`, and `X_details` beside each X.

`X_details` has the rate, and with `lengths_age` or `msg_rates_age` the samples that a chart needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final

from msgspec import Meta

from gateway.management.lists import ColumnsQuery, ListQuery
from gateway.statistics.figures import (
    BROKER_FIGURES,
    BROKER_STATS,
    CHANNEL_STATS,
    CHURN,
    LENGTHS,
    QUEUE_FIGURES,
    QUEUE_STATS,
)
from gateway.statistics.rings import History

MOST_AGE_SECONDS: Final = 28_800  # what is older is not kept
Age = Annotated[int, Meta(ge=1, le=10**9, description="seconds to go back; at most 8 hours")]
Step = Annotated[int, Meta(ge=1, le=10**9, description="seconds between samples")]

# RabbitMQ leaves out what never happened, group by group: what was never handed out, or came in.
HANDED_OUT: Final = (
    *("deliver_get", "deliver", "deliver_no_ack", "get", "get_no_ack", "get_empty"),
    *("redeliver", "ack"),
)
CAME_IN: Final = ("publish", "confirm", "return_unroutable", "drop_unroutable")
Stats = dict[str, Any]


class RatesQuery(ColumnsQuery, frozen=True):
    """How far back the samples go that a chart is drawn of."""

    lengths_age: Age | None = None
    lengths_incr: Step = 5
    msg_rates_age: Age | None = None
    msg_rates_incr: Step = 5


class RatesListQuery(ListQuery, frozen=True):
    """A list whose rows may have samples."""

    lengths_age: Age | None = None
    lengths_incr: Step = 5
    msg_rates_age: Age | None = None
    msg_rates_incr: Step = 5

    @property
    def wants_samples(self) -> bool:
        return self.lengths_age is not None or self.msg_rates_age is not None


def details(history: History, index: int, now: int, age: int | None, step: int) -> Stats:
    """Describes how one figure moves: its rate, and its samples where somebody wants them."""
    found: Stats = {"rate": history.rate(index, now)}
    if age is None:
        return found
    samples = history.samples(index, now, min(age, MOST_AGE_SECONDS), step)
    found["samples"] = [{"sample": total, "timestamp": at * 1000} for at, total in samples]
    found["avg"] = sum(total for _, total in samples) / len(samples)
    (newest, last), (oldest, first) = samples[0], samples[-1]
    found["avg_rate"] = (last - first) / (newest - oldest) if newest > oldest else 0.0
    return found


def _stats(
    names: Iterable[str],
    order: Sequence[str],
    figures: Sequence[int],
    history: History,
    now: int,
    query: RatesQuery | RatesListQuery,
) -> Stats:
    found: Stats = {}
    for name in names:
        index = order.index(name)
        found[name] = figures[index]
        found[f"{name}_details"] = details(
            history, index, now, query.msg_rates_age, query.msg_rates_incr
        )
    return found


_PLACES: Final = {name: index for index, name in enumerate(QUEUE_FIGURES)}


def queue_stats(
    figures: Sequence[int], history: History, now: int, query: RatesQuery | RatesListQuery
) -> Stats:
    """Describes a queue's traffic, without what never happened."""
    has_handed_out = figures[_PLACES["deliver_get"]] > 0
    names = [
        name
        for name in QUEUE_STATS
        if figures[_PLACES[name]] or (has_handed_out and name in HANDED_OUT)
    ]
    return _stats(names, QUEUE_FIGURES, figures, history, now, query)


def lengths(
    figures: Sequence[int], history: History, now: int, query: RatesQuery | RatesListQuery
) -> Stats:
    """Describes how many messages there are, and how that changes."""
    found: Stats = {}
    for index, name in enumerate(LENGTHS):
        found[name] = figures[index]
        found[f"{name}_details"] = details(
            history, index, now, query.lengths_age, query.lengths_incr
        )
    return found


def broker_stats(history: History, now: int, query: RatesQuery) -> Stats:
    """Describes the traffic of the whole gateway: `message_stats` of the overview."""
    names = (*QUEUE_STATS, *BROKER_STATS)
    return _stats(names, BROKER_FIGURES, history.totals, history, now, query)


def churn_rates(history: History, now: int, query: RatesQuery) -> Stats:
    """Describes how connections, channels and queues come and go: `churn_rates` of the overview."""
    return _stats(CHURN, BROKER_FIGURES, history.totals, history, now, query)


def channel_stats(figures: Sequence[int], rates: Sequence[float]) -> Stats:
    """Describes the traffic of a channel or a connection, without what never happened."""
    counts = dict(zip(CHANNEL_STATS, figures, strict=True))
    shown = {name for name, count in counts.items() if count}
    for group in (HANDED_OUT, CAME_IN):
        if not shown.isdisjoint(group):
            shown.update(group)
    found: Stats = {}
    for (name, count), rate in zip(counts.items(), rates, strict=True):
        if name in shown:
            found[name] = count
            found[f"{name}_details"] = {"rate": rate}
    return found
