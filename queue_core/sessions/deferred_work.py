"""The means by which sessions do something at a later time, or beside what they do now."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from queue_core.timers import Agenda

Later = Callable[[Coroutine[Any, Any, object]], None]


class DeferredWork(msgspec.Struct, frozen=True):
    """A clock, the appointments by it, and `later`, which runs a coroutine in the background."""

    clock: Callable[[], float]
    agenda: Agenda
    later: Later
