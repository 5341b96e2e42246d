"""The management listener of a node that stands by: it lives, it is not ready, and says which node
serves; with the metrics of its part in the cluster.

A standby reads no passwords: where the metrics are for users with a name, it has none to show.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from gateway.acceptor import ListenerCounters, ProtocolFactory
from gateway.config.keys import ManagementListener
from gateway.management.api_errors import UNAVAILABLE, ApiError
from gateway.management.cluster_metrics import ClusterCollector
from gateway.management.dispatch import errors_as_json
from gateway.management.http_connection import OPTIONS, HttpConnection
from gateway.management.http_login import METRICS_LOGIN
from gateway.management.listener import (
    HOSTS,
    SHUTDOWN_SECONDS,
    asked_by_name,
    json_answer,
    live,
    without_versions,
)
from queue_core.access.browser_origins import AllowedHosts
from queue_core.store.nodes.cluster_node import ClusterNode

NODE: Final = web.AppKey("node", ClusterNode)
METRICS: Final = web.AppKey("metrics", CollectorRegistry)


async def open_standby(
    node: ClusterNode, config: ManagementListener | None, stack: AsyncExitStack
) -> ProtocolFactory:
    """Returns the factory of HTTP connections for a node that stands by; it works until the stack
    unwinds."""
    app = web.Application(middlewares=[errors_as_json, asked_by_name])
    app[HOSTS] = AllowedHosts(None if config is None else config.allowed_hosts)
    app[METRICS_LOGIN] = config is not None and config.metrics_login
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    registry.register(ClusterCollector(node))
    app[NODE], app[METRICS] = node, registry
    app.on_response_prepare.append(without_versions)
    app.router.add_get("/health/live", live)
    app.router.add_get("/health/ready", ready)
    app.router.add_get("/metrics", metrics)
    app.router.add_route("*", "/api{rest:(/.*)?}", elsewhere)
    runner = web.AppRunner(app, shutdown_timeout=SHUTDOWN_SECONDS, **OPTIONS)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    assert runner.server is not None  # it is, after setup
    server, counters, present = runner.server, ListenerCounters(), dict[HttpConnection, None]()
    return lambda: HttpConnection(server, counters, present)


async def ready(request: web.Request) -> web.Response:
    """Answers that this node stands by, and who serves."""
    node = request.app[NODE]
    reason = _reason(node)
    body = {"status": "not ready", "role": "standby", "node": node.terms.name, "reason": reason}
    return json_answer(body, 503)


async def elsewhere(request: web.Request) -> web.Response:
    """Answers whoever asks a standby for the HTTP API, which the node that serves has."""
    body = {
        "error": UNAVAILABLE,
        "reason": f"{_reason(request.app[NODE])}; the HTTP API is with whoever serves",
    }
    return json_answer(body, 503)


def _reason(node: ClusterNode) -> str:
    serving = node.serving
    who = f"node '{serving}' serves" if serving else "no node serves yet"
    return f"this node stands by; {who}"


async def metrics(request: web.Request) -> web.Response:
    """Serves the metrics of this node. Raises 503 where they are for users with a name."""
    if request.app[METRICS_LOGIN]:
        reason = (
            "this node stands by and checks no logins, which listeners.management.metrics_login "
            "asks for; ask the node that serves"
        )
        raise ApiError(503, UNAVAILABLE, reason)
    text = generate_latest(request.app[METRICS])
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})
