"""Maps each kind of exchange to its class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from queue_core.routing.bindings import Q
from queue_core.routing.exchanges import (
    DirectExchange,
    Exchange,
    ExchangeKind,
    ExchangeSpec,
    FanoutExchange,
    HeadersExchange,
    TopicExchange,
)
from queue_core.routing.hash_exchanges import (
    ConsistentHashExchange,
    ModulusHashExchange,
    RandomExchange,
)
from queue_core.routing.stateful_exchanges import DeduplicationExchange, RecentHistoryExchange

CLASSES: Final[Mapping[ExchangeKind, Callable[[ExchangeSpec], Exchange[Any]]]] = {
    ExchangeKind.DIRECT: DirectExchange,
    ExchangeKind.FANOUT: FanoutExchange,
    ExchangeKind.HEADERS: HeadersExchange,
    ExchangeKind.CONSISTENT_HASH: ConsistentHashExchange,
    ExchangeKind.MODULUS_HASH: ModulusHashExchange,
    ExchangeKind.RANDOM: RandomExchange,
    ExchangeKind.LOCAL_RANDOM: RandomExchange,
    ExchangeKind.RECENT_HISTORY: RecentHistoryExchange,
    ExchangeKind.DEDUPLICATION: DeduplicationExchange,
}


def make_exchange(spec: ExchangeSpec, *, hides_dollar: bool = False) -> Exchange[Q]:
    """Makes an exchange of the kind that the spec names, with no bindings yet. A delaying exchange
    is made as the kind that it routes as: a delay is the message's, and waits in the queues."""
    if spec.is_topic:
        return TopicExchange(spec, hides_dollar=hides_dollar)
    return CLASSES[spec.routes_as](spec)
