"""Policies and operator policies: `/api/policies` and `/api/operator-policies`.

Both are read from memory and changed in the table; a change acts on all queues when it is answered.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta, Struct, field

from gateway.management.answers import NO_CONTENT, Reply, created_or_changed
from gateway.management.api_errors import not_found
from gateway.management.call import Call
from gateway.management.changed_rights import in_force
from gateway.management.lists import ColumnsQuery, Listing, ListQuery
from gateway.management.roles import Role
from gateway.management.routes import Body, Handler, NoQuery, Route
from queue_core.policies.policy import Policy
from queue_core.vhost import Vhost


class PolicyRow(Struct, frozen=True):
    """One policy of RabbitMQ's list."""

    vhost: str
    name: str
    pattern: str
    apply_to: str = field(name="apply-to")
    definition: dict[str, Any]
    priority: int


class PolicyBody(Body, frozen=True):
    pattern: Annotated[str, Meta(description="a regular expression, looked for in names")]
    definition: Annotated[dict[str, Any], Meta(description="keys and values, at least one")]
    priority: int = 0
    apply_to: Annotated[
        str,
        Meta(description="all, queues, exchanges, classic_queues, quorum_queues or streams"),
    ] = field(name="apply-to", default="all")


Located = tuple[str, Policy]  # with the name of its virtual host


def row(located: Located) -> PolicyRow:
    vhost, policy = located
    return PolicyRow(
        vhost,
        policy.name,
        policy.pattern,
        policy.apply_to.value,
        dict(policy.definition),
        policy.priority,
    )


def policies_of(vhost: Vhost, *, is_operator: bool) -> list[Located]:
    """Lists the policies of a virtual host that act now, by name."""
    found = [each for each in vhost.policies.current.all if each.is_operator is is_operator]
    return [(vhost.name, each) for each in sorted(found, key=lambda policy: policy.name)]


class PolicyHandlers:
    """The handlers of one of the two kinds of policies."""

    def __init__(self, what: str, *, is_operator: bool) -> None:
        self._what = what
        self._is_operator = is_operator

    def _listing(self, vhosts: list[Vhost]) -> Listing[Located]:
        found = [
            each for vhost in vhosts for each in policies_of(vhost, is_operator=self._is_operator)
        ]
        return Listing(found, row, name=lambda located: located[1].name)

    async def list_all(self, call: Call[ListQuery, None]) -> Listing[Located]:
        return self._listing(sorted(call.visible_vhosts(), key=lambda vhost: vhost.name))

    async def list_of_vhost(self, call: Call[ListQuery, None]) -> Listing[Located]:
        return self._listing([call.vhost()])

    def _missing(self, call: Call[Any, Any]) -> Exception:
        name, vhost = call.path["name"], call.path["vhost"]
        return not_found(f"there is no {self._what} '{name}' in virtual host '{vhost}'")

    async def show(self, call: Call[ColumnsQuery, None]) -> PolicyRow:
        for located in policies_of(call.vhost(), is_operator=self._is_operator):
            if located[1].name == call.path["name"]:
                return row(located)
        raise self._missing(call)

    async def put(self, call: Call[NoQuery, PolicyBody]) -> Reply:
        vhost, body = call.own_vhost(), call.body
        given = Policy.parse(
            call.path["name"],
            body.pattern,
            body.definition,
            apply_to=body.apply_to,
            priority=body.priority,
            is_operator=self._is_operator,
        )
        is_new = await call.manager.stored_policies.put(vhost.name, given)
        await in_force(call.manager)
        return created_or_changed(is_new=is_new)

    async def delete(self, call: Call[NoQuery, None]) -> Reply:
        vhost, name = call.own_vhost().name, call.path["name"]
        stored = call.manager.stored_policies
        if not await stored.remove(vhost, name, is_operator=self._is_operator):
            raise self._missing(call)
        await in_force(call.manager)
        return NO_CONTENT


def _list_route(path: str, handler: Handler, summary: str) -> Route:
    return Route(
        method="GET",
        path=path,
        handler=handler,
        summary=summary,
        query=ListQuery,
        answer=PolicyRow,
        is_list=True,
    )


def routes(path: str, what: str, changing: Role) -> tuple[Route, ...]:
    """Makes the routes of one of the two kinds of policies; `changing` is who may change them."""
    handlers = PolicyHandlers(what, is_operator=changing is Role.ADMINISTRATOR)
    one, plural = path + "/{vhost}/{name}", f"{what[:-1]}ies"
    return (
        _list_route(path, handlers.list_all, f"All {plural}"),
        _list_route(
            path + "/{vhost}", handlers.list_of_vhost, f"{plural.capitalize()} of a virtual host"
        ),
        Route(
            method="GET",
            path=one,
            handler=handlers.show,
            summary=f"One {what}",
            query=ColumnsQuery,
            answer=PolicyRow,
        ),
        Route(
            method="PUT",
            path=one,
            handler=handlers.put,
            summary=f"Set the {what}; it acts on queues and exchanges at once",
            role=changing,
            body=PolicyBody,
        ),
        Route(
            method="DELETE",
            path=one,
            handler=handlers.delete,
            summary=f"Remove the {what}",
            role=changing,
        ),
    )


ROUTES: Final = (
    *routes("/api/policies", "policy", Role.POLICYMAKER),
    *routes("/api/operator-policies", "operator policy", Role.ADMINISTRATOR),
)
