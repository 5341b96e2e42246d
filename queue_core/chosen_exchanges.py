"""Exchanges that choose one of their bindings for each message: by a hash, or by chance.

They share work among queues. A hash is the same after a restart and in every process, so that what
belongs together keeps going to one queue for as long as the bindings stay as they are.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from bisect import bisect
from collections.abc import Collection, Mapping
from datetime import datetime
from hashlib import blake2b
from typing import Final

from queue_core.bindings import Binding, ExchangeRef, Q
from queue_core.errors import InvalidArgument
from queue_core.exchanges import HASH_HEADER, HASH_PROPERTY, Exchange, ExchangeSpec

POINTS: Final = 40  # on the ring for each unit of weight: two equal queues differ by some percent
MOST_WEIGHT: Final = 1000


class ChoosingExchange(Exchange[Q]):
    """One binding for each message; what changes with the bindings is worked out anew when it is
    next needed."""

    __slots__ = ("_chosen_from",)

    def __init__(self, spec: ExchangeSpec) -> None:
        super().__init__(spec)
        self._chosen_from: list[Binding[Q]] | None = None  # in an order that survives a restart

    def match(self, key: str, headers: Mapping[str, object]) -> Collection[Binding[Q]]:
        if not self.bindings:
            return ()
        if self._chosen_from is None:
            self._chosen_from = sorted(self.bindings, key=_place)
            self._prepare(self._chosen_from)
        return (self._choose(self._chosen_from, key, headers),)

    @abstractmethod
    def _choose(
        self, bindings: list[Binding[Q]], key: str, headers: Mapping[str, object]
    ) -> Binding[Q]: ...

    def _prepare(self, bindings: list[Binding[Q]]) -> None:
        """The bindings are others now."""

    def _index(self, binding: Binding[Q]) -> None:
        self._chosen_from = None

    def _unindex(self, binding: Binding[Q]) -> None:
        self._chosen_from = None


class RandomExchange(ChoosingExchange[Q]):
    """By chance. `x-local-random` is the same: all queues are this gateway's."""

    __slots__ = ()

    @property
    def is_constant(self) -> bool:
        return False

    def _choose(
        self, bindings: list[Binding[Q]], key: str, headers: Mapping[str, object]
    ) -> Binding[Q]:
        return random.choice(bindings)


class ModulusHashExchange(ChoosingExchange[Q]):
    """By the key's hash modulo the number of bindings."""

    __slots__ = ()

    def _choose(
        self, bindings: list[Binding[Q]], key: str, headers: Mapping[str, object]
    ) -> Binding[Q]:
        return bindings[stable_hash(key) % len(bindings)]


class ConsistentHashExchange(ChoosingExchange[Q]):
    """By the place of a hash on a ring, on which each binding has as many points as its weight,
    the binding's key, says. A binding that comes or goes moves only what falls to it."""

    __slots__ = ("_owners", "_ring")

    def __init__(self, spec: ExchangeSpec) -> None:
        super().__init__(spec)
        self._ring: list[int] = []
        self._owners: list[Binding[Q]] = []

    @property
    def reads_headers(self) -> bool:
        return HASH_HEADER in self.spec.arguments

    @property
    def reads_property(self) -> str | None:
        name = self.spec.arguments.get(HASH_PROPERTY)
        return None if name is None else str(name)

    def _choose(
        self, bindings: list[Binding[Q]], key: str, headers: Mapping[str, object]
    ) -> Binding[Q]:
        name = self.spec.arguments.get(HASH_HEADER) or self.reads_property
        text = key if name is None else _text(headers.get(str(name)))
        return self._owners[bisect(self._ring, stable_hash(text)) % len(self._ring)]

    def _prepare(self, bindings: list[Binding[Q]]) -> None:
        points = sorted(
            (
                (stable_hash(f"{_place(binding)}#{number}"), index)
                for index, binding in enumerate(bindings)
                for number in range(POINTS * weight_of(binding))
            )
        )
        self._ring = [point for point, _ in points]
        self._owners = [bindings[index] for _, index in points]

    def _index(self, binding: Binding[Q]) -> None:
        weight_of(binding)
        super()._index(binding)


def weight_of(binding: Binding[Q]) -> int:
    """The binding's key, which must be a number. Raises InvalidArgument."""
    key = binding.key
    if key.isascii() and key.isdigit() and len(key) < 8 and 0 < int(key) <= MOST_WEIGHT:
        return int(key)
    raise InvalidArgument(
        f"binding of exchange '{binding.source}': its key '{key[:60]}' is the queue's weight, and "
        f"must be a whole number from 1 to {MOST_WEIGHT}"
    )


def stable_hash(text: str) -> int:
    """The same in every process, unlike Python's own."""
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
    """What tells a binding from the others of its exchange, by names alone."""
    destination = binding.destination
    kind = "exchange" if isinstance(destination, ExchangeRef) else "queue"
    name = getattr(destination, "name", destination)
    return f"{kind} {name}\0{binding.key}\0{binding.identity}"
