"""Exchanges that remember the last messages, or which messages they have seen, lead to all of their
bindings, whatever a message's key.

Routing only looks into the memory of such an exchange. The memory changes at the end of a route,
where a message is taken: see `exchange_state_queues`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from queue_core.message.deduplication_keys import KEY_HEADER
from queue_core.routing.bindings import Binding, Q
from queue_core.routing.exchanges import ExchangeSpec, FanoutExchange


class RecentHistoryExchange(FanoutExchange[Q]):
    """A recent-history exchange gives its last messages to queues that are bound later."""

    __slots__ = ()


class DeduplicationExchange(FanoutExchange[Q]):
    """A deduplication exchange lets each value of the header `x-deduplication-header` through once.
    A repetition takes no binding, and goes the way of messages that match none."""

    __slots__ = ("is_repeated",)

    def __init__(self, spec: ExchangeSpec) -> None:
        super().__init__(spec)
        self.is_repeated: Callable[[str], bool] = _never

    @property
    def is_constant(self) -> bool:
        return False

    @property
    def reads_property(self) -> str | None:
        return KEY_HEADER

    def match(self, key: str, headers: Mapping[str, object]) -> Collection[Binding[Q]]:
        value = headers.get(KEY_HEADER)
        return () if value is not None and self.is_repeated(str(value)) else self.bindings


def _never(key: str) -> bool:
    return False
