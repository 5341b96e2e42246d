"""All routes of the HTTP API, from the modules that have them, and the document made of them."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any, Final

from gateway.management.answers import Reply, encoded
from gateway.management.call import Call
from gateway.management.compat import (
    bindings,
    broker,
    channels,
    connections,
    consumers,
    definitions,
    exchanges,
    health_checks,
    lavinmq,
    limits,
    links,
    messages,
    never,
    nodes,
    parameters,
    permissions,
    policies,
    queue_changes,
    queues,
    users,
    vhosts,
)
from gateway.management.openapi import document
from gateway.management.roles import Role
from gateway.management.routes import NoQuery, Route
from gateway.management.v1.table import ROUTES as OWN_API


async def openapi(call: Call[NoQuery, None]) -> Reply:
    return Reply(200, _document())


@cache
def _document() -> bytes:
    return encoded(document(ROUTES, version("howdah")))


OWN: Final = Route(
    method="GET",
    path="/api/openapi.json",
    handler=openapi,
    summary="This document (OpenAPI 3.1)",
    role=Role.ANYBODY,
    answer=dict[str, Any],
)
ROUTES: Final[tuple[Route, ...]] = (
    OWN,
    *queues.ROUTES,
    *queue_changes.ROUTES,
    *exchanges.ROUTES,
    *bindings.ROUTES,
    *messages.ROUTES,
    *lavinmq.ROUTES,
    *definitions.ROUTES,
    *users.ROUTES,
    *permissions.ROUTES,
    *vhosts.ROUTES,
    *connections.ROUTES,
    *channels.ROUTES,
    *consumers.ROUTES,
    *broker.ROUTES,
    *nodes.ROUTES,
    *health_checks.ROUTES,
    *policies.ROUTES,
    *limits.ROUTES,
    *parameters.ROUTES,
    *links.ROUTES,
    *OWN_API,
    *never.ROUTES,  # after all others of the same path
)
