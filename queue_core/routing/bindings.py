"""Bindings: what leads from an exchange to a queue or to another exchange, and when two are one.

A queue is any hashable object here; an exchange is known by its name. Which messages a binding
lets through is the business of its exchange's kind.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from queue_core.message.value_identity import identity_of, text_of

Q = TypeVar("Q", bound=Hashable)


@dataclass(frozen=True, slots=True)
class BindingLimits:
    """Limits how many bindings may lead to one queue or exchange, and from one exchange. A headers
    exchange compares every message with each of its bindings, so it may have fewer. Subscriptions
    are counted with their session, and not here."""

    to_one: int = 10_000
    from_one: int = 100_000
    from_one_headers: int = 10_000


ARGUMENT_CHARACTERS_PER_BINDING: Final = 512  # of arguments for which a binding counts once more


@dataclass(frozen=True, slots=True)
class ExchangeRef:
    """An exchange as the destination of a binding, told apart from any queue."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Binding(Generic[Q]):
    """Two bindings are one when all but their options are equal.

    `options` is what a subscription carries for its queue, opaque here. With `is_filter` the key is
    a slash filter, as subscriptions write it; without, it is what the kind of the exchange makes
    of it.
    """

    source: str
    destination: Q | ExchangeRef
    key: str = ""
    arguments: Mapping[str, object] | None = None
    options: object | None = None
    is_filter: bool = False

    # Written once, so that a comparison builds nothing. It is text because Python's hash of text is
    # salted: nobody can choose a thousand arguments that all fall into one place of a table, as one
    # can with numbers (-1 and -2 have the same hash).
    identity: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        arguments = self.arguments
        identity = text_of(identity_of(arguments)) if arguments else ""
        object.__setattr__(self, "identity", identity)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Binding):
            return NotImplemented
        return self is other or (
            self.key == other.key
            and self.identity == other.identity
            and self.destination == other.destination
            and self.source == other.source
            and self.is_filter == other.is_filter
        )

    @property
    def weight(self) -> int:
        """Returns for how many bindings this one counts: long arguments take memory, and time with
        each message that a headers exchange compares with them."""
        return 1 + len(self.identity) // ARGUMENT_CHARACTERS_PER_BINDING

    def __hash__(self) -> int:
        return hash((self.source, self.destination, self.key, self.identity))
