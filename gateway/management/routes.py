"""The table of routes of the HTTP API: one row says everything about a route.

How to add a route:

1. Write structs for what it takes and gives. A query is a `Query` (lists: `ListQuery` or a
   subclass), a body a `Body`; both come to the handler checked and converted, and a wrong type is
   answered with 400. RabbitMQ's API (`compat`) ignores fields that it does not know, because
   its clients send more than it asks for; our own API (`v1`) refuses them: give its structs
   `forbid_unknown_fields=True`.
2. Write `async def handler(call: Call[MyQuery, MyBody]) -> MyAnswer`, in a module of `compat` or
   `v1`. `call.path["name"]` is a part of the path, decoded; `call.vhost()` the virtual host of the
   path (404, or 401 where the caller may not see it); `call.require(Action.READ, resource)` checks
   ordinary permissions; `call.services` are the parts of the gateway. Errors of the core may go
   through: `api_errors` has a status for each; raise `bad_request`, `not_found`, ... for others.
3. Return a struct (200), `Listing` for lists (columns, sorting, filters and pages are done for you,
   in slices of the loop), `Reply(status, value, headers)`, `CREATED`, `NO_CONTENT`, or a
   `web.StreamResponse` that you prepared yourself.
4. Add a `Route` to the module's `ROUTES`, and a new module to `gateway/management/table.py`.

The order of the rows is the order of matching: `/users/without-permissions` comes before
`/users/{user}`. `{vhost}` may be empty in a URL (`/api/queues//`), which is the virtual host `/`,
and every path may end with a slash. The document of the API (`/api/openapi.json`) is made of this
table.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import msgspec

from gateway.management.call import Call
from gateway.management.roles import Role

MOST_BODY_BYTES: Final = 64 * 1024
DEFAULT_STATUSES: Final[Mapping[str, tuple[int, ...]]] = {
    "GET": (HTTPStatus.OK,),
    "POST": (HTTPStatus.OK,),
    "PUT": (HTTPStatus.CREATED, HTTPStatus.NO_CONTENT),
    "DELETE": (HTTPStatus.NO_CONTENT,),
}
VHOST: Final = "vhost"
_PLACE: Final = re.compile(r"\{(\w+)\}")

Handler = Callable[[Call[Any, Any]], Awaitable[Any]]


class Query(msgspec.Struct, kw_only=True, frozen=True):
    """The parameters of a URL."""


class Body(msgspec.Struct, kw_only=True, frozen=True):
    """The JSON object in a request."""


class NoQuery(Query, frozen=True):
    """No parameters; those that are there are ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One row of the table. `path` is the whole path, with `{names}` for its variable parts.
    `answer` is the type of the answer, or of one row where `is_list`."""

    method: str
    path: str
    handler: Handler
    summary: str
    role: Role = Role.MANAGEMENT
    query: type[msgspec.Struct] = NoQuery
    body: Any = None  # a type that msgspec decodes; None: the body is not read
    answer: Any = None  # a type that msgspec encodes; None: no content
    is_list: bool = False
    statuses: tuple[int, ...] = ()  # that carry the answer; empty: what is usual for the method
    most_body_bytes: int = MOST_BODY_BYTES
    is_never: bool = False  # answers 404 with a reason: RabbitMQ has it, and this gateway will not
    extra: Mapping[str, Any] = field(default_factory=dict)  # more for its place in the document

    @property
    def successes(self) -> tuple[int, ...]:
        return self.statuses or DEFAULT_STATUSES[self.method]

    @property
    def names(self) -> list[str]:
        """The variable parts of the path."""
        return _PLACE.findall(self.path)

    @property
    def patterns(self) -> tuple[str, str]:
        """The path as aiohttp's router matches it, without and with a slash at its end. The virtual
        host may be empty where a slash follows: `/api/vhosts/` names none."""
        path = _PLACE.sub(_pattern, self.path + "/")
        last = _PLACE.sub(_pattern, self.path)
        return last, path


def _pattern(found: re.Match[str]) -> str:
    may_be_empty = found[1] == VHOST and found.string[found.end() :].startswith("/")
    return f"{{{found[1]}:[^/]{'*' if may_be_empty else '+'}}}"
