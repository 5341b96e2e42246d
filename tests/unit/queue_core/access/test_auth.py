"""Peers, credentials, mechanisms, and guests that are let in, reviewed and expelled."""

from __future__ import annotations

import logging
import socket
from dataclasses import replace

import pytest

from queue_core.access.accounts import (
    Permission,
    Roll,
)
from queue_core.access.auth import (
    UNKNOWN_HOST,
    Action,
    Auth,
    Credentials,
    Identity,
    Peer,
    Resource,
)
from queue_core.errors import AccessRefused
from tests.support.user_auth import (
    AWAY,
    HERE,
    PUMP,
    ROLL,
    FakePolicy,
    auth_of,
    login,
)


class TcpSocket:
    family = socket.AF_INET


@pytest.mark.parametrize("username", [None, ""])
@pytest.mark.parametrize("password", [None, b"", ""])
def test_an_empty_name_without_a_password_is_nobodys(
    username: str | None, password: bytes | str | None
) -> None:
    assert Credentials.given(username, password) == Credentials("ANONYMOUS")


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
    assert peer == Peer("::1", 4711, True, names, has_certificate=True)


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


async def test_a_refusal_names_user_action_and_resource() -> None:
    auth, _ = await auth_of()
    ada = Identity("ada")
    with pytest.raises(AccessRefused, match="'ada' has no configure access to queue 'orders' in"):
        auth.require(ada, Action.CONFIGURE, Resource("queue", "/", "orders"))
    auth.require(ada, Action.READ, Resource("queue", "/", "orders"))


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
    channel_count = 0

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
