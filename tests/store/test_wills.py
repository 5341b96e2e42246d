"""Wills on PostgreSQL: published when their client is lost, once, and not otherwise."""

from __future__ import annotations

import asyncpg
import pytest

from queue_core.access.auth import Identity
from queue_core.message.message import Message, Properties
from queue_core.queues.spec import QueueSpec
from queue_core.sessions.session import Session
from queue_core.sessions.subscription import Subscription
from queue_core.sessions.wills import MAX_WILL_IN_MEMORY_BYTES
from tests.store.sessions import ANONYMOUS, World, world
from tests.support.clock import Clock
from tests.support.inbox import Inbox


async def make_will(
    here: World,
    session: Session,
    body: bytes = b"lost",
    *,
    delay: float = 0,
    retain: bool = False,
    lifetime: float | None = None,
    identity: Identity = ANONYMOUS,
) -> None:
    message = Message(
        body,
        topic="status/sensor",
        publisher=session.client_id,
        properties=Properties(content_type="text/plain", headers=(("site", "7"),)),
    )
    await here.sessions.wills.set(
        session, message, identity, delay=delay, retain=retain, qos=1, lifetime=lifetime
    )


async def watch(here: World) -> Inbox:
    """A durable queue that keeps all statuses, also over restarts."""
    queue = await here.vhost.declare_queue(QueueSpec.parse("statuses"))
    await here.vhost.bind("amq.topic", queue, "status.#")
    return await here.listen("statuses")


async def count(url: str) -> int:
    connection = await asyncpg.connect(url)
    found: int = await connection.fetchval("SELECT count(*) FROM howdah.will")
    await connection.close()
    return found


async def test_a_lost_clients_will_is_published_and_its_row_goes_with_it(
    migrated_url: str,
) -> None:
    async with world(migrated_url) as here:
        inbox = await watch(here)
        session = await here.open(expiry=0)
        await make_will(here, session)
        assert await count(migrated_url) == 1
        await here.sessions.detach(session, publish_will=True)
        assert await inbox.has_bodies(1) == [b"lost"]
        assert inbox.deliveries[0].message.publisher == "sensor"
        assert await count(migrated_url) == 0


async def test_a_goodbye_takes_the_will_back(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        inbox = await watch(here)
        session = await here.open()
        await make_will(here, session)
        await here.sessions.detach(session, publish_will=False)
        await here.pass_time(10_000)
        assert inbox.bodies == []
        assert await count(migrated_url) == 0


async def test_a_delayed_will_waits_for_its_time(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        inbox = await watch(here)
        session = await here.open()
        await make_will(here, session, delay=30)
        await here.sessions.detach(session, publish_will=True)
        await here.pass_time(29)
        assert inbox.bodies == []
        await here.pass_time(1)
        assert await inbox.has_bodies(1) == [b"lost"]


async def test_a_client_that_comes_back_in_time_keeps_its_will_to_itself(
    migrated_url: str,
) -> None:
    async with world(migrated_url) as here:
        inbox = await watch(here)
        session = await here.open()
        await make_will(here, session, delay=30)
        await here.sessions.detach(session, publish_will=True)
        await here.open()
        await here.pass_time(60)
        assert inbox.bodies == []
        assert await count(migrated_url) == 0


async def test_a_will_does_not_wait_longer_than_its_session_lives(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        inbox = await watch(here)
        session = await here.open(expiry=10)
        await make_will(here, session, delay=30)
        await here.sessions.detach(session, publish_will=True)
        await here.pass_time(10)
        assert await inbox.has_bodies(1) == [b"lost"]


async def test_a_clean_start_ends_the_session_and_publishes_the_will_that_waited(
    migrated_url: str,
) -> None:
    async with world(migrated_url) as here:
        inbox = await watch(here)
        session = await here.open()
        await make_will(here, session, delay=30)
        await here.sessions.detach(session, publish_will=True)
        fresh = await here.open(clean=True)
        await make_will(here, fresh, b"lost again")
        assert await inbox.has_bodies(1) == [b"lost"]
        assert await count(migrated_url) == 1
        await here.sessions.detach(fresh, publish_will=True)
        assert await inbox.has_bodies(2) == [b"lost", b"lost again"]


async def test_a_takeover_publishes_the_will_of_the_connection_it_ends(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        inbox = await watch(here)
        first = await here.open()
        await make_will(here, first, b"of the first")
        second = await here.open()
        await make_will(here, second, b"of the second")
        assert await inbox.has_bodies(1) == [b"of the first"]
        # the first connection's end is noticed late, and is not the second's
        await here.sessions.detach(first, publish_will=True)
        await here.idle()
        assert inbox.bodies == [b"of the first"]
        assert await count(migrated_url) == 1


async def test_whoever_was_connected_when_the_gateway_died_is_lost_at_the_next_start(
    migrated_url: str,
) -> None:
    clock = Clock()
    async with world(migrated_url, clock) as here:
        await watch(here)
        await make_will(here, await here.open("passing", expiry=0), b"passing", delay=50)
        await make_will(here, await here.open("lasting", expiry=60), b"lasting", delay=50)
        await make_will(
            here, await here.open("large", expiry=0), b"x" * (MAX_WILL_IN_MEMORY_BYTES + 1)
        )
    clock.now += 1000
    async with world(migrated_url, clock) as here:
        inbox = await here.listen("statuses")
        await here.pass_time(0)
        assert sorted(await inbox.has_bodies(2)) == [
            b"passing",
            b"x" * (MAX_WILL_IN_MEMORY_BYTES + 1),
        ]
        await here.pass_time(49)
        assert len(inbox.bodies) == 2
        await here.pass_time(1)
        assert (await inbox.has_bodies(3))[2] == b"lasting"
        properties = inbox.deliveries[2].message.properties
        assert (properties.content_type, properties.headers) == ("text/plain", (("site", "7"),))
        assert await count(migrated_url) == 0


async def test_a_will_that_waits_goes_on_waiting_over_a_restart(migrated_url: str) -> None:
    clock = Clock()
    async with world(migrated_url, clock) as here:
        await watch(here)
        session = await here.open()
        await make_will(here, session, delay=30)
        await here.sessions.detach(session, publish_will=True)
    clock.now += 20
    async with world(migrated_url, clock) as here:
        inbox = await here.listen("statuses")
        await here.pass_time(9)
        assert inbox.bodies == []
        await here.pass_time(1)
        assert await inbox.has_bodies(1) == [b"lost"]


async def test_a_will_may_become_its_topics_last_value(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        session = await here.open(expiry=0)
        await make_will(here, session, retain=True)
        await here.sessions.detach(session, publish_will=True)
        await here.idle()
        kept = [each async for each in here.sessions.retained.match("/", "status/#")]
        assert [(each.message.body, each.qos) for each in kept] == [(b"lost", 1)]


async def test_a_wills_lifetime_begins_when_it_is_published(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        inbox = await watch(here)
        session = await here.open()
        await make_will(here, session, delay=30, lifetime=5)
        await here.pass_time(100)
        await here.sessions.detach(session, publish_will=True)
        await here.pass_time(30)
        await inbox.has_bodies(1)
        assert inbox.deliveries[0].message.expires_at == here.clock.now + 5


async def test_a_will_reaches_subscribers_that_are_away(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        watcher = await here.open("watcher")
        await watcher.subscribe(Subscription("status/+", 1))
        await here.sessions.detach(watcher, publish_will=False)
        session = await here.open(expiry=0)
        await make_will(here, session)
        await here.sessions.detach(session, publish_will=True)
        await here.idle()
        watcher = await here.open("watcher")
        assert watcher.stored is not None
        assert await (await here.listen(watcher.stored.name)).has_bodies(1) == [b"lost"]


ADA = Identity("ada", client_id="sensor")


async def let_in(url: str, write: str = "") -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("""INSERT INTO howdah."user" (name) VALUES ('ada')""")
    await connection.execute(
        """INSERT INTO howdah.permission (user_name, vhost, configure, write, read)
        VALUES ('ada', '/', '', $1, '')""",
        write,
    )
    await connection.close()


async def forbid(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(statement)
    await connection.close()


REMOVED = """DELETE FROM howdah."user" WHERE name = 'ada'"""
READ_ONLY = "UPDATE howdah.permission SET write = '' WHERE user_name = 'ada'"


async def test_the_will_of_a_user_who_may_publish_it_is_published_after_a_restart(
    migrated_url: str,
) -> None:
    await let_in(migrated_url, ".*")
    async with world(migrated_url) as here:
        await make_will(here, await here.open(user="ada"), identity=ADA, delay=60)
    async with world(migrated_url) as here:
        inbox = await watch(here)
        await here.sessions.end(here.vhost, "sensor")
        assert await inbox.has_bodies(1) == [b"lost"]


@pytest.mark.parametrize("statement", [REMOVED, READ_ONLY], ids=["removed", "may not write"])
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_the_will_of_a_user_who_is_gone_or_may_not_publish_it_is_dropped(
    migrated_url: str, statement: str, is_restarted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    await let_in(migrated_url, ".*")
    async with world(migrated_url) as here:
        await watch(here)
        await here.manager.auth.refresh()
        session = await here.open(user="ada", expiry=60)
        await make_will(here, session, identity=ADA, delay=60)
        await forbid(migrated_url, statement)
        if not is_restarted:
            await here.manager.auth.refresh()
            await here.sessions.detach(session, expiry=0, publish_will=True)
            await dropped(here)
    if is_restarted:
        async with world(migrated_url) as here:
            await here.sessions.end(here.vhost, "sensor")
            await dropped(here)
    assert await count(migrated_url) == 0
    assert "user 'ada' may not publish it any more" in caplog.text


async def dropped(here: World) -> None:
    """Returns when the will has left, and was not published."""
    await here.sessions.wills.settled()
    await here.manager.writer.flushed()
    assert here.manager.counters.dropped_wills == 1
    assert not here.vhost.queue("statuses").counts().ready


async def test_a_will_of_nobody_is_dropped(migrated_url: str) -> None:
    """One from before users were written down with it, of a session that was not stored."""
    async with world(migrated_url) as here:
        await watch(here)
        await make_will(here, await here.open(expiry=60), delay=60)
        await here.manager.close()
        await forbid(migrated_url, "UPDATE howdah.will SET user_name = NULL, is_built_in = NULL")
    async with world(migrated_url) as here:
        await here.sessions.end(here.vhost, "sensor")
        await dropped(here)
    assert await count(migrated_url) == 0
