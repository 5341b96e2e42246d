"""The routes of our own HTTP API, from the modules that have them."""

from __future__ import annotations

from typing import Final

from gateway.management.routes import Route
from gateway.management.v1 import (
    conversion,
    database,
    dead_letters,
    events,
    messages,
    retained,
    routing,
    sessions,
    topics,
)

ROUTES: Final[tuple[Route, ...]] = (
    *messages.ROUTES,
    *dead_letters.ROUTES,
    *routing.ROUTES,
    *conversion.ROUTES,
    *sessions.ROUTES,
    *retained.ROUTES,
    *topics.ROUTES,
    *database.ROUTES,
    *events.ROUTES,
)
