"""Answers of the HTTP API: JSON with an ETag, compressed where that is worth it, never cached
without a question.

Compression runs in slices of the loop, too.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import msgspec
from aiohttp import web

from gateway.management.api_errors import ApiError
from gateway.management.loop_share import LoopShare

LEAST_COMPRESSED_BYTES: Final = 1024
COMPRESSED_AT_ONCE: Final = 64 * 1024  # bytes, in half a millisecond
GZIP_LEVEL: Final = 1  # the others take two to five times as long for a tenth less
GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS  # a gzip header around deflate
HEADERS: Final = {"Cache-Control": "no-cache", "Vary": "accept, accept-encoding, origin"}
JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer with a status of its own. `value` is encoded as JSON; None: there is no body."""

    status: int
    value: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


CREATED: Final = Reply(HTTPStatus.CREATED)
NO_CONTENT: Final = Reply(HTTPStatus.NO_CONTENT)


def created_or_changed(*, is_new: bool) -> Reply:
    """Answers a PUT: 201 for what is new, 204 for what was there."""
    return CREATED if is_new else NO_CONTENT


def encoded(value: Any) -> bytes:
    """Encodes an answer. Values that JSON does not have are written as text."""
    return msgspec.json.encode(value, enc_hook=str)


def error_response(error: ApiError) -> web.Response:
    """Makes the answer to a request that cannot be met."""
    return web.Response(
        status=error.status,
        body=encoded(error.body),
        headers={**HEADERS, **error.headers},
        content_type=JSON,
        charset="utf-8",
    )


async def respond(request: web.Request, share: LoopShare, reply: Reply) -> web.Response:
    """Makes the answer to a request that is met. One who has the same already gets a 304."""
    headers = {**HEADERS, **reply.headers}
    if reply.value is None:
        return web.Response(status=reply.status, headers=headers)
    body = reply.value if isinstance(reply.value, bytes) else encoded(reply.value)
    if reply.status == HTTPStatus.OK and request.method in ("GET", "HEAD"):
        headers["ETag"] = tag = etag(body)
        if _has_already(request, tag):
            return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
    if len(body) > LEAST_COMPRESSED_BYTES and takes_gzip(request):
        headers["Content-Encoding"] = "gzip"
        body = b"".join([part async for part in compressed(share, body)])
    return web.Response(
        status=reply.status, body=body, headers=headers, content_type=JSON, charset="utf-8"
    )


def etag(body: bytes) -> str:
    """Makes a weak tag, because the same answer comes compressed and not."""
    return f'W/"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'


def _has_already(request: web.Request, tag: str) -> bool:
    given = request.headers.get("If-None-Match", "")
    return given.strip() == "*" or tag in (each.strip() for each in given.split(","))


def takes_gzip(request: web.Request) -> bool:
    """Tells whether the client takes gzip, by its Accept-Encoding."""
    for each in request.headers.get("Accept-Encoding", "").lower().split(","):
        name, _, weight = each.strip().partition(";")
        if name.strip() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


class Gzip:
    """Compresses a body piece by piece."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP_WINDOW)

    def add(self, part: bytes) -> bytes:
        return self._deflate.compress(part)

    def end(self) -> bytes:
        return self._deflate.flush()


async def compressed(share: LoopShare, body: bytes) -> Any:
    """Yields a compressed body in pieces, without holding the loop for long."""
    gzip = Gzip()
    async for parts in share.slices(_pieces(body), gzip.add):
        for part in parts:
            yield part
    yield gzip.end()


def _pieces(body: bytes) -> Iterator[bytes]:
    view = memoryview(body)
    return (
        bytes(view[at : at + COMPRESSED_AT_ONCE]) for at in range(0, len(body), COMPRESSED_AT_ONCE)
    )
