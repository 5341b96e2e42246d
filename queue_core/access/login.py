"""A login in as many steps as its mechanism takes: challenges, responses, and an end.

    login = auth.begin(mechanism, peer)                  raises AccessRefused
    answer = await login.step(response)                  raises AccessRefused
    Challenge: tell the client, and step again with what it says; Proven: it is who it claims to be

Adapters carry the bytes. How many steps a login may have, and how long, is judged here; what the
bytes mean is the conversation's business.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from queue_core.errors import AccessRefused

if TYPE_CHECKING:
    from queue_core.access.auth import Identity, Peer

MOST_STEPS: Final = 8
MOST_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Begin:
    """Commands that a login begins, as a protocol's machine has read it. Whoever carries the bytes
    takes the step, and tells the machine what came of it."""

    mechanism: str
    response: bytes

    def __repr__(self) -> str:
        return f"Begin({self.mechanism})"  # the response may be a password


@dataclass(frozen=True, slots=True)
class Continue:
    """Commands the next step of a login that has begun."""

    response: bytes

    def __repr__(self) -> str:
        return "Continue()"


@dataclass(frozen=True, slots=True)
class Challenge:
    """The client has to answer this."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Proven:
    """Tells who the client is, and what it hears with its success."""

    identity: Identity
    data: bytes = b""


Answer = Challenge | Proven


class Conversation(Protocol):
    """Takes the steps of one login, by one mechanism."""

    @property
    def username(self) -> str:
        """Tells who the client says it is; empty before it did."""
        ...

    async def step(self, response: bytes) -> Answer:
        """Raises AccessRefused, with no hint at what was wrong for a guesser."""
        ...


class Challenger(Protocol):
    """A way to prove who one is that takes several steps."""

    def mechanisms(self, peer: Peer) -> Sequence[str]:
        """SASL names of what it takes from such a peer, best first."""
        ...

    def converse(self, mechanism: str, peer: Peer, client_id: str) -> Conversation | None:
        """None: not mine to judge, ask the next."""
        ...


class Login:
    """Logs one client in, in several steps. It is over after Proven, and after the first
    AccessRefused.

    `has_last_word` says that the protocol can tell something together with its success. Where it
    cannot, that is one more challenge, to which the client answers with nothing (RFC 4422, 3.6).
    """

    def __init__(
        self,
        step: Callable[[bytes], Awaitable[Answer]],
        *,
        has_last_word: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._step = step
        self._has_last_word = has_last_word
        self._clock = clock
        self._until = clock() + MOST_SECONDS
        self._steps = 0
        self._is_over = False
        self._proven: Proven | None = None

    async def step(self, response: bytes) -> Answer:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise AccessRefused(f"a login has {MOST_STEPS} steps at most; begin again")
        if self._clock() > self._until:
            raise AccessRefused(f"a login has {MOST_SECONDS:.0f} s at most; begin again")
        if self._proven is not None:
            return self._end(self._proven, response)
        if self._is_over:
            raise AccessRefused("the login is over; begin again")
        self._is_over = True  # unless there is another challenge
        answer = await self._step(response)
        self._is_over = isinstance(answer, Proven)
        if isinstance(answer, Proven) and answer.data and not self._has_last_word:
            self._proven = Proven(answer.identity)
            return Challenge(answer.data)
        return answer

    def _end(self, proven: Proven, response: bytes) -> Proven:
        if response:
            raise AccessRefused("the login is over: answer its last challenge with nothing")
        return proven
