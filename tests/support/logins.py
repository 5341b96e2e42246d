"""Logins of the kinds that the guide tells DBAs to make, for tests of what those may and see."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import asyncpg

_numbers = itertools.count(1)


@asynccontextmanager
async def a_login(db: asyncpg.Connection, url: str, *roles: str) -> AsyncIterator[str]:
    """The URL of a login with these roles, which owns nothing and is gone afterwards."""
    name = f"login_{os.getpid()}_{next(_numbers)}"
    await db.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret' NOSUPERUSER")
    if roles:
        await db.execute(f"GRANT {', '.join(roles)} TO {name}")
    parts = urlsplit(url)
    try:
        yield parts._replace(netloc=f"{name}:secret@{parts.hostname}:{parts.port}").geturl()
    finally:
        await db.execute(f"DROP OWNED BY {name} CASCADE")
        await db.execute(f"DROP ROLE {name}")


@asynccontextmanager
async def logged_in(
    db: asyncpg.Connection, url: str, *roles: str
) -> AsyncIterator[asyncpg.Connection]:
    """A session of such a login."""
    async with a_login(db, url, *roles) as own_url:
        connection = await asyncpg.connect(own_url)
        try:
            yield connection
        finally:
            await connection.close()
