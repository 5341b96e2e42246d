"""Changes of cold tables whose answer was lost, by the name of what they change.

A commit may go through although its answer does not, and a client that leaves does not wait for
one. Such a row is this gateway's own, nobody was told of it, and it may be replaced. Every other
row that is in the way of an insert was written by somebody else, and must stay.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

from queue_core.errors import CoreError, StoreUnavailable

MOST_NAMES: Final = 10_000  # the oldest is forgotten; its row then stays until the next start

K = TypeVar("K", bound=Hashable)


class UnansweredChanges(Generic[K]):
    """The names whose last change got no answer, oldest first."""

    def __init__(self) -> None:
        self._names: dict[K, None] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._names

    @contextmanager
    def of(self, name: K) -> Iterator[None]:
        """Runs one change of `name`, and notes the name if no answer comes. A refusal is an
        answer: nothing was written."""
        try:
            yield
        except BaseException as error:
            if not isinstance(error, CoreError) or isinstance(error, StoreUnavailable):
                self._names[name] = None
                if len(self._names) > MOST_NAMES:
                    del self._names[next(iter(self._names))]
            raise
        self._names.pop(name, None)
