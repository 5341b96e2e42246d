"""Queues as RabbitMQ lists them: `/api/queues`.

All numbers come from memory; no queue is woken and PostgreSQL is not asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from gateway.management.api_errors import not_found
from gateway.management.call import Call
from gateway.management.lists import ColumnsQuery, Listing, ListQuery
from gateway.management.node import node_name
from gateway.management.routes import Route
from queue_core.queues.queue import Queue
from queue_core.vhost import Vhost


class QueueRow(Struct, frozen=True):
    """One queue of RabbitMQ's list."""

    name: str
    vhost: str
    type: str
    durable: bool
    auto_delete: bool
    exclusive: bool
    arguments: Mapping[str, Any]
    node: str
    state: str
    messages: int
    messages_ready: int
    messages_unacknowledged: int
    messages_delayed: int  # ours: messages that wait for their time
    consumers: int


Located = tuple[str, Queue]  # with the name of its virtual host


def row(located: Located) -> QueueRow:
    """Describes a queue as of now."""
    vhost, queue = located
    spec, counts = queue.spec, queue.counts()
    return QueueRow(
        name=queue.name,
        vhost=vhost,
        type=spec.kind.value,
        durable=spec.durable,
        auto_delete=spec.auto_delete,
        exclusive=spec.exclusive,
        arguments=spec.arguments,
        node=node_name(),
        state="paused" if queue.is_paused else "running",
        messages=counts.waiting + counts.in_flight,
        messages_ready=counts.ready,
        messages_unacknowledged=counts.in_flight,
        messages_delayed=counts.delayed,
        consumers=counts.consumers,
    )


SORT_KEYS: Final = {
    "name": lambda located: located[1].name,
    "vhost": lambda located: located[0],
    "messages_ready": lambda located: located[1].counts().ready,
    "consumers": lambda located: located[1].counts().consumers,
}


def _listing(vhosts: list[Vhost]) -> Listing[Located]:
    items = [(vhost.name, queue) for vhost in vhosts for queue in vhost.queues.values()]
    return Listing(items, row, name=lambda located: located[1].name, sort_keys=SORT_KEYS)


async def list_all(call: Call[ListQuery, None]) -> Listing[Located]:
    return _listing(call.visible_vhosts())


async def list_of_vhost(call: Call[ListQuery, None]) -> Listing[Located]:
    return _listing([call.vhost()])


async def show(call: Call[ColumnsQuery, None]) -> QueueRow:
    vhost = call.vhost()
    queue = vhost.queues.get(call.path["name"])
    if queue is None:
        raise not_found(f"there is no queue '{call.path['name']}' in virtual host '{vhost.name}'")
    return row((vhost.name, queue))


ROUTES: Final = (
    Route(
        method="GET",
        path="/api/queues",
        handler=list_all,
        summary="All queues that the user may see",
        query=ListQuery,
        answer=QueueRow,
        is_list=True,
    ),
    Route(
        method="GET",
        path="/api/queues/{vhost}",
        handler=list_of_vhost,
        summary="The queues of a virtual host",
        query=ListQuery,
        answer=QueueRow,
        is_list=True,
    ),
    Route(
        method="GET",
        path="/api/queues/{vhost}/{name}",
        handler=show,
        summary="One queue",
        query=ColumnsQuery,
        answer=QueueRow,
    ),
)
