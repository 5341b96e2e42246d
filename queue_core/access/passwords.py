"""Passwords: made unreadable with Argon2id, and checked without holding up the event loop.

A check costs 15 to 30 ms of a core on purpose. So only few run at a time, few may wait, places take
turns, so that a flood from one of them is that one's own trouble, and a password that was right
within the hour is not computed again: it is known by a keyed digest that dies with the process.
Knows nothing of users.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Final

from argon2 import PasswordHasher, Type
from argon2.exceptions import InvalidHashError, VerificationError

from queue_core.access.auth import NotChecked
from queue_core.access.rabbitmq_passwords import is_from_rabbitmq, is_password_of
from queue_core.access.scram import Verifier

# OWASP's least for Argon2id: 19 MiB and two passes. Several run at once in a small gateway.
_HASHER: Final = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1, type=Type.ID)

KNOWN_SECONDS: Final = 3600.0
MOST_KNOWN: Final = 10_000
MOST_WAITING: Final = 10_000
MOST_WAITING_OF_A_PLACE: Final = 500  # what one core checks in the 10 s that a handshake has


def hash_password(password: str) -> str:
    """Hashes a password for the table of users: salted, and expensive to guess."""
    return _HASHER.hash(password)


def weakness_of(name: str, password: str, shortest: int) -> str:
    """Tells why a user's new password is not taken, and the way out; empty: it is taken."""
    if len(password) < shortest:
        return (
            f"the password has fewer than {shortest} characters: take a longer one, such as the "
            "output of `openssl rand -base64 18`, or lower auth.min_password_length"
        )
    if password == name:
        return "the password is the user's name, the first that anybody tries: take another"
    return ""


def is_hash_of(password_hash: str, password: bytes) -> bool:
    """Tells whether a kept hash, of whatever kind, belongs to a password. Takes as long as a check
    does: not for the event loop."""
    if is_from_rabbitmq(password_hash):
        return is_password_of(password_hash, password)
    return _verify(password, password_hash)


@cache
def nobodys_hash() -> str:
    """Makes a hash to check when there is no such user, so that the time taken tells nothing."""
    return hash_password(secrets.token_urlsafe(16))


@dataclass(slots=True, eq=False)
class Check:
    """Compares one password with one hash, for everybody who waits for that."""

    digest: bytes
    password: bytes
    password_hash: str
    answer: asyncio.Future[bool]
    waiters: int = 0


class PasswordChecker:
    def __init__(
        self, threads: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        # Never all cores: the event loop needs one, however many log in at once.
        self._threads = threads or max(1, min(4, (os.cpu_count() or 1) // 2))
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="password")
        self._key = os.urandom(32)
        self._clock = clock
        self._known: OrderedDict[bytes, float] = OrderedDict()  # digest -> until when
        self._checks: dict[bytes, Check] = {}  # that run or wait
        self._waiting: OrderedDict[str, deque[Check]] = OrderedDict()  # by place, next one first
        self._running = 0
        self.computed = 0

    async def is_right(self, password: bytes, password_hash: str, place: str = "") -> bool:
        """Tells whether the password belongs to the hash. `place` is where whoever asks comes from.
        Raises NotChecked when too many wait."""
        digest = self._digest(password, password_hash)
        if self._is_known(digest):
            return True
        if is_from_rabbitmq(password_hash):
            if is_password_of(password_hash, password):
                self._remember(digest)
                return True
            # Takes as long as for anybody else: who comes from RabbitMQ is not for strangers.
            await self.is_right(password, nobodys_hash(), place)
            return False
        check = self._checks.get(digest)  # thousands of devices may share one login
        if check is None:
            check = self._line_up(digest, password, password_hash, place)
        return await self._answer(check)

    async def is_known(self, password: bytes, password_hash: str) -> bool:
        """Tells whether the password is right, as far as that costs nothing: it was right before,
        or is being checked for somebody else."""
        digest = self._digest(password, password_hash)
        if self._is_known(digest):
            return True
        check = self._checks.get(digest)
        return check is not None and await self._answer(check)

    async def make(self, password: bytes) -> tuple[str, Verifier | None]:
        """Makes the hash and the SCRAM verifier of a password, beside the checks; no verifier for
        one that is no text."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, _make, password)

    @staticmethod
    async def _answer(check: Check) -> bool:
        check.waiters += 1
        try:
            return await asyncio.shield(check.answer)
        finally:
            check.waiters -= 1

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

    def _line_up(self, digest: bytes, password: bytes, password_hash: str, place: str) -> Check:
        here = self._waiting.get(place, ())
        if len(self._checks) >= MOST_WAITING or len(here) >= MOST_WAITING_OF_A_PLACE:
            raise NotChecked("too many logins at once; try again in a few seconds")
        answer = asyncio.get_running_loop().create_future()
        check = Check(digest, password, password_hash, answer)
        self._checks[digest] = check
        self._waiting.setdefault(place, deque()).append(check)
        asyncio.get_running_loop().call_soon(self._start_next)  # when somebody waits for it
        return check

    def _start_next(self) -> None:
        """Starts as many as may run, of one place after the other."""
        while self._running < self._threads and self._waiting:
            place, line = self._waiting.popitem(last=False)
            check = line.popleft()
            if line:
                self._waiting[place] = line  # behind the others
            if check.waiters:
                self._start(check)
            else:  # whoever asked has gone meanwhile
                del self._checks[check.digest]
                check.answer.cancel()

    def _start(self, check: Check) -> None:
        self.computed += 1
        self._running += 1
        loop = asyncio.get_running_loop()
        done = loop.run_in_executor(self._pool, _verify, check.password, check.password_hash)
        done.add_done_callback(lambda done: self._on_done(check, done))

    def _on_done(self, check: Check, done: asyncio.Future[bool]) -> None:
        self._running -= 1
        del self._checks[check.digest]
        if done.cancelled():
            check.answer.cancel()
            return
        is_right = done.result()
        if not check.answer.done():
            check.answer.set_result(is_right)
        if is_right:
            self._remember(check.digest)
        self._start_next()

    def _remember(self, digest: bytes) -> None:
        self._known[digest] = self._clock() + KNOWN_SECONDS
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)


def _verify(password: bytes, password_hash: str) -> bool:
    try:
        return _HASHER.verify(password_hash, password)
    except (VerificationError, InvalidHashError):
        return False


def _make(password: bytes) -> tuple[str, Verifier | None]:
    try:
        verifier = Verifier.of(password.decode())
    except UnicodeDecodeError:
        verifier = None
    return _HASHER.hash(password), verifier
