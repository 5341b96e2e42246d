"""Logins over HTTP on the management listener: Basic credentials, and who may see the metrics."""

from __future__ import annotations

import base64
import binascii
from typing import Final

from aiohttp import web

from queue_core.access.auth import UNKNOWN_HOST, Auth, Credentials, Identity, Peer
from queue_core.errors import AccessRefused

REALM: Final = 'Basic realm="howdah", charset="UTF-8"'
METRICS_LOGIN: Final = web.AppKey("metrics_login", bool)  # only users with a name see the metrics


async def identify(request: web.Request, auth: Auth) -> Identity:
    """Tells who asks, by the request's Authorization header; without one the client is anonymous,
    where such clients may come. Raises HTTPUnauthorized."""
    peer = peer_of(request)
    try:
        return await auth.authenticate(_credentials(request), peer)
    except AccessRefused as error:
        raise _unauthorized(str(error)) from error


async def require_named_user(request: web.Request, auth: Auth) -> None:
    """Raises HTTPUnauthorized unless a user with a name asks for the metrics."""
    if "Authorization" not in request.headers or (await identify(request, auth)).is_anonymous:
        raise _unauthorized("metrics are for users with a name: send HTTP Basic credentials")


def peer_of(request: web.Request) -> Peer:
    """Describes the client's end of the connection that the request came on."""
    transport = request.transport
    return Peer.described_by(transport.get_extra_info) if transport else Peer(UNKNOWN_HOST)


def _unauthorized(text: str) -> web.HTTPUnauthorized:
    return web.HTTPUnauthorized(text=text, headers={"WWW-Authenticate": REALM})


def _credentials(request: web.Request) -> Credentials:
    header = request.headers.get("Authorization")
    if header is None:
        return Credentials.given(None, None)
    scheme, _, value = header.partition(" ")
    try:
        if scheme.lower() != "basic":
            raise ValueError
        username, _, password = base64.b64decode(value, validate=True).partition(b":")
        return Credentials.given(username.decode(), password)
    except (ValueError, binascii.Error):
        raise AccessRefused("send HTTP Basic credentials: user and password") from None
