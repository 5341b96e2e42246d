"""Queues as RabbitMQ lists them: `/api/queues`.

All numbers come from memory; no queue is woken and PostgreSQL is not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType

from gateway.management.api_errors import not_found
from gateway.management.call import Call
from gateway.management.compat.consumers import ConsumerRow, consumers_of_queue
from gateway.management.compat.message_stats import (
    RatesListQuery,
    RatesQuery,
    Stats,
    details,
    queue_stats,
)
from gateway.management.lists import Listing
from gateway.management.node import node_name
from gateway.management.routes import Route
from gateway.statistics.figures import QUEUE_FIGURES, QUEUE_STATS, queue_figures
from gateway.statistics.rings import TICK_SECONDS, History
from gateway.statistics.sampling import Statistics
from queue_core.counters import QueueCounts
from queue_core.queues.queue import Queue
from queue_core.vhost import Vhost


class QueueRow(Struct, frozen=True, kw_only=True):
    """One queue of RabbitMQ's list. Counts are left out with `disable_stats`."""

    name: str
    vhost: str
    type: str
    durable: bool
    auto_delete: bool
    exclusive: bool
    arguments: Mapping[str, Any]
    node: str
    state: str
    policy: str | None
    operator_policy: str | None
    effective_policy_definition: Mapping[str, Any]
    user_who_performed_action: str | UnsetType = UNSET
    messages: int | UnsetType = UNSET
    messages_details: Stats | UnsetType = UNSET
    messages_ready: int | UnsetType = UNSET
    messages_ready_details: Stats | UnsetType = UNSET
    messages_unacknowledged: int | UnsetType = UNSET
    messages_unacknowledged_details: Stats | UnsetType = UNSET
    messages_delayed: int | UnsetType = UNSET  # ours: messages that wait for their time
    message_bytes: int | UnsetType = UNSET
    message_bytes_ready: int | UnsetType = UNSET
    memory: int | UnsetType = UNSET
    consumers: int | UnsetType = UNSET
    consumer_utilisation: float | UnsetType = UNSET
    consumer_capacity: float | UnsetType = UNSET
    exclusive_consumer_tag: str | UnsetType | None = UNSET
    single_active_consumer_tag: str | UnsetType | None = UNSET
    head_message_timestamp: int | UnsetType | None = UNSET
    idle_since: str | UnsetType = UNSET
    message_stats: Stats | UnsetType = UNSET
    consumer_details: list[ConsumerRow] | UnsetType = UNSET
    incoming: list[Any] | UnsetType = UNSET
    deliveries: list[Any] | UnsetType = UNSET


def _plain(queue: Queue) -> dict[str, Any]:
    """Returns what was declared: all that there is without statistics."""
    spec = queue.spec
    return {
        "name": queue.name,
        "vhost": queue.context.vhost_name,
        "type": spec.queue_type,
        "durable": spec.durable,
        "auto_delete": spec.auto_delete,
        "exclusive": spec.exclusive,
        "arguments": spec.arguments,
        "node": node_name(),
        "state": "paused" if queue.is_paused else "running",
        "policy": spec.policy.policy,
        "operator_policy": spec.policy.operator_policy,
        "effective_policy_definition": spec.policy.definition,
        "user_who_performed_action": queue.created_by or UNSET,
    }


def _counted(
    queue: Queue, statistics: Statistics, query: RatesQuery | RatesListQuery
) -> dict[str, Any]:
    """Returns what is counted, as of now, and the rates of the last sample."""
    counts = queue.counts()
    figures = queue_figures(queue.traffic, counts)
    is_long = query.lengths_age is not None or query.msg_rates_age is not None
    history, now = statistics.of_queue(queue, is_long=is_long), statistics.now
    age, step = query.lengths_age, query.lengths_incr
    size, consumers = queue.ready_bytes(), queue.consumers()
    capacity = _capacity(history, now, counts) if consumers else 0.0
    tags = [each.tag for each in consumers if each.spec.exclusive]
    found: dict[str, Any] = {
        "messages": figures[0],
        "messages_details": details(history, 0, now, age, step),
        "messages_ready": counts.ready,
        "messages_ready_details": details(history, 1, now, age, step),
        "messages_unacknowledged": counts.in_flight,
        "messages_unacknowledged_details": details(history, 2, now, age, step),
        "messages_delayed": counts.delayed,
        "message_bytes": size,
        "message_bytes_ready": size,
        "memory": queue.memory(),
        "consumers": counts.consumers,
        "consumer_utilisation": capacity,
        "consumer_capacity": capacity,
        "exclusive_consumer_tag": tags[0] if tags else None,
        "head_message_timestamp": None,
        "message_stats": queue_stats(figures, history, now, query),
    }
    if queue.spec.single_active_consumer:
        found["single_active_consumer_tag"] = consumers[0].tag if consumers else None
    if history.changed_at < now - TICK_SECONDS:
        found["idle_since"] = _iso(max(history.changed_at, statistics.started_at))
    return found


def _capacity(history: History, now: int, counts: QueueCounts) -> float:
    """Tells in which part of the last minute's samples, and now, no message had to wait."""
    ready = [counts.ready, *(total for _, total in history.samples(1, now, 60, TICK_SECONDS))]
    return sum(count == 0 for count in ready) / len(ready)


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _totals(queue: Queue) -> dict[str, Any]:
    """Returns the numbers of messages alone, for `enable_queue_totals`."""
    counts = queue.counts()
    return {
        "messages": counts.waiting + counts.in_flight,
        "messages_ready": counts.ready,
        "messages_unacknowledged": counts.in_flight,
    }


def row_maker(statistics: Statistics, query: RatesListQuery) -> Callable[[Queue], QueueRow]:
    """Returns a function that describes a queue as of now, as far as the query wants it."""

    def row(queue: Queue) -> QueueRow:
        if not query.disable_stats:
            return QueueRow(**_plain(queue), **_counted(queue, statistics, query))
        totals = _totals(queue) if query.enable_queue_totals else {}
        return QueueRow(**_plain(queue), **totals)

    return row


def _messages(queue: Queue) -> int:
    counts = queue.counts()
    return counts.ready + counts.delayed + counts.in_flight


def _stat_key(index: int) -> Callable[[Queue], int]:
    return lambda queue: queue_figures(queue.traffic, queue.counts())[index]


def _sort_keys(statistics: Statistics) -> dict[str, Callable[[Queue], Any]]:
    """Returns the columns that lists are sorted by without making a row of each queue."""

    def rate_key(index: int) -> Callable[[Queue], float]:
        return lambda queue: statistics.of_queue(queue).rate(index, statistics.now)

    keys: dict[str, Callable[[Queue], Any]] = {
        "name": lambda queue: queue.name,
        "vhost": lambda queue: queue.context.vhost_name,
        "type": lambda queue: queue.spec.queue_type,
        "consumers": lambda queue: queue.counts().consumers,
        "memory": lambda queue: queue.memory(),
    }
    for index, name in enumerate(QUEUE_FIGURES):
        path = f"message_stats.{name}" if name in QUEUE_STATS else name
        keys[path] = _stat_key(index)
        keys[f"{path}_details.rate"] = rate_key(index)
    keys["messages"] = _messages  # the dearest of all: most lists are sorted by it
    keys["messages_ready"] = lambda queue: queue.counts().ready
    keys["messages_unacknowledged"] = lambda queue: queue.counts().in_flight
    return keys


def _listing(call: Call[RatesListQuery, None], vhosts: list[Vhost]) -> Listing[Queue]:
    statistics = call.services.statistics
    items = [queue for vhost in vhosts for queue in vhost.queues.values()]
    return Listing(items, row_maker(statistics, call.query), sort_keys=_sort_keys(statistics))


async def list_all(call: Call[RatesListQuery, None]) -> Listing[Queue]:
    return _listing(call, call.visible_vhosts())


async def list_of_vhost(call: Call[RatesListQuery, None]) -> Listing[Queue]:
    return _listing(call, [call.vhost()])


async def show(call: Call[RatesQuery, None]) -> QueueRow:
    vhost = call.vhost()
    queue = vhost.queues.get(call.path["name"])
    if queue is None:
        raise not_found(f"there is no queue '{call.path['name']}' in virtual host '{vhost.name}'")
    return QueueRow(
        **_plain(queue),
        **_counted(queue, call.services.statistics, call.query),
        consumer_details=consumers_of_queue(call.services, vhost.name, queue),
        incoming=[],
        deliveries=[],
    )


ROUTES: Final = (
    Route(
        method="GET",
        path="/api/queues",
        handler=list_all,
        summary="All queues that the user may see",
        query=RatesListQuery,
        answer=QueueRow,
        is_list=True,
    ),
    Route(
        method="GET",
        path="/api/queues/{vhost}",
        handler=list_of_vhost,
        summary="The queues of a virtual host",
        query=RatesListQuery,
        answer=QueueRow,
        is_list=True,
    ),
    Route(
        method="GET",
        path="/api/queues/{vhost}/{name}",
        handler=show,
        summary="One queue",
        query=RatesQuery,
        answer=QueueRow,
    ),
)
