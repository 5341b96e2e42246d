"""Sessions on PostgreSQL: what outlives a connection, a takeover, a restart, and what does not."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from queue_core.errors import (
    InvalidArgument,
    InvalidTopic,
    LimitExceeded,
    SessionNotFound,
)
from queue_core.queues.spec import Overflow
from queue_core.sessions.inflight import PacketState
from queue_core.sessions.session import SessionSettings
from queue_core.sessions.subscription import Subscription
from tests.store.sessions import Owner, world
from tests.support.clock import Clock
from tests.support.inbox import Inbox

ONE = Subscription("plant/+/temp", qos=1)
ZERO = Subscription("plant/+/temp", qos=0)


async def rows(url: str, query: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(url)
    try:
        return list(await connection.fetch(query))
    finally:
        await connection.close()


async def test_messages_wait_for_a_client_that_is_away(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        session = await here.open()
        assert await session.subscribe(ONE)
        await here.sessions.detach(session, publish_will=False)
        await here.publish("plant/7/temp", b"21")
        again = await here.open()
        assert again.is_present
        assert again.stored is not None
        inbox = await here.listen(again.stored.name)
        assert await inbox.has_bodies(1) == [b"21"]


async def test_a_session_its_queue_and_its_subscriptions_survive_a_restart(
    migrated_url: str,
) -> None:
    wanted = Subscription(
        "plant/#", 2, True, True, 2, identifier=77, extra={"consumer-group": "night"}
    )
    queue = Subscription("$queue/orders", 1, queue="orders")
    async with world(migrated_url) as here:
        session = await here.open(user="ada")
        assert await session.subscribe_all([wanted, queue]) == [True, True]
        await here.publish("plant/1", b"before")
    async with world(migrated_url) as here:
        await here.publish("plant/1", b"after")
        session = await here.open(user="ada")
        assert session.is_present
        assert dict(session.subscriptions) == {"plant/#": wanted, "$queue/orders": queue}
        assert session.stored is not None
        inbox = await here.listen(session.stored.name)
        assert await inbox.has_bodies(2) == [b"before", b"after"]
        assert inbox.deliveries[0].entry.options == (wanted,)


async def test_each_message_goes_to_one_of_the_two_queues_of_a_session(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        session = await here.open()
        await session.subscribe_all([Subscription("a/#", 1, identifier=1), Subscription("a/b")])
        assert session.stored is not None
        live = await here.listen(session.live.name, auto_settle=True)
        stored = await here.listen(session.stored.name)
        await here.publish("a/b", b"both ask, durable")
        await here.publish("a/b", b"not durable", durable=False)
        assert await stored.has_bodies(1) == [b"both ask, durable"]
        assert await live.has_bodies(1) == [b"not durable"]
        # one copy, with the options of every subscription that led to it
        assert len(stored.deliveries[0].entry.options or ()) == 2  # type: ignore[arg-type]
        await session.unsubscribe("a/#")
        await here.publish("a/b", b"durable, but nobody asks for it to be kept")
        assert (await live.has_bodies(2))[1] == b"durable, but nobody asks for it to be kept"
        assert len(stored.deliveries) == 1


async def test_what_ends_with_its_connection_leaves_nothing_behind(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        session = await here.open(expiry=0)
        await session.subscribe(ONE)
        assert (session.id, session.stored) == (0, None)
        inbox = await here.listen(session.live.name, auto_settle=True)
        await here.publish("plant/1/temp", b"20")
        assert await inbox.has_bodies(1) == [b"20"]
        assert not await rows(migrated_url, "SELECT 1 FROM howdah.session")
        await here.sessions.detach(session, publish_will=False)
        assert not here.vhost.queues
        assert not (await here.open(expiry=0)).is_present


async def test_a_second_connection_takes_the_session_over(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        first_owner = Owner()
        first = await here.open(owner=first_owner)
        await first.subscribe(ONE)
        assert first.stored is not None
        in_flight = await here.listen(first.stored.name)
        await here.publish("plant/1/temp", b"20")
        await in_flight.has_bodies(1)
        second = await here.open()
        assert first_owner.told == ["takeover"]
        assert second.is_present
        assert not first.is_attached
        with pytest.raises(SessionNotFound):
            await first.subscribe(ZERO)
        # the first one's own goodbye comes late, and does not end the second
        await here.sessions.detach(first, 0, publish_will=True)
        assert second.is_attached
        assert second.stored is not None
        inbox = await here.listen(second.stored.name)
        await inbox.has_bodies(1)
        assert inbox.deliveries[0].redelivered


async def test_a_clean_start_forgets_what_was(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        session = await here.open()
        await session.subscribe(ONE)
        await here.sessions.detach(session, publish_will=False)
        await here.publish("plant/1/temp", b"20")
        fresh = await here.open(clean=True)
        assert not fresh.is_present
        assert not fresh.subscriptions
        assert fresh.stored is not None
        assert fresh.stored.counts().ready == 0
        assert fresh.id != session.id
        assert len(await rows(migrated_url, "SELECT 1 FROM howdah.session")) == 1


async def test_a_session_ends_when_its_time_is_over(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        session = await here.open(expiry=60)
        await session.subscribe(ONE)
        await here.sessions.detach(session, publish_will=False)
        await here.pass_time(59)
        assert here.sessions.count == 1
        await here.pass_time(1)
        assert here.sessions.count == 0
        assert not here.vhost.queues
        for table in ("session", "subscription", "queue"):
            assert not await rows(migrated_url, f"SELECT 1 FROM howdah.{table}")


async def test_a_session_expires_at_its_time_also_after_a_restart(migrated_url: str) -> None:
    clock = Clock()
    async with world(migrated_url, clock) as here:
        gone = await here.open("gone", expiry=60)
        await here.sessions.detach(gone, publish_will=False)
        await here.open("connected", expiry=60)
        forever = await here.open("forever", expiry=None)
        await here.sessions.detach(forever, publish_will=False)
    clock.now += 40
    async with world(migrated_url, clock) as here:
        await here.pass_time(30)
        assert {info.client_id for info in here.sessions.all()} == {"connected", "forever"}
        # who was connected when the gateway died is away since the next one started
        await here.pass_time(30)
        assert {info.client_id for info in here.sessions.all("/")} == {"forever"}


async def test_detaching_may_change_how_long_the_session_lives(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        session = await here.open(expiry=60)
        await here.sessions.detach(session, 600, publish_will=False)
        await here.pass_time(500)
        again = await here.open(expiry=600)
        assert again.is_present
        await here.sessions.detach(again, 0, publish_will=False)
        assert here.sessions.count == 0


async def test_packets_in_flight_survive_a_restart_as_far_as_they_were_committed(
    migrated_url: str,
) -> None:
    async with world(migrated_url) as here:
        session = await here.open()
        await here.commit(session.note(False, 7, 1))
        await here.commit(session.note(True, 9, 2, queue_id=4, offset=11))
        await here.commit(session.note(True, 10, 2) + session.note(True, 10, 0))
        session.note(False, 8, 1)  # never committed
        session.remember(True, 12, 1)
        assert {(r.is_outgoing, r.packet_id) for r in here.sessions.live_packets()} == {
            (False, 7),
            (True, 9),
        }
    async with world(migrated_url) as here:
        session = await here.open()
        assert dict(session.packets) == {
            (False, 7): PacketState(1),
            (True, 9): PacketState(2, 4, 11),
        }
        assert len(list(here.sessions.live_packets())) == 2


async def test_packets_stand_in_the_order_of_what_was_said_last_of_them(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        session = await here.open()
        for number, state in ((1, 2), (2, 2), (3, 2), (3, 3), (1, 3), (2, 3)):
            await here.commit(session.note(True, number, state))
        assert [number for _, number in session.packets] == [3, 1, 2]
        assert [record.packet_id for record in here.sessions.live_packets()] == [3, 1, 2]
    async with world(migrated_url) as here:
        session = await here.open()
        assert [number for _, number in session.packets] == [3, 1, 2]


async def test_a_session_that_is_not_stored_has_no_packet_records(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        session = await here.open(expiry=0)
        assert session.note(False, 7, 1) == ()
        assert session.packets[False, 7] == PacketState(1)


async def test_members_of_a_group_compete_and_who_is_away_is_passed_over(
    migrated_url: str,
) -> None:
    shared = Subscription("jobs/#", 1, share="workers")
    async with world(migrated_url) as here:
        one, two = await here.open("one"), await here.open("two")
        await one.subscribe(shared)
        await two.subscribe(shared)
        assert one.shared == two.shared == ["$live/share/workers/jobs/#", "$share/workers/jobs/#"]
        assert {one.shared_address(name) for name in one.shared} == {"$share/workers/jobs/#"}
        inboxes = [await here.listen(name) for name in one.shared]
        inboxes += [await here.listen(name) for name in two.shared]
        for number in range(10):
            await here.publish("jobs/x", b"%d" % number, durable=number % 2 == 0)
        got = sorted(body for inbox in inboxes for body in inbox.bodies)
        assert got == [b"%d" % n for n in range(10)]
        assert all(inbox.bodies for inbox in inboxes)
        await here.sessions.detach(two, publish_will=False)
        assert one.shared
        assert here.vhost.queues["$share/workers/jobs/#"].counts().consumers


async def test_a_groups_backlog_survives_a_restart(migrated_url: str) -> None:
    shared = Subscription("jobs/#", 1, share="workers")
    async with world(migrated_url) as here:
        session = await here.open()
        await session.subscribe(shared)
        await here.sessions.detach(session, publish_will=False)
        assert "$live/share/workers/jobs/#" not in here.vhost.queues
        await here.publish("jobs/x", b"work")
    async with world(migrated_url) as here:
        session = await here.open()
        inbox = await here.listen(session.shared[1])
        assert await inbox.has_bodies(1) == [b"work"]
        await session.unsubscribe("$share/workers/jobs/#")
        assert not session.shared
        assert "$share/workers/jobs/#" not in here.vhost.queues


async def test_the_first_lasting_member_gives_its_group_a_stored_queue(migrated_url: str) -> None:
    shared = Subscription("jobs/#", 1, share="workers")
    async with world(migrated_url) as here:
        owner = Owner()
        passing = await here.open("passing", expiry=0, owner=owner)
        await passing.subscribe(shared)
        assert passing.shared == ["$live/share/workers/jobs/#"]
        lasting = await here.open("lasting")
        await lasting.subscribe(shared)
        assert owner.told == ["shared"]
        assert passing.shared == lasting.shared
        await here.sessions.detach(lasting, 0, publish_will=False)
        assert len(passing.shared) == 2  # what waits there is still for the others
        await here.sessions.detach(passing, publish_will=False)
        assert not here.vhost.queues
        assert not await rows(migrated_url, "SELECT 1 FROM howdah.queue")


async def test_limits_are_refused_by_name(migrated_url: str) -> None:
    settings = SessionSettings(max_sessions=1, max_subscriptions=2)
    async with world(migrated_url, settings=settings) as here:
        session = await here.open("one")
        with pytest.raises(LimitExceeded, match="sessions"):
            await here.open("two")
        assert not (await here.open("two", expiry=0)).id
        await session.subscribe_all([Subscription("a"), Subscription("b")])
        with pytest.raises(LimitExceeded, match="2 subscriptions"):
            await session.subscribe(Subscription("c"))
        assert not await session.subscribe(Subscription("b", 1))
        with pytest.raises(InvalidArgument, match="1024"):
            await here.open("x" * 1025)


async def test_subscribing_is_all_or_nothing(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        session = await here.open()
        with pytest.raises(InvalidTopic):
            await session.subscribe_all([ONE, Subscription("a/#/b")])
        assert not session.subscriptions
        assert not await rows(migrated_url, "SELECT 1 FROM howdah.subscription")


async def test_the_same_filter_twice_in_one_request_counts_once(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        session = await here.open()
        await session.subscribe_all([ZERO, ONE])
        assert list(session.subscriptions.values()) == [ONE]
        assert [
            r["qos"] for r in await rows(migrated_url, "SELECT qos FROM howdah.subscription")
        ] == [1]


async def test_a_session_belongs_to_its_user(migrated_url: str) -> None:
    """Another user with the same client id gets one of its own, and disturbs nobody."""
    async with world(migrated_url) as here:
        owner = Owner()
        session = await here.open(user="ada", owner=owner)
        for clean in (False, True):
            other = await here.open(user="eve", clean=clean)
            assert (other.client_id, other.is_present) == ("$user/eve/sensor", False)
            await here.sessions.detach(other, publish_will=False)
        assert session.is_attached
        assert not owner.told


async def test_a_client_id_that_another_user_took_first_keeps_nobody_out(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        squatter = await here.open(user="eve", expiry=None)
        session = await here.open(user="ada")
        await session.subscribe(ONE)
        await here.sessions.detach(session, publish_will=False)
        await here.publish("plant/1/temp", b"for ada")
        await here.sessions.detach(squatter, expiry=0, publish_will=False)
    async with world(migrated_url) as here:  # its id is free now, and the session still found
        again = await here.open(user="ada")
        assert again.is_present
        assert again.stored is not None
        assert again.stored.counts().ready == 1
        assert [each.user for each in here.sessions.all()] == ["ada"]


async def test_users_with_one_client_id_who_come_at_once_have_a_session_each(
    migrated_url: str,
) -> None:
    async with world(migrated_url) as here:
        users = [f"user/{number}" for number in range(5)] * 2
        sessions = await asyncio.gather(*(here.open(user=user) for user in users))
        assert sorted(str(each.state.user) for each in sessions if each.is_attached) == users[:5]


async def test_an_id_that_tells_users_apart_is_no_clients_to_choose(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        with pytest.raises(InvalidArgument, match="gateway's own"):
            await here.open("$user/ada/sensor", user="eve")


async def test_the_offline_queue_keeps_the_newest(migrated_url: str) -> None:
    settings = SessionSettings(offline_messages=3)
    async with world(migrated_url, settings=settings) as here:
        session = await here.open()
        await session.subscribe(ONE)
        await here.sessions.detach(session, publish_will=False)
        for number in range(6):
            await here.publish("plant/1/temp", b"%d" % number)
        again = await here.open()
        assert again.stored is not None
        inbox = await here.listen(again.stored.name)
        assert await inbox.has_bodies(3) == [b"3", b"4", b"5"]
        assert here.manager.counters.dropped_overflow == 3


async def test_offline_limits_follow_the_configuration(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        await here.open()
    narrow = SessionSettings(offline_messages=2)
    async with world(migrated_url, settings=narrow) as here:
        session = await here.open()
        assert session.stored is not None
        assert session.stored.spec.max_length == 2
        assert session.stored.spec.overflow is Overflow.DROP_HEAD
        stored = await rows(migrated_url, "SELECT arguments->>'x-max-length' FROM howdah.queue")
        assert [row[0] for row in stored] == ["2"]


async def test_an_operator_ends_a_session_whoever_has_it(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        owner = Owner()
        await here.open(owner=owner)
        await here.sessions.end(here.vhost, "sensor")
        assert owner.told == ["ended"]
        assert not here.vhost.queues
        with pytest.raises(SessionNotFound):
            await here.sessions.end(here.vhost, "sensor")


async def test_a_queue_that_somebody_deleted_is_made_again(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        session = await here.open()
        await session.subscribe(ONE)
        await here.sessions.detach(session, publish_will=False)
        await here.vhost.delete_queue("$session/sensor", inside=True)
        again = await here.open()
        assert again.stored is not None
        await here.publish("plant/1/temp", b"20")
        assert await (await here.listen(again.stored.name)).has_bodies(1) == [b"20"]
    await _drop(migrated_url, "DELETE FROM howdah.queue")
    async with world(migrated_url) as here:
        await here.publish("plant/1/temp", b"21")
        session = await here.open()
        assert session.stored is not None
        assert await (await here.listen(session.stored.name)).has_bodies(1) == [b"21"]


async def test_queues_that_no_session_has_are_removed_at_start(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        session = await here.open()
        await session.subscribe_all([ONE, Subscription("jobs", 1, share="g")])
    await _drop(migrated_url, "DELETE FROM howdah.session")
    async with world(migrated_url) as here:
        await here.idle()
        assert not here.vhost.queues
        assert not await rows(migrated_url, "SELECT 1 FROM howdah.queue")


async def _drop(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(statement)
    await connection.close()


async def test_sessions_open_again_after_the_database_has_dropped_every_connection(
    migrated_url: str,
) -> None:
    async with world(migrated_url) as here:
        session = await here.open()
        await session.subscribe(ONE)
        await rows(
            migrated_url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        assert (await here.open("another")).id
        await here.sessions.detach(session, publish_will=False)
        assert (await here.open()).is_present
        await here.publish("plant/1/temp", b"20")
        assert session.stored is not None
        assert session.stored.counts().ready == 1


async def test_a_slow_client_loses_its_oldest_where_nobody_is_to_wait_for_it(
    migrated_url: str,
) -> None:
    settings = SessionSettings(live_messages=2, holds_publishers=False)
    async with world(migrated_url, settings=settings) as here:
        session = await here.open(expiry=0)
        await session.subscribe(ZERO)
        for number in range(5):
            await here.publish("plant/1/temp", b"%d" % number, durable=False)
        inbox: Inbox = await here.listen(session.live.name, auto_settle=True)
        assert await inbox.has_bodies(2) == [b"3", b"4"]
        assert here.manager.counters.dropped_overflow == 3
        assert here.manager.counters.refused_full == 0


async def test_ten_thousand_sessions_are_back_after_a_restart(migrated_url: str) -> None:
    connection = await asyncpg.connect(migrated_url)
    await connection.execute(
        """
        INSERT INTO howdah.queue (vhost, name, kind, shard)
            SELECT '/', '$session/c' || n, 'classic', howdah.shard_of('/', 'session', 'c' || n)
            FROM generate_series(1, 10000) n;
        INSERT INTO howdah.session (
                vhost, client_id, protocol, queue_name, state, disconnected_at, shard)
            SELECT '/', 'c' || n, 'MQTT 5', '$session/c' || n, 'disconnected', now(),
                   howdah.shard_of('/', 'session', 'c' || n)
            FROM generate_series(1, 10000) n;
        INSERT INTO howdah.subscription
            (session_id, filter, qos, no_local, retain_as_published, retain_handling)
            SELECT id, 'fleet/' || client_id || '/' || k, 1, false, false, 0
            FROM howdah.session, generate_series(1, 2) k;
        """
    )
    await connection.close()
    async with world(migrated_url) as here:
        assert here.sessions.count == 10_000
        await here.publish("fleet/c77/2", b"hello")
        session = await here.open("c77")
        assert session.stored is not None
        assert await (await here.listen(session.stored.name)).has_bodies(1) == [b"hello"]
