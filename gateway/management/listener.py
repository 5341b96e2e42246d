"""The management listener: serves health, metrics, and a list of queues over HTTP.

Answers for what an orchestrator, Prometheus and a person with curl ask. It reads the manager and
changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from time import perf_counter
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from gateway.acceptor import ListenerCounters, ProtocolFactory
from gateway.config.keys import ManagementListener
from gateway.connections import Connections
from gateway.listeners import PRODUCT
from gateway.management.http_connection import OPTIONS, HttpConnection
from gateway.management.http_login import (
    METRICS_LOGIN,
    identify,
    peer_of,
    require_named_user,
)
from gateway.management.metrics import GatewayCollector
from queue_core.access.browser_origins import AllowedHosts
from queue_core.manager import Manager
from queue_core.queues.queue import Queue

SHUTDOWN_SECONDS: Final = 2.0
MOST_REQUEST_BYTES: Final = 64 * 1024
# The metrics are written again after this many times the time that writing them took.
SCRAPE_REST_FACTOR: Final = 10
LISTED_AT_ONCE: Final = 500  # queues, in a millisecond or two
PAUSE_SECONDS: Final = 0.005
HOSTS: Final = web.AppKey("hosts", AllowedHosts)
HEALTH: Final = "/health/"  # says nothing of anybody, also to those who name no host
MANAGER: Final = web.AppKey("manager", Manager)


class Scrapes:
    """Writes the text of /metrics once for all who ask at the same time, and those may be
    strangers. It takes some milliseconds, so it is not written again until ten times as long has
    passed. Nobody gets a text from before the question."""

    def __init__(self, collector: GatewayCollector) -> None:
        self._collector = collector
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._registry.register(collector)
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
LIST_TURN: Final = web.AppKey("list_turn", asyncio.Lock)


class Management:
    """Makes the connections of the management listener, and counts them."""

    def __init__(
        self,
        manager: Manager,
        connections: Connections,
        counters: Mapping[str, object],
        listener_counters: ListenerCounters,
        config: ManagementListener | None,
    ) -> None:
        asks = config is not None and config.metrics_login
        hosts = AllowedHosts(None if config is None else config.allowed_hosts)
        self._app = make_app(manager, connections, counters, metrics_login=asks, hosts=hosts)
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


def make_app(
    manager: Manager,
    connections: Connections,
    counters: Mapping[str, object],
    *,
    metrics_login: bool = False,
    hosts: AllowedHosts,
) -> web.Application:
    app = web.Application(
        client_max_size=MOST_REQUEST_BYTES, middlewares=[errors_as_json, asked_by_name]
    )
    app[MANAGER] = manager
    app[SCRAPES] = Scrapes(GatewayCollector(manager, connections, counters))
    app[LIST_TURN] = asyncio.Lock()
    app[METRICS_LOGIN] = metrics_login
    app[HOSTS] = hosts
    app.on_response_prepare.append(without_versions)
    app.router.add_get("/health/live", live)
    app.router.add_get("/health/ready", ready)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/api/queues", queues)
    return app


async def without_versions(_request: web.Request, response: web.StreamResponse) -> None:
    """Takes off the header that tells strangers which Python and which library answer."""
    response.headers.pop("Server", None)


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        known = "/health/live, /health/ready, /metrics, /api/queues"
        reason = error.text if error.text and error.status != 404 else f"there is {known}"
        return _json({"error": reason}, error.status, dict(error.headers))


@web.middleware
async def asked_by_name(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuses a page whose name was pointed at this machine (DNS rebinding)."""
    host = request.headers.get("Host")
    if not request.path.startswith(HEALTH) and not request.app[HOSTS].admit(host, peer_of(request)):
        raise web.HTTPMisdirectedRequest(
            text="nobody here has that name; list it in listeners.management.allowed_hosts"
        )
    return await handler(request)


async def live(request: web.Request) -> web.Response:
    """Answers that the process runs, and what it is: whoever finds the port taken may ask by
    whom."""
    return _json({"status": "live", "gateway": PRODUCT})


async def ready(request: web.Request) -> web.Response:
    """Answers if durable messages can be stored at this moment."""
    manager = request.app[MANAGER]
    if manager.memory.is_short:
        used, mark = manager.memory.used >> 20, manager.memory.mark >> 20
        reason = f"memory is short ({used} of {mark} MiB): publishers wait, consumers do not"
        return _json({"status": "not ready", "reason": reason}, 503)
    if manager.is_ready:
        return _json({"status": "ready"})
    reason = "the database is out of reach or does not keep up; durable publishes wait for it"
    return _json({"status": "not ready", "reason": reason}, 503)


async def metrics(request: web.Request) -> web.Response:
    """Serves counters and queues of all virtual hosts; where a login is asked for, to named
    users."""
    if request.app[METRICS_LOGIN]:
        await require_named_user(request, request.app[MANAGER].auth)
    text = await request.app[SCRAPES].text()
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})


async def queues(request: web.Request) -> web.Response:
    """Lists every queue of the virtual hosts that the user may enter."""
    manager = request.app[MANAGER]
    identity = await identify(request, manager.auth)
    found: list[dict[str, object]] = []
    async with request.app[LIST_TURN]:  # one at a time, and others get their turn in between
        for vhost in list(manager.vhosts.values()):
            if not manager.auth.may_enter(identity, vhost.name):
                continue
            for number, queue in enumerate(list(vhost.queues.values()), 1):
                found.append(_described(vhost.name, queue))
                if number % LISTED_AT_ONCE == 0:
                    await asyncio.sleep(PAUSE_SECONDS)
        found.sort(key=lambda queue: (queue["vhost"], queue["name"]))
        return _json(found)


def _described(vhost: str, queue: Queue) -> dict[str, object]:
    counts = queue.counts()
    return {
        "vhost": vhost,
        "name": queue.name,
        "kind": queue.spec.kind.value,
        "arguments": dict(queue.spec.arguments),
        "ready": counts.ready,
        "in_flight": counts.in_flight,
        "delayed": counts.delayed,
        "consumers": counts.consumers,
    }


def _json(value: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    kept = {k: v for k, v in (headers or {}).items() if k.lower() == "www-authenticate"}
    body = msgspec.json.encode(value, enc_hook=str) + b"\n"
    return web.Response(
        body=body, status=status, headers=kept, content_type="application/json", charset="utf-8"
    )
