"""Whose page a browser shows: names and origins that are let in, and those that are not."""

from __future__ import annotations

import socket

import pytest

from queue_core.access.auth import UNKNOWN_HOST, Peer
from queue_core.access.browser_origins import AllowedHosts, AllowedOrigins, host_in

HERE = Peer("127.0.0.1", 40000)
AWAY = Peer("192.0.2.7", 40000)
OWN = socket.gethostname()


@pytest.mark.parametrize(
    ("authority", "host"),
    [
        ("localhost:8083", "localhost"),
        ("LOCALHOST", "localhost"),
        ("[::1]:8083", "::1"),
        ("192.0.2.1", "192.0.2.1"),
        ("", None),
        ("localhost@evil.example", None),
        ("localhost/evil", None),
        ("localhost, evil.example", None),
        ("[::1", None),
        (":8083", None),
    ],
)
def test_a_host_is_read_from_what_a_client_says(authority: str, host: str | None) -> None:
    assert host_in(authority) == host


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1:1", "[::1]:1", "a.localhost.", OWN])
@pytest.mark.parametrize("peer", [HERE, AWAY])
def test_names_of_this_machine_are_always_right(name: str, peer: Peer) -> None:
    assert AllowedHosts().admit(name, peer)
    assert AllowedHosts(["gateway.example"]).admit(name, peer)
    assert AllowedOrigins().admit(f"http://{name}", name, peer)


@pytest.mark.parametrize(
    "name", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", None]
)
def test_a_name_that_was_pointed_at_this_machine_is_refused(name: str | None) -> None:
    assert not AllowedHosts().admit(name, HERE)
    assert not AllowedOrigins().admit(f"http://{name}", name, HERE)


def test_a_peer_from_elsewhere_may_use_any_name_that_leads_here() -> None:
    assert AllowedHosts().admit("gateway.example:15672", AWAY)
    assert AllowedOrigins().admit("https://gateway.example:8083", "gateway.example:8083", AWAY)
    assert not AllowedHosts().admit(None, AWAY)


@pytest.mark.parametrize("peer", [AWAY, Peer(UNKNOWN_HOST)])
def test_a_page_of_another_host_is_refused(peer: Peer) -> None:
    assert not AllowedOrigins().admit("https://evil.example", "gateway.example:8083", peer)


@pytest.mark.parametrize("origin", ["null", "file://", "", "chrome-extension://localhost"])
def test_an_origin_that_names_no_host_is_refused(origin: str) -> None:
    assert not AllowedOrigins().admit(origin, "localhost:8083", HERE)


@pytest.mark.parametrize("peer", [HERE, AWAY])
def test_a_program_without_an_origin_is_no_browser(peer: Peer) -> None:
    assert AllowedOrigins().admit(None, "whatever", peer)


@pytest.mark.parametrize("peer", [HERE, AWAY])
def test_what_is_listed_is_let_in_as_it_is_written(peer: Peer) -> None:
    origins = AllowedOrigins(["https://App.example", "null"])
    assert origins.admit("https://app.example", "gateway", peer)
    assert origins.admit("null", "gateway", peer)
    assert not origins.admit("http://app.example", "gateway", peer)
    assert origins.admit("https://localhost", "gateway", peer)
    assert AllowedOrigins(["*"]).admit("https://any.example", "gateway", peer)
    hosts = AllowedHosts(["Gateway.example"])
    assert hosts.admit("gateway.example:15672", peer)
    assert not hosts.admit("other.example", peer)
    assert AllowedHosts(["*"]).admit("other.example", peer)
