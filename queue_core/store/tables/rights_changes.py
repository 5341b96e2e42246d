"""Changes of users, permissions and virtual hosts: the gateway hears of them by NOTIFY, and
confirms them when they are in force.

A trigger says on one channel that something was changed. Whoever wants to know when the gateway has
taken it over says a token there, and hears it back on another. Nobody is trusted for what is said:
the gateway reads the tables, and a lost word costs the second until it looks by itself.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Any, Final

import asyncpg
from sqlalchemy.ext.asyncio import AsyncEngine

from queue_core.errors import StoreUnavailable
from queue_core.store.log_once import Complaints
from queue_core.store.operator.queue_operations import IS_SERVED
from queue_core.store.primary import connect_to_primary
from queue_core.store.retry_rules import AWAY
from queue_core.store.tcp_keepalive import keep_alive

log = logging.getLogger(__name__)

CHANGED: Final = "howdah_rights"
IN_FORCE: Final = "howdah_rights_in_force"
WAKE: Final = "howdah_wake"  # said by the SQL function wake()
TELL: Final = "SELECT pg_notify($1, token) FROM unnest($2::text[]) token"
SETTINGS: Final = {"application_name": "howdah gateway (rights)", "timezone": "UTC"}
RETRY_SECONDS: Final = 0.5
CONFIRM_SECONDS: Final = 10.0
MOST_TOKENS: Final = 1000  # of commands that wait at the same time
LONGEST_TOKEN: Final = 64


class RightsListener:
    """Calls `refresh` whenever rights were changed, and confirms. `refresh` returns True if all
    that was committed before the call is in force."""

    def __init__(
        self, url: str, refresh: Callable[[], Awaitable[bool]], on_wake: Callable[[], None]
    ) -> None:
        self._url = url
        self._refresh = refresh
        self._on_wake = on_wake  # somebody published from SQL and does not want to wait for a look
        self._complain = Complaints(log).warn
        self._is_changed = asyncio.Event()
        self._tokens: list[str] = []

    async def run(self) -> None:
        """Listens until it is cancelled; connects again after the database was away."""
        while True:
            try:
                await self._listen()
            except (*AWAY, TimeoutError) as error:
                self._complain(
                    "changes of users and permissions are noticed within a second, not at once: %s",
                    error,
                )
            await asyncio.sleep(RETRY_SECONDS)

    async def _listen(self) -> None:
        connection = await connect_to_primary(self._url, server_settings=SETTINGS)
        try:
            await keep_alive(connection)
            connection.add_termination_listener(lambda _: self._is_changed.set())
            await connection.add_listener(CHANGED, self._on_changed)
            await connection.add_listener(WAKE, lambda *_: self._on_wake())
            self._is_changed.set()  # what was changed before somebody listened
            while True:
                await self._is_changed.wait()
                self._is_changed.clear()
                if connection.is_closed():
                    return
                await self._take_over(connection)
        finally:
            with suppress(*AWAY, TimeoutError):
                await connection.close(timeout=5)

    async def _take_over(self, connection: asyncpg.Connection) -> None:
        tokens, self._tokens = self._tokens, []
        try:
            is_in_force = await self._refresh()
        except StoreUnavailable:
            is_in_force = False
        if not is_in_force:
            self._tokens[:0] = tokens
            self._is_changed.set()
            await asyncio.sleep(RETRY_SECONDS)
        elif tokens:
            await connection.execute(TELL, IN_FORCE, tokens)

    def _on_changed(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        token = str(payload)
        is_new = token not in self._tokens and len(self._tokens) < MOST_TOKENS
        if 0 < len(token) <= LONGEST_TOKEN and is_new:
            self._tokens.append(token)
        self._is_changed.set()


class Confirmation(Enum):
    IN_FORCE = auto()
    NO_GATEWAY = auto()
    NO_ANSWER = auto()


async def confirmed(engine: AsyncEngine, seconds: float = CONFIRM_SECONDS) -> Confirmation:
    """Waits until the gateway has taken over everything that was committed before the call."""
    async with engine.connect() as connection:
        driver: Any = (await connection.get_raw_connection()).driver_connection
        return await confirmed_on(driver, seconds)


async def confirmed_on(
    connection: asyncpg.Connection, seconds: float = CONFIRM_SECONDS
) -> Confirmation:
    """Waits as `confirmed` does, on an asyncpg connection that is in no transaction."""
    if not await connection.fetchval(IS_SERVED):
        return Confirmation.NO_GATEWAY
    token, heard = secrets.token_hex(8), asyncio.Event()

    def on_word(_connection: object, _pid: int, _channel: str, payload: object) -> None:
        if payload == token:
            heard.set()

    await connection.add_listener(IN_FORCE, on_word)
    try:
        async with asyncio.timeout(seconds):
            while not heard.is_set():
                # Again and again: one that is just starting may not listen yet.
                await connection.execute(TELL, CHANGED, [token])
                with suppress(TimeoutError):
                    await asyncio.wait_for(heard.wait(), RETRY_SECONDS)
    except TimeoutError:
        return Confirmation.NO_ANSWER
    finally:
        await connection.remove_listener(IN_FORCE, on_word)
    return Confirmation.IN_FORCE
