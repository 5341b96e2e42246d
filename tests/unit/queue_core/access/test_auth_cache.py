"""How long an answer about somebody's rights is kept."""

from __future__ import annotations

import pytest

from queue_core.access import auth as auth_module
from queue_core.access.auth import Action, Auth, Identity, Resource

QUEUE = Resource("queue", "/", "q")


class Counting:
    """Permits everything, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def may_enter(self, identity: Identity, vhost: str) -> bool:
        return True

    def permits(self, identity: Identity, action: Action, resource: Resource) -> bool:
        self.asked += 1
        return True


class FakeGuest:
    channel_count = 0

    def review(self) -> None: ...

    def expel(self, reason: str) -> None: ...


def asked_again(auth: Auth, authorizer: Counting, identity: Identity) -> bool:
    before = authorizer.asked
    assert auth.authorize(identity, Action.READ, QUEUE)
    return authorizer.asked > before


@pytest.mark.parametrize(
    ("identity", "is_forgotten"),
    [(Identity("ada", client_id="sensor-7"), True), (Identity("ada"), False)],
    ids=["one client's own", "of all connections of a user"],
)
def test_answers_about_one_client_go_with_its_connection(
    identity: Identity, is_forgotten: bool
) -> None:
    authorizer, guest = Counting(), FakeGuest()
    auth = Auth((), (authorizer,))
    auth.let_in(guest, identity, "/")
    assert asked_again(auth, authorizer, identity)
    assert not asked_again(auth, authorizer, identity)
    auth.let_go(guest)
    assert asked_again(auth, authorizer, identity) is is_forgotten


def test_a_bounded_number_of_answers_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth_module, "MOST_KEPT_ANSWERS", 3)
    authorizer = Counting()
    auth = Auth((), (authorizer,))
    somebody = [Identity(f"user-{number}") for number in range(4)]
    for identity in somebody[:3]:
        assert asked_again(auth, authorizer, identity)
    assert not asked_again(auth, authorizer, somebody[0])
    assert asked_again(auth, authorizer, somebody[3])
    assert asked_again(auth, authorizer, somebody[0])
