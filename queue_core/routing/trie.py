"""The trie: which entries were added under a filter that matches this topic.

Filters are token tuples and topics lists of levels (see topics.py); entries are any hashable
objects. It knows nothing of queues, bindings or ways of writing a topic, and caches nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from sys import intern
from typing import Any, Final, Generic, TypeVar

from queue_core.routing.topics import MANY, ONE

T = TypeVar("T", bound=Hashable)

# Few entries are a tuple (40 bytes and 8 each); a dict (224 bytes at least) is for the filter that
# ten thousand share, where looking through a tuple would make every removal slow.
MAX_IN_TUPLE: Final = 8
_CHILDLESS: Final[dict[str, Any]] = {}  # shared by all leaves, never filled


class _Node(Generic[T]):
    """Stands for one level of some filters: its entries are those whose filter ends here."""

    __slots__ = ("children", "entries", "is_many", "many", "one")

    def __init__(self, is_many: bool = False) -> None:
        self.children: dict[str, _Node[T]] = _CHILDLESS
        self.one: _Node[T] | None = None
        self.many: _Node[T] | None = None
        self.entries: tuple[T, ...] | dict[T, None] = ()
        self.is_many = is_many

    def next(self, token: str) -> _Node[T] | None:
        if token == ONE:
            return self.one
        if token == MANY:
            return self.many
        return self.children.get(token)

    def grow(self, token: str) -> _Node[T]:
        node = self.next(token)
        if node is None:
            node = _Node(token == MANY)
            if token == ONE:
                self.one = node
            elif token == MANY:
                self.many = node
            else:
                if self.children is _CHILDLESS:
                    self.children = {}
                self.children[intern(token)] = node
        return node

    def cut(self, token: str) -> None:
        if token == ONE:
            self.one = None
        elif token == MANY:
            self.many = None
        elif len(self.children) == 1:
            self.children = _CHILDLESS
        else:
            del self.children[token]

    def has_next(self) -> bool:
        return bool(self.children) or self.one is not None or self.many is not None

    def put(self, entry: T) -> bool:
        entries = self.entries
        if entry in entries:
            return False
        if isinstance(entries, dict):
            entries[entry] = None
        elif len(entries) < MAX_IN_TUPLE:
            self.entries = (*entries, entry)
        else:
            self.entries = dict.fromkeys((*entries, entry))
        return True

    def take(self, entry: T) -> bool:
        entries = self.entries
        if entry not in entries:
            return False
        if isinstance(entries, dict):
            del entries[entry]
            if len(entries) <= MAX_IN_TUPLE // 2:
                self.entries = tuple(entries)
        else:
            self.entries = tuple(other for other in entries if other != entry)
        return True


class Trie(Generic[T]):
    """Entries by filter. With `hides_dollar`, a filter that begins with a wildcard does not match
    a topic whose first level begins with `$`."""

    __slots__ = ("_count", "_hides_dollar", "_root")

    def __init__(self, *, hides_dollar: bool = False) -> None:
        self._root: _Node[T] = _Node()
        self._hides_dollar = hides_dollar
        self._count = 0

    def __len__(self) -> int:
        """Counts the pairs of a filter and an entry."""
        return self._count

    def add(self, tokens: Sequence[str], entry: T) -> bool:
        """Puts the entry under that filter; False if it is there already."""
        node = self._root
        for token in tokens:
            node = node.grow(token)
        is_new = node.put(entry)
        self._count += is_new
        return is_new

    def remove(self, tokens: Sequence[str], entry: T) -> bool:
        """Takes the entry from under that filter, and the nodes that led only to it; False if it
        is not there."""
        path = [self._root]
        for token in tokens:
            node = path[-1].next(token)
            if node is None:
                return False
            path.append(node)
        if not path[-1].take(entry):
            return False
        self._count -= 1
        for token in reversed(tokens):
            node = path.pop()
            if node.entries or node.has_next():
                break
            path[-1].cut(token)
        return True

    def match(self, levels: Sequence[str]) -> list[T]:
        """The entries of all filters that match, each once for each filter it was added under.

        Walks the levels once with the set of nodes that the levels so far lead to, so that no
        pattern, however many `#` it has, costs more than nodes times levels. A `#` node joins the
        set at its own place and never leaves it.
        """
        found: list[T] = []
        active = [self._root]
        if self._hides_dollar and levels and levels[0][:1] == "$":
            child = self._root.children.get(levels[0])
            active = [] if child is None else [child]
            levels = levels[1:]
        joined: set[_Node[T]] = (
            set()
        )  # a node after one `#` is met at many places, with its own `#`
        for level in levels:
            following: list[_Node[T]] = []
            for node in active:  # grows while it is walked
                many = node.many
                if many is not None and many not in joined:
                    joined.add(many)
                    found.extend(many.entries)
                    if many.has_next():
                        active.append(many)
                child = node.children.get(level)
                if child is not None:
                    following.append(child)
                if node.one is not None:
                    following.append(node.one)
                if node.is_many:
                    following.append(node)
            if not following:
                return found
            active = following
        for node in active:
            if not node.is_many:
                found.extend(node.entries)
            many = node.many
            if many is not None and many not in joined:
                joined.add(many)
                found.extend(many.entries)
                active.append(many)
        return found
