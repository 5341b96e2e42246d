"""Failed logins make later ones of the same name and address wait, and nobody else."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from queue_core.access.accounts import (
    User,
)
from queue_core.access.auth import (
    Auth,
    Credentials,
    NotChecked,
    Peer,
)
from queue_core.errors import AccessRefused
from tests.support.user_auth import (
    ADA_HASH,
    AWAY,
    HERE,
    ROLL,
    FakePolicy,
    ThrottleClock,
    auth_of,
    login,
)


async def fail(auth: Auth, name: str, times: int, peer: Peer = AWAY) -> None:
    for number in range(times):
        with pytest.raises(AccessRefused, match="wrong user name"):
            await login(auth, name, f"wrong {number}", peer)


async def test_whoever_fails_too_often_waits_before_the_next_try() -> None:
    clock = ThrottleClock()
    auth, _ = await auth_of(throttle=clock.throttle())
    await fail(auth, "ada", 2)
    assert clock.pauses == []
    await fail(auth, "ada", 2)
    assert clock.pauses == [1.0, 1.0]


async def test_a_right_password_is_checked_after_others_failures_and_costs_nothing() -> None:
    clock = ThrottleClock()
    auth, _ = await auth_of(throttle=clock.throttle())
    await fail(auth, "ada", 2)
    await login(auth, "ada", "correct horse", AWAY)
    assert clock.pauses == [1.0]
    await fail(auth, "ada", 1)
    assert clock.pauses == [1.0]  # the right one in between has not been charged


async def test_a_password_that_was_right_before_waits_for_nobodys_failures() -> None:
    clock = ThrottleClock()
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
    clock = ThrottleClock()
    users = {**ROLL.users, "bob": User("bob", ADA_HASH)}
    auth, _ = await auth_of(replace(ROLL, users=users), throttle=clock.throttle())
    await fail(auth, "ada", 5)
    await fail(auth, "ada", 5, Peer("2001:db8:1::1"))
    clock.pauses.clear()
    await login(auth, name, "correct horse", peer)
    assert clock.pauses == []


async def test_an_ipv6_network_is_one_place() -> None:
    clock = ThrottleClock()
    auth, _ = await auth_of(throttle=clock.throttle())
    for number in range(3):
        await fail(auth, "ada", 1, Peer(f"2001:db8:1::{number}"))
    assert clock.pauses == [1.0]
    assert Peer("::ffff:192.0.2.7").place == AWAY.place


async def test_refused_clients_without_credentials_and_certificates_are_nobodys_failures() -> None:
    clock = ThrottleClock()
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
    clock = ThrottleClock()
    auth, _ = await auth_of(throttle=clock.throttle(1, 10.0))
    await fail(auth, "ada", 1)
    with pytest.raises(NotChecked, match=r"too many failed logins of that name from 192\.0\.2\.7"):
        await login(auth, "ada", "wrong", AWAY)
    assert auth.counters.throttled_logins == 1
    clock.now += 10.0
    await login(auth, "ada", "correct horse", AWAY)  # what was not checked is not charged


async def test_guesses_at_once_are_charged_as_many() -> None:
    clock = ThrottleClock()
    auth, _ = await auth_of(throttle=clock.throttle(3, 10.0))
    tries = (login(auth, "ada", f"wrong {number}", AWAY) for number in range(10))
    answers = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(answer, NotChecked) for answer in answers) == 7
    assert auth.passwords.computed == 3
