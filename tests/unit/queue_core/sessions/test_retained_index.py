"""The index of retained topics: how long it may be walked before others get their turn."""

from __future__ import annotations

from itertools import groupby

import pytest

from queue_core.routing.topics import filter_tokens
from queue_core.sessions.retained import BREATH, WALK_SLICE_NODES, TopicIndex

TOPICS = [f"{number % 7}/{number}" for number in range(3 * WALK_SLICE_NODES)]


def index() -> TopicIndex:
    made = TopicIndex()
    for topic in TOPICS:
        made.put(topic, 1, None)
    return made


@pytest.mark.parametrize("topic_filter", ["+/+/none", "+/+/+", "#", "+/+"])
def test_a_walk_through_many_topics_is_interrupted_whether_or_not_they_match(
    topic_filter: str,
) -> None:
    found = list(index().match(filter_tokens(topic_filter)))
    assert found.count(BREATH) >= 1
    parts = groupby(found, lambda node: node is BREATH)
    runs = [len(list(run)) for is_breath, run in parts if not is_breath]
    assert all(run <= WALK_SLICE_NODES for run in runs)


def test_what_matches_is_met_once() -> None:
    found = [node.topic for node in index().match(filter_tokens("#")) if node is not BREATH]
    assert sorted(map(str, found)) == sorted(TOPICS)
