"""Users and permissions in PostgreSQL, read and changed through the store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from queue_core.access.accounts import Permission, TopicPermission, UserAuth
from queue_core.access.auth import Action, Credentials, Peer, Resource
from queue_core.access.login import Challenge, Proven
from queue_core.access.password_renewal import RenewedHash
from queue_core.access.passwords import hash_password
from queue_core.access.rabbitmq_passwords import SHA256, kept_hash, rabbitmq_hash
from queue_core.access.scram import Verifier
from queue_core.errors import AccessRefused, InvalidArgument, StoreUnavailable, VhostNotFound
from queue_core.store.operator.migration import upgrade
from queue_core.store.tables.users import StoredRoll, Users
from tests.support.scram_client import ScramClient

AWAY = Peer("192.0.2.7")


class NoStrangers:
    certificate_name = "commonName"

    def admits_anonymous(self, *, is_loopback: bool, has_users: bool) -> bool:
        return False

    def admits_guest(self, *, is_loopback: bool, has_users: bool) -> bool:
        return False


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[AsyncEngine]:
    await upgrade(database_url)

    async def connect(*_arguments: object, **_options: object) -> asyncpg.Connection:
        return await asyncpg.connect(database_url)

    engine = create_async_engine("postgresql+asyncpg://", async_creator=connect, poolclass=NullPool)
    yield engine
    await engine.dispose()


async def test_a_user_made_in_the_table_comes_in_and_may_do_what_is_granted(
    engine: AsyncEngine,
) -> None:
    users, auth = Users(engine), UserAuth(StoredRoll(engine), NoStrangers())
    assert await users.put("ada", hash_password("secret"), ["monitoring"])
    topics = {"amq.topic": TopicPermission("^plant\\.", ".*")}
    await users.grant("ada", "/", Permission("^ada", ".*", ""), topics)
    await auth.refresh()
    ada = await auth.authenticate(Credentials.given("ada", "secret"), AWAY)
    assert ada.tags == {"monitoring"}
    assert auth.accounts.has_users
    assert auth.authorize(ada, Action.CONFIGURE, Resource("queue", "/", "ada-1"))
    assert not auth.authorize(ada, Action.READ, Resource("queue", "/", "ada-1"))
    assert auth.authorize(ada, Action.WRITE, Resource("topic", "/", "amq.topic", "plant.7"))
    assert not auth.authorize(ada, Action.WRITE, Resource("topic", "/", "amq.topic", "office.7"))


async def test_every_change_is_noticed_also_one_made_by_hand(
    engine: AsyncEngine, database_url: str
) -> None:
    users, roll = Users(engine), StoredRoll(engine)
    seen = [await roll.revision()]

    async def assert_changed() -> None:
        revision = await roll.revision()
        assert revision != seen[-1]
        assert await roll.revision() == revision
        seen.append(revision)

    assert await users.put("ada", "hash")
    await assert_changed()
    assert not await users.put("ada", "another hash")
    await assert_changed()
    await users.grant("ada", "/", Permission(".*", ".*", ".*"))
    await assert_changed()
    await users.grant("ada", "/", Permission(".*", ".*", ""))
    await assert_changed()
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute("UPDATE howdah.permission SET read = '^mine$'")
        await assert_changed()
    finally:
        await connection.close()
    assert await users.revoke("ada", "/")
    await assert_changed()
    assert await users.remove("ada")
    assert not await users.remove("ada")
    assert (await roll.read()).users == {}


async def test_a_new_password_ends_the_old_one(engine: AsyncEngine) -> None:
    users, auth = Users(engine), UserAuth(StoredRoll(engine), NoStrangers())
    await users.put("ada", hash_password("old"), ["monitoring"])
    await auth.refresh()
    await auth.authenticate(Credentials.given("ada", "old"), AWAY)
    await users.put("ada", hash_password("new"))
    await auth.refresh()
    with pytest.raises(AccessRefused):
        await auth.authenticate(Credentials.given("ada", "old"), AWAY)
    identity = await auth.authenticate(Credentials.given("ada", "new"), AWAY)
    assert identity.tags == {"monitoring"}


async def test_a_verifier_is_kept_beside_the_hash_and_goes_with_the_password(
    engine: AsyncEngine,
) -> None:
    users, auth = Users(engine), UserAuth(StoredRoll(engine), NoStrangers())
    await users.put("ada", hash_password("secret"), verifier=Verifier.of("secret"))
    await users.put("old", hash_password("secret"))
    await auth.refresh()
    for has_verifier, name in ((True, "ada"), (False, "old")):
        client, login = ScramClient(name, "secret"), auth.begin("SCRAM-SHA-256", AWAY)
        challenge = await login.step(client.first())
        assert isinstance(challenge, Challenge)
        if has_verifier:
            assert isinstance(await login.step(client.final(challenge.data)), Proven)
        else:
            with pytest.raises(AccessRefused):
                await login.step(client.final(challenge.data))
    await users.put("ada", None)
    assert (await StoredRoll(engine).read()).users["ada"].verifier is None


async def test_nobodys_salts_outlive_the_gateway(engine: AsyncEngine) -> None:
    first, second = [await StoredRoll(engine).read() for _ in range(2)]
    assert first.mock_key == second.mock_key
    assert len(first.mock_key) == 32


async def test_a_verifier_that_is_none_is_reported_and_lets_nobody_in(
    engine: AsyncEngine, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    await Users(engine).put("ada", "hash")
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute("""UPDATE howdah."user" SET scram_verifier = 'nonsense'""")
    finally:
        await connection.close()
    assert (await StoredRoll(engine).read()).users["ada"].verifier is None
    assert "user 'ada' cannot log in by SCRAM" in caplog.text


async def test_a_new_user_has_its_first_permission_from_the_same_moment_on(
    engine: AsyncEngine,
) -> None:
    users = Users(engine)
    given = Permission("a", "b", "c")
    assert await users.put("ada", "hash", first=given)
    assert (await StoredRoll(engine).read()).permissions == {("ada", "/"): given}
    assert not await users.put("ada", "hash", first=Permission("x", "y", "z"))
    assert (await StoredRoll(engine).read()).permissions == {("ada", "/"): given}


async def test_what_cannot_be_granted_is_refused_by_name(engine: AsyncEngine) -> None:
    users = Users(engine)
    with pytest.raises(InvalidArgument, match="there is no user 'ghost'"):
        await users.grant("ghost", "/", Permission())
    await users.put("ada", "hash")
    with pytest.raises(VhostNotFound, match="'nowhere'"):
        await users.grant("ada", "nowhere", Permission())
    with pytest.raises(InvalidArgument, match=r"write '\(' is not a regular expression"):
        await users.grant("ada", "/", Permission(write="("))
    with pytest.raises(InvalidArgument, match="printable"):
        await users.put("a\nb", "hash")


async def test_a_database_that_is_away_is_told_from_a_wrong_password() -> None:
    async def connect(*_arguments: object, **_options: object) -> asyncpg.Connection:
        return await asyncpg.connect("postgresql://nobody@127.0.0.1:1/none")

    engine = create_async_engine("postgresql+asyncpg://", async_creator=connect, poolclass=NullPool)
    with pytest.raises(StoreUnavailable, match="users cannot be read: "):
        await StoredRoll(engine).revision()


async def test_a_hash_from_rabbitmq_is_replaced_in_the_table_unless_it_was_changed_meanwhile(
    engine: AsyncEngine,
) -> None:
    users, roll = Users(engine), StoredRoll(engine)
    old = kept_hash(rabbitmq_hash(b"open sesame"), SHA256)
    assert old is not None
    for name in ("eve", "mallory"):
        await users.put(name, old)
    await users.put("mallory", hash_password("another one"))
    verifier = Verifier.of("open sesame")
    renewed = [RenewedHash(name, old, "$argon2id$new", verifier) for name in ("eve", "mallory")]
    await roll.renew(renewed)
    found = (await roll.read()).users
    assert (found["eve"].password_hash, found["eve"].verifier) == ("$argon2id$new", verifier)
    assert (found["mallory"].password_hash or "").startswith("$argon2id$v=19")
