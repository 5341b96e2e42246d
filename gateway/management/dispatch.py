"""The way of a request of the HTTP API: login, tags, query, body, handler, answer.

Answers for the order of these steps, and for an error's answer whatever step it comes from.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.management.answers import Reply, error_response, respond
from gateway.management.api_errors import UNAVAILABLE, ApiError, from_core
from gateway.management.call import Call
from gateway.management.http_login import caller_of, peer_of
from gateway.management.lists import Listing, chosen, columns_of, send_list
from gateway.management.request_reading import Bodies, query_of
from gateway.management.routes import Route
from gateway.management.services import Services
from queue_core.access.browser_origins import AllowedOrigins
from queue_core.errors import CoreError

logger = logging.getLogger(__name__)

SERVICES: Final = web.AppKey("services", Services)
BODIES: Final = web.AppKey("bodies", Bodies)
OWN_PAGES: Final = AllowedOrigins()
HARMLESS: Final = ("GET", "HEAD", "OPTIONS")
KNOWN: Final = "/health/live, /health/ready, /metrics, and /api/openapi.json lists the rest"


def add_routes(app: web.Application, services: Services, routes: Iterable[Route]) -> None:
    """Puts the table of routes into an application."""
    app[SERVICES] = services
    app[BODIES] = Bodies()
    for route in routes:
        for pattern in route.patterns:
            serve = _server_of(route)
            if route.method == "GET":
                app.router.add_get(pattern, serve)  # and HEAD
            else:
                app.router.add_route(route.method, pattern, serve)


def _server_of(route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def serve(request: web.Request) -> web.StreamResponse:
        return await _serve(route, request)

    return serve


async def _serve(route: Route, request: web.Request) -> web.StreamResponse:
    services = request.app[SERVICES]
    _require_own_page(request)
    caller = await caller_of(request, services.manager.auth, route.role, services.http_logins)
    query = query_of(route, request)
    body = await request.app[BODIES].read(route, request)
    call: Call[Any, Any] = Call(request, services, caller, query, body)
    return await _answered(call, await route.handler(call))


async def _answered(call: Call[Any, Any], answer: Any) -> web.StreamResponse:
    share = call.services.loop_share
    if isinstance(answer, web.StreamResponse):
        return answer
    if isinstance(answer, Listing):
        return await send_list(call.request, share, answer, call.query)
    if not isinstance(answer, Reply):
        columns = columns_of(call.query)
        answer = Reply(200, chosen(answer, columns) if columns else answer)
    return await respond(call.request, share, answer)


def _require_own_page(request: web.Request) -> None:
    """Refuses changes that a page of somebody else's makes a browser ask for: on loopback the
    browser needs no login. Programs that are no browsers send no origin. Raises 403."""
    origin = request.headers.get("Origin")
    if request.method in HARMLESS or origin is None:
        return
    if not OWN_PAGES.admit(origin, request.headers.get("Host"), peer_of(request)):
        raise ApiError(403, "forbidden", "a page of another origin may not change anything here")


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answers every error as JSON. Nothing that a client sent is in the log but the method."""
    try:
        return await handler(request)
    except ApiError as error:
        return error_response(error)
    except CoreError as error:
        return error_response(from_core(error))
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return error_response(_from_http(error))
    except TimeoutError:
        return error_response(ApiError(503, UNAVAILABLE, "this took too long; try again"))
    except Exception as error:
        if isinstance(error, ConnectionError) and _is_gone(request):
            raise
        resource = request.match_info.route.resource  # not the path: a name in it may be a secret
        path = "a request" if resource is None else resource.canonical
        logger.exception("a bug: %s %s failed", request.method, path)
        reason = "a bug of the gateway; its log has the trace"
        return error_response(ApiError(500, "internal_error", reason))


def _is_gone(request: web.Request) -> bool:
    """Tells whether the client has ended the connection."""
    return request.transport is None or request.transport.is_closing()


def _from_http(error: web.HTTPException) -> ApiError:
    """Makes our answer of aiohttp's own."""
    if error.status == 404:
        return ApiError(404, "Object Not Found", f"there is nothing here; there is {KNOWN}")
    headers = {name: value for name, value in error.headers.items() if name == "Allow"}
    name = "method_not_allowed" if error.status == 405 else "bad_request"
    return ApiError(error.status, name, error.text or error.reason, headers)
