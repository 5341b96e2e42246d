"""Explains a route: which bindings a message takes at each exchange on its way, and why it does not
take the others.

Walks as the router does, and asks the exchanges themselves. It changes nothing and keeps nothing;
for people who ask, not for messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, Generic

from queue_core.message.topic_forms import slashed
from queue_core.message.value_identity import identity_of
from queue_core.routing.bindings import Binding, ExchangeRef, Q
from queue_core.routing.exchanges import Exchange, ExchangeKind, ExchangeSpec, HeaderPattern
from queue_core.routing.router import Router

MOST_TAKEN: Final = 1_000  # bindings of one exchange that are listed
MOST_PASSED_OVER: Final = 200
MOST_STEPS: Final = 100  # exchanges on the way

CHOOSING: Final = frozenset(
    (
        ExchangeKind.CONSISTENT_HASH,
        ExchangeKind.MODULUS_HASH,
        ExchangeKind.RANDOM,
        ExchangeKind.LOCAL_RANDOM,
    )
)


@dataclass(frozen=True, slots=True)
class PassedOver(Generic[Q]):
    """A binding that the message does not take, and why."""

    binding: Binding[Q]
    why: str


@dataclass(frozen=True, slots=True)
class Step(Generic[Q]):
    """One exchange on the way. `alternate` is where the message goes on as no binding matched."""

    exchange: ExchangeSpec
    taken: list[Binding[Q]]
    taken_count: int
    passed_over: list[PassedOver[Q]]
    passed_over_count: int
    alternate: str | None


def explain(
    router: Router[Q], exchange: str, key: str, headers: Mapping[str, object]
) -> list[Step[Q]]:
    """Walks the way of a message that is published to an exchange. Raises ExchangeNotFound."""
    pending = [router.exchange(exchange)]
    seen = {exchange}
    steps: list[Step[Q]] = []
    known = {spec.name for spec in router.exchanges()}
    for each in islice(pending, MOST_STEPS):
        step = _step(each, key, headers)
        steps.append(step)
        onward = [b.destination.name for b in step.taken if isinstance(b.destination, ExchangeRef)]
        if step.alternate is not None:
            onward.append(step.alternate)
        for name in onward:
            if name not in seen and name in known and len(pending) < MOST_STEPS:
                seen.add(name)
                pending.append(router.exchange(name))
    return steps


def _step(exchange: Exchange[Q], key: str, headers: Mapping[str, object]) -> Step[Q]:
    name = exchange.reads_property
    said = headers if name is None else {name: headers.get(name)}
    taken = dict.fromkeys(exchange.match(key, said))
    others = (each for each in exchange.bindings if each not in taken)
    passed_over = [
        PassedOver(each, why_not(exchange, each, key, headers))
        for each in islice(others, MOST_PASSED_OVER)
    ]
    return Step(
        exchange.spec,
        list(islice(taken, MOST_TAKEN)),
        len(taken),
        passed_over,
        len(exchange.bindings) - len(taken),
        None if taken else exchange.spec.alternate,
    )


def why_not(
    exchange: Exchange[Q], binding: Binding[Q], key: str, headers: Mapping[str, object]
) -> str:
    """Says why a message does not take a binding."""
    kind = exchange.spec.routes_as
    if kind is ExchangeKind.DIRECT:
        return f"its key is '{binding.key}', and the message's is '{key}'"
    if kind is ExchangeKind.TOPIC:
        return _why_no_topic(binding, key)
    if kind is ExchangeKind.HEADERS:
        return _why_no_headers(HeaderPattern.parse(binding.arguments or {}), headers)
    if kind in CHOOSING:
        return f"the exchange chooses one binding ({kind.value}), and chose another"
    return "the exchange has seen the message before, and keeps repetitions out"


def _why_no_topic(binding: Binding[Q], key: str) -> str:
    topic = slashed(key)
    if topic.startswith("$") and binding.key[:1] in ("+", "#", "*"):
        return f"'{binding.key}' begins with a wildcard, which leaves out topics with $ in front"
    noun, said = ("filter", topic) if binding.is_filter else ("pattern", key)
    return f"the {noun} '{binding.key}' does not match '{said}'"


def _why_no_headers(pattern: HeaderPattern, headers: Mapping[str, object]) -> str:
    lacking = [f"'{name}' is missing" for name in pattern.present if name not in headers]
    for name, value in pattern.equal:
        if name not in headers:
            lacking.append(f"'{name}' is missing")
        elif identity_of(headers[name]) != value:
            lacking.append(f"'{name}' has another value, or one of another type")
    rule = "all of its headers" if pattern.needs_all else "any of its headers"
    return f"it asks for {rule}: {', '.join(lacking) or 'it names none'}"
