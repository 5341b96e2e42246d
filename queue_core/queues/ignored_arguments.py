"""Logs each argument of a queue, exchange or binding once that is kept and has no effect.

Bounded: names come from clients, and a client may invent them for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

log = logging.getLogger(__name__)

MOST_NAMED_ARGUMENTS: Final = 1000  # different arguments that are named in the log, since the start


class IgnoredArguments:
    """The arguments without effect that the log has named since the start."""

    __slots__ = ("_said", "count")

    def __init__(self) -> None:
        self._said: set[tuple[str, str]] = set()
        self.count = 0  # declarations with such arguments

    def report(self, what: str, name: str, arguments: Iterable[str]) -> None:
        """Says for each argument of a `what` (queue, exchange, ...) that it does nothing."""
        for argument in arguments:
            self.count += 1
            if (what, argument) in self._said or len(self._said) >= MOST_NAMED_ARGUMENTS:
                continue
            self._said.add((what, argument))
            log.warning(
                "%s '%s': argument '%s' is not known here; it is kept and shown, and has no effect "
                "(amqp091.strict refuses such arguments; this is said once for each)",
                *(what, name, argument),
            )
            if len(self._said) == MOST_NAMED_ARGUMENTS:
                log.warning("more unknown arguments are not named in the log")
