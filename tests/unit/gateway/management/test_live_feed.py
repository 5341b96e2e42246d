"""What a viewer of live events may ask for, and what becomes of one that does not read."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gateway.management.api_errors import ApiError
from gateway.management.roles import Caller
from gateway.management.v1.live_feed import (
    MOST_VIEWERS,
    MOST_WAITING,
    LiveFeed,
    Subject,
    event,
    parse_subjects,
)
from queue_core.access.auth import Identity, Peer

LOCAL = Caller(Identity("guest", is_built_in=True), Peer("127.0.0.1"))


class Auth:
    revision = 0


class Manager:
    auth = Auth()
    vhosts: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it

    @staticmethod
    def clock() -> float:
        return 0.0


class Services:
    manager = Manager()


def make_feed() -> LiveFeed:
    return LiveFeed(cast(Any, Services()))


def test_names_in_subjects_may_be_quoted() -> None:
    (subject,) = parse_subjects("queue:%2F:a%3Ab%2Cc")
    assert subject == Subject("queue:%2F:a%3Ab%2Cc", "queue", "/", "a:b,c")


def test_what_is_named_twice_is_watched_once() -> None:
    assert len(parse_subjects("overview, overview")) == 1


@pytest.mark.parametrize("text", ["", ",", "nothing", "queue:/", "overview:/", "queues:a:b"])
def test_what_is_no_subject_is_refused(text: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_subjects(text)
    assert caught.value.status == 400


async def test_a_viewer_that_does_not_read_is_dropped_and_told() -> None:
    feed = make_feed()
    viewer = feed.open(LOCAL, parse_subjects("overview"))
    over = []
    for _ in range(MOST_WAITING + 1):
        feed._hand(viewer, [b"x"])
        over.append(viewer.is_over)
    assert over == [False] * MOST_WAITING + [True]
    assert b"too slow" in viewer.last_words
    assert feed.dropped == 1
    await feed.stop()


async def test_there_are_so_many_viewers_and_no_more() -> None:
    feed = make_feed()
    for _ in range(MOST_VIEWERS):
        feed.open(LOCAL, parse_subjects("overview"))
    with pytest.raises(ApiError) as caught:
        feed.open(LOCAL, parse_subjects("overview"))
    assert caught.value.status == 503
    await feed.stop()


async def test_a_gateway_that_stops_tells_its_viewers() -> None:
    feed = make_feed()
    viewer = feed.open(LOCAL, parse_subjects("overview"))
    await feed.stop()
    assert viewer.is_over
    assert b"shutting down" in viewer.last_words


def test_an_event_is_written_as_the_standard_says() -> None:
    assert event("overview", b"{}", 7) == b"id: 7\nevent: overview\ndata: {}\n\n"
