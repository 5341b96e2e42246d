"""Queues as RabbitMQ's tools declare, delete and purge them."""

from __future__ import annotations

from typing import Any, Final

from msgspec import field

from gateway.management.answers import NO_CONTENT, Reply, created_or_changed
from gateway.management.api_errors import bad_request, not_found
from gateway.management.call import Call
from gateway.management.compat.flexible_fields import Flag, Table, flag, table
from gateway.management.compat.rights import rights_of
from gateway.management.routes import Body, NoQuery, Query, Route
from queue_core.access.auth import Action, Resource
from queue_core.queues.queue import Queue
from queue_core.queues.spec import QueueSpec
from queue_core.vhost import Vhost

MOST_DROPPED: Final = 100_000  # messages in one request; without `count` all go at once


class QueueBody(Body, frozen=True):
    """A declaration. A field that is left out has RabbitMQ's default."""

    durable: Flag = False
    auto_delete: Flag = False
    exclusive: Flag = False
    arguments: Table = {}  # noqa: RUF012 - msgspec copies it


class DeleteQuery(Query, frozen=True):
    if_unused: bool = field(name="if-unused", default=False)
    if_empty: bool = field(name="if-empty", default=False)


class PurgeQuery(Query, frozen=True):
    count: int | None = None  # LavinMQ's: only so many, the first ones


async def declare(call: Call[NoQuery, QueueBody]) -> Reply:
    vhost, body = call.own_vhost(), call.body
    name = call.path["name"]
    vhost.check_declarable(name)
    arguments = table("arguments", body.arguments)
    rights_of(call, vhost).declare_queue(name, arguments)
    if flag("exclusive", body.exclusive):
        raise bad_request(
            "an exclusive queue belongs to a connection, and HTTP has none that stays"
        )
    spec = QueueSpec.parse(
        name,
        arguments,
        durable=flag("durable", body.durable),
        auto_delete=flag("auto_delete", body.auto_delete),
    )
    is_new = name not in vhost.queues
    await vhost.declare_queue(spec, None, call.identity.name)
    return created_or_changed(is_new=is_new)


async def delete(call: Call[DeleteQuery, None]) -> Reply:
    vhost, name = call.own_vhost(), call.path["name"]
    call.require(Action.CONFIGURE, Resource("queue", vhost.name, name))
    queue_of(call, vhost)
    await vhost.writer.flushed()  # what was published before counts
    query = call.query
    await vhost.delete_queue(name, if_unused=query.if_unused, if_empty=query.if_empty)
    return NO_CONTENT


async def purge(call: Call[PurgeQuery, None]) -> Reply:
    vhost, name = call.own_vhost(), call.path["name"]
    call.require(Action.READ, Resource("queue", vhost.name, name))
    vhost.check_usable(name)
    queue_of(call, vhost)
    await vhost.writer.flushed()
    count = call.query.count
    if count is None:
        await vhost.purge_queue(name)
        return NO_CONTENT
    for _ in range(min(count, MOST_DROPPED)):
        if await vhost.get(name, auto_settle=True) is None:
            break
    await vhost.writer.flushed()
    return NO_CONTENT


def queue_of(call: Call[Any, Any], vhost: Vhost) -> Queue:
    """Returns the queue in the path. Raises 404."""
    queue = vhost.queues.get(call.path["name"])
    if queue is None:
        raise not_found(f"there is no queue '{call.path['name']}' in virtual host '{vhost.name}'")
    return queue


PATH: Final = "/api/queues/{vhost}/{name}"
ROUTES: Final = (
    Route(method="PUT", path=PATH, handler=declare, summary="Declare a queue", body=QueueBody),
    Route(
        method="DELETE",
        path=PATH,
        handler=delete,
        summary="Delete a queue with all that is in it",
        query=DeleteQuery,
    ),
    Route(
        method="DELETE",
        path=f"{PATH}/contents",
        handler=purge,
        summary="Throw away the messages of a queue that no consumer has in flight",
        query=PurgeQuery,
    ),
)
