"""Who comes in, and what they may do, with the roll of users in memory."""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import dataclass, replace

import pytest

from queue_core.access import passwords as passwords_module
from queue_core.access.accounts import (
    EVERYTHING,
    Permission,
    Roll,
    TopicPermission,
    User,
    UserAuth,
)
from queue_core.access.auth import (
    UNKNOWN_HOST,
    Action,
    Auth,
    Credentials,
    Identity,
    NotChecked,
    Peer,
    Resource,
)
from queue_core.access.login_throttle import Throttle
from queue_core.access.passwords import PasswordChecker, hash_password
from queue_core.errors import AccessRefused, StoreUnavailable

HERE = Peer("127.0.0.1", 40000)
AWAY = Peer("192.0.2.7", 40000)
PUMP = Peer("192.0.2.8", 40000, True, (("commonName", "machine"), ("DNS", "pump-7.example")))


class TcpSocket:
    family = socket.AF_INET


ADA_HASH = hash_password("correct horse")


class FakeRoll:
    """A source that tests change by hand."""

    def __init__(self, roll: Roll) -> None:
        self.roll = roll
        self.number = 1
        self.is_away = False
        self.reads = 0

    def change(self, roll: Roll) -> None:
        self.roll = roll
        self.number += 1

    async def revision(self) -> object:
        if self.is_away:
            raise StoreUnavailable("the database is away")
        return self.number

    async def read(self) -> Roll:
        self.reads += 1
        return self.roll


@dataclass(frozen=True)
class FakePolicy:
    """None: from loopback only, and while there are no users."""

    anonymous: bool | None = None
    guest: bool | None = None
    certificate_name: str = "commonName"

    def admits_anonymous(self, *, is_loopback: bool, has_users: bool) -> bool:
        return is_loopback and not has_users if self.anonymous is None else self.anonymous

    def admits_guest(self, *, is_loopback: bool, has_users: bool) -> bool:
        return is_loopback and not has_users if self.guest is None else self.guest


ROLL = Roll(
    users={
        "ada": User("ada", ADA_HASH, frozenset({"administrator"})),
        "machine": User("machine"),
    },
    permissions={
        ("ada", "/"): Permission("^ada-", "^(ada-.*|amq\\.topic|amq\\.default)$", ".*"),
        ("ada", "empty"): Permission(),
    },
    topic_permissions={
        ("ada", "/", "amq.topic"): TopicPermission("^plant\\.{client_id}\\.", "^{username}\\.")
    },
)


async def auth_of(
    roll: Roll = ROLL, policy: FakePolicy | None = None, **options: Throttle
) -> tuple[UserAuth, FakeRoll]:
    source = FakeRoll(roll)
    auth = UserAuth(source, policy or FakePolicy(), **options)
    await auth.refresh()
    return auth, source


async def login(auth: Auth, username: str, password: str, peer: Peer = HERE) -> Identity:
    return await auth.authenticate(Credentials.given(username, password), peer)


# --- who


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


@pytest.mark.parametrize("username", [None, ""])
@pytest.mark.parametrize("password", [None, b"", ""])
def test_an_empty_name_without_a_password_is_nobodys(
    username: str | None, password: bytes | str | None
) -> None:
    assert Credentials.given(username, password) == Credentials("ANONYMOUS")


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


async def test_mechanisms_are_offered_only_to_those_who_may_use_them() -> None:
    auth, _ = await auth_of(Roll())
    assert auth.mechanisms(HERE) == ("SCRAM-SHA-256", "PLAIN", "ANONYMOUS")
    assert auth.mechanisms(AWAY) == ("SCRAM-SHA-256", "PLAIN")
    assert auth.mechanisms(PUMP) == ("SCRAM-SHA-256", "EXTERNAL", "PLAIN")


async def test_a_mechanism_that_nobody_takes_is_refused_with_those_that_are() -> None:
    auth, _ = await auth_of(Roll())
    with pytest.raises(AccessRefused, match="'GSSAPI'; use one of SCRAM-SHA-256, PLAIN, ANON"):
        await auth.authenticate(Credentials("GSSAPI"), HERE)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("", False),
        ("192.0.2.7", False),
        ("::ffff:192.0.2.7", False),
        ("fe80::1%eth0", False),
        ("elsewhere", False),
    ],
)
def test_loopback_is_told_by_address(host: str, expected: bool) -> None:
    assert Peer(host).is_loopback is expected


def test_a_peer_is_described_by_what_its_transport_says() -> None:
    facts = {
        "peername": ("::1", 4711, 0, 0),
        "sslcontext": object(),
        "peercert": {
            "subject": ((("commonName", "pump-7"),), (("organizationName", "Plant"),)),
            "subjectAltName": (("DNS", "pump-7.example"),),
        },
    }
    peer = Peer.described_by(facts.get)
    names = (("commonName", "pump-7"), ("organizationName", "Plant"), ("DNS", "pump-7.example"))
    assert peer == Peer("::1", 4711, True, names)


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({}, id="a transport that knows nothing"),
        pytest.param({"peername": None}, id="no peer name"),
        pytest.param({"peername": ""}, id="an empty peer name"),
        pytest.param({"peername": ("", 0)}, id="an empty host"),
        pytest.param({"peername": None, "socket": TcpSocket()}, id="a TCP socket that was reset"),
        pytest.param({"peername": "", "socket": object()}, id="a socket of no family"),
    ],
)
async def test_a_peer_without_a_name_is_not_local_and_neither_anonymous_nor_guest(
    facts: dict[str, object],
) -> None:
    peer = Peer.described_by(facts.get)
    assert not peer.is_loopback
    auth, _ = await auth_of(Roll())
    assert auth.mechanisms(peer) == ("SCRAM-SHA-256", "PLAIN")
    for credentials in (Credentials.given(None, None), Credentials.given("guest", "guest")):
        with pytest.raises(AccessRefused):
            await auth.authenticate(credentials, peer)


@pytest.mark.parametrize(
    "error",
    [AttributeError("'NoneType' object"), ValueError("negative file descriptor"), OSError("gone")],
)
def test_a_transport_whose_socket_is_gone_describes_nobody(error: Exception) -> None:
    def fact(name: str) -> object:
        raise error

    assert Peer.described_by(fact) == Peer(UNKNOWN_HOST)


async def test_a_unix_socket_is_local_by_its_family() -> None:
    here, there = socket.socketpair()
    with here, there:
        assert here.family == socket.AF_UNIX
        peer = Peer.described_by({"peername": here.getpeername(), "socket": here}.get)
    assert peer.is_unix
    assert peer.is_loopback


def test_a_sasl_plain_response_is_user_and_password() -> None:
    assert Credentials.from_plain(b"\0ada\0p\xff") == Credentials("PLAIN", "ada", b"p\xff")


@pytest.mark.parametrize("response", [b"", b"ada\0x", b"\0a\0b\0c", b"bob\0ada\0x", b"\0\xff\0x"])
def test_a_malformed_sasl_plain_response_is_refused(response: bytes) -> None:
    with pytest.raises(AccessRefused):
        Credentials.from_plain(response)


def test_credentials_never_show_their_secret() -> None:
    assert "horse" not in repr(Credentials.given("ada", "correct horse"))


async def test_a_refused_login_is_logged_without_the_password(
    caplog: pytest.LogCaptureFixture,
) -> None:
    auth, _ = await auth_of()
    with caplog.at_level(logging.WARNING), pytest.raises(AccessRefused):
        await login(auth, "ada", "battery staple", AWAY)
    assert "login of 'ada' from 192.0.2.7 refused" in caplog.text
    assert "staple" not in caplog.text


# --- what it costs


async def test_a_password_that_was_right_is_not_computed_again() -> None:
    auth, _ = await auth_of()
    for _ in range(3):
        await login(auth, "ada", "correct horse")
    assert auth.passwords.computed == 1


async def test_a_wrong_password_is_computed_each_time() -> None:
    auth, _ = await auth_of()
    for _ in range(2):
        with pytest.raises(AccessRefused):
            await login(auth, "ada", "wrong")
    assert auth.passwords.computed == 2


async def test_many_logins_of_one_user_at_once_are_computed_once() -> None:
    auth, _ = await auth_of()
    await asyncio.gather(*(login(auth, "ada", "correct horse") for _ in range(50)))
    assert auth.passwords.computed == 1


async def test_a_password_that_is_known_is_nobody_elses() -> None:
    bob = User("bob", hash_password("battery staple"))
    auth, _ = await auth_of(replace(ROLL, users={**ROLL.users, "bob": bob}))
    await login(auth, "ada", "correct horse")
    with pytest.raises(AccessRefused):
        await login(auth, "bob", "correct horse")


async def test_a_password_that_was_changed_is_not_known_any_more() -> None:
    auth, source = await auth_of()
    await login(auth, "ada", "correct horse")
    source.change(replace(ROLL, users={"ada": User("ada", hash_password("new"))}))
    await auth.refresh()
    with pytest.raises(AccessRefused):
        await login(auth, "ada", "correct horse")


async def test_a_known_password_is_forgotten_after_its_time() -> None:
    now = [0.0]
    checker = PasswordChecker(1, lambda: now[0])
    assert await checker.is_right(b"correct horse", ADA_HASH)
    now[0] = passwords_module.KNOWN_SECONDS + 1
    assert await checker.is_right(b"correct horse", ADA_HASH)
    assert checker.computed == 2


async def test_more_logins_than_may_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords_module, "MOST_WAITING", 1)
    checker = PasswordChecker(1)
    first = asyncio.ensure_future(checker.is_right(b"a", ADA_HASH))
    await asyncio.sleep(0)
    with pytest.raises(NotChecked, match="too many logins at once"):
        await checker.is_right(b"b", ADA_HASH)
    assert not await first


async def test_who_was_not_looked_at_has_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords_module, "MOST_WAITING", 0)
    auth, _ = await auth_of(throttle=Throttle(1, 1000.0))
    for _ in range(3):
        with pytest.raises(NotChecked, match="at once"):
            await login(auth, "ada", "correct horse")
    assert (auth.counters.failed_logins, auth.counters.throttled_logins) == (0, 3)


async def test_a_hash_of_an_unknown_kind_fits_no_password() -> None:
    assert not await PasswordChecker(1).is_right(b"x", "SCRAM-SHA-256$4096:salt$key:key")


class Clock:
    """Time that passes when somebody waits."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def throttle(self, burst: int = 2, seconds: float = 1.0) -> Throttle:
        return Throttle(burst, seconds, self, self.pause)


async def fail(auth: Auth, name: str, times: int, peer: Peer = AWAY) -> None:
    for number in range(times):
        with pytest.raises(AccessRefused, match="wrong user name"):
            await login(auth, name, f"wrong {number}", peer)


async def test_whoever_fails_too_often_waits_before_the_next_try() -> None:
    clock = Clock()
    auth, _ = await auth_of(throttle=clock.throttle())
    await fail(auth, "ada", 2)
    assert clock.pauses == []
    await fail(auth, "ada", 2)
    assert clock.pauses == [1.0, 1.0]


async def test_a_right_password_is_checked_after_others_failures_and_costs_nothing() -> None:
    clock = Clock()
    auth, _ = await auth_of(throttle=clock.throttle())
    await fail(auth, "ada", 2)
    await login(auth, "ada", "correct horse", AWAY)
    assert clock.pauses == [1.0]
    await fail(auth, "ada", 1)
    assert clock.pauses == [1.0]  # the right one in between has not been charged


async def test_a_password_that_was_right_before_waits_for_nobodys_failures() -> None:
    clock = Clock()
    auth, _ = await auth_of(throttle=clock.throttle())
    await login(auth, "ada", "correct horse", HERE)
    await fail(auth, "ada", 5)
    clock.pauses.clear()
    await login(auth, "ada", "correct horse", AWAY)
    assert clock.pauses == []


@pytest.mark.parametrize(
    ("name", "peer"),
    [
        pytest.param("bob", AWAY, id="another name"),
        pytest.param("ada", HERE, id="another address"),
        pytest.param("ada", Peer("2001:db8:2::1"), id="another IPv6 network"),
    ],
)
async def test_nobody_waits_for_failures_of_others(name: str, peer: Peer) -> None:
    clock = Clock()
    users = {**ROLL.users, "bob": User("bob", ADA_HASH)}
    auth, _ = await auth_of(replace(ROLL, users=users), throttle=clock.throttle())
    await fail(auth, "ada", 5)
    await fail(auth, "ada", 5, Peer("2001:db8:1::1"))
    clock.pauses.clear()
    await login(auth, name, "correct horse", peer)
    assert clock.pauses == []


async def test_an_ipv6_network_is_one_place() -> None:
    clock = Clock()
    auth, _ = await auth_of(throttle=clock.throttle())
    for number in range(3):
        await fail(auth, "ada", 1, Peer(f"2001:db8:1::{number}"))
    assert clock.pauses == [1.0]
    assert Peer("::ffff:192.0.2.7").place == AWAY.place


async def test_refused_clients_without_credentials_and_certificates_are_nobodys_failures() -> None:
    clock = Clock()
    auth, _ = await auth_of(policy=FakePolicy(anonymous=False), throttle=clock.throttle())
    stranger = Peer(AWAY.host, 1, True, (("commonName", "nobody"),))
    for _ in range(24):
        with pytest.raises(AccessRefused):
            await auth.authenticate(Credentials.given(None, None), AWAY)
        with pytest.raises(AccessRefused):
            await auth.authenticate(Credentials("EXTERNAL"), stranger)
    await login(auth, "ada", "correct horse", AWAY)
    assert clock.pauses == []


async def test_more_guesses_than_may_wait_are_refused_unchecked() -> None:
    clock = Clock()
    auth, _ = await auth_of(throttle=clock.throttle(1, 10.0))
    await fail(auth, "ada", 1)
    with pytest.raises(NotChecked, match=r"too many failed logins of that name from 192\.0\.2\.7"):
        await login(auth, "ada", "wrong", AWAY)
    assert auth.counters.throttled_logins == 1
    clock.now += 10.0
    await login(auth, "ada", "correct horse", AWAY)  # what was not checked is not charged


async def test_guesses_at_once_are_charged_as_many() -> None:
    clock = Clock()
    auth, _ = await auth_of(throttle=clock.throttle(3, 10.0))
    tries = (login(auth, "ada", f"wrong {number}", AWAY) for number in range(10))
    answers = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(answer, NotChecked) for answer in answers) == 7
    assert auth.passwords.computed == 3


async def test_places_take_turns_at_the_costly_check() -> None:
    checker = PasswordChecker(1)
    ended: list[str] = []

    async def check(word: str, place: str) -> None:
        await checker.is_right(word.encode(), ADA_HASH, place)
        ended.append(place)

    flood = [check(f"wrong {number}", "flooder") for number in range(10)]
    await asyncio.gather(*flood, check("correct horse", "elsewhere"))
    assert ended.index("elsewhere") <= 2


async def test_one_place_cannot_have_everybody_elses_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords_module, "MOST_WAITING_OF_A_PLACE", 2)
    checker = PasswordChecker(1)
    flood = [checker.is_right(str(number).encode(), ADA_HASH, "flooder") for number in range(3)]
    answers = asyncio.gather(*flood, return_exceptions=True)
    assert await checker.is_right(b"correct horse", ADA_HASH, "elsewhere")
    assert [type(answer) for answer in await answers] == [bool, bool, NotChecked]


async def test_what_nobody_waits_for_any_more_is_not_computed() -> None:
    checker = PasswordChecker(1)
    first = asyncio.ensure_future(checker.is_right(b"first", ADA_HASH))
    gone = asyncio.ensure_future(checker.is_right(b"gone", ADA_HASH))
    await asyncio.sleep(0)
    gone.cancel()
    assert not await first
    assert await checker.is_right(b"correct horse", ADA_HASH)
    assert checker.computed == 2


# --- what they may do


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


async def test_a_refusal_names_user_action_and_resource() -> None:
    auth, _ = await auth_of()
    ada = Identity("ada")
    with pytest.raises(AccessRefused, match="'ada' has no configure access to queue 'orders' in"):
        auth.require(ada, Action.CONFIGURE, Resource("queue", "/", "orders"))
    auth.require(ada, Action.READ, Resource("queue", "/", "orders"))


# --- changes


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


async def test_an_authorizer_without_an_opinion_leaves_it_to_the_next() -> None:
    class Silent:
        def may_enter(self, identity: Identity, vhost: str) -> bool | None:
            return None

        def permits(self, identity: Identity, action: Action, resource: Resource) -> bool | None:
            return None

    class Generous:
        def may_enter(self, identity: Identity, vhost: str) -> bool | None:
            return True

        def permits(self, identity: Identity, action: Action, resource: Resource) -> bool | None:
            return True

    someone = Identity("someone")
    assert not Auth((), (Silent(),)).authorize(someone, Action.READ, Resource("queue", "/", "q"))
    both = Auth((), (Silent(), Generous()))
    assert both.authorize(someone, Action.READ, Resource("queue", "/", "q"))
    assert both.authorize(someone, Action.READ, Resource("vhost", "/"))


class FakeGuest:
    def __init__(self, *, is_broken: bool = False) -> None:
        self.reasons: list[str] = []
        self.reviews = 0
        self._is_broken = is_broken

    def review(self) -> None:
        self.reviews += 1
        if self._is_broken:
            raise RuntimeError("a bug")

    def expel(self, reason: str) -> None:
        self.reasons.append(reason)
        if self._is_broken:
            raise RuntimeError("a bug")


async def test_who_may_not_be_there_any_more_is_expelled_once_and_nobody_else() -> None:
    auth, source = await auth_of(policy=FakePolicy(guest=True))
    ada, left = Identity("ada"), FakeGuest()
    guests = {vhost: FakeGuest(is_broken=vhost == "/") for vhost in ("/", "empty")}
    stays = FakeGuest()
    for vhost, guest in guests.items():
        auth.let_in(guest, ada, vhost)
    auth.let_in(left, ada, "/")
    auth.let_go(left)
    auth.let_in(stays, Identity("guest", is_built_in=True), "/")
    for _ in range(2):
        source.change(replace(ROLL, permissions={("ada", "empty"): Permission()}))
        await auth.refresh()
    assert guests["/"].reasons == ["user 'ada' may not use vhost '/' any more"]
    assert not guests["empty"].reasons
    source.change(Roll())
    await auth.refresh()
    assert len(guests["empty"].reasons) == 1
    assert not left.reasons
    assert not stays.reasons
    assert auth.counters.expelled_connections == 2


async def test_who_stays_looks_through_what_it_reads_after_each_change() -> None:
    auth, source = await auth_of()
    broken, stays = FakeGuest(is_broken=True), FakeGuest()
    for guest in (broken, stays):
        auth.let_in(guest, Identity("ada"), "/")
    await auth.refresh()
    assert stays.reviews == 0
    source.change(replace(ROLL))
    await auth.refresh()
    assert (broken.reviews, stays.reviews) == (1, 1)
    assert not stays.reasons


async def test_what_may_not_be_read_any_more_is_counted_and_told_why() -> None:
    auth, source = await auth_of()
    ada, queue = Identity("ada"), Resource("queue", "/", "orders")
    source.change(replace(ROLL, permissions={("ada", "/"): Permission(read="orders")}))
    await auth.refresh()
    assert auth.loss(ada, queue) is None
    source.change(replace(ROLL, permissions={("ada", "/"): Permission(read="bills")}))
    await auth.refresh()
    assert "no read access to queue 'orders'" in str(auth.loss(ada, queue))
    assert auth.counters.revoked_consumers == 1
