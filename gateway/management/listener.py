"""The management listener: serves health, metrics and the HTTP API.

Answers for what an orchestrator, Prometheus and a person with curl ask, and for the application
that the table of routes is put into.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from time import perf_counter
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from gateway.acceptor import ListenerCounters, ProtocolFactory
from gateway.listeners import PRODUCT
from gateway.management.api_errors import ApiError
from gateway.management.cluster_metrics import ClusterCollector
from gateway.management.dispatch import SERVICES, add_routes, errors_as_json
from gateway.management.http_connection import OPTIONS, HttpConnection
from gateway.management.http_login import METRICS_LOGIN, peer_of, require_named_user
from gateway.management.metrics import GatewayCollector
from gateway.management.services import Services
from gateway.management.table import ROUTES
from gateway.management.v1.live_feed import FEED, LiveFeed
from queue_core.access.browser_origins import AllowedHosts
from queue_core.manager import Manager

SHUTDOWN_SECONDS: Final = 2.0
# The metrics are written again after this many times the time that writing them took.
SCRAPE_REST_FACTOR: Final = 10
HOSTS: Final = web.AppKey("hosts", AllowedHosts)
HEALTH: Final = "/health/"  # says nothing of anybody, also to those who name no host


class Scrapes:
    """Writes the text of /metrics once for all who ask at the same time, and those may be
    strangers. It takes some milliseconds, so it is not written again until ten times as long has
    passed. Nobody gets a text from before the question."""

    def __init__(self, collector: GatewayCollector, *others: Collector) -> None:
        self._collector = collector
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        for each in (collector, *others):
            self._registry.register(each)
        self._next: asyncio.Task[bytes] | None = None  # that nobody has begun to write
        self._turn = asyncio.Lock()
        self._free_at = 0.0

    async def text(self) -> bytes:
        if self._next is None:
            self._next = asyncio.create_task(self._write())
        return await asyncio.shield(self._next)

    async def _write(self) -> bytes:
        async with self._turn:
            await asyncio.sleep(self._free_at - perf_counter())
            self._next = None
            began = perf_counter()
            await self._collector.survey()
            text = generate_latest(self._registry)
            now = perf_counter()
            self._free_at = now + SCRAPE_REST_FACTOR * (now - began)
            return text


SCRAPES: Final = web.AppKey("scrapes", Scrapes)


class Management:
    """Makes the connections of the management listener, and counts them."""

    def __init__(self, services: Services, listener_counters: ListenerCounters) -> None:
        self._app = make_app(services)
        self._counters = listener_counters
        self._open: dict[HttpConnection, None] = {}  # the oldest first

    @property
    def present(self) -> int:
        """The number of connections that are open."""
        return len(self._open)

    def oldest(self) -> float | None:
        """Returns when the oldest open connection came, by the loop's clock; None if there is
        none."""
        return next((each.since for each in self._open), None)

    def end_oldest(self) -> None:
        connection = next(iter(self._open))
        del self._open[connection]
        connection.give_way()

    async def open(self, stack: AsyncExitStack) -> ProtocolFactory:
        """Returns the factory of HTTP connections for the listener; it works until the stack
        unwinds."""
        runner = web.AppRunner(self._app, shutdown_timeout=SHUTDOWN_SECONDS, **OPTIONS)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        assert runner.server is not None  # it is, after setup
        server = runner.server
        return lambda: HttpConnection(server, self._counters, self._open)


def make_app(services: Services) -> web.Application:
    config = services.config.listeners.management
    app = web.Application(middlewares=[errors_as_json, asked_by_name])
    collector = GatewayCollector(services.manager, services.connections, services.counters)
    node = services.manager.node
    app[SCRAPES] = Scrapes(collector, *([] if node is None else [ClusterCollector(node)]))
    app[METRICS_LOGIN] = config is not None and config.metrics_login
    app[HOSTS] = AllowedHosts(None if config is None else config.allowed_hosts)
    app.on_response_prepare.append(without_versions)
    app.router.add_get("/health/live", live)
    app.router.add_get("/health/ready", ready)
    app.router.add_get("/metrics", metrics)
    add_routes(app, services, ROUTES)
    app[FEED] = feed = LiveFeed(services)
    app.on_shutdown.append(lambda _: feed.stop())
    return app


async def without_versions(_request: web.Request, response: web.StreamResponse) -> None:
    """Takes off the header that tells strangers which Python and which library answer."""
    response.headers.pop("Server", None)


@web.middleware
async def asked_by_name(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuses a page whose name was pointed at this machine (DNS rebinding)."""
    host = request.headers.get("Host")
    if not request.path.startswith(HEALTH) and not request.app[HOSTS].admit(host, peer_of(request)):
        reason = "nobody here has that name; list it in listeners.management.allowed_hosts"
        raise ApiError(421, "misdirected_request", reason)
    return await handler(request)


async def live(request: web.Request) -> web.Response:
    """Answers that the process runs, and what it is: whoever finds the port taken may ask by
    whom."""
    return json_answer({"status": "live", "gateway": PRODUCT})


async def ready(request: web.Request) -> web.Response:
    """Answers if durable messages can be stored at this moment."""
    manager = request.app[SERVICES].manager
    if manager.memory.is_short:
        used, mark = manager.memory.used >> 20, manager.memory.mark >> 20
        reason = f"memory is short ({used} of {mark} MiB): publishers wait, consumers do not"
        return json_answer({"status": "not ready", **_role(manager), "reason": reason}, 503)
    if manager.is_ready:
        return json_answer({"status": "ready", **_role(manager)})
    reason = "the database is out of reach or does not keep up; durable publishes wait for it"
    return json_answer({"status": "not ready", **_role(manager), "reason": reason}, 503)


def _role(manager: Manager) -> dict[str, str]:
    """Says which node of a cluster this is; nothing where the gateway is in none."""
    if manager.node is None:
        return {}
    return {"role": "active", "node": manager.node.terms.name}


async def metrics(request: web.Request) -> web.Response:
    """Serves counters and queues of all virtual hosts; where a login is asked for, to named
    users."""
    if request.app[METRICS_LOGIN]:
        await require_named_user(request, request.app[SERVICES].manager.auth)
    text = await request.app[SCRAPES].text()
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})


def json_answer(value: object, status: int = 200) -> web.Response:
    body = msgspec.json.encode(value) + b"\n"
    return web.Response(body=body, status=status, content_type="application/json", charset="utf-8")
