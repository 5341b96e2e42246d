"""Changes of rights: heard of without a poll, confirmed when in force, never taken by halves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from queue_core.access.accounts import EVERYTHING, TopicPermission
from queue_core.access.auth import Action, Identity, Resource
from queue_core.store.nodes.locks import keep_node
from queue_core.store.nodes.rows import UP, NodeTerms, add_node
from queue_core.store.tables.rights_changes import Confirmation, confirmed
from queue_core.store.tables.users import StoredRoll, Users
from queue_core.store.tables.vhosts import Vhosts
from tests.support.managers import House
from tests.support.until import PATIENCE_SECONDS, until_true

TOPIC = Resource("topic", "/", "amq.topic", "plant.7")
ADA = Identity("ada")


@pytest.fixture
async def engine(migrated_url: str) -> AsyncIterator[AsyncEngine]:
    async def connect(*_arguments: object, **_options: object) -> asyncpg.Connection:
        return await asyncpg.connect(migrated_url)

    engine = create_async_engine("postgresql+asyncpg://", async_creator=connect, poolclass=NullPool)
    yield engine
    await engine.dispose()


class Guest:
    """A connection that was let in."""

    channel_count = 0

    def __init__(self) -> None:
        self.expelled = asyncio.Event()
        self.reviewed = asyncio.Event()

    def expel(self, reason: str) -> None:
        self.expelled.set()

    def review(self) -> None:
        self.reviewed.set()


async def test_what_is_confirmed_is_in_force(house: House, engine: AsyncEngine) -> None:
    """These managers look by themselves once an hour: nothing here waits for that."""
    users, auth = Users(engine), house.manager.auth
    await users.put("ada", "hash", first=EVERYTHING)
    assert await confirmed(engine) is Confirmation.IN_FORCE
    assert auth.authorize(ADA, Action.WRITE, TOPIC)
    guest = Guest()
    auth.let_in(guest, ADA, "/")
    await users.grant("ada", "/", EVERYTHING, {"amq.topic": TopicPermission("^office")})
    assert await confirmed(engine) is Confirmation.IN_FORCE
    assert not auth.authorize(ADA, Action.WRITE, TOPIC)
    assert guest.reviewed.is_set()
    await users.remove("ada")
    assert await confirmed(engine) is Confirmation.IN_FORCE
    assert guest.expelled.is_set()


async def test_virtual_hosts_are_confirmed_as_well(house: House, engine: AsyncEngine) -> None:
    await Vhosts(engine).add("second")
    assert await confirmed(engine) is Confirmation.IN_FORCE
    assert "second" in house.manager.vhosts
    await Vhosts(engine).remove("second")
    assert await confirmed(engine) is Confirmation.IN_FORCE
    assert "second" not in house.manager.vhosts


@pytest.mark.parametrize(
    "statement",
    [
        """UPDATE howdah."user" SET tags = '{monitoring}'""",
        "UPDATE howdah.permission SET read = ''",
        "INSERT INTO howdah.topic_permission VALUES ('ada', '/', 'amq.topic', '', '')",
        "DELETE FROM howdah.permission",
        """DELETE FROM howdah."user" """,
        """TRUNCATE howdah."user" CASCADE""",
    ],
)
async def test_a_dbas_change_is_heard_of_at_its_commit(
    house: House, engine: AsyncEngine, db: asyncpg.Connection, statement: str
) -> None:
    await Users(engine).put("ada", "hash", first=EVERYTHING)
    await confirmed(engine)
    guest = Guest()
    house.manager.auth.let_in(guest, ADA, "/")
    await db.execute(statement)
    waits = [asyncio.ensure_future(each.wait()) for each in (guest.expelled, guest.reviewed)]
    done, left = await asyncio.wait(
        waits, timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED
    )
    for each in left:
        each.cancel()
    assert done


async def test_a_change_while_nobody_could_listen_is_taken_over_afterwards(
    house: House, engine: AsyncEngine, db: asyncpg.Connection
) -> None:
    await confirmed(engine)
    await db.execute(
        """
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'howdah gateway (rights)'
        """
    )
    await Users(engine).put("ada", "hash", first=EVERYTHING)
    assert await confirmed(engine) is Confirmation.IN_FORCE
    assert house.manager.auth.may_enter(ADA, "/")


async def test_without_a_gateway_there_is_nothing_to_wait_for(engine: AsyncEngine) -> None:
    assert await confirmed(engine) is Confirmation.NO_GATEWAY


async def test_a_gateway_that_does_not_answer_is_told_from_one_that_does(
    engine: AsyncEngine, db: asyncpg.Connection
) -> None:
    life = await add_node(db, NodeTerms("silent", 1024), UP)
    await keep_node(db, life.id)
    assert await confirmed(engine, 0.1) is Confirmation.NO_ANSWER


async def test_half_of_a_change_is_never_read(
    engine: AsyncEngine, migrated_url: str, db: asyncpg.Connection
) -> None:
    """Without one snapshot the permission would be there, and the rule that narrows it gone."""
    users = Users(engine)
    await users.put("ada", "hash")
    await users.grant("ada", "/", EVERYTHING, {"amq.topic": TopicPermission("^office")})
    other = await asyncpg.connect(migrated_url)
    try:
        async with other.transaction():
            await other.execute("LOCK TABLE howdah.topic_permission IN ACCESS EXCLUSIVE MODE")
            await other.execute("DELETE FROM howdah.topic_permission")
            await other.execute("DELETE FROM howdah.permission")
            reading = asyncio.create_task(StoredRoll(engine).read())
            await until_true(db, "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
    finally:
        await other.close()
    roll = await reading
    assert len(roll.permissions) == len(roll.topic_permissions)
