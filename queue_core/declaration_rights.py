"""The rights that declaring and binding ask for, whichever protocol declares: configure to declare,
write to lead messages somewhere, read to take them from there. As in RabbitMQ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from queue_core.access.auth import Action, ResourceKind
from queue_core.errors import ExchangeNotFound
from queue_core.routing.exchanges import ExchangeSpec
from queue_core.routing.router import Router

DEAD_LETTERS: Final = "x-dead-letter-exchange"
DEAD_LETTER_KEY: Final = "x-dead-letter-routing-key"

Require = Callable[[Action, ResourceKind, str, str | None], object]  # raises AccessRefused


class DeclarationRights:
    """Asks for what one user needs in one virtual host. Every method raises AccessRefused."""

    __slots__ = ("_require", "_router")

    def __init__(self, require: Require, router: Router[Any]) -> None:
        self._require = require
        self._router = router

    def declare_queue(self, name: str, arguments: Mapping[str, object]) -> None:
        self._require(Action.CONFIGURE, "queue", name, None)
        exchange = arguments.get(DEAD_LETTERS)
        if isinstance(exchange, str):
            self._require(Action.READ, "queue", name, None)
            key = arguments.get(DEAD_LETTER_KEY)
            self.lead_to(exchange, key if isinstance(key, str) else None)

    def declare_exchange(self, spec: ExchangeSpec) -> None:
        """An alternate exchange reads whatever the exchange cannot route, whatever its key."""
        self._require(Action.CONFIGURE, "exchange", spec.name, None)
        if spec.alternate is not None:
            self._require(Action.READ, "topic" if spec.is_topic else "exchange", spec.name, None)
            self.lead_to(spec.alternate, None)

    def bind_queue(self, queue: str) -> None:
        self._require(Action.WRITE, "queue", queue, None)

    def bind_exchange(self, exchange: str) -> None:
        self._require(Action.WRITE, "exchange", exchange, None)

    def take_from(self, exchange: str, key: str) -> None:
        """Asks for the right to bind to an exchange with a key. Raises ExchangeNotFound, too."""
        if self._router.exchange(exchange).spec.is_topic:
            self._require(Action.READ, "topic", exchange, key)
        else:
            self._require(Action.READ, "exchange", exchange, None)

    def lead_to(self, exchange: str, key: str | None) -> None:
        """Messages will go to that exchange by themselves, with that key, or (None) with whichever
        they have: as much as to publish them there. What is not declared yet may become a topic
        exchange. A binding between exchanges lets pass every key: a message may have others (CC,
        BCC) beside the one that the binding asks for, and takes them all along."""
        try:
            is_topic = self._router.exchange(exchange).spec.is_topic
        except ExchangeNotFound:
            is_topic = True
        if is_topic:
            self._require(Action.WRITE, "topic", exchange, key)
        else:
            self._require(Action.WRITE, "exchange", exchange, None)
