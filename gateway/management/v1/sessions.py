"""MQTT sessions that outlive their connections: who has them, what they subscribe to, what waits
for them, and the end of one.

A user sees and ends its own; monitoring sees all, administrators end all.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from gateway.management.answers import NO_CONTENT, Reply
from gateway.management.api_errors import not_found
from gateway.management.call import Call
from gateway.management.roles import Role
from gateway.management.routes import Query, Route
from queue_core.store.operator.condition_sql import quoted
from queue_core.store.operator.status_lists import Listed, StatusLists

MOST_ROWS: Final = 500


class SessionQuery(Query, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(description="only client ids with this in them")] | None = None
    after_vhost: Annotated[str, Meta(description="go on behind this virtual host,")] | None = None
    after: Annotated[str, Meta(description="and this client id of it")] | None = None
    limit: Annotated[int, Meta(ge=1, le=MOST_ROWS)] = 100


class SubscriptionQuery(Query, frozen=True, forbid_unknown_fields=True):
    after: Annotated[str, Meta(description="go on behind this filter")] | None = None
    limit: Annotated[int, Meta(ge=1, le=MOST_ROWS)] = 100


class SessionRow(Struct, frozen=True):
    vhost: str
    client_id: str
    user_name: str | None
    protocol: str
    state: str
    connected_at: datetime | None
    disconnected_at: datetime | None
    expiry_seconds: int | None
    ends_at: datetime | None
    subscriptions: int
    queue: str | None
    messages: int | None


class SessionList(Struct, frozen=True):
    """Sessions in order of virtual host and client id; ask on with `after_vhost` and `after` of the
    last one."""

    items: list[SessionRow]
    sql: str


class SubscriptionRow(Struct, frozen=True):
    filter: str
    qos: int
    no_local: bool
    retain_as_published: bool
    retain_handling: int
    identifier: int | None
    created_at: datetime | None


class SessionDetails(Struct, frozen=True):
    """One session and its subscriptions, in order of their filters."""

    session: SessionRow
    subscriptions: list[SubscriptionRow]
    sql: str
    subscriptions_sql: str
    end_sql: str  # that ends the session


def _lists(call: Call[Any, Any]) -> StatusLists:
    return call.manager.inspection.lists


async def list_all(call: Call[SessionQuery, None]) -> SessionList:
    return await _listed(call, None)


async def list_of_vhost(call: Call[SessionQuery, None]) -> SessionList:
    return await _listed(call, call.vhost().name)


async def _listed(call: Call[SessionQuery, None], vhost: str | None) -> SessionList:
    query = call.query
    after = None
    if query.after is not None or query.after_vhost is not None:
        after = (query.after_vhost or vhost or "", query.after or "")
    user = None if call.caller.has(Role.MONITORING) else call.identity.name
    found = await _lists(call).sessions(vhost, query.name, user, after, query.limit)
    rows = [row for row in found.rows if call.sees(row["vhost"])]
    return SessionList(msgspec.convert(rows, list[SessionRow]), found.sql)


async def show(call: Call[SubscriptionQuery, None]) -> SessionDetails:
    found = await _session(call)
    vhost, client_id = call.path["vhost"], call.path["client_id"]
    query = call.query
    filters = await _lists(call).subscriptions(vhost, client_id, query.after, query.limit)
    return SessionDetails(
        msgspec.convert(found.rows[0], SessionRow),
        msgspec.convert(filters.rows, list[SubscriptionRow]),
        found.sql,
        filters.sql,
        f"SELECT howdah.end_session({quoted(client_id)}, vhost => {quoted(vhost)});",
    )


async def _session(call: Call[Any, None]) -> Listed:
    """Finds the session in the path, if the caller may see it. Raises 404."""
    vhost = call.vhost()
    client_id = call.path["client_id"]
    found = await _lists(call).session(vhost.name, client_id)
    is_own = bool(found.rows) and found.rows[0]["user_name"] == call.identity.name
    if not found.rows or not (is_own or call.caller.has(Role.MONITORING)):
        raise not_found(f"there is no stored session '{client_id}' in virtual host '{vhost.name}'")
    return found


async def end(call: Call[Any, None]) -> Reply:
    found = await _session(call)
    if found.rows[0]["user_name"] != call.identity.name:
        call.require_role(Role.ADMINISTRATOR)
    await call.manager.sessions.end(call.vhost(), call.path["client_id"])
    return NO_CONTENT


PATH: Final = "/api/howdah/v1/sessions"
ROUTES: Final = (
    Route(
        method="GET",
        path=PATH,
        handler=list_all,
        summary="MQTT sessions that outlive their connections",
        query=SessionQuery,
        answer=SessionList,
    ),
    Route(
        method="GET",
        path=PATH + "/{vhost}",
        handler=list_of_vhost,
        summary="MQTT sessions of a virtual host",
        query=SessionQuery,
        answer=SessionList,
    ),
    Route(
        method="GET",
        path=PATH + "/{vhost}/{client_id}",
        handler=show,
        summary="One MQTT session and its subscriptions",
        query=SubscriptionQuery,
        answer=SessionDetails,
    ),
    Route(
        method="DELETE",
        path=PATH + "/{vhost}/{client_id}",
        handler=end,
        summary="End an MQTT session, with its subscriptions and all that waits for it",
    ),
)
