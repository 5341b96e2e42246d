"""The topic tree: counts, last values, and its bounds."""

from __future__ import annotations

import pytest

from gateway.management.v1 import topic_tree
from gateway.management.v1.topic_tree import MOST_VALUE_BYTES, TopicTree


def test_a_tree_counts_messages_and_keeps_the_beginning_of_the_last_value() -> None:
    tree = TopicTree(0.0)
    tree.add("a/b", b"1", 1.0)
    tree.add("a/b", b"x" * 1000, 2.0)
    tree.add("a", b"2", 3.0)
    node = tree.find("a/b")
    assert node is not None
    assert (node.messages, node.size, node.value) == (2, 1000, b"x" * MOST_VALUE_BYTES)
    top = tree.find("a")
    assert top is not None
    assert [each.topic for each in top.below()] == ["a/b"]
    assert (len(tree), tree.messages) == (2, 3)
    assert tree.find("a/c") is None


def test_the_topic_that_rested_longest_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_tree, "MOST_TOPICS", 2)
    tree = TopicTree(0.0)
    for topic in ("a/x", "b", "a/x", "c/d/e"):
        tree.add(topic, b"", 1.0)
    assert tree.find("b") is None
    assert tree.find("a/x") is not None
    assert tree.forgotten == 1


def test_levels_without_a_topic_go_with_the_last_one_below_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_tree, "MOST_TOPICS", 1)
    tree = TopicTree(0.0)
    tree.add("a/b/c", b"1", 1.0)
    tree.add("d", b"2", 1.0)
    assert tree.find("a") is None
    root = tree.find(None)
    assert root is not None
    assert list(root.children) == ["d"]


def test_a_tree_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_tree, "MOST_TREE_BYTES", 10_000)
    tree = TopicTree(0.0)
    for number in range(1000):
        tree.add(f"{number}/{'x' * 100}", b"y" * 200, 1.0)
    assert len(tree) < 20
    assert tree.forgotten + len(tree) == 1000


def test_an_empty_level_is_a_level() -> None:
    tree = TopicTree(0.0)
    tree.add("/a//b", b"", 1.0)
    assert tree.find("/a//b") is not None
    assert tree.find("") is not None
