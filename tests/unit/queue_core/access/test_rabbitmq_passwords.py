"""Password hashes that come from RabbitMQ: who logs in by them, and what replaces them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.access.accounts import User, UserAuth
from queue_core.access.rabbitmq_passwords import (
    ALGORITHMS,
    MD5,
    SHA256,
    SHA512,
    in_rabbitmqs_words,
    is_from_rabbitmq,
    is_password_of,
    kept_hash,
    rabbitmq_hash,
)
from queue_core.errors import AccessRefused, InvalidArgument
from tests.support.until import until_turned
from tests.support.user_auth import ADA_HASH, ROLL, FakeRoll, auth_of, login

# Computed by RabbitMQ 3.10.8's own rabbit_password:salted_hash, with the salt 1, 2, 3, 250.
VECTORS = [
    pytest.param(MD5, "AQID+nxk9QEMzKRol5o0SbX+J4U=", id="md5"),
    pytest.param(SHA256, "AQID+g71IuSb7Ws5+38YJSu4DIF3ZE6VNb5ws7f4bGsV1A+p", id="sha256"),
    pytest.param(
        SHA512,
        "AQID+hyeneWzMa+hIvXGpuglA3bXZ5ESfvh0ItoE8pcEKhlzeDBLAIWZUtc2z5TMCIRdsPpKek2RHWPRuMd/"
        "WDTc4Qg=",
        id="sha512",
    ),
]


@pytest.mark.parametrize(("algorithm", "hashed"), VECTORS)
def test_hashes_are_those_that_rabbitmq_computes(algorithm: str, hashed: str) -> None:
    assert rabbitmq_hash(b"opensesame", algorithm, bytes((1, 2, 3, 250))) == hashed
    kept = kept_hash(hashed, algorithm)
    assert kept is not None
    assert is_password_of(kept, b"opensesame")


@given(
    st.sampled_from(sorted(ALGORITHMS)),
    st.binary(min_size=1, max_size=80),
    st.binary(min_size=4, max_size=4),
)
def test_a_hash_is_kept_word_for_word_and_belongs_to_its_password_alone(
    algorithm: str, password: bytes, salt: bytes
) -> None:
    given_hash = rabbitmq_hash(password, algorithm, salt)
    kept = kept_hash(given_hash, algorithm)
    assert kept is not None
    assert is_from_rabbitmq(kept)
    assert in_rabbitmqs_words(kept) == (given_hash, algorithm)
    assert is_password_of(kept, password)
    assert not is_password_of(kept, password + b"x")


def test_a_user_without_an_algorithm_has_md5_as_rabbitmq_reads_it() -> None:
    kept = kept_hash(rabbitmq_hash(b"old", MD5), None)
    assert kept is not None
    assert in_rabbitmqs_words(kept)[1] == MD5
    assert is_password_of(kept, b"old")


def test_nobody_logs_in_by_an_empty_hash_or_an_empty_password() -> None:
    assert kept_hash("", SHA256) is None
    kept = kept_hash(rabbitmq_hash(b"", SHA512), SHA512)
    assert kept is not None
    assert not is_password_of(kept, b"")


@pytest.mark.parametrize(
    ("password_hash", "algorithm", "why"),
    [
        pytest.param("!!", SHA256, "no base64", id="no base64"),
        pytest.param("AAAA", SHA256, "has 3 bytes", id="too short"),
        pytest.param(rabbitmq_hash(b"a", MD5), SHA512, "one of .* has 68", id="another's length"),
        pytest.param(rabbitmq_hash(b"a"), "my_bcrypt", "'my_bcrypt' is not known", id="a module"),
    ],
)
def test_a_hash_that_cannot_be_checked_is_refused(
    password_hash: str, algorithm: str, why: str
) -> None:
    with pytest.raises(InvalidArgument, match=why):
        kept_hash(password_hash, algorithm)


@pytest.mark.parametrize("kept", ["$argon2id$v=19$m=1$x$y", "rabbit_sha1$AAAA", "", "rabbit_"])
def test_our_own_hashes_are_not_rabbitmqs(kept: str) -> None:
    assert not is_from_rabbitmq(kept)


async def auth_with(password: bytes, algorithm: str = SHA256) -> tuple[UserAuth, FakeRoll]:
    eve = User("eve", kept_hash(rabbitmq_hash(password, algorithm), algorithm))
    return await auth_of(replace(ROLL, users={**ROLL.users, "eve": eve}))


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
async def test_the_first_good_login_replaces_the_hash_and_adds_a_scram_verifier(
    algorithm: str,
) -> None:
    auth, source = await auth_with(b"open sesame", algorithm)
    assert (await login(auth, "eve", "open sesame")).name == "eve"
    await source.renewed.wait()
    await auth.refresh()
    eve = source.roll.users["eve"]
    assert eve.password_hash is not None
    assert eve.password_hash.startswith("$argon2id$")
    assert eve.verifier is not None
    assert (await login(auth, "eve", "open sesame")).name == "eve"
    assert source.roll.users["ada"].password_hash == ADA_HASH


async def test_a_wrong_password_replaces_nothing_and_takes_as_long_as_anybodys() -> None:
    auth, source = await auth_with(b"open sesame")
    before = source.roll
    for name in ("eve", "nobody"):
        computed = auth.passwords.computed
        with pytest.raises(AccessRefused, match="wrong user name or password"):
            await login(auth, name, "guess")
        assert auth.passwords.computed == computed + 1
    assert source.roll is before


async def test_many_logins_at_once_replace_the_hash_once() -> None:
    auth, source = await auth_with(b"open sesame")
    await asyncio.gather(*(login(auth, "eve", "open sesame") for _ in range(20)))
    await source.renewed.wait()
    assert source.number == 2
    await auth.close()


async def test_a_password_that_is_no_text_gets_a_hash_without_a_verifier() -> None:
    auth, source = await auth_with(b"\xff\xfe")
    new_hash, verifier = await auth.passwords.make(b"\xff\xfe")
    assert verifier is None
    assert await auth.passwords.is_right(b"\xff\xfe", new_hash)
    assert source.roll.users["eve"].verifier is None


async def test_a_hash_stays_where_the_database_is_away_and_goes_at_a_later_login(
    caplog: pytest.LogCaptureFixture,
) -> None:
    auth, source = await auth_with(b"open sesame")
    source.is_away = True
    await login(auth, "eve", "open sesame")
    await until_turned(lambda: "stay RabbitMQ's" in caplog.text)
    source.is_away = False
    await login(auth, "eve", "open sesame")
    await source.renewed.wait()
    eve = source.roll.users["eve"]
    assert eve.password_hash is not None
    assert not is_from_rabbitmq(eve.password_hash)
