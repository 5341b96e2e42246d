"""Bindings as RabbitMQ's tools list, make and remove them: `/api/bindings`."""

from __future__ import annotations

from typing import Any, Final, Literal
from urllib.parse import quote

from gateway.management.answers import NO_CONTENT, Reply
from gateway.management.api_errors import not_found
from gateway.management.call import Call
from gateway.management.compat.binding_rows import (
    BindingRow,
    Located,
    destination_type,
    listed,
    listing,
    properties_key,
    row,
)
from gateway.management.compat.flexible_fields import Table, table
from gateway.management.compat.rights import rights_of
from gateway.management.lists import ColumnsQuery, Listing, ListQuery
from gateway.management.routes import Body, NoQuery, Route
from queue_core.queues.queue import Queue
from queue_core.routing.bindings import Binding, ExchangeRef
from queue_core.vhost import Vhost

Kind = Literal["queue", "exchange"]
LETTERS: Final[dict[str, Kind]] = {"q": "queue", "e": "exchange"}


class BindingBody(Body, frozen=True):
    """A binding between the ends in the path."""

    routing_key: str = ""
    arguments: Table = {}  # noqa: RUF012 - msgspec copies it


async def list_all(call: Call[ListQuery, None]) -> Listing[Located]:
    return listing(listed(call.visible_vhosts()))


async def list_of_vhost(call: Call[ListQuery, None]) -> Listing[Located]:
    return listing(listed([call.vhost()]))


async def list_of_queue(call: Call[ListQuery, None]) -> Listing[Located]:
    vhost = call.vhost()
    queue = vhost.queues.get(call.path["name"])
    if queue is None:
        raise not_found(f"there is no queue '{call.path['name']}' in virtual host '{vhost.name}'")
    found = vhost.router.bindings_of(queue)
    return listing([(vhost.name, each) for each in found if not each.is_filter])


async def list_between(call: Call[ListQuery, None]) -> Listing[Located]:
    vhost = call.vhost()
    return listing([(vhost.name, each) for each in _between(call, vhost)])


async def bind(call: Call[NoQuery, BindingBody]) -> Reply:
    vhost, body = call.own_vhost(), call.body
    source, name = call.exchange(), call.path["destination"]
    arguments = table("arguments", body.arguments)
    rights = rights_of(call, vhost)
    destination = _destination(call, vhost)
    if isinstance(destination, ExchangeRef):
        rights.bind_exchange(destination.name)
        rights.take_from(source, body.routing_key)
        rights.lead_to(destination.name, None)
    else:
        rights.bind_queue(destination.name)
        rights.take_from(source, body.routing_key)
    await vhost.bind(source, destination, body.routing_key, arguments)
    key = properties_key(body.routing_key, arguments)
    # Relative to the path that was asked for; its last part is looked up again as it is.
    location = f"{quote(name, safe='')}/{quote(key, safe='')}"
    return Reply(201, headers={"Location": location})


async def show(call: Call[ColumnsQuery, None]) -> BindingRow:
    vhost = call.vhost()
    return row((vhost.name, _named(call, vhost)))


async def unbind(call: Call[NoQuery, None]) -> Reply:
    vhost = call.own_vhost()
    binding = _named(call, vhost)
    rights = rights_of(call, vhost)
    if isinstance(binding.destination, ExchangeRef):
        rights.bind_exchange(binding.destination.name)
    else:
        rights.bind_queue(binding.destination.name)
    rights.take_from(binding.source, binding.key)
    await vhost.unbind(binding.source, binding.destination, binding.key, binding.arguments)
    return NO_CONTENT


def _between(call: Call[Any, Any], vhost: Vhost) -> list[Binding[Queue]]:
    """Finds the bindings between the ends in the path; none where an end is not there."""
    source, name = call.exchange(), call.path["destination"]
    kind = _kind(call)
    found: list[Binding[Queue]] = []
    if kind == "exchange":
        found = vhost.router.bindings_of(ExchangeRef(name))
    elif (queue := vhost.queues.get(name)) is not None:
        found = vhost.router.bindings_of(queue)
    return [each for each in found if each.source == source and not each.is_filter]


def _named(call: Call[Any, Any], vhost: Vhost) -> Binding[Queue]:
    """Finds the binding that the path names by its properties key, which some clients encode once
    more and others do not."""
    wanted = {call.path["properties"], call.request.rel_url.raw_parts[-1]}
    for binding in _between(call, vhost):
        if properties_key(binding.key, binding.arguments or {}) in wanted:
            assert destination_type(binding) == _kind(call)
            return binding
    raise not_found("there is no such binding between these two")


def _destination(call: Call[Any, Any], vhost: Vhost) -> Queue | ExchangeRef:
    name = call.path["destination"]
    if _kind(call) == "exchange":
        return ExchangeRef(name)
    return vhost.queue(name)


def _kind(call: Call[Any, Any]) -> Kind:
    letter = call.path["kind"]
    if letter not in LETTERS:
        raise not_found("the path has q for a queue or e for an exchange before the destination")
    return LETTERS[letter]


BETWEEN: Final = "/api/bindings/{vhost}/e/{exchange}/{kind}/{destination}"
ROUTES: Final = (
    Route(
        method="GET",
        path="/api/bindings",
        handler=list_all,
        summary="All bindings that the user may see",
        query=ListQuery,
        answer=BindingRow,
        is_list=True,
    ),
    Route(
        method="GET",
        path="/api/bindings/{vhost}",
        handler=list_of_vhost,
        summary="The bindings of a virtual host",
        query=ListQuery,
        answer=BindingRow,
        is_list=True,
    ),
    Route(
        method="GET",
        path="/api/queues/{vhost}/{name}/bindings",
        handler=list_of_queue,
        summary="The bindings that lead to a queue",
        query=ListQuery,
        answer=BindingRow,
        is_list=True,
    ),
    Route(
        method="GET",
        path=BETWEEN,
        handler=list_between,
        summary="The bindings between an exchange and a queue (q) or an exchange (e)",
        query=ListQuery,
        answer=BindingRow,
        is_list=True,
    ),
    Route(
        method="POST",
        path=BETWEEN,
        handler=bind,
        summary="Bind a queue (q) or an exchange (e); Location names the new binding",
        body=BindingBody,
        statuses=(201,),
    ),
    Route(
        method="GET",
        path=f"{BETWEEN}/{{properties}}",
        handler=show,
        summary="One binding, by its properties key",
        query=ColumnsQuery,
        answer=BindingRow,
    ),
    Route(
        method="DELETE",
        path=f"{BETWEEN}/{{properties}}",
        handler=unbind,
        summary="Remove a binding, by its properties key",
    ),
)
