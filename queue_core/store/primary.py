"""Connections to the primary: of the hosts that a URL names, the one that takes writes.

A host that does not answer holds nobody up: the next one is asked a moment later, and whichever
takes writes first is used. Answers for finding the server; what is done there, others know.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

import asyncpg

CONNECT_SECONDS: Final = 10.0  # for all hosts together
HEAD_START_SECONDS: Final = 0.25  # of a host, before the next one is asked beside it
ATTRIBUTE: Final = "target_session_attrs"
WRITABLE: Final = "read-write"

# The server is there and cannot serve yet, or not this one: another host may.
PASSING: Final = (asyncpg.CannotConnectNowError, asyncpg.TooManyConnectionsError)
READ_ONLY: Final = asyncpg.TargetServerAttributeNotMatched


class NoPrimary(ConnectionError):
    """None of the hosts that a URL names can be used; says why, host by host."""


def host_urls(url: str) -> list[str]:
    """Takes a URL with several hosts apart: one URL for each, in the order that they stand in."""
    parts = urlsplit(url)
    login, at, hosts = parts.netloc.rpartition("@")
    if hosts:
        return [_joined(parts, netloc=f"{login}{at}{host}") for host in hosts.split(",")]
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    names, ports = query.get("host", "").split(","), query.get("port", "").split(",")
    if len(names) == 1:
        return [url]
    if len(ports) == 1:
        ports *= len(names)
    return [
        _joined(parts, query=urlencode({**query, "host": name, "port": port}))
        for name, port in zip(names, ports, strict=True)
    ]


def writable(url: str) -> str:
    """Asks for a server that takes writes, unless the URL says what kind it wants."""
    parts = urlsplit(url)
    if any(name == ATTRIBUTE for name, _ in parse_qsl(parts.query, keep_blank_values=True)):
        return url
    query = f"{parts.query}&" if parts.query else ""
    return _joined(parts, query=f"{query}{ATTRIBUTE}={WRITABLE}")


def _joined(parts: SplitResult, **changed: str) -> str:
    """Puts a URL together again; `geturl` would leave out the slashes where there is no host."""
    found = parts._replace(**changed)
    return f"{found.scheme}://{found.netloc}{found.path}" + (
        f"?{found.query}" if found.query else ""
    )


async def connect_to_primary(
    url: str, *, seconds: float = CONNECT_SECONDS, **options: Any
) -> asyncpg.Connection:
    """Connects to the server that takes writes. Raises NoPrimary where there is none among the
    hosts, and what PostgreSQL says where it refuses the login."""
    return await _connect_to_one([writable(each) for each in host_urls(url)], seconds, options)


async def connect_to_any(
    url: str, *, seconds: float = CONNECT_SECONDS, **options: Any
) -> asyncpg.Connection:
    """Connects to the one host of a URL, also to a standby: for commands, which may only read, and
    for checks that say what a server lacks. Of several hosts it is the primary."""
    urls = host_urls(url)
    if len(urls) > 1:
        return await connect_to_primary(url, seconds=seconds, **options)
    return await asyncpg.connect(url, timeout=seconds, **options)


async def _connect_to_one(
    urls: Sequence[str], seconds: float, options: dict[str, Any]
) -> asyncpg.Connection:
    end = asyncio.get_running_loop().time() + seconds
    waiting, errors = deque(urls), list[tuple[str, BaseException]]()
    attempts: dict[asyncio.Task[asyncpg.Connection], str] = {}
    try:
        while waiting or attempts:
            if waiting:
                url = waiting.popleft()
                attempts[asyncio.create_task(_attempt(url, end, options))] = url
            head_start = HEAD_START_SECONDS if waiting else None
            await asyncio.wait(attempts, timeout=head_start, return_when=asyncio.FIRST_COMPLETED)
            for attempt in [each for each in attempts if each.done()]:
                url = attempts.pop(attempt)
                error = attempt.exception()
                if error is None:
                    return attempt.result()
                errors.append((url, error))
    finally:
        await _give_up(list(attempts))
    raise _told(errors)


async def _attempt(url: str, end: float, options: dict[str, Any]) -> asyncpg.Connection:
    left = max(end - asyncio.get_running_loop().time(), 0.001)
    return await asyncpg.connect(url, timeout=left, **options)


async def _give_up(attempts: list[asyncio.Task[asyncpg.Connection]]) -> None:
    """Ends attempts that nobody waits for any more, and connections that came too late."""
    for attempt in attempts:
        attempt.cancel()
    for found in await asyncio.gather(*attempts, return_exceptions=True):
        if not isinstance(found, BaseException):
            found.terminate()


def _told(errors: list[tuple[str, BaseException]]) -> BaseException:
    """Makes one error of several hosts': a server's refusal of the login comes first, since no
    other host would take it either."""
    for _, error in errors:
        if isinstance(error, asyncpg.PostgresError) and not isinstance(error, PASSING):
            return error
    if len(errors) == 1:
        [(_, only)] = errors
        return NoPrimary(_reason(only)) if isinstance(only, READ_ONLY) else only
    return NoPrimary("; ".join(f"{place(url)}: {_reason(error)}" for url, error in errors))


def place(url: str) -> str:
    """Names the host of a URL with its port, as a message may show it."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    host = parts.netloc.rpartition("@")[2] or query.get("host") or "localhost"
    has_port = ":" in host.rpartition("]")[2]
    return host if has_port else f"{host}:{query.get('port') or 5432}"


def _reason(error: BaseException) -> str:
    if isinstance(error, READ_ONLY):
        return "it takes no writes: a standby, or a primary that is told to be read-only"
    if isinstance(error, TimeoutError):
        return "it does not answer"
    return str(error) or type(error).__name__
