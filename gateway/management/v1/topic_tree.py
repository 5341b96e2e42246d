"""A tree of the topics that were published to while somebody looked: how often, and the last value.

Bounded in nodes and bytes: the topic that was published to longest ago gives way. Knows neither
queues nor who looks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

MOST_TOPICS: Final = 50_000
MOST_VALUE_BYTES: Final = 256  # kept of each value
MOST_TREE_BYTES: Final = 32 * 1024 * 1024  # of topics and values together
NODE_OVERHEAD_BYTES: Final = 400


class TopicNode:
    """One level of a topic. `topic` is set where messages were published to exactly this one."""

    __slots__ = ("at", "children", "level", "messages", "parent", "size", "topic", "value")

    def __init__(self, level: str, parent: TopicNode | None) -> None:
        self.level = level
        self.parent = parent
        self.children: dict[str, TopicNode] = {}
        self.topic: str | None = None
        self.messages = 0
        self.value = b""  # the beginning of the last one,
        self.size = 0  # and how long it was
        self.at = 0.0

    def below(self) -> Iterator[TopicNode]:
        """Yields the nodes below this one that are topics."""
        pending = list(self.children.values())
        while pending:
            node = pending.pop()
            if node.topic is not None:
                yield node
            pending.extend(node.children.values())


class TopicTree:
    """The topics seen since the tree was made."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.messages = 0
        self.forgotten = 0  # topics that gave way to others
        self._root = TopicNode("", None)
        self._topics: dict[str, TopicNode] = {}  # the one published to longest ago first
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._topics)

    def add(self, topic: str, body: bytes, at: float) -> None:
        """Notes a message that was published to a topic."""
        self.messages += 1
        node = self._topics.pop(topic, None)
        if node is None:
            node = self._made(topic)
        self._topics[topic] = node
        node.messages += 1
        node.at = at
        node.size = len(body)
        self._bytes -= len(node.value)
        node.value = bytes(body[:MOST_VALUE_BYTES])
        self._bytes += len(node.value)
        while len(self._topics) > MOST_TOPICS or self._bytes > MOST_TREE_BYTES:
            self._forget()

    def _made(self, topic: str) -> TopicNode:
        node = self._root
        for level in topic.split("/"):
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = TopicNode(level, node)
                self._bytes += NODE_OVERHEAD_BYTES + len(level)
            node = child
        node.topic = topic
        return node

    def _forget(self) -> None:
        topic, node = next(iter(self._topics.items()))
        del self._topics[topic]
        self.forgotten += 1
        self._bytes -= len(node.value)
        node.topic, node.value, node.messages = None, b"", 0
        self._prune(node)

    def _prune(self, node: TopicNode) -> None:
        """Takes away levels that no topic needs any more."""
        while not node.children and node.topic is None and (parent := node.parent) is not None:
            del parent.children[node.level]
            self._bytes -= NODE_OVERHEAD_BYTES + len(node.level)
            node = parent

    def find(self, topic: str | None) -> TopicNode | None:
        """Finds the node of a topic or of a part of one; None is the root."""
        node: TopicNode | None = self._root
        for level in [] if topic is None else topic.split("/"):
            node = None if node is None else node.children.get(level)
        return node
