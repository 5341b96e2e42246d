"""Renewal of password hashes: a hash that came from RabbitMQ is replaced by our own at the first
good login, which is when the password is known.

Answers for computing new hashes beside the logins and for writing them in few transactions: each
one has the gateway read its users again. Knows nothing of tables.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from queue_core.access.passwords import PasswordChecker
from queue_core.access.scram import Verifier
from queue_core.errors import CoreError

log = logging.getLogger(__name__)

MOST_WAITING: Final = 1000  # users; whoever finds no room is renewed at a later login
WRITTEN_AT_ONCE: Final = 25  # half a second of computing


@dataclass(frozen=True, slots=True)
class RenewedHash:
    """A user's new hash and verifier, in place of the hash `replaces` and of no other."""

    name: str
    replaces: str
    password_hash: str
    verifier: Verifier | None  # None: the password is no text, which SCRAM needs


class HashWriter(Protocol):
    async def renew(self, renewed: Sequence[RenewedHash]) -> None:
        """Writes the hashes of users whose hash is still the one that was replaced. Raises
        StoreUnavailable."""
        ...


class PasswordRenewal:
    """Renews the hashes of users who have logged in, one after the other in the background."""

    def __init__(self, writer: HashWriter, passwords: PasswordChecker) -> None:
        self._writer = writer
        self._passwords = passwords
        self._waiting: dict[str, tuple[str, bytes]] = {}  # by user: old hash and right password
        self._work: asyncio.Task[None] | None = None

    def submit(self, name: str, old_hash: str, password: bytes) -> None:
        """Asks for the renewal of a hash that the password belongs to."""
        if len(self._waiting) >= MOST_WAITING:
            return
        self._waiting[name] = (old_hash, password)
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Ends the work; who is not renewed yet will be at a later login."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)

    async def _run(self) -> None:
        while self._waiting:
            renewed: list[RenewedHash] = []
            while self._waiting and len(renewed) < WRITTEN_AT_ONCE:
                name = next(iter(self._waiting))
                old_hash, password = self._waiting.pop(name)
                new_hash, verifier = await self._passwords.make(password)
                renewed.append(RenewedHash(name, old_hash, new_hash, verifier))
            try:
                await self._writer.renew(renewed)
            except CoreError as error:
                log.warning(
                    "the password hashes of %d users stay RabbitMQ's until they log in again: %s",
                    *(len(renewed), error),
                )
            else:
                names = ", ".join(f"'{each.name}'" for each in renewed)
                log.info("password hashes from RabbitMQ are replaced: %s", names)
