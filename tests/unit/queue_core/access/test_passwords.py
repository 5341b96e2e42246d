"""Passwords: when a check is computed, how many may wait for one, and who goes first."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from queue_core.access import passwords as passwords_module
from queue_core.access.accounts import (
    User,
)
from queue_core.access.auth import (
    NotChecked,
)
from queue_core.access.login_throttle import Throttle
from queue_core.access.passwords import PasswordChecker, hash_password
from queue_core.errors import AccessRefused
from tests.support.until import turns
from tests.support.user_auth import (
    ADA_HASH,
    ROLL,
    auth_of,
    login,
)


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
    await turns()  # it has begun, and waits
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
    await turns()  # it has begun, and waits
    gone.cancel()
    assert not await first
    assert await checker.is_right(b"correct horse", ADA_HASH)
    assert checker.computed == 2
