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
from queue_core.access.accounts import Roll, User
from queue_core.access.auth import Identity, Peer

LOCAL = Caller(Identity("guest", is_built_in=True), Peer("127.0.0.1"))


class Accounts:
    def __init__(self) -> None:
        self.roll = Roll()
        self.is_admitting = True

    def admits_guest(self, *, is_loopback: bool) -> bool:
        return self.is_admitting and is_loopback

    admits_anonymous = admits_guest


class Auth:
    def __init__(self) -> None:
        self.revision = 0
        self.accounts = Accounts()


class Manager:
    def __init__(self) -> None:
        self.auth = Auth()

    vhosts: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it

    @staticmethod
    def clock() -> float:
        return 0.0


class Services:
    def __init__(self) -> None:
        self.manager = Manager()


def make_feed(services: Services | None = None) -> LiveFeed:
    return LiveFeed(cast(Any, services or Services()))


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


@pytest.mark.parametrize(
    "identity",
    [
        Identity("guest", is_built_in=True),
        Identity("anonymous", is_anonymous=True, is_built_in=True),
        Identity("anonymous", frozenset(("administrator",)), is_anonymous=True),
    ],
)
async def test_a_viewer_whom_the_configuration_lets_in_no_more_is_ended(identity: Identity) -> None:
    services = Services()
    feed = make_feed(services)
    auth = services.manager.auth
    row = User("anonymous", tags=frozenset(("administrator",)))
    users = {} if identity.is_built_in else {row.name: row}
    auth.accounts.roll = Roll(users=users)
    viewer = feed.open(Caller(identity, Peer("127.0.0.1")), parse_subjects("overview"))
    over = []
    for auth.accounts.is_admitting in (True, False):
        auth.revision += 1
        feed._review()
        over.append(viewer.is_over)
    assert over == [False, True]
    assert b"not let in any more" in viewer.last_words
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
