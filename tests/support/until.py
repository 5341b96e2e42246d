"""Waiting until something holds that signals nobody: in another process, a database, the loop.

A wait ends as soon as its condition holds. Its patience says how long a busy machine may take, not
how fast the gateway is, and so it is generous. Here, and nowhere else, tests sleep to ask again.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Final

import asyncpg

PATIENCE_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 0.01

Condition = Callable[[], bool | Awaitable[bool]]
Words = str | Callable[[], str]  # what is awaited; a function adds what is known at the end


async def until(
    holds: Condition, what: Words = "the condition", seconds: float = PATIENCE_SECONDS
) -> None:
    """Asks again and again, a coroutine as well, and lets the event loop go on in between."""
    deadline = time.monotonic() + seconds
    while not await _answer(holds):
        assert time.monotonic() < deadline, _missed(what, seconds)
        await asyncio.sleep(PAUSE_SECONDS)


def wait_until(
    holds: Callable[[], bool], what: Words = "the condition", seconds: float = PATIENCE_SECONDS
) -> None:
    """Asks again and again in a test without an event loop; the thread does nothing else."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, _missed(what, seconds)
        time.sleep(PAUSE_SECONDS)


async def turns(count: int = 1) -> None:
    """Lets all that is ready on this event loop run, so many times; no time passes.

    For rules about order: a task has begun and waits now, nothing has come yet. Whoever waits for
    an effect uses `until_turned` or `until`, which do not know how many turns it takes.
    """
    for _ in range(count):
        await asyncio.sleep(0)  # a turn of the loop, and the only one that tests write out


async def until_turned(
    holds: Callable[[], bool], what: Words = "the condition", seconds: float = PATIENCE_SECONDS
) -> int:
    """Waits for what this event loop does by itself in a few turns; returns how many it took."""
    deadline, count = time.monotonic() + seconds, 0
    while not holds():
        assert time.monotonic() < deadline, _missed(what, seconds)
        await turns()
        count += 1
    return count


async def until_true(db: asyncpg.Connection, query: str, *arguments: object) -> None:
    """Asks a database until the first value of the query's first row is true."""

    async def is_true() -> bool:
        return bool(await db.fetchval(query, *arguments))

    await until(is_true, query)


async def until_signalled(holds: Callable[[], bool], changed: asyncio.Event) -> None:
    """Looks once, and again after each signal; for what tells of its changes."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():
            changed.clear()
            await changed.wait()


async def _answer(holds: Condition) -> bool:
    found = holds()
    return await found if inspect.isawaitable(found) else found


def _missed(what: Words, seconds: float) -> str:
    words = what if isinstance(what, str) else what()
    return f"after {seconds:g} s still not: {words}"
