"""The router of one vhost: which queues a message goes to, and with which subscriptions' options.

Owns the exchanges and all bindings, and keeps the routes it has found until a binding changes. It
knows queues only as objects that are equal to themselves; what they do with a message, who may
publish, and what is stored of all this, others decide.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from queue_core.errors import (
    AccessRefused,
    ExchangeInUse,
    ExchangeNotFound,
    LimitExceeded,
    NameReserved,
)
from queue_core.message.topic_forms import dotted
from queue_core.routing.bindings import (
    ARGUMENT_CHARACTERS_PER_BINDING,
    Binding,
    BindingLimits,
    ExchangeRef,
    Q,
)
from queue_core.routing.exchange_kinds import make_exchange
from queue_core.routing.exchanges import Exchange, ExchangeKind, ExchangeSpec
from queue_core.routing.route import MAX_KEPT_KEY_CHARACTERS, Match, Route
from queue_core.routing.topics import levels_of
from queue_core.scheduler import Effort

DEFAULT_EXCHANGE: Final = ""
TOPIC_SPACE: Final = "amq.topic"
PREDECLARED: Final = (
    ExchangeSpec(DEFAULT_EXCHANGE, ExchangeKind.DIRECT),
    ExchangeSpec("amq.direct", ExchangeKind.DIRECT),
    ExchangeSpec("amq.fanout", ExchangeKind.FANOUT),
    ExchangeSpec("amq.headers", ExchangeKind.HEADERS),
    ExchangeSpec("amq.match", ExchangeKind.HEADERS),
    ExchangeSpec(TOPIC_SPACE, ExchangeKind.TOPIC),
)
PREDECLARED_NAMES: Final = frozenset(spec.name for spec in PREDECLARED)

MAX_ROUTES: Final = 50_000  # kept in each of the two caches; past that both start again
MAX_MATCHES: Final = 500_000  # in all routes kept: ten thousand subscribers of `#` weigh, too
# Comparisons of one message, beyond those of one key at one exchange: some 20 ms. A message with
# 1,000 keys that leads through 1,000 exchanges would hold up everybody for a second.
MAX_COMPARISONS: Final = 16_384
WIDE_ROUTE: Final = 16  # queues; handing a message over to more is worth counting

NO_HEADERS: Final[Mapping[str, object]] = {}
K = TypeVar("K")


class Removal(NamedTuple, Generic[Q]):
    """Lists what a removal took away, and which auto-delete exchanges it left without a binding:
    whoever asked for it deletes those, too."""

    bindings: tuple[Binding[Q], ...]
    unused_exchanges: tuple[str, ...]


def no_headers() -> Mapping[str, object]:
    return NO_HEADERS


def no_property(name: str) -> object:
    return None


class Router(Generic[Q]):
    """`routes` and `topic_routes` are the caches: a caller in a hurry may look there first, and
    asks `route` or `route_topic` when it gets None. An empty route is an answer, too."""

    def __init__(self) -> None:
        # Plain dictionaries, not Memos: each publish looks here, and both are bounded by what the
        # routes of both hold together.
        self.routes: dict[tuple[str, str], Route[Q]] = {}
        self.topic_routes: dict[str, Route[Q]] = {}
        self.routes_found = 0  # looked up in vain, and found anew
        self.cache_overflows = 0  # times that the caches were full and started again
        self.exchange_changes = 0  # what was found out about an exchange before may not hold now
        self.effort = Effort()  # comparisons for routes found anew, and queues of wide routes
        self._kept_matches = 0
        self._queues: dict[str, Q] = {}
        self._exchanges: dict[str, Exchange[Q]] = {}
        self._by_destination: dict[Q | ExchangeRef, dict[Binding[Q], None]] = {}
        for spec in PREDECLARED:
            self._make(spec)

    # Routes

    def route(
        self,
        exchange: str,
        key: str,
        headers: Callable[[], Mapping[str, object]] = no_headers,
        property_of: Callable[[str], object] = no_property,
        *,
        inside: bool = False,
    ) -> Route[Q]:
        """Finds where a message published to that exchange goes. `inside` is for what the gateway
        itself publishes, such as dead letters: internal exchanges are open to it."""
        route = self.routes.get((exchange, key))
        if route is None:
            start = self._open(exchange, inside)
            route, is_lasting = self._find(start, (key,), headers, property_of)
            if is_lasting and not start.spec.internal:
                self._keep(self.routes, (exchange, key), len(key), route)
        return route

    def route_topic(
        self,
        topic: str,
        headers: Callable[[], Mapping[str, object]] = no_headers,
        property_of: Callable[[str], object] = no_property,
    ) -> Route[Q]:
        """Finds where a message published to that slash name goes. Raises InvalidTopic. What is in
        `topic_routes` has been checked."""
        route = self.topic_routes.get(topic)
        if route is None:
            levels_of(topic)
            space = self._exchanges[TOPIC_SPACE]
            route, is_lasting = self._find(space, (dotted(topic),), headers, property_of)
            if is_lasting:
                self._keep(self.topic_routes, topic, len(topic), route)
        return route

    def route_keys(
        self,
        exchange: str,
        keys: Sequence[str],
        headers: Callable[[], Mapping[str, object]] = no_headers,
        property_of: Callable[[str], object] = no_property,
        *,
        inside: bool = False,
    ) -> Route[Q]:
        """Finds where a message with several keys (CC, BCC) goes: each queue once, and the
        alternate exchange only if none of the keys matched. Not cached. Raises LimitExceeded."""
        start, different = self._open(exchange, inside), tuple(dict.fromkeys(keys))
        return self._find(start, different, headers, property_of)[0]

    def _open(self, name: str, inside: bool) -> Exchange[Q]:
        exchange = self.exchange(name)
        if exchange.spec.internal and not inside:
            raise AccessRefused(
                f"exchange '{name}' is internal; publish to an exchange that is bound to it"
            )
        return exchange

    def _find(
        self,
        start: Exchange[Q],
        keys: Sequence[str],
        headers: Callable[[], Mapping[str, object]],
        property_of: Callable[[str], object] = no_property,
    ) -> tuple[Route[Q], bool]:
        """The route, and whether it holds for every message with these keys: it does not if the
        way led to an exchange that reads more than keys, or leaves it to chance. What exchanges on
        the way remember by comes last: nothing is remembered that a queue refuses. Raises
        LimitExceeded."""
        self.routes_found += 1
        comparisons = _Comparisons(keys)
        found: dict[Q, list[object]] = {}
        memories: list[Match[Q]] = []
        pending = [start]  # grows while it is walked; each exchange is in it once, so cycles end
        seen = {start.spec.name}
        facts: Mapping[str, object] | None = None  # the headers, once somebody reads them
        is_lasting = True
        for exchange in pending:
            if exchange.reads_headers and facts is None:
                facts = headers()
            said = facts or NO_HEADERS
            if (name := exchange.reads_property) is not None:
                said = {name: property_of(name)}
            constant = exchange.is_constant and not exchange.reads_headers and name is None
            is_lasting = is_lasting and constant
            onward: list[str] = []
            if exchange.memory is not None:
                memories.append(Match(exchange.memory, ()))
            try:
                bindings = _taken(exchange, keys, said, comparisons)
            except LimitExceeded:
                self.effort.spent += comparisons.count  # in vain, and it took as long
                raise
            for binding in bindings:
                destination = binding.destination
                if isinstance(destination, ExchangeRef):
                    onward.append(destination.name)
                else:
                    options = found.setdefault(destination, [])
                    if binding.options is not None:
                        options.append(binding.options)
            if not bindings and exchange.alternate is not None:
                onward.append(exchange.alternate)
            for name in onward:
                # an alternate exchange may have been deleted, or not be there yet
                if name not in seen and name in self._exchanges:
                    seen.add(name)
                    pending.append(self._exchanges[name])
        matches = [Match(queue, tuple(options)) for queue, options in found.items()]
        self.effort.spent += comparisons.count + len(matches)
        return tuple(matches + memories), is_lasting

    def _keep(self, cache: dict[K, Route[Q]], key: K, size: int, route: Route[Q]) -> None:
        if size > MAX_KEPT_KEY_CHARACTERS:
            return
        if len(cache) >= MAX_ROUTES or self._kept_matches + len(route) > MAX_MATCHES:
            self.cache_overflows += 1
            self._forget_routes()
        self._kept_matches += len(route)
        cache[key] = route

    def _forget_routes(self) -> None:
        self.routes.clear()
        self.topic_routes.clear()
        self._kept_matches = 0

    # Queues

    def register_queue(self, name: str, queue: Q) -> None:
        """Makes the queue known to the default exchange by its name."""
        if self._queues.setdefault(name, queue) is not queue:
            raise ValueError(f"queue name '{name}' is taken by another queue")
        self._add(Binding(DEFAULT_EXCHANGE, queue, name))

    def unregister_queue(self, name: str) -> Removal[Q]:
        """Forgets the queue of that name and all that is bound to it, also when there is none."""
        if name not in self._queues:
            return Removal((), ())
        return self.unbind_all(self._queues.pop(name))

    def queue(self, name: str) -> Q | None:
        return self._queues.get(name)

    # Bindings

    def bind(
        self,
        source: str,
        destination: Q | ExchangeRef,
        key: str = "",
        arguments: Mapping[str, object] | None = None,
        limits: BindingLimits | None = None,
    ) -> bool:
        """Binds a queue or an exchange; False if the same binding was there, and stays as it is.
        Without limits, as at a start, there is room for every binding."""
        self._check_bindable(source, destination)
        binding = Binding(source, destination, key, dict(arguments or {}) or None)
        if limits is not None:
            self._check_room(binding, limits)
        return self._add(binding)

    def unbind(
        self,
        source: str,
        destination: Q | ExchangeRef,
        key: str = "",
        arguments: Mapping[str, object] | None = None,
    ) -> Removal[Q]:
        """Takes the binding away; one that is not there is no error, and the removal is empty."""
        self._check_bindable(source, destination)
        wanted = Binding(source, destination, key, dict(arguments or {}) or None)
        bound = self._exchanges[source].bindings.get(wanted)
        return self._remove([] if bound is None else [bound])

    def unbind_all(self, destination: Q | ExchangeRef) -> Removal[Q]:
        """Takes away all bindings that lead there, from wherever."""
        return self._remove(self.bindings_of(destination))

    def subscribe(self, topic_filter: str, queue: Q, options: object | None = None) -> bool:
        """Binds the queue to the topic space by a slash filter. Subscribing again with the same
        filter puts the new options in place of the old, and says False."""
        binding = Binding(TOPIC_SPACE, queue, topic_filter, None, options, is_filter=True)
        earlier = self._exchanges[TOPIC_SPACE].bindings.get(binding)
        if earlier is not None:
            self._remove([earlier])
        self._add(binding)
        return earlier is None

    def unsubscribe(self, topic_filter: str, queue: Q) -> bool:
        """Takes the subscription away; False if there was none."""
        wanted = Binding(TOPIC_SPACE, queue, topic_filter, is_filter=True)
        bound = self._exchanges[TOPIC_SPACE].bindings.get(wanted)
        if bound is not None:
            self._remove([bound])
        return bound is not None

    def bindings_of(self, destination: Q | ExchangeRef) -> list[Binding[Q]]:
        """Returns the bindings that lead to that queue or exchange, in order of binding."""
        return list(self._by_destination.get(destination, ()))

    def bindings(self) -> list[Binding[Q]]:
        """Returns all bindings, those that registered queues have with the default exchange among
        them."""
        return [each for exchange in self._exchanges.values() for each in exchange.bindings]

    def _check_bindable(self, source: str, destination: Q | ExchangeRef) -> None:
        names = [source]
        if isinstance(destination, ExchangeRef):
            names.append(destination.name)
        if DEFAULT_EXCHANGE in names:
            raise NameReserved(
                "the default exchange has one binding for each queue, by its name, and no others; "
                "bind to another exchange"
            )
        for name in names:
            self.exchange(name)

    def _check_room(self, binding: Binding[Q], limits: BindingLimits) -> None:
        source = self._exchanges[binding.source]
        if binding in source.bindings:
            return
        most = limits.from_one_headers if source.reads_headers else limits.from_one
        if source.bound + binding.weight > most:
            raise LimitExceeded(
                f"exchange '{binding.source}' has {source.bound} bindings, and {most} are allowed "
                f"(long arguments count once more for {ARGUMENT_CHARACTERS_PER_BINDING} "
                "characters); take some away, use another exchange, or raise "
                f"broker.max_{'header_' if source.reads_headers else ''}bindings_per_exchange"
            )
        leading_there = len(self._by_destination.get(binding.destination, ()))
        if leading_there >= limits.to_one:
            raise LimitExceeded(
                f"{leading_there} bindings lead to this queue or exchange, and {limits.to_one} are "
                "allowed; take some away, or raise broker.max_bindings_per_queue"
            )

    def _add(self, binding: Binding[Q]) -> bool:
        exchange = self._exchanges[binding.source]
        if binding in exchange.bindings:
            return False
        exchange.add(binding)
        self._by_destination.setdefault(binding.destination, {})[binding] = None
        self._forget_routes()
        return True

    def _remove(self, bindings: Iterable[Binding[Q]]) -> Removal[Q]:
        removed = tuple(bindings)
        unused: list[str] = []
        for binding in removed:
            exchange = self._exchanges[binding.source]
            exchange.remove(binding)
            same_destination = self._by_destination[binding.destination]
            del same_destination[binding]
            if not same_destination:
                del self._by_destination[binding.destination]
            if exchange.spec.auto_delete and exchange.is_unused:
                unused.append(binding.source)
        if removed:
            self._forget_routes()
        return Removal(removed, tuple(unused))

    # Exchanges

    def exchange(self, name: str) -> Exchange[Q]:
        """The exchange of that name; also what a passive declaration asks for."""
        try:
            return self._exchanges[name]
        except KeyError:
            raise ExchangeNotFound(f"no exchange '{name}'; declare it first") from None

    def has_exchange(self, name: str) -> bool:
        return name in self._exchanges

    def exchanges(self) -> list[ExchangeSpec]:
        return [exchange.spec for exchange in self._exchanges.values()]

    def declare_exchange(self, spec: ExchangeSpec) -> bool:
        """Makes the exchange; False if it is there already, NotEquivalent if it differs."""
        if not self.is_new(spec):
            return False
        self._make(spec)
        self.exchange_changes += 1
        self._forget_routes()  # it may be somebody's alternate exchange
        return True

    def is_new(self, spec: ExchangeSpec) -> bool:
        """Tells whether declaring the spec would make an exchange; raises the errors of
        declaring."""
        if spec.name == DEFAULT_EXCHANGE:
            raise NameReserved("the default exchange is always there; declare one with a name")
        existing = self._exchanges.get(spec.name)
        if existing is not None:
            existing.spec.check_equivalent(spec)
            return False
        if spec.name.startswith("amq."):
            raise NameReserved(
                f"exchange '{spec.name}': names that begin with 'amq.' are the gateway's own; "
                "choose another"
            )
        return True

    def set_alternate(self, name: str, alternate: str | None) -> None:
        """Has an exchange send what matches no binding to another one, or nowhere."""
        exchange = self.exchange(name)
        if exchange.alternate != alternate:
            exchange.alternate = alternate
            self._forget_routes()

    def remember_by(self, name: str, memory: Q) -> Exchange[Q]:
        """Puts a memory at the end of every route through the exchange."""
        exchange = self.exchange(name)
        exchange.memory = memory
        self._forget_routes()
        return exchange

    def forget_memory(self, name: str) -> None:
        """Takes the memory off the routes through the exchange."""
        self.exchange(name).memory = None
        self._forget_routes()

    def delete_exchange(self, name: str, *, if_unused: bool = False) -> Removal[Q]:
        """Deletes the exchange with all bindings from it and to it."""
        if name in PREDECLARED_NAMES:
            raise NameReserved(f"exchange '{name}' is always there and cannot be deleted")
        exchange = self.exchange(name)
        if if_unused and not exchange.is_unused:
            raise ExchangeInUse(
                f"exchange '{name}' has {len(exchange.bindings)} bindings; take them away first, "
                "or delete it without if-unused"
            )
        # an exchange may be bound to itself: that binding is on both sides, and goes once
        removal = self._remove(
            dict.fromkeys([*exchange.bindings, *self.bindings_of(ExchangeRef(name))])
        )
        del self._exchanges[name]
        self.exchange_changes += 1
        self._forget_routes()
        others = tuple(other for other in removal.unused_exchanges if other != name)
        return Removal(removal.bindings, others)

    def _make(self, spec: ExchangeSpec) -> None:
        self._exchanges[spec.name] = make_exchange(spec, hides_dollar=spec.name == TOPIC_SPACE)


class _Comparisons:
    """Counts what it takes to find one route, and refuses what would take too long."""

    __slots__ = ("_dearest", "_keys", "count")

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = keys
        self._dearest = 0  # of one key at one exchange, which is as large as it was let become
        self.count = 0

    def add(self, count: int, exchange: Exchange[Q], *, is_alone: bool = False) -> None:
        """Raises LimitExceeded. `is_alone` is for what a message with one key would take, too."""
        if is_alone and count > self._dearest:
            self._dearest = count
        self.count += count
        if self.count > MAX_COMPARISONS + self._dearest:
            raise LimitExceeded(
                f"a message with {len(self._keys)} keys is compared with too many bindings on its "
                f"way to exchange '{exchange.spec.name}'; send it with fewer keys (CC, BCC), or "
                "lead it through fewer exchanges"
            )


def _taken(
    exchange: Exchange[Q],
    keys: Sequence[str],
    headers: Mapping[str, object],
    comparisons: _Comparisons,
) -> Collection[Binding[Q]]:
    """The bindings that a message with these keys takes, each once. Raises LimitExceeded."""
    comparisons.add(exchange.effort, exchange, is_alone=True)
    if len(keys) == 1 or not exchange.reads_keys:
        return exchange.match(keys[0], headers)
    taken: dict[Binding[Q], None] = dict.fromkeys(exchange.match(keys[0], headers))
    for key in keys[1:]:
        found = exchange.match(key, headers)
        comparisons.add(1 + len(found), exchange)
        taken.update(dict.fromkeys(found))
    return taken
