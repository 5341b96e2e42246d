"""Permissions and rules for topics: `/api/permissions`, `/api/topic-permissions`, and those of one
user or one virtual host.

Both are read from memory and changed in the tables; a change is in force when it is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec import Struct

from gateway.management.answers import NO_CONTENT, Reply, created_or_changed
from gateway.management.api_errors import bad_request, not_found
from gateway.management.call import Call
from gateway.management.changed_rights import in_force
from gateway.management.compat.users import user_in_path
from gateway.management.lists import ColumnsQuery, Listing, ListQuery
from gateway.management.roles import Role
from gateway.management.routes import Body, NoQuery, Route
from queue_core.access.accounts import Permission, Roll, TopicPermission


class PermissionRow(Struct, frozen=True):
    """What a user may do to names in a virtual host."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str


class TopicPermissionRow(Struct, frozen=True):
    """What a user may do with routing keys of a topic exchange."""

    user: str
    vhost: str
    exchange: str
    write: str
    read: str


class PermissionBody(Body, frozen=True):
    configure: str
    write: str
    read: str


class TopicPermissionBody(Body, frozen=True):
    exchange: str
    write: str
    read: str


Selected = Callable[[str, str], bool]  # by user and virtual host
Rows = Callable[[Roll, Selected], Iterator[Any]]


def _permissions(roll: Roll, is_selected: Selected) -> Iterator[PermissionRow]:
    for (user, vhost), given in sorted(roll.permissions.items()):
        if is_selected(user, vhost):
            yield PermissionRow(user, vhost, given.configure, given.write, given.read)


def _topic_permissions(roll: Roll, is_selected: Selected) -> Iterator[TopicPermissionRow]:
    for (user, vhost, exchange), given in sorted(roll.topic_permissions.items()):
        if is_selected(user, vhost):
            yield TopicPermissionRow(user, vhost, exchange, given.write, given.read)


def _listing(call: Call[Any, Any], rows: Rows, is_selected: Selected) -> Listing[Any]:
    items = list(rows(call.manager.auth.accounts.roll, is_selected))
    return Listing(items, lambda item: item, name=lambda item: item.user)


def lists_of(rows: Rows) -> tuple[Any, Any, Any]:
    """Makes the handlers that list all rows, those of a user, and those of a virtual host."""

    async def of_all(call: Call[ListQuery, None]) -> Listing[Any]:
        return _listing(call, rows, lambda _user, _vhost: True)

    async def of_user(call: Call[ListQuery, None]) -> Listing[Any]:
        if call.path["user"] != call.identity.name:
            call.require_role(Role.ADMINISTRATOR)  # everybody may see their own
        name = user_in_path(call).name
        return _listing(call, rows, lambda user, _: user == name)

    async def of_vhost(call: Call[ListQuery, None]) -> Listing[Any]:
        name = call.vhost().name
        return _listing(call, rows, lambda _, vhost: vhost == name)

    return of_all, of_user, of_vhost


ALL, OF_USER, OF_VHOST = lists_of(_permissions)
TOPICS, TOPICS_OF_USER, TOPICS_OF_VHOST = lists_of(_topic_permissions)


def _nothing_granted(call: Call[Any, Any]) -> Exception:
    user, vhost = call.path["user"], call.path["vhost"]
    return not_found(f"user '{user}' has no such permission in virtual host '{vhost}'")


# --- names


async def show(call: Call[ColumnsQuery, None]) -> PermissionRow:
    user, vhost = user_in_path(call).name, call.vhost().name
    for row in _permissions(call.manager.auth.accounts.roll, lambda *names: names == (user, vhost)):
        return row
    raise _nothing_granted(call)


async def put(call: Call[NoQuery, PermissionBody]) -> Reply:
    user, vhost, body = call.path["user"], call.path["vhost"], call.body
    is_new = (user, vhost) not in call.manager.auth.accounts.roll.permissions
    given = Permission(body.configure, body.write, body.read)
    await call.manager.stored_users.grant(user, vhost, given)
    await in_force(call.manager)
    return created_or_changed(is_new=is_new)


async def delete(call: Call[NoQuery, None]) -> Reply:
    if not await call.manager.stored_users.revoke_names(call.path["user"], call.path["vhost"]):
        raise _nothing_granted(call)
    await in_force(call.manager)
    return NO_CONTENT


# --- topics


async def list_topics_of_one(call: Call[ListQuery, None]) -> Listing[Any]:
    user, vhost = user_in_path(call).name, call.vhost().name
    found = _listing(call, _topic_permissions, lambda *names: names == (user, vhost))
    if not found.items:
        raise _nothing_granted(call)
    return found


async def put_topics(call: Call[NoQuery, TopicPermissionBody]) -> Reply:
    user, vhost, body = call.path["user"], call.path["vhost"], call.body
    if not body.exchange:
        raise bad_request("the default exchange has no topics; name an exchange of type topic")
    rules = call.manager.auth.accounts.roll.topic_permissions
    is_new = (user, vhost, body.exchange) not in rules
    topics = {body.exchange: TopicPermission(body.write, body.read)}
    await call.manager.stored_users.grant(user, vhost, None, topics)
    await in_force(call.manager)
    return created_or_changed(is_new=is_new)


async def delete_topics(call: Call[NoQuery, None]) -> Reply:
    users = call.manager.stored_users
    names = (call.path["user"], call.path["vhost"], call.path.get("exchange"))
    if not await users.revoke_topics(*names):
        raise _nothing_granted(call)
    await in_force(call.manager)
    return NO_CONTENT


def _list_route(
    path: str, handler: Any, summary: str, answer: Any, role: Role = Role.ADMINISTRATOR
) -> Route:
    return Route(
        method="GET",
        path=path,
        handler=handler,
        summary=summary,
        role=role,
        query=ListQuery,
        answer=answer,
        is_list=True,
    )


def _change(method: str, path: str, handler: Any, summary: str, body: Any = None) -> Route:
    role = Role.ADMINISTRATOR
    return Route(method=method, path=path, handler=handler, summary=summary, role=role, body=body)


ONE: Final = "/api/permissions/{vhost}/{user}"
TOPICS_OF_ONE: Final = "/api/topic-permissions/{vhost}/{user}"
ROUTES: Final = (
    _list_route("/api/permissions", ALL, "All permissions", PermissionRow),
    _list_route(
        "/api/users/{user}/permissions",
        OF_USER,
        "Permissions of a user; everybody may see their own",
        PermissionRow,
        Role.MANAGEMENT,
    ),
    _list_route(
        "/api/vhosts/{vhost}/permissions", OF_VHOST, "Permissions in a virtual host", PermissionRow
    ),
    Route(
        method="GET",
        path=ONE,
        handler=show,
        summary="The permission of a user in a virtual host",
        role=Role.ADMINISTRATOR,
        query=ColumnsQuery,
        answer=PermissionRow,
    ),
    _change("PUT", ONE, put, "Grant a permission in place of the one before", PermissionBody),
    _change("DELETE", ONE, delete, "Revoke a permission; rules for topics stay"),
    _list_route("/api/topic-permissions", TOPICS, "All rules for topics", TopicPermissionRow),
    _list_route(
        "/api/users/{user}/topic-permissions",
        TOPICS_OF_USER,
        "Rules for topics of a user; everybody may see their own",
        TopicPermissionRow,
        Role.MANAGEMENT,
    ),
    _list_route(
        "/api/vhosts/{vhost}/topic-permissions",
        TOPICS_OF_VHOST,
        "Rules for topics in a virtual host",
        TopicPermissionRow,
    ),
    _list_route(
        TOPICS_OF_ONE,
        list_topics_of_one,
        "Rules for topics of a user in a virtual host",
        TopicPermissionRow,
    ),
    _change(
        "PUT",
        TOPICS_OF_ONE,
        put_topics,
        "Set the rule for topics of one exchange",
        TopicPermissionBody,
    ),
    _change("DELETE", TOPICS_OF_ONE, delete_topics, "Take back all rules for topics"),
    _change(
        "DELETE",
        TOPICS_OF_ONE + "/{exchange}",
        delete_topics,
        "Take back the rule for topics of one exchange",
    ),
)
