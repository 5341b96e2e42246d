"""Reading a request of the HTTP API: its query and its body become the structs of its route.

A body is read only after the login, up to the limit of its route and within a time, and few large
ones are held at a time.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from gateway.management.api_errors import BAD_REQUEST, ApiError, bad_request
from gateway.management.routes import Route

BODY_SECONDS: Final = 30.0  # for the whole body to come
LARGE_BODY_BYTES: Final = 1024 * 1024
MOST_LARGE_BODIES: Final = 2  # held at once; others wait for their turn
MOST_QUERY_PARAMETERS: Final = 64
NOT_JSON: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


class Bodies:
    """Reads the bodies of requests. Large ones wait for each other."""

    def __init__(self) -> None:
        self._large = asyncio.Semaphore(MOST_LARGE_BODIES)

    async def read(self, route: Route, request: web.Request) -> Any:
        """Returns the body as the type of the route, or None where it takes none. Raises 400, 408
        or 413."""
        if route.body is None:
            return None
        if (request.content_length or 0) > route.most_body_bytes:
            raise _too_large(route)
        if route.most_body_bytes <= LARGE_BODY_BYTES or _is_small(request):
            return decoded(route.body, await _whole(route, request))
        async with self._large:
            return decoded(route.body, await _whole(route, request))


def query_of(route: Route, request: web.Request) -> Any:
    """Converts the parameters of the URL; one that is empty counts as not given. Raises 400."""
    if len(request.query) > MOST_QUERY_PARAMETERS:
        raise bad_request(f"a query has at most {MOST_QUERY_PARAMETERS} parameters")
    given = {name: value for name, value in request.query.items() if value}
    try:
        return msgspec.convert(given, route.query, strict=False)
    except msgspec.ValidationError as error:
        raise bad_request(f"a parameter of the URL is wrong: {error}") from None


def decoded(kind: Any, raw: bytes) -> Any:
    """Decodes a JSON body; an empty one is an object without fields, as in RabbitMQ. Raises 400
    with the place of what is wrong, and none of the values: they may be secrets. A route whose
    body is bytes reads it by itself."""
    if kind is bytes:
        return raw
    try:
        return msgspec.json.decode(raw or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise bad_request(f"the body is wrong: {error}") from None
    except NOT_JSON as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ApiError(400, "not_json", f"the body is not JSON in UTF-8: {why}") from None


def _is_small(request: web.Request) -> bool:
    length = request.content_length
    return length is not None and length <= LARGE_BODY_BYTES


async def _whole(route: Route, request: web.Request) -> bytes:
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.content.iter_any():
                size += len(part)
                if size > route.most_body_bytes:
                    raise _too_large(route)
                parts.append(part)
    except TimeoutError:
        reason = f"the body did not come within {BODY_SECONDS:.0f} s"
        raise ApiError(408, BAD_REQUEST, reason, {"Connection": "close"}) from None
    except (web.RequestPayloadError, HttpProcessingError):
        raise bad_request("the body ends early, or its transfer coding is wrong") from None
    return b"".join(parts)


def _too_large(route: Route) -> ApiError:
    return ApiError(
        413, BAD_REQUEST, f"the body may have at most {route.most_body_bytes} bytes here"
    )
