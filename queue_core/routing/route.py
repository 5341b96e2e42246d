"""The route of a message: the queues that it goes to, as the router has found them."""

from __future__ import annotations

from typing import Final, Generic, NamedTuple

from queue_core.routing.bindings import Q

MAX_KEPT_KEY_CHARACTERS: Final = 512  # a route with a longer key is found anew each time


class Match(NamedTuple, Generic[Q]):
    """A queue that a message goes to, and the options of the subscriptions that led there."""

    queue: Q
    options: tuple[object, ...]


Route = tuple[Match[Q], ...]
