"""Retained messages on PostgreSQL: last values that later subscribers get."""

from __future__ import annotations

import asyncpg
import pytest

from queue_core.errors import LimitExceeded
from queue_core.message.message import Message, Properties
from queue_core.sessions.retained import MAX_CACHED_VALUE_BYTES, PAGE_TOPICS, Kept, RetainedSettings
from queue_core.sessions.session import SessionSettings
from tests.store.sessions import World, world
from tests.support.clock import Clock


async def retain(
    here: World, topic: str, body: bytes, qos: int = 1, expires_at: float | None = None
) -> None:
    """Published, and committed when this returns."""
    submit(here, topic, body, qos, expires_at)
    await here.manager.writer.flushed()


def submit(
    here: World, topic: str, body: bytes, qos: int = 1, expires_at: float | None = None
) -> None:
    """Published, and on its way to the disk."""
    message = Message(
        body,
        topic=topic,
        retain=True,
        expires_at=expires_at,
        properties=Properties(content_type="text/plain", headers=(("unit", "C"),)),
    )
    record = here.sessions.retained.record("/", message, qos)
    here.vhost.publish(message, None, 0, (record,))


async def match(here: World, topic_filter: str) -> list[Kept]:
    return [kept async for kept in here.sessions.retained.match("/", topic_filter)]


async def values(here: World, topic_filter: str) -> dict[str, bytes]:
    return {kept.message.topic: kept.message.body for kept in await match(here, topic_filter)}


async def test_a_topics_last_value_is_there_for_later_subscribers(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        await retain(here, "plant/1/temp", b"20")
        await retain(here, "plant/1/temp", b"21", qos=2)
        [kept] = await match(here, "plant/+/temp")
        assert (kept.message.body, kept.qos, kept.message.retain) == (b"21", 2, True)
        assert kept.retained_at == here.clock.now


async def test_who_subscribes_just_after_a_value_was_published_gets_it(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        await retain(here, "a", b"old")
        submit(here, "a", b"new")
        submit(here, "b", b"1")
        assert await values(here, "#") == {"a": b"new", "b": b"1"}


async def test_a_virtual_host_that_is_made_anew_begins_without_values(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        manager, vhosts = here.manager, here.manager.stored_vhosts
        await vhosts.add("again")
        await manager.refresh_vhosts()
        message = Message(b"1", topic="a", retain=True)
        record = here.sessions.retained.record("again", message, 1)
        manager.vhosts["again"].publish(message, None, 0, (record,))
        await manager.writer.flushed()
        await vhosts.remove("again")
        await manager.refresh_vhosts()
        await vhosts.add("again")
        await manager.refresh_vhosts()
        found = [kept async for kept in here.sessions.retained.match("again", "#")]
        assert (found, here.sessions.retained.count) == ([], 0)


async def test_values_survive_a_restart_with_all_they_say(migrated_url: str) -> None:
    large = b"x" * (MAX_CACHED_VALUE_BYTES + 1)
    async with world(migrated_url) as here:
        await retain(here, "plant/1/temp", b"20")
        await retain(here, "plant/1/picture", large)
        await retain(here, "other", b"1")
    async with world(migrated_url) as here:
        assert await values(here, "plant/#") == {"plant/1/temp": b"20", "plant/1/picture": large}
        [kept] = await match(here, "plant/1/temp")
        assert kept.message.properties.content_type == "text/plain"
        assert kept.message.properties.headers == (("unit", "C"),)
        assert kept.message.retain


async def test_an_empty_body_clears_the_topic(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        await retain(here, "a", b"1")
        await retain(here, "a", b"")
        assert await match(here, "#") == []
    async with world(migrated_url) as here:
        assert await match(here, "#") == []
        assert here.sessions.retained.count == 0


async def test_filters_match_as_they_do_for_subscriptions(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        for topic in ("a", "a/b", "a/b/c", "/a", "$SYS/a", "d/b"):
            await retain(here, topic, b"1")
        for topic_filter, wanted in {
            "#": {"a", "a/b", "a/b/c", "/a", "d/b"},
            "+": {"a"},
            "+/+": {"a/b", "/a", "d/b"},
            "a/#": {"a", "a/b", "a/b/c"},
            "+/b/#": {"a/b", "a/b/c", "d/b"},
            "$SYS/#": {"$SYS/a"},
            "$SYS/+": {"$SYS/a"},
            "a/b": {"a/b"},
            "nothing": set(),
        }.items():
            assert set(await values(here, topic_filter)) == wanted, topic_filter


async def test_what_has_expired_is_neither_delivered_nor_kept(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        await retain(here, "short", b"1", expires_at=here.clock.now + 10)
        await retain(here, "long", b"1", expires_at=here.clock.now + 1000)
        here.clock.now += 10
        assert set(await values(here, "#")) == {"long"}
        await here.idle()
        assert await _count(migrated_url) == 1


async def test_what_expires_is_removed_also_when_nobody_asks(migrated_url: str) -> None:
    clock = Clock()
    async with world(migrated_url, clock) as here:
        await retain(here, "seen", b"1", expires_at=clock.now + 30)
        await retain(here, "stays", b"1")
        await here.pass_time(60)
        assert await _count(migrated_url) == 1
        await retain(here, "later", b"1", expires_at=clock.now + 30)
    clock.now += 40
    async with world(migrated_url, clock) as here:
        await here.pass_time(60)
        assert await _count(migrated_url) == 1
        assert here.sessions.retained.count == 1


async def test_a_newer_value_is_not_taken_for_the_one_that_expired(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        await retain(here, "a", b"old", expires_at=here.clock.now + 10)
        here.clock.now += 10
        await match(here, "a")  # finds it expired, and sees to its removal
        await retain(here, "a", b"new")
        await here.idle()
        assert await values(here, "a") == {"a": b"new"}


async def test_more_topics_than_are_read_at_once_all_come(migrated_url: str) -> None:
    many = PAGE_TOPICS * 2 + 7
    connection = await asyncpg.connect(migrated_url)
    await connection.execute(
        """INSERT INTO howdah.retained (vhost, topic, qos, retained_at, durable, exchange,
            routing_key, body, shard)
        SELECT '/', 'fleet/' || n, 0, now(), false, 'amq.topic', 'fleet.' || n, 'x'::bytea,
               howdah.shard_of('/', 'retained', 'fleet/' || n)
        FROM generate_series(1, $1) n""",
        many,
    )
    await connection.close()
    async with world(migrated_url) as here:
        assert len(await values(here, "fleet/+")) == many


async def test_a_value_read_back_does_not_hide_a_newer_one(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        await retain(here, "a", b"old")
    async with world(migrated_url) as here:
        reading = here.sessions.retained.match("/", "a")
        assert (await anext(reading)).message.body == b"old"
        await retain(here, "a", b"new" * MAX_CACHED_VALUE_BYTES)  # too large for the cache
        assert (await values(here, "a"))["a"].startswith(b"new")
        await retain(here, "a", b"newest")
        assert await values(here, "a") == {"a": b"newest"}


async def test_limits_on_number_bytes_and_length_are_refused_by_name(migrated_url: str) -> None:
    narrow = SessionSettings(retained=RetainedSettings(max_topics=1, max_bytes=10))
    async with world(migrated_url, settings=narrow) as here:
        await retain(here, "a", b"123456")
    async with world(migrated_url, settings=narrow) as here:  # what was there counts
        record = here.sessions.retained.record
        with pytest.raises(LimitExceeded, match="1 topics"):
            record("/", Message(b"1", topic="b"), 0)
        with pytest.raises(LimitExceeded, match="bytes of 10"):
            record("/", Message(b"x" * 11, topic="a"), 0)
        record("/", Message(b"x" * 10, topic="a"), 0)  # for the six that are there
        record("/", Message(b"", topic="b"), 0)
        with pytest.raises(LimitExceeded, match="2000 bytes"):
            record("/", Message(b"1", topic="x" * 2001), 0)


async def test_values_that_wait_for_the_disk_count_as_what_waits(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        writer = here.manager.writer
        message = Message(b"x" * 8 * 1024 * 1024, topic="a", retain=True)
        for _ in range(5):  # nobody subscribes: the table is all that they are written to
            record = here.sessions.retained.record("/", message, 1)
            here.vhost.publish(message, None, 0, (record,))
        assert writer.is_congested
        await writer.uncongested()
        await writer.flushed()
        assert not writer.is_congested


async def test_the_longest_topic_that_is_taken_can_be_stored(migrated_url: str) -> None:
    topic = "".join(chr(0x4E00 + n * 7 % 20000) for n in range(666))  # does not compress well
    async with world(migrated_url) as here:
        await retain(here, topic, b"1")
        assert await values(here, topic) == {topic: b"1"}


async def _count(url: str) -> int:
    connection = await asyncpg.connect(url)
    count: int = await connection.fetchval("SELECT count(*) FROM howdah.retained")
    await connection.close()
    return count
