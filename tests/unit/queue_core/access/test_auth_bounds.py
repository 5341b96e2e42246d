"""Names that strangers choose are kept while short, and a row for strangers lets nobody in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queue_core.access.accounts import (
    EVERYTHING,
    Permission,
    Roll,
    TopicPermission,
    User,
)
from queue_core.access.auth import (
    MAX_KEPT_NAME_CHARACTERS,
    Action,
    Auth,
    Credentials,
    Identity,
    Resource,
)
from queue_core.access.login_throttle import Throttle
from queue_core.access.passwords import hash_password
from queue_core.access.permission_patterns import MAX_NAMES_CHARACTERS
from queue_core.errors import AccessRefused
from queue_core.message.message import CANONICAL, Properties, _decode_canonical
from tests.support.user_auth import HERE, FakePolicy, auth_of, login

LONG = "x" * 65_535
STRANGER = User("anonymous")
ADA = User("ada", hash_password("correct horse"))


class Keys(Throttle):
    """A throttle that shows what it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def charge(self, key: str) -> float:
        self.asked.append(key)
        return super().charge(key)


async def test_failures_of_a_long_name_are_kept_by_its_digest() -> None:
    throttle = Keys()
    auth, _ = await auth_of(throttle=throttle)
    for name in (LONG, LONG, LONG[1:] + "y"):
        with pytest.raises(AccessRefused):
            await login(auth, name, "wrong")
    assert max(map(len, throttle.asked)) < 2 * MAX_KEPT_NAME_CHARACTERS
    assert [throttle.asked[0] == key for key in throttle.asked] == [True, True, False]


@pytest.mark.parametrize(
    ("key", "client_id", "kept"),
    [
        pytest.param("a.b", "c", 1, id="short ones"),
        pytest.param(LONG, "c", 0, id="a long topic"),
        pytest.param("a.b", LONG[: 2 * MAX_KEPT_NAME_CHARACTERS], 0, id="a long client id"),
    ],
)
async def test_answers_about_long_names_are_not_kept(key: str, client_id: str, kept: int) -> None:
    rule = TopicPermission("^[ax{client_id}]", ".*")
    roll = Roll({"ada": ADA}, {("ada", "/"): EVERYTHING}, {("ada", "/", "amq.topic"): rule})
    auth, _ = await auth_of(roll)
    identity = Identity("ada", client_id=client_id)
    patterns = auth.accounts._patterns
    for _ in range(2):
        assert auth.authorize(identity, Action.WRITE, Resource("topic", "/", "amq.topic", key))
    assert auth._kept_answers == kept
    assert sum(len(name) for names in patterns for name in names) < 2 * MAX_KEPT_NAME_CHARACTERS


@pytest.mark.parametrize(
    ("rule", "client_id", "may"),
    [
        pytest.param(r"^plant\.{client_id}", "pump", True, id="its own"),
        pytest.param(r"^plant\.{client_id}", "p.mp", False, id="no expression of its own"),
        pytest.param(r"^plant\.{client_id}", "", False, id="no client id, as over AMQP"),
        pytest.param(r"^(plant|{client_id})\.", "", True, id="what the rule allows without it"),
        pytest.param(r"^plant\.(pump|{client_id})", LONG, True, id="nor with one too long"),
        pytest.param(r"^plant\.{client_id}", LONG, False, id="one that is too long"),
    ],
)
async def test_a_name_that_a_client_does_not_have_is_found_nowhere(
    rule: str, client_id: str, may: bool
) -> None:
    rules = {("ada", "/", "amq.topic"): TopicPermission(rule, rule)}
    auth, _ = await auth_of(Roll({"ada": ADA}, {("ada", "/"): EVERYTHING}, rules))
    topic = Resource("topic", "/", "amq.topic", "plant.pump")
    assert auth.authorize(Identity("ada", client_id=client_id), Action.WRITE, topic) is may


async def test_names_that_stand_in_a_rule_are_short_enough_to_be_compiled() -> None:
    auth, _ = await auth_of()
    for rule in ("^{client_id}", "^{client_id}" * 100):
        pattern = auth.accounts.pattern(rule, "ada", "/", LONG[: 2 * MAX_KEPT_NAME_CHARACTERS])
        assert len(pattern.pattern) < 2 * MAX_NAMES_CHARACTERS


def test_properties_of_a_message_from_sql_are_kept_while_they_are_short() -> None:
    short, long = (CANONICAL.encode(Properties(headers=(("h", text),))) for text in ("x", LONG))
    _decode_canonical.cache_clear()
    for native, kept in ((long, 0), (short, 1)):
        assert CANONICAL.properties(native) == CANONICAL.properties(native)
        assert _decode_canonical.cache_info().currsize == kept


async def stranger(auth: Auth) -> Identity:
    return await auth.authenticate(Credentials.given(None, None), HERE)


async def test_a_stranger_whom_a_row_describes_goes_with_the_first_user_like_any_other() -> None:
    rows = Roll({"anonymous": STRANGER}, {("anonymous", "/"): Permission("", "^a$", "^a$")})
    auth, source = await auth_of(rows)
    identity = await stranger(auth)
    assert auth.may_enter(identity, "/")
    source.change(replace(rows, users={**rows.users, "ada": ADA}))
    await auth.refresh()
    with pytest.raises(AccessRefused):
        await stranger(auth)
    assert not auth.may_enter(identity, "/")
    assert not auth.authorize(identity, Action.WRITE, Resource("queue", "/", "a"))


async def test_a_stranger_whom_a_row_describes_stays_where_the_configuration_names_strangers() -> (
    None
):
    rows = Roll({"anonymous": STRANGER}, {("anonymous", "/"): Permission("", "^a$", "^a$")})
    auth, source = await auth_of(rows, FakePolicy(anonymous=True))
    identity = await stranger(auth)
    source.change(replace(rows, users={**rows.users, "ada": ADA}))
    await auth.refresh()
    assert auth.authorize(identity, Action.WRITE, Resource("queue", "/", "a"))
