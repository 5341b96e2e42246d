"""Users, guest and anonymous clients: whose login is accepted, and what each may do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queue_core.access.accounts import (
    EVERYTHING,
    Permission,
    Roll,
    TopicPermission,
    User,
    UserAuth,
)
from queue_core.access.auth import (
    Action,
    Credentials,
    Identity,
    Resource,
)
from queue_core.errors import AccessRefused
from tests.support.user_auth import (
    ADA_HASH,
    AWAY,
    HERE,
    ROLL,
    FakePolicy,
    FakeRoll,
    auth_of,
    login,
)


async def test_a_user_with_the_right_password_comes_in_from_anywhere() -> None:
    auth, _ = await auth_of()
    identity = await login(auth, "ada", "correct horse", AWAY)
    assert identity == Identity("ada", frozenset({"administrator"}))
    assert auth.counters.logins == 1


@pytest.mark.parametrize(
    ("username", "password"),
    [
        pytest.param("ada", "wrong", id="a wrong password"),
        pytest.param("ada", "", id="no password"),
        pytest.param("nobody", "correct horse", id="an unknown user"),
        pytest.param("machine", "", id="a user that has no password at all"),
        pytest.param("guest", "wrong", id="guest with another password"),
        pytest.param("", "guest", id="a password alone"),
    ],
)
async def test_wrong_credentials_are_refused_even_where_anonymous_clients_are_not(
    username: str, password: str
) -> None:
    auth, _ = await auth_of(policy=FakePolicy(anonymous=True, guest=True))
    with pytest.raises(AccessRefused, match="wrong user name or password"):
        await login(auth, username, password)
    assert auth.counters.failed_logins == 1


async def test_an_empty_name_is_a_wrong_one_where_a_mechanism_asks_for_it() -> None:
    auth, _ = await auth_of(policy=FakePolicy(anonymous=True, guest=True))
    with pytest.raises(AccessRefused, match="wrong user name"):
        await auth.authenticate(Credentials.from_plain(b"\0\0"), HERE)


@pytest.mark.parametrize(
    "credentials", [Credentials("ANONYMOUS"), Credentials.given("guest", "guest")]
)
async def test_the_first_user_closes_the_door_to_strangers(credentials: Credentials) -> None:
    auth, source = await auth_of(Roll())
    stranger = await auth.authenticate(credentials, HERE)
    assert auth.may_enter(stranger, "/")
    source.change(ROLL)
    await auth.refresh()
    assert not auth.may_enter(stranger, "/")
    with pytest.raises(AccessRefused):
        await auth.authenticate(credentials, HERE)
    source.change(Roll())
    await auth.refresh()
    assert auth.may_enter(await auth.authenticate(credentials, HERE), "/")


async def test_users_that_were_never_read_let_nobody_in_as_a_stranger() -> None:
    source = FakeRoll(Roll())
    source.is_away = True
    auth = UserAuth(source, FakePolicy())
    assert not await auth.refresh()
    for credentials in (Credentials("ANONYMOUS"), Credentials.given("guest", "guest")):
        with pytest.raises(AccessRefused):
            await auth.authenticate(credentials, HERE)
    source.is_away = False
    assert await auth.refresh()
    assert (await auth.authenticate(Credentials("ANONYMOUS"), HERE)).is_anonymous


async def test_strangers_stay_where_the_configuration_names_them() -> None:
    auth, _ = await auth_of(policy=FakePolicy(anonymous=True, guest=True))
    for credentials in (Credentials("ANONYMOUS"), Credentials.given("guest", "guest")):
        assert auth.may_enter(await auth.authenticate(credentials, HERE), "/")


async def test_a_row_that_says_what_strangers_may_do_is_no_user() -> None:
    roll = Roll({"anonymous": User("anonymous")}, {("anonymous", "/"): Permission("", "", ".*")})
    auth, source = await auth_of(roll)
    assert not auth.accounts.has_users
    stranger = await auth.authenticate(Credentials("ANONYMOUS"), HERE)
    assert not auth.authorize(stranger, Action.WRITE, Resource("queue", "/", "q"))
    source.change(Roll())
    await auth.refresh()
    assert not auth.may_enter(stranger, "/")  # until it comes again


@pytest.mark.parametrize("name", ["guest", "anonymous"])
async def test_a_removed_user_with_the_name_of_a_stranger_has_no_rights_left(name: str) -> None:
    roll = Roll({name: User(name, ADA_HASH)}, {(name, "/"): Permission("", "", "^q$")})
    auth, source = await auth_of(roll, FakePolicy(anonymous=True, guest=True))
    identity = await login(auth, name, "correct horse")
    assert auth.authorize(identity, Action.READ, Resource("queue", "/", "q"))
    source.change(Roll())
    await auth.refresh()
    assert not auth.may_enter(identity, "/")
    assert not auth.authorize(identity, Action.READ, Resource("queue", "/", "q"))


async def test_the_built_in_guest_goes_when_a_user_takes_its_name() -> None:
    auth, source = await auth_of(Roll(), FakePolicy(guest=True))
    guest = await login(auth, "guest", "guest")
    source.change(Roll({"guest": User("guest", ADA_HASH)}, {("guest", "/"): EVERYTHING}))
    await auth.refresh()
    assert not auth.may_enter(guest, "/")


async def test_guest_comes_in_from_loopback_only() -> None:
    auth, _ = await auth_of(Roll())
    assert (await login(auth, "guest", "guest")).name == "guest"
    with pytest.raises(AccessRefused, match=r"auth\.guest"):
        await login(auth, "guest", "guest", AWAY)


async def test_the_configuration_may_let_guest_in_from_everywhere_or_nowhere() -> None:
    everywhere, _ = await auth_of(policy=FakePolicy(guest=True))
    assert (await login(everywhere, "guest", "guest", AWAY)).name == "guest"
    nowhere, _ = await auth_of(policy=FakePolicy(guest=False))
    with pytest.raises(AccessRefused):
        await login(nowhere, "guest", "guest")


async def test_a_user_named_guest_takes_the_place_of_the_built_in_one() -> None:
    roll = replace(ROLL, users={"guest": User("guest", ADA_HASH)})
    auth, _ = await auth_of(roll)
    with pytest.raises(AccessRefused):
        await login(auth, "guest", "guest")
    identity = await login(auth, "guest", "correct horse", AWAY)
    assert not auth.may_enter(identity, "/")


async def test_clients_without_credentials_come_in_from_loopback_only() -> None:
    auth, _ = await auth_of(Roll())
    identity = await auth.authenticate(Credentials.given(None, None, "sensor"), HERE)
    assert identity.is_anonymous
    assert identity.client_id == "sensor"
    with pytest.raises(AccessRefused, match=r"auth\.allow_anonymous"):
        await auth.authenticate(Credentials.given(None, None), AWAY)


async def test_names_are_matched_as_rabbitmq_matches_them() -> None:
    auth, _ = await auth_of()
    ada = await login(auth, "ada", "correct horse")
    may = auth.authorize
    assert may(ada, Action.CONFIGURE, Resource("queue", "/", "ada-orders"))
    assert not may(ada, Action.CONFIGURE, Resource("queue", "/", "orders"))
    assert may(ada, Action.WRITE, Resource("exchange", "/", ""))  # amq.default
    assert not may(ada, Action.WRITE, Resource("exchange", "/", "amq.direct"))
    assert may(ada, Action.READ, Resource("queue", "/", "anything"))
    assert not may(ada, Action.READ, Resource("queue", "elsewhere", "anything"))
    assert auth.counters.refused_actions == 3


async def test_an_empty_expression_permits_nothing() -> None:
    auth, _ = await auth_of()
    ada = await login(auth, "ada", "correct horse")
    assert auth.may_enter(ada, "empty")
    assert not auth.authorize(ada, Action.READ, Resource("queue", "empty", "q"))


async def test_an_expression_that_cannot_be_read_permits_nothing() -> None:
    auth, _ = await auth_of(replace(ROLL, permissions={("ada", "/"): Permission("(", ".*", ".*")}))
    ada = await login(auth, "ada", "correct horse")
    assert not auth.authorize(ada, Action.CONFIGURE, Resource("queue", "/", "q"))


@pytest.mark.parametrize(
    ("rule", "is_open"),
    [(None, True), (".*", True), ("^.*$", True), ("^plant", False), ("", False), (".", False)],
)
async def test_every_key_of_an_exchange_is_for_those_whom_no_rule_narrows(
    rule: str | None, is_open: bool
) -> None:
    rules = {} if rule is None else {("ada", "/", "t"): TopicPermission(rule, rule)}
    roll = Roll({"ada": User("ada")}, {("ada", "/"): Permission(".*", ".*", ".*")}, rules)
    auth, _ = await auth_of(roll)
    every = Resource("topic", "/", "t")
    for action in (Action.WRITE, Action.READ):
        assert auth.authorize(Identity("ada"), action, every) is is_open
    if not is_open:
        with pytest.raises(AccessRefused, match="every topic of exchange 't'"):
            auth.require(Identity("ada"), Action.WRITE, every)


async def test_a_topic_needs_the_exchange_and_the_key() -> None:
    auth, _ = await auth_of()
    ada = await auth.authenticate(Credentials.given("ada", "correct horse", "line.1"), HERE)

    def topic(key: str, exchange: str = "amq.topic") -> Resource:
        return Resource("topic", "/", exchange, key)

    assert auth.authorize(ada, Action.WRITE, topic("plant.line.1.temperature"))
    assert not auth.authorize(ada, Action.WRITE, topic("plant.lineX1.temperature"))
    assert not auth.authorize(ada, Action.WRITE, topic("plant.line.2.temperature"))
    assert auth.authorize(ada, Action.READ, topic("ada.inbox"))
    assert not auth.authorize(ada, Action.READ, topic("bob.inbox"))
    assert auth.authorize(ada, Action.WRITE, topic("anything", "ada-topics"))
    assert not auth.authorize(ada, Action.WRITE, topic("anything", "bobs-topics"))


@pytest.mark.parametrize(
    "credentials", [Credentials.given("guest", "guest"), Credentials.given(None, None)]
)
async def test_strangers_own_the_default_virtual_host_and_no_other(
    credentials: Credentials,
) -> None:
    auth, _ = await auth_of(Roll())
    stranger = await auth.authenticate(credentials, HERE)
    assert auth.may_enter(stranger, "/")
    assert auth.authorize(stranger, Action.CONFIGURE, Resource("exchange", "/", "x"))
    assert not auth.may_enter(stranger, "other")


async def test_permissions_of_anonymous_clients_can_be_set() -> None:
    roll = Roll(
        users={"anonymous": User("anonymous", None, frozenset({"public"}))},
        permissions={("anonymous", "/"): Permission("", "", "^public$")},
    )
    auth, _ = await auth_of(roll)
    identity = await auth.authenticate(Credentials.given(None, None), HERE)
    assert identity.tags == {"public"}
    assert auth.authorize(identity, Action.READ, Resource("queue", "/", "public"))
    assert not auth.authorize(identity, Action.WRITE, Resource("exchange", "/", "public"))
    assert not auth.accounts.has_users


async def test_changes_count_at_once_and_answers_are_kept_until_then() -> None:
    auth, source = await auth_of()
    ada = await login(auth, "ada", "correct horse")
    queue = Resource("queue", "/", "ada-q")
    other = Resource("queue", "/", "other")
    assert auth.authorize(ada, Action.CONFIGURE, queue)
    assert not auth.authorize(ada, Action.CONFIGURE, other)
    before = auth.revision
    await auth.refresh()
    assert auth.revision == before
    source.change(replace(ROLL, permissions={("ada", "/"): EVERYTHING}))
    await auth.refresh()
    assert auth.revision > before
    assert auth.authorize(ada, Action.CONFIGURE, other)
    source.change(replace(ROLL, users={"bob": User("bob", ADA_HASH)}))
    await auth.refresh()
    assert not auth.authorize(ada, Action.CONFIGURE, other)
    with pytest.raises(AccessRefused):
        await login(auth, "ada", "correct horse")
    assert source.reads == 3


async def test_what_is_known_holds_while_the_database_is_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    auth, source = await auth_of()
    source.is_away = True
    await auth.refresh()
    await auth.refresh()
    await login(auth, "ada", "correct horse")
    assert caplog.text.count("stay as last read") == 1
