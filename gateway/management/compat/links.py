"""Shovels and federation links: `/api/shovels` and `/api/federation-links`. Monitoring tools ask
for them wherever they run; there are none, so that both lists are empty."""

from __future__ import annotations

from typing import Any, Final

from gateway.management.call import Call
from gateway.management.lists import Listing, ListQuery
from gateway.management.roles import Role
from gateway.management.routes import Route


async def list_none(call: Call[ListQuery, None]) -> Listing[dict[str, Any]]:
    if "vhost" in call.path:
        call.vhost()
    return Listing([], lambda row: row)


def _list(path: str, summary: str) -> Route:
    return Route(
        method="GET",
        path=path,
        handler=list_none,
        summary=summary,
        role=Role.MONITORING,
        query=ListQuery,
        answer=dict[str, Any],
        is_list=True,
    )


ROUTES: Final = (
    _list("/api/shovels", "The shovels: none"),
    _list("/api/shovels/{vhost}", "The shovels of a virtual host: none"),
    _list("/api/federation-links", "The federation links: none"),
    _list("/api/federation-links/{vhost}", "The federation links of a virtual host: none"),
)
