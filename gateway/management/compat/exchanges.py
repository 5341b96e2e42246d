"""Exchanges as RabbitMQ's tools list, declare and delete them: `/api/exchanges`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType, field

from gateway.management.answers import NO_CONTENT, Reply, created_or_changed
from gateway.management.api_errors import not_found
from gateway.management.call import Call
from gateway.management.compat import binding_rows
from gateway.management.compat.flexible_fields import Flag, Table, flag, table
from gateway.management.compat.rights import rights_of
from gateway.management.lists import ColumnsQuery, Listing, ListQuery
from gateway.management.routes import Body, NoQuery, Query, Route
from queue_core.access.auth import Action, Resource
from queue_core.errors import ExchangeNotFound
from queue_core.message.json_arguments import stored
from queue_core.routing.bindings import ExchangeRef
from queue_core.routing.exchanges import ExchangeSpec
from queue_core.vhost import Vhost


class ExchangeRow(Struct, frozen=True):
    """One exchange of RabbitMQ's list."""

    name: str
    vhost: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: Mapping[str, Any]
    user_who_performed_action: str
    policy: str | UnsetType = UNSET  # left out where none acts on it, as RabbitMQ does


class ExchangeBody(Body, frozen=True):
    """A declaration. A field that is left out has RabbitMQ's default."""

    type: str = "direct"
    durable: Flag = True
    auto_delete: Flag = False
    internal: Flag = False
    arguments: Table = {}  # noqa: RUF012 - msgspec copies it


class DeleteQuery(Query, frozen=True):
    if_unused: bool = field(name="if-unused", default=False)


Located = tuple[Vhost, ExchangeSpec]


def row(located: Located) -> ExchangeRow:
    vhost, spec = located
    return ExchangeRow(
        name=spec.name,
        vhost=vhost.name,
        type=spec.kind.value,
        durable=spec.durable,
        auto_delete=spec.auto_delete,
        internal=spec.internal,
        arguments=stored(spec.arguments),
        user_who_performed_action="",
        policy=vhost.policies.of_exchange(spec.name).policy or UNSET,
    )


def _listing(vhosts: list[Vhost]) -> Listing[Located]:
    items = [(vhost, spec) for vhost in vhosts for spec in vhost.router.exchanges()]
    return Listing(items, row, name=lambda located: located[1].name)


async def list_all(call: Call[ListQuery, None]) -> Listing[Located]:
    return _listing(call.visible_vhosts())


async def list_of_vhost(call: Call[ListQuery, None]) -> Listing[Located]:
    return _listing([call.vhost()])


async def show(call: Call[ColumnsQuery, None]) -> ExchangeRow:
    vhost = call.vhost()
    return row((vhost, _spec(call, vhost)))


async def declare(call: Call[NoQuery, ExchangeBody]) -> Reply:
    vhost, body = call.own_vhost(), call.body
    name = call.exchange()
    call.require(Action.CONFIGURE, Resource("exchange", vhost.name, name))
    spec = ExchangeSpec.parse(
        name,
        body.type or "direct",
        table("arguments", body.arguments),
        durable=flag("durable", body.durable),
        auto_delete=flag("auto_delete", body.auto_delete),
        internal=flag("internal", body.internal),
    )
    rights_of(call, vhost).declare_exchange(spec)
    is_new = vhost.router.is_new(spec)
    await vhost.declare_exchange(spec)
    return created_or_changed(is_new=is_new)


async def delete(call: Call[DeleteQuery, None]) -> Reply:
    vhost, name = call.own_vhost(), call.exchange()
    call.require(Action.CONFIGURE, Resource("exchange", vhost.name, name))
    _spec(call, vhost)
    await vhost.delete_exchange(name, if_unused=call.query.if_unused)
    return NO_CONTENT


async def bindings_from(call: Call[ListQuery, None]) -> Listing[binding_rows.Located]:
    vhost = call.vhost()
    name = _spec(call, vhost).name
    found = [each for each in binding_rows.listed([vhost]) if each[1].source == name]
    return binding_rows.listing(found)


async def bindings_to(call: Call[ListQuery, None]) -> Listing[binding_rows.Located]:
    vhost = call.vhost()
    name = _spec(call, vhost).name
    found = [(vhost.name, each) for each in vhost.router.bindings_of(ExchangeRef(name))]
    return binding_rows.listing(found)


def _spec(call: Call[Any, Any], vhost: Vhost) -> ExchangeSpec:
    name = call.exchange()
    try:
        return vhost.router.exchange(name).spec
    except ExchangeNotFound:
        raise not_found(f"there is no exchange '{name}' in virtual host '{vhost.name}'") from None


PATH: Final = "/api/exchanges/{vhost}/{exchange}"
ROUTES: Final = (
    Route(
        method="GET",
        path="/api/exchanges",
        handler=list_all,
        summary="All exchanges that the user may see",
        query=ListQuery,
        answer=ExchangeRow,
        is_list=True,
    ),
    Route(
        method="GET",
        path="/api/exchanges/{vhost}",
        handler=list_of_vhost,
        summary="The exchanges of a virtual host",
        query=ListQuery,
        answer=ExchangeRow,
        is_list=True,
    ),
    Route(
        method="GET",
        path=PATH,
        handler=show,
        summary="One exchange; the default one is called amq.default",
        query=ColumnsQuery,
        answer=ExchangeRow,
    ),
    Route(
        method="PUT",
        path=PATH,
        handler=declare,
        summary="Declare an exchange",
        body=ExchangeBody,
    ),
    Route(
        method="DELETE", path=PATH, handler=delete, summary="Delete an exchange", query=DeleteQuery
    ),
    Route(
        method="GET",
        path=f"{PATH}/bindings/source",
        handler=bindings_from,
        summary="The bindings that lead from an exchange",
        query=ListQuery,
        answer=binding_rows.BindingRow,
        is_list=True,
    ),
    Route(
        method="GET",
        path=f"{PATH}/bindings/destination",
        handler=bindings_to,
        summary="The bindings that lead to an exchange",
        query=ListQuery,
        answer=binding_rows.BindingRow,
        is_list=True,
    ),
)
