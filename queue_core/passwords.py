"""Passwords: made unreadable with Argon2id, and checked without holding up the event loop.

A check costs 15 to 30 ms of a core on purpose. So only few run at a time, few may wait, and a
password that was right a moment ago is not computed again: it is known by a keyed digest that dies
with the process. Knows nothing of users.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final

from argon2 import PasswordHasher, Type
from argon2.exceptions import InvalidHashError, VerificationError

from queue_core.auth import NotChecked

# OWASP's least for Argon2id: 19 MiB and two passes. Several run at once in a small gateway.
_HASHER: Final = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1, type=Type.ID)

KNOWN_SECONDS: Final = 60.0
MOST_KNOWN: Final = 10_000
MOST_WAITING: Final = 10_000


def hash_password(password: str) -> str:
    """For the table of users: salted, and expensive to guess."""
    return _HASHER.hash(password)


@cache
def nobodys_hash() -> str:
    """To check when there is no such user, so that the time taken tells nothing."""
    return hash_password(secrets.token_urlsafe(16))


class PasswordChecker:
    def __init__(
        self, threads: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        # Never all cores: the event loop needs one, however many log in at once.
        self._pool = ThreadPoolExecutor(
            threads or max(1, min(4, (os.cpu_count() or 1) // 2)), thread_name_prefix="password"
        )
        self._key = os.urandom(32)
        self._clock = clock
        self._known: OrderedDict[bytes, float] = OrderedDict()  # digest -> until when
        self._running: dict[bytes, asyncio.Future[bool]] = {}
        self.computed = 0

    async def is_right(self, password: bytes, password_hash: str) -> bool:
        """Whether the password belongs to the hash. Raises NotChecked when too many wait."""
        digest = self._digest(password, password_hash)
        if self._is_known(digest):
            return True
        running = self._running.get(digest)  # thousands of devices may share one login
        if running is None:
            running = self._start(digest, password, password_hash)
        return await asyncio.shield(running)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _digest(self, password: bytes, password_hash: str) -> bytes:
        # With the hash in it, what is known for one user, or of an old password, is no one else's.
        digest = hashlib.blake2b(password_hash.encode(), key=self._key, digest_size=32)
        digest.update(b"\0" + password)
        return digest.digest()

    def _is_known(self, digest: bytes) -> bool:
        until = self._known.get(digest)
        if until is None:
            return False
        if until < self._clock():
            del self._known[digest]
            return False
        return True

    def _start(self, digest: bytes, password: bytes, password_hash: str) -> asyncio.Future[bool]:
        if len(self._running) >= MOST_WAITING:
            raise NotChecked("too many logins at once; try again in a few seconds")
        loop = asyncio.get_running_loop()
        self.computed += 1
        running = loop.run_in_executor(self._pool, _verify, password, password_hash)
        self._running[digest] = running
        running.add_done_callback(lambda done: self._on_done(digest, done))
        return running

    def _on_done(self, digest: bytes, done: asyncio.Future[bool]) -> None:
        del self._running[digest]
        if done.cancelled() or done.exception() is not None or not done.result():
            return
        self._known[digest] = self._clock() + KNOWN_SECONDS
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)


def _verify(password: bytes, password_hash: str) -> bool:
    try:
        return _HASHER.verify(password_hash, password)
    except (VerificationError, InvalidHashError):
        return False
