"""Logins over HTTP on the management listener: Basic credentials, and which tags open what.

Failures are counted and slowed down by `Auth`, as those of the protocols are.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from aiohttp import web

from gateway.management.api_errors import NOT_AUTHORIZED, ApiError, not_authorised
from gateway.management.roles import TAGS, Caller, Role
from gateway.management.services import HttpLogins
from queue_core.access.auth import UNKNOWN_HOST, Auth, Credentials, Identity, Peer
from queue_core.errors import AccessRefused

REALM: Final = 'Basic realm="Howdah Management", charset="UTF-8"'
METRICS_LOGIN: Final = web.AppKey("metrics_login", bool)  # only users with a name see the metrics
NOBODY: Final = Identity("", is_anonymous=True)  # who calls a route that is open to anybody


async def identify(request: web.Request, auth: Auth) -> Identity:
    """Tells who asks, by the request's Authorization header; without one the client is anonymous,
    where such clients may come. Raises a 401."""
    peer = peer_of(request)
    try:
        return await auth.authenticate(_credentials(request), peer)
    except AccessRefused as error:
        raise _unauthorized(str(error)) from error


async def caller_of(request: web.Request, auth: Auth, role: Role, logins: HttpLogins) -> Caller:
    """Tells who calls a route that asks for a role. Raises a 401: for a login that failed with a
    challenge, for a user without the tag without one, as another password would not help."""
    peer = peer_of(request)
    if role is Role.ANYBODY:
        return Caller(NOBODY, peer)
    try:
        caller = Caller(await identify(request, auth), peer)
    except ApiError:
        logins.refused += 1
        raise
    logins.accepted += 1
    if not caller.has(role):
        tags = " or ".join(sorted(TAGS[role]))
        raise not_authorised(
            f"user '{caller.identity.name}' has none of the tags that this needs: {tags}; "
            "`howdah user add` with --tag gives one"
        )
    return caller


async def require_named_user(request: web.Request, auth: Auth) -> None:
    """Raises a 401 unless a user with a name asks for the metrics."""
    if "Authorization" not in request.headers or (await identify(request, auth)).is_anonymous:
        raise _unauthorized("metrics are for users with a name: send HTTP Basic credentials")


def peer_of(request: web.Request) -> Peer:
    """Describes the client's end of the connection that the request came on."""
    transport = request.transport
    return Peer.described_by(transport.get_extra_info) if transport else Peer(UNKNOWN_HOST)


def _unauthorized(reason: str) -> ApiError:
    return ApiError(401, NOT_AUTHORIZED, reason, {"WWW-Authenticate": REALM})


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
