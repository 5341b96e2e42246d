"""Parameters: `/api/parameters` and `/api/global-parameters`, kept for the tools that set them.

Components that would do something in RabbitMQ and do nothing here are refused, with the reason.
Secrets in values, such as passwords in URIs, are shown to administrators only, who may export them.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from msgspec import Struct

from gateway.management.answers import NO_CONTENT, Reply, created_or_changed
from gateway.management.api_errors import bad_request, not_found
from gateway.management.call import Call
from gateway.management.lists import ColumnsQuery, Listing, ListQuery
from gateway.management.roles import Role
from gateway.management.routes import Body, NoQuery, Route
from queue_core.access.secret_masking import masked_field
from queue_core.store.tables.parameters import StoredParameter

REFUSED_COMPONENTS: Final = {
    "shovel": "there are no shovels here; forward with a client of your own, or `howdah.publish`",
    "federation-upstream": "there is no federation here",
    "federation-upstream-set": "there is no federation here",
    "policy": "use /api/policies",
    "operator_policy": "use /api/operator-policies",
    "vhost-limits": "use /api/vhost-limits",
}


class ParameterRow(Struct, frozen=True):
    """One parameter of a virtual host."""

    vhost: str
    component: str
    name: str
    value: Any


class GlobalParameterRow(Struct, frozen=True):
    """One parameter of all virtual hosts."""

    name: str
    value: Any


class ValueBody(Body, frozen=True):
    value: Any


def _shown(call: Call[Any, Any], name: str, value: object) -> object:
    return value if call.caller.has(Role.ADMINISTRATOR) else masked_field(name, value)


def _row(call: Call[Any, Any], stored: StoredParameter) -> ParameterRow:
    value = _shown(call, stored.name, stored.value)
    return ParameterRow(stored.vhost, stored.component, stored.name, value)


async def list_parameters(call: Call[ListQuery, None]) -> Listing[StoredParameter]:
    vhost = call.vhost().name if "vhost" in call.path else None
    found = await call.manager.stored_parameters.all(call.path.get("component"), vhost)
    return Listing([each for each in found if call.sees(each.vhost)], partial(_row, call))


async def show(call: Call[ColumnsQuery, None]) -> ParameterRow:
    component, vhost, name = call.path["component"], call.vhost().name, call.path["name"]
    for found in await call.manager.stored_parameters.all(component, vhost, name):
        return _row(call, found)
    raise _missing(call)


def _missing(call: Call[Any, Any]) -> Exception:
    return not_found(f"there is no parameter '{call.path['name']}' of that component")


async def put(call: Call[NoQuery, ValueBody]) -> Reply:
    component, vhost, name = call.path["component"], call.own_vhost().name, call.path["name"]
    if component in REFUSED_COMPONENTS:
        raise bad_request(f"component {component}: {REFUSED_COMPONENTS[component]}")
    is_new = await call.manager.stored_parameters.put(component, vhost, name, call.body.value)
    return created_or_changed(is_new=is_new)


async def delete(call: Call[NoQuery, None]) -> Reply:
    component, vhost, name = call.path["component"], call.own_vhost().name, call.path["name"]
    if not await call.manager.stored_parameters.remove(component, vhost, name):
        raise _missing(call)
    return NO_CONTENT


async def list_global(call: Call[ListQuery, None]) -> Listing[GlobalParameterRow]:
    found = await call.manager.stored_parameters.all_global()
    rows = [GlobalParameterRow(name, _shown(call, name, each)) for name, each in found.items()]
    return Listing(rows, lambda row: row)


async def show_global(call: Call[ColumnsQuery, None]) -> GlobalParameterRow:
    found = await call.manager.stored_parameters.all_global()
    name = call.path["name"]
    if name not in found:
        raise not_found(f"there is no global parameter '{name}'")
    return GlobalParameterRow(name, _shown(call, name, found[name]))


async def put_global(call: Call[NoQuery, ValueBody]) -> Reply:
    stored = call.manager.stored_parameters
    return created_or_changed(is_new=await stored.put_global(call.path["name"], call.body.value))


async def delete_global(call: Call[NoQuery, None]) -> Reply:
    if not await call.manager.stored_parameters.remove_global(call.path["name"]):
        raise not_found(f"there is no global parameter '{call.path['name']}'")
    return NO_CONTENT


def _route(method: str, path: str, handler: Any, summary: str, **more: Any) -> Route:
    return Route(
        method=method, path=path, handler=handler, summary=summary, role=Role.POLICYMAKER, **more
    )


def _list(path: str, handler: Any, summary: str, answer: Any) -> Route:
    return _route("GET", path, handler, summary, query=ListQuery, answer=answer, is_list=True)


ALL: Final = "/api/parameters"
OF_COMPONENT: Final = ALL + "/{component}"
OF_VHOST: Final = OF_COMPONENT + "/{vhost}"
ONE: Final = OF_VHOST + "/{name}"
GLOBAL: Final = "/api/global-parameters"
ONE_GLOBAL: Final = GLOBAL + "/{name}"
ROUTES: Final = (
    _list(ALL, list_parameters, "All parameters", ParameterRow),
    _list(OF_COMPONENT, list_parameters, "The parameters of a component", ParameterRow),
    _list(OF_VHOST, list_parameters, "A component's parameters in a virtual host", ParameterRow),
    _route("GET", ONE, show, "One parameter", query=ColumnsQuery, answer=ParameterRow),
    _route("PUT", ONE, put, "Keep a parameter", body=ValueBody),
    _route("DELETE", ONE, delete, "Remove a parameter"),
    _list(GLOBAL, list_global, "All global parameters", GlobalParameterRow),
    _route(
        "GET",
        ONE_GLOBAL,
        show_global,
        "One global parameter",
        query=ColumnsQuery,
        answer=GlobalParameterRow,
    ),
    _route("PUT", ONE_GLOBAL, put_global, "Keep a global parameter", body=ValueBody),
    _route("DELETE", ONE_GLOBAL, delete_global, "Remove a global parameter"),
)
