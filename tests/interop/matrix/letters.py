"""The matrix' own words: letters, the places they go to, and what becomes of them.

No protocol here. An actor says which fields of a letter its protocol has words for; what a
publisher says and a consumer can hear must arrive.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from enum import Enum, auto
from typing import Any, ClassVar, Final, TypeVar

from tests.support.gateway_process import GatewayProcess

PREFETCH: Final = 20


class Kind(Enum):
    TOPIC = "topic"
    CLASSIC = "classic queue"
    STREAM = "stream"


@dataclass(frozen=True, slots=True)
class Place:
    """A queue by its name, or a topic in slash form."""

    kind: Kind
    name: str

    @property
    def key(self) -> str:
        """The topic as AMQP writes it."""
        return self.name.translate(str.maketrans("./", "/."))


@dataclass(frozen=True, slots=True)
class Letter:
    """A message in no protocol's terms; `reply_to` is the name of a queue."""

    body: bytes
    content_type: str | None = None
    content_encoding: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    message_id: str | None = None
    subject: str | None = None
    priority: int | None = None
    headers: tuple[tuple[str, str], ...] = ()

    def only(self, names: frozenset[str]) -> dict[str, Any]:
        return {name: getattr(self, name) for name in sorted(names)}


ALL: Final = frozenset(field.name for field in fields(Letter))


def told(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The headers that the publisher said. Names with x- are the gateway's own notes: what another
    protocol has no place for, to be restored on the way back."""
    return tuple((name, value) for name, value in pairs if not name.startswith("x-"))


class Verdict(Enum):
    """Each protocol has its own words for these; not each has words for all."""

    ACCEPT = auto()
    RELEASE = auto()  # back to its place, nobody's fault
    FAIL = auto()  # back to its place, and it counts
    REJECT = auto()  # to the dead letters, or away
    CUT = auto()  # the consumer's connection is gone, without a word


@dataclass(frozen=True, slots=True)
class Received:
    """`failures` is the delivery count, None where the protocol does not tell; `token` is what the
    actor settles by. `died_in` is the queue that a dead letter came from."""

    letter: Letter
    redelivered: bool
    failures: int | None
    token: Any
    died_in: str | None = None
    reason: str | None = None


class Actor(ABC):
    """One connection of one client library."""

    says: ClassVar[frozenset[str]]  # fields of a letter that it can publish
    hears: ClassVar[frozenset[str]]  # fields that it can see
    verdicts: ClassVar[frozenset[Verdict]]
    reads_back: ClassVar[bool] = True  # can ask for what a stream already holds
    orders_headers: ClassVar[bool] = True

    def __init__(self, gateway: GatewayProcess, credit: int = PREFETCH) -> None:
        """`credit`: so many it takes into its hands at most."""
        self.gateway = gateway
        self.credit = credit

    @abstractmethod
    def publish(self, place: Place, letter: Letter) -> None:
        """Returns when it is acknowledged."""

    @abstractmethod
    def consume(self, place: Place) -> None:
        """From one place, of a stream from its first message on where the protocol can ask for it;
        nothing is settled by itself."""

    @abstractmethod
    def receive(self) -> Received:
        """The next one; fails when none comes."""

    @abstractmethod
    def settle(self, received: Received, verdict: Verdict) -> None:
        """With the words of its protocol, for all verdicts but CUT."""

    @abstractmethod
    def stop(self) -> None:
        """Gets no more, and may still settle what it has."""

    @abstractmethod
    def settled(self) -> None:
        """Returns when the gateway has heard all settlements."""

    @abstractmethod
    def cut(self) -> None:
        """The socket ends, and nobody said why."""

    @abstractmethod
    def close(self) -> None:
        """Ends the connection as the protocol wishes; does no harm after `cut`."""

    def take(self, count: int) -> list[Received]:
        return [self.receive() for _ in range(count)]


A = TypeVar("A", bound=Actor)


class Cast:
    """The actors of one test; all leave with it."""

    def __init__(self, gateway: GatewayProcess, stack: ExitStack) -> None:
        self.gateway = gateway
        self._stack = stack

    def __call__(self, make: type[A], credit: int = PREFETCH) -> A:
        actor = make(self.gateway, credit)
        self._stack.callback(actor.close)
        return actor


@contextmanager
def cast_of(gateway: GatewayProcess) -> Iterator[Cast]:
    with ExitStack() as stack:
        yield Cast(gateway, stack)
