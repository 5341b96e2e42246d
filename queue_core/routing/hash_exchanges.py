"""Exchanges that choose one of their bindings for each message: by a hash, or by chance.

They share work among queues. A hash is the same after a restart and in every process, so that what
belongs together keeps going to one queue for as long as the bindings stay as they are.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from array import array
from bisect import bisect, bisect_left, insort
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from hashlib import blake2b
from itertools import chain
from struct import unpack
from typing import Final

from queue_core.errors import InvalidArgument, LimitExceeded
from queue_core.routing.bindings import Binding, ExchangeRef, Q
from queue_core.routing.exchange_arguments import HASH_HEADER, HASH_PROPERTY
from queue_core.routing.exchanges import Exchange, ExchangeSpec

# With so many on the ring for each unit of weight, two equal queues differ by some percent.
RING_POINTS_PER_WEIGHT: Final = 40
MOST_WEIGHT: Final = 1000
# Of all bindings of one exchange: 200,000 points, which take 0.1 s to be placed, once, and 1.6 MB.
MOST_WEIGHT_TOGETHER: Final = 5000
OWNER_BITS: Final = 20  # of a point, by which its binding is found
OWNER_MASK: Final = (1 << OWNER_BITS) - 1


class ChoosingExchange(Exchange[Q]):
    """Routes each message to one of the bindings that match."""

    __slots__ = ()

    def match(self, key: str, headers: Mapping[str, object]) -> Collection[Binding[Q]]:
        return (self._choose(key, headers),) if self.bindings else ()

    @abstractmethod
    def _choose(self, key: str, headers: Mapping[str, object]) -> Binding[Q]: ...


class OrderedChoice(ChoosingExchange[Q]):
    """Chooses by a number. The bindings stand in an order that survives a restart, and one that
    comes or goes is put into its place: the others are not looked at."""

    __slots__ = ("_ordered",)

    def __init__(self, spec: ExchangeSpec) -> None:
        super().__init__(spec)
        self._ordered: list[Binding[Q]] = []

    def _index(self, binding: Binding[Q]) -> None:
        insort(self._ordered, binding, key=_place)

    def _unindex(self, binding: Binding[Q]) -> None:
        del self._ordered[bisect_left(self._ordered, _place(binding), key=_place)]


class RandomExchange(OrderedChoice[Q]):
    """Chooses a binding by chance. `x-local-random` is the same: all queues are this gateway's."""

    __slots__ = ()

    @property
    def is_constant(self) -> bool:
        return False

    def _choose(self, key: str, headers: Mapping[str, object]) -> Binding[Q]:
        return random.choice(self._ordered)


class ModulusHashExchange(OrderedChoice[Q]):
    """Chooses a binding by the key's hash modulo the number of bindings."""

    __slots__ = ()

    def _choose(self, key: str, headers: Mapping[str, object]) -> Binding[Q]:
        return self._ordered[stable_hash(key) % len(self._ordered)]


class ConsistentHashExchange(ChoosingExchange[Q]):
    """Chooses a binding by the place of a hash on a ring, on which each binding has as many points
    as its weight, the binding's key, says. A binding that comes or goes moves only what falls to
    it, and the ring is changed when it is next needed, by the points of that binding alone."""

    __slots__ = ("_coming", "_free", "_going", "_numbers", "_owners", "_ring", "_weight")

    def __init__(self, spec: ExchangeSpec) -> None:
        super().__init__(spec)
        self._ring = array("Q")  # points, whose last bits are the number of their binding
        self._owners: dict[int, Binding[Q]] = {}
        self._numbers: dict[Binding[Q], int] = {}
        self._coming: dict[Binding[Q], int] = {}  # with their numbers: not on the ring yet
        self._going: set[int] = set()  # numbers that are still on the ring
        self._free: list[int] = []  # numbers that were used, and are not
        self._weight = 0  # of all bindings

    @property
    def reads_headers(self) -> bool:
        return HASH_HEADER in self.spec.arguments

    @property
    def reads_property(self) -> str | None:
        name = self.spec.arguments.get(HASH_PROPERTY)
        return None if name is None else str(name)

    def _choose(self, key: str, headers: Mapping[str, object]) -> Binding[Q]:
        name = self.spec.arguments.get(HASH_HEADER) or self.reads_property
        text = key if name is None else _text(headers.get(str(name)))
        if self._coming or self._going:
            self._change_ring()
        ring = self._ring
        point = ring[bisect(ring, stable_hash(text)) % len(ring)]
        return self._owners[point & OWNER_MASK]

    def _change_ring(self) -> None:
        going = self._going
        stay = (point for point in self._ring if point & OWNER_MASK not in going)
        came = (_points(binding, number) for binding, number in self._coming.items())
        self._ring = array("Q", sorted(chain(stay if going else self._ring, *came)))
        self._free += going
        self._going = set()
        self._coming = {}

    def _index(self, binding: Binding[Q]) -> None:
        weight = weight_of(binding)
        if self._weight + weight > MOST_WEIGHT_TOGETHER:
            raise LimitExceeded(
                f"the queues of exchange '{binding.source}' weigh {self._weight}, and may weigh "
                f"{MOST_WEIGHT_TOGETHER} together; use smaller weights, only their ratio counts"
            )
        self._weight += weight
        number = self._free.pop() if self._free else len(self._owners) + len(self._going)
        self._owners[number] = binding
        self._numbers[binding] = self._coming[binding] = number

    def _unindex(self, binding: Binding[Q]) -> None:
        self._weight -= weight_of(binding)
        number = self._numbers.pop(binding)
        del self._owners[number]
        if self._coming.pop(binding, None) is None:
            self._going.add(number)
        else:
            self._free.append(number)


def weight_of(binding: Binding[Q]) -> int:
    """The binding's key, which must be a number. Raises InvalidArgument."""
    key = binding.key
    if key.isascii() and key.isdigit() and len(key) < 8 and 0 < int(key) <= MOST_WEIGHT:
        return int(key)
    raise InvalidArgument(
        f"binding of exchange '{binding.source}': its key '{key[:60]}' is the queue's weight, and "
        f"must be a whole number from 1 to {MOST_WEIGHT}"
    )


def _points(binding: Binding[Q], number: int) -> Iterator[int]:
    """Places of a binding on the ring, eight of one digest, with the binding's number in them."""
    place = _place(binding).encode(errors="surrogatepass")
    for each in range(RING_POINTS_PER_WEIGHT * weight_of(binding) // 8):
        for point in unpack(">8Q", blake2b(b"%s#%d" % (place, each)).digest()):
            yield point & ~OWNER_MASK | number


def stable_hash(text: str) -> int:
    """Hashes to the same number in every process, unlike Python's own hash."""
    digest = blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest)


def _text(value: object) -> str:
    """A header that is missing is as good as an empty one: such messages stay together."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return str(int(value.timestamp()))
    return value.hex() if isinstance(value, bytes) else str(value)


def _place(binding: Binding[Q]) -> str:
    """Names a binding so that it differs from the others of its exchange, by names alone."""
    destination = binding.destination
    kind = "exchange" if isinstance(destination, ExchangeRef) else "queue"
    name = getattr(destination, "name", destination)
    return f"{kind} {name}\0{binding.key}\0{binding.identity}"
