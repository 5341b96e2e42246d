"""Exchanges: one small class a kind, each answering which of its bindings a message takes.

What becomes of the bindings it names (each queue once, on through other exchanges, the alternate
exchange) is the router's business. No protocol, no queue and no cache is known here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import ClassVar, Final, Generic

from queue_core.bindings import Binding, Q, identity_of
from queue_core.errors import InvalidArgument, NotEquivalent, UnsupportedArgument
from queue_core.topics import MAX_LEVELS, Tokens, filter_tokens, levels_of, pattern_tokens, slashed
from queue_core.trie import Trie

ALTERNATE: Final = "alternate-exchange"
MAX_NAME_BYTES: Final = 255
_ABSENT: Final = object()  # equal to no value that a header can have


class ExchangeKind(StrEnum):
    DIRECT = "direct"
    FANOUT = "fanout"
    TOPIC = "topic"
    HEADERS = "headers"


@dataclass(frozen=True, slots=True)
class ExchangeSpec:
    """Everything that decides how an exchange behaves, as it was declared."""

    name: str
    kind: ExchangeKind
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def parse(
        cls,
        name: str,
        kind: str,
        arguments: Mapping[str, object] | None = None,
        *,
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
    ) -> ExchangeSpec:
        """Reads a declaration, whose kind is still a word."""
        try:
            known = ExchangeKind(kind)
        except ValueError:
            raise InvalidArgument(
                f"exchange '{name}': kind '{kind}' is unknown; use {', '.join(ExchangeKind)}"
            ) from None
        return cls(name, known, durable, auto_delete, internal, dict(arguments or {}))

    def __post_init__(self) -> None:
        if len(self.name.encode(errors="surrogatepass")) > MAX_NAME_BYTES:
            raise InvalidArgument(
                f"exchange '{self.name[:60]}...': a name has {MAX_NAME_BYTES} bytes at most"
            )
        for argument, value in self.arguments.items():
            if argument != ALTERNATE:
                raise UnsupportedArgument(
                    f"exchange '{self.name}': argument '{argument}' is not supported; "
                    f"the only one is {ALTERNATE}"
                )
            if not isinstance(value, str):
                raise InvalidArgument(
                    f"exchange '{self.name}': '{ALTERNATE}' must be the name of an exchange"
                )

    @property
    def alternate(self) -> str | None:
        """Where messages go that match no binding."""
        name = self.arguments.get(ALTERNATE)
        return None if name is None else str(name)

    def check_equivalent(self, other: ExchangeSpec) -> None:
        """Declaring again is fine with the same words, and an error with any other."""
        for each in fields(self):
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            if mine != theirs:
                raise NotEquivalent(
                    f"exchange '{self.name}' exists with {each.name}={mine}, declared again with "
                    f"{theirs}; delete it first or declare it as it is"
                )


class Exchange(ABC, Generic[Q]):
    """One exchange and the bindings that lead from it."""

    __slots__ = ("bindings", "bound", "spec")

    reads_headers: ClassVar[bool] = False

    def __init__(self, spec: ExchangeSpec) -> None:
        self.spec = spec
        # by their identity, so that an equal one finds the one that is bound; in order of binding
        self.bindings: dict[Binding[Q], Binding[Q]] = {}
        self.bound = 0  # of them, those that are no subscriptions

    @property
    def is_unused(self) -> bool:
        return not self.bindings

    def add(self, binding: Binding[Q]) -> None:
        """Takes a binding that is not there yet; a CoreError if this kind cannot have it."""
        self._index(binding)
        self.bindings[binding] = binding
        self.bound += not binding.is_filter

    def remove(self, binding: Binding[Q]) -> None:
        """Lets go of a binding that is there."""
        self._unindex(self.bindings.pop(binding))
        self.bound -= not binding.is_filter

    @abstractmethod
    def match(self, key: str, headers: Mapping[str, object]) -> Collection[Binding[Q]]:
        """The bindings that a message with this key takes, each once, always in the same order.

        Headers are given only to kinds that read them.
        """

    @abstractmethod
    def _index(self, binding: Binding[Q]) -> None: ...

    @abstractmethod
    def _unindex(self, binding: Binding[Q]) -> None: ...


class DirectExchange(Exchange[Q]):
    """By equal key. The default exchange is one too: each queue is bound to it by its name."""

    __slots__ = ("_by_key",)

    def __init__(self, spec: ExchangeSpec) -> None:
        super().__init__(spec)
        self._by_key: dict[str, dict[Binding[Q], None]] = {}

    def match(self, key: str, headers: Mapping[str, object]) -> Collection[Binding[Q]]:
        return self._by_key.get(key, ())

    def _index(self, binding: Binding[Q]) -> None:
        _refuse_orders(binding)
        self._by_key.setdefault(binding.key, {})[binding] = None

    def _unindex(self, binding: Binding[Q]) -> None:
        same_key = self._by_key[binding.key]
        del same_key[binding]
        if not same_key:
            del self._by_key[binding.key]


class FanoutExchange(Exchange[Q]):
    """Everything, whatever its key."""

    __slots__ = ()

    def match(self, key: str, headers: Mapping[str, object]) -> Collection[Binding[Q]]:
        return self.bindings

    def _index(self, binding: Binding[Q]) -> None:
        _refuse_orders(binding)

    def _unindex(self, binding: Binding[Q]) -> None:
        pass


class TopicExchange(Exchange[Q]):
    """By pattern. Of all topic exchanges only the topic space itself hides `$` topics from leading
    wildcards and takes slash filters; to the others `$` is a character like any."""

    __slots__ = ("_max_levels", "_trie")

    def __init__(
        self, spec: ExchangeSpec, *, hides_dollar: bool = False, max_levels: int = MAX_LEVELS
    ) -> None:
        super().__init__(spec)
        self._max_levels = max_levels
        self._trie: Trie[Binding[Q]] = Trie(hides_dollar=hides_dollar)

    def match(self, key: str, headers: Mapping[str, object]) -> Collection[Binding[Q]]:
        return self._trie.match(levels_of(slashed(key), self._max_levels))

    def _index(self, binding: Binding[Q]) -> None:
        _refuse_orders(binding)
        self._trie.add(self._tokens(binding), binding)

    def _unindex(self, binding: Binding[Q]) -> None:
        self._trie.remove(self._tokens(binding), binding)

    def _tokens(self, binding: Binding[Q]) -> Tokens:
        read = filter_tokens if binding.is_filter else pattern_tokens
        return read(binding.key, self._max_levels)


class HeadersExchange(Exchange[Q]):
    """By the message's headers, compared with the binding's arguments; the key says nothing."""

    __slots__ = ("_patterns",)

    reads_headers = True

    def __init__(self, spec: ExchangeSpec) -> None:
        super().__init__(spec)
        self._patterns: dict[Binding[Q], HeaderPattern] = {}

    def match(self, key: str, headers: Mapping[str, object]) -> Collection[Binding[Q]]:
        known = {name: identity_of(value) for name, value in headers.items()}
        return [binding for binding, pattern in self._patterns.items() if pattern.matches(known)]

    def _index(self, binding: Binding[Q]) -> None:
        self._patterns[binding] = HeaderPattern.parse(binding.arguments or {})

    def _unindex(self, binding: Binding[Q]) -> None:
        del self._patterns[binding]


@dataclass(frozen=True, slots=True)
class HeaderPattern:
    """What a binding asks of the headers: `present` must only be there, `equal` must be the same,
    and all of them must (`needs_all`) or any one."""

    needs_all: bool
    present: tuple[str, ...]
    equal: tuple[tuple[str, object], ...]

    @classmethod
    def parse(cls, arguments: Mapping[str, object]) -> HeaderPattern:
        """An argument without a value asks for presence. `x-` arguments ask for nothing, unless
        x-match ends in `-with-x`; x-match itself never does."""
        rule = arguments.get("x-match", "all")
        if rule not in ("all", "any", "all-with-x", "any-with-x"):
            raise InvalidArgument(
                f"x-match is '{rule}'; use all, any, all-with-x or any-with-x, or leave it out"
            )
        asked = {
            name: value
            for name, value in arguments.items()
            if name != "x-match" and (rule.endswith("-with-x") or not name.startswith("x-"))
        }
        return cls(
            needs_all=rule.startswith("all"),
            present=tuple(name for name, value in asked.items() if value is None),
            equal=tuple((n, identity_of(value)) for n, value in asked.items() if value is not None),
        )

    def matches(self, headers: Mapping[str, object]) -> bool:
        """`headers` hold the values' identities."""
        if self.needs_all:
            return all(name in headers for name in self.present) and all(
                name in headers and headers[name] == value for name, value in self.equal
            )
        return any(name in headers for name in self.present) or any(
            name in headers and headers[name] == value for name, value in self.equal
        )


def make_exchange(
    spec: ExchangeSpec, *, hides_dollar: bool = False, max_levels: int = MAX_LEVELS
) -> Exchange[Q]:
    """An exchange of the kind that the spec names, with no bindings yet."""
    match spec.kind:
        case ExchangeKind.DIRECT:
            return DirectExchange(spec)
        case ExchangeKind.FANOUT:
            return FanoutExchange(spec)
        case ExchangeKind.TOPIC:
            return TopicExchange(spec, hides_dollar=hides_dollar, max_levels=max_levels)
        case ExchangeKind.HEADERS:
            return HeadersExchange(spec)


def _refuse_orders(binding: Binding[Q]) -> None:
    """Plain arguments only tell bindings apart; an `x-` one is an order that would be ignored."""
    for argument in binding.arguments or ():
        if argument.startswith("x-"):
            raise UnsupportedArgument(
                f"binding of exchange '{binding.source}': argument '{argument}' means something "
                "to a headers exchange only; leave it out"
            )
