"""Exchanges declared at a router, and the queues of a route."""

from __future__ import annotations

from queue_core.routing.exchanges import ExchangeSpec
from queue_core.routing.route import Route
from queue_core.routing.router import Router


def declare(router: Router[str], name: str, kind: str = "direct", alternate: str = "") -> None:
    arguments = {"alternate-exchange": alternate} if alternate else None
    router.declare_exchange(ExchangeSpec.parse(name, kind, arguments))


def queues(route: Route[str]) -> list[str]:
    return [match.queue for match in route]
