"""Logins in several steps: SCRAM and certificates on a roll in memory, bounds, and what leaks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queue_core.access.accounts import Roll, User, UserAuth
from queue_core.access.auth import Auth, Credentials, Identity, Peer
from queue_core.access.login import MOST_SECONDS, MOST_STEPS, Answer, Challenge, Login, Proven
from queue_core.access.scram import Verifier
from queue_core.errors import AccessRefused
from tests.support.scram_client import ScramClient
from tests.support.user_auth import (
    AWAY,
    HERE,
    PUMP,
    ROLL,
    FakePolicy,
    ThrottleClock,
    auth_of,
)

SCRAM = "SCRAM-SHA-256"
WITH_VERIFIER = replace(
    ROLL,
    users={
        "ada": User("ada", None, frozenset({"monitoring"}), Verifier.of("correct horse")),
        "old": User("old", "an argon2 hash of before"),
        "machine": User("machine"),
    },
    mock_key=b"secret of this database",
)


async def scram_auth(roll: Roll = WITH_VERIFIER, policy: FakePolicy | None = None) -> UserAuth:
    return (await auth_of(roll, policy))[0]


async def by_scram(
    auth: Auth, name: str, password: str, peer: Peer = AWAY, *, has_last_word: bool = True
) -> Identity:
    client = ScramClient(name, password)
    login = auth.begin(SCRAM, peer, "sensor", has_last_word=has_last_word)
    challenge = await login.step(client.first())
    assert isinstance(challenge, Challenge)
    answer = await login.step(client.final(challenge.data))
    if not has_last_word:
        assert isinstance(answer, Challenge)
        assert client.is_server_right(answer.data)
        answer = await login.step(b"")
        assert isinstance(answer, Proven)
        assert answer.data == b""
        return answer.identity
    assert isinstance(answer, Proven)
    assert client.is_server_right(answer.data)
    return answer.identity


@pytest.mark.parametrize("has_last_word", [True, False])
async def test_scram_proves_a_user_and_the_gateway_to_each_other(has_last_word: bool) -> None:
    auth = await scram_auth()
    identity = await by_scram(auth, "ada", "correct horse", has_last_word=has_last_word)
    assert identity == Identity("ada", frozenset({"monitoring"}), False, "sensor")
    assert auth.counters.logins == 1


@pytest.mark.parametrize("name", ["ada", "old", "machine", "nobody", "guest"])
async def test_a_wrong_password_a_user_without_a_verifier_and_nobody_look_the_same(
    name: str,
) -> None:
    auth = await scram_auth()
    seen = set()
    for _ in range(2):
        client, login = ScramClient(name, "wrong"), auth.begin(SCRAM, AWAY)
        challenge = await login.step(client.first())
        assert isinstance(challenge, Challenge)
        nonce, salt, rounds = challenge.data.decode().split(",")
        seen.add((len(nonce), salt, rounds))
        with pytest.raises(AccessRefused, match=r"^wrong user name or password$"):
            await login.step(client.final(challenge.data))
    ((_, salt, rounds),) = seen
    assert len(salt) == len("s=") + 24
    assert rounds == "i=32768"
    assert auth.counters.failed_logins == 2


@pytest.mark.parametrize("becomes", [None, User("ada", None, frozenset(), Verifier.of("other"))])
async def test_a_user_who_is_another_one_by_the_second_step_is_refused(
    becomes: User | None,
) -> None:
    auth = await scram_auth()
    client, login = ScramClient("ada", "correct horse"), auth.begin(SCRAM, AWAY)
    challenge = await login.step(client.first())
    assert isinstance(challenge, Challenge)
    users = {} if becomes is None else {"ada": becomes}
    auth.accounts.roll = replace(WITH_VERIFIER, users=users)
    with pytest.raises(AccessRefused, match=r"^wrong user name or password$"):
        await login.step(client.final(challenge.data))


async def test_a_login_has_one_end() -> None:
    """A proof that was wrong cannot be tried again on the same challenge, nor a right one twice."""
    auth = await scram_auth()
    for password in ("wrong", "correct horse"):
        client, login = ScramClient("ada", "correct horse"), auth.begin(SCRAM, AWAY)
        challenge = await login.step(client.first())
        assert isinstance(challenge, Challenge)
        final = client.final(challenge.data)
        if password == "wrong":
            with pytest.raises(AccessRefused):
                await login.step(final[:-4] + b"AAA=")
        else:
            await login.step(final)
        with pytest.raises(AccessRefused, match="over"):
            await login.step(final)


async def test_guest_logs_in_by_scram_where_guest_may() -> None:
    auth = await scram_auth(Roll())
    guest = await by_scram(auth, "guest", "guest", HERE)
    assert (guest.name, guest.is_built_in) == ("guest", True)
    with pytest.raises(AccessRefused):
        await by_scram(auth, "guest", "guest", AWAY)


async def test_a_client_may_wait_to_be_asked_for_its_first_message() -> None:
    auth = await scram_auth()
    login = auth.begin(SCRAM, AWAY)
    assert await login.step(b"") == Challenge(b"")
    client = ScramClient("ada", "correct horse")
    challenge = await login.step(client.first())
    assert isinstance(challenge, Challenge)
    assert isinstance(await login.step(client.final(challenge.data)), Proven)


async def test_failures_by_scram_are_slowed_down_like_all_others() -> None:
    clock = ThrottleClock()
    auth, _ = await auth_of(WITH_VERIFIER, throttle=clock.throttle())
    for _ in range(3):
        with pytest.raises(AccessRefused, match="wrong"):
            await by_scram(auth, "ada", "wrong")
    assert clock.pauses == [1.0]
    assert (await by_scram(auth, "ada", "correct horse", HERE)).name == "ada"
    assert clock.pauses == [1.0]
    assert (await by_scram(auth, "ada", "correct horse")).name == "ada"
    assert clock.pauses == [1.0, 1.0]


async def test_refused_clients_without_credentials_do_not_hold_up_scram() -> None:
    clock = ThrottleClock()
    auth, _ = await auth_of(WITH_VERIFIER, throttle=clock.throttle())
    for _ in range(24):
        with pytest.raises(AccessRefused):
            await auth.authenticate(Credentials.given(None, None), AWAY)
    assert (await by_scram(auth, "ada", "correct horse")).name == "ada"
    assert clock.pauses == []


async def test_an_endless_login_ends() -> None:
    async def more(response: bytes) -> Answer:
        return Challenge(response)

    login = Login(more)
    for _ in range(MOST_STEPS):
        await login.step(b"x")
    with pytest.raises(AccessRefused, match=f"{MOST_STEPS} steps at most"):
        await login.step(b"x")


async def test_a_slow_login_ends() -> None:
    async def more(response: bytes) -> Answer:
        return Challenge(response)

    now = 0.0
    login = Login(more, clock=lambda: now)
    await login.step(b"x")
    now = MOST_SECONDS + 1
    with pytest.raises(AccessRefused, match="30 s at most"):
        await login.step(b"x")


async def test_one_step_mechanisms_go_the_same_way() -> None:
    auth, _ = await auth_of(policy=FakePolicy(anonymous=True))
    answer = await auth.begin("PLAIN", AWAY).step(b"\0ada\0correct horse")
    assert isinstance(answer, Proven)
    assert answer.identity.name == "ada"
    answer = await auth.begin("ANONYMOUS", HERE).step(b"trace me")
    assert isinstance(answer, Proven)
    assert answer.identity.is_anonymous


@pytest.mark.parametrize(("mechanism", "peer"), [("GSSAPI", HERE), ("EXTERNAL", HERE)])
async def test_a_mechanism_that_is_not_offered_cannot_be_begun(mechanism: str, peer: Peer) -> None:
    auth, _ = await auth_of()
    with pytest.raises(AccessRefused, match="use one of SCRAM-SHA-256"):
        auth.begin(mechanism, peer)


# --- certificates


async def by_certificate(auth: Auth, peer: Peer, response: bytes = b"") -> Identity:
    answer = await auth.begin("EXTERNAL", peer).step(response)
    assert isinstance(answer, Proven)
    return answer.identity


async def test_a_verified_certificate_is_the_user_that_it_names() -> None:
    auth, _ = await auth_of()
    assert await by_certificate(auth, PUMP) == Identity("machine")
    assert (await by_certificate(auth, PUMP, b"machine")).name == "machine"


async def test_a_certificate_speaks_for_nobody_else() -> None:
    auth, _ = await auth_of()
    with pytest.raises(AccessRefused, match="does not speak for 'ada'"):
        await by_certificate(auth, PUMP, b"ada")


async def test_a_certificate_of_nobody_is_refused_with_the_way_out() -> None:
    auth, _ = await auth_of()
    stranger = replace(PUMP, certificate=(("commonName", "ghost"),))
    with pytest.raises(AccessRefused, match="howdah user add ghost --no-password"):
        await by_certificate(auth, stranger)


async def test_another_name_of_the_certificate_may_be_the_user() -> None:
    roll = replace(ROLL, users={"pump-7.example": User("pump-7.example")})
    auth, _ = await auth_of(roll, FakePolicy(certificate_name="DNS"))
    assert (await by_certificate(auth, PUMP)).name == "pump-7.example"


@pytest.mark.parametrize(
    "names",
    [
        (),
        (("commonName", ""),),
        (("commonName", "machine"), ("commonName", "ada")),
        (("DNS", "machine"),),
    ],
)
async def test_a_certificate_without_exactly_one_such_name_is_no_login(
    names: tuple[tuple[str, str], ...],
) -> None:
    auth, _ = await auth_of()
    peer = replace(PUMP, certificate=names)
    assert "EXTERNAL" not in auth.mechanisms(peer)
    with pytest.raises(AccessRefused):
        auth.begin("EXTERNAL", peer)
