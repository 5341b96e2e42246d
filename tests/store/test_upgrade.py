"""Upgrade: a database of the release before, with all that its gateway has left there, is taken
over without loss."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from queue_core.queues.deduplication_by_message_id import Window
from queue_core.store.operator import migration
from queue_core.store.shards import shard_of, shard_of_queue
from tests.store.sessions import world
from tests.support.managers import House, bodies

FIRST_RELEASE = "0001_initial"

# As a gateway of the first release leaves it when it is killed: the journal is in its third
# generation, the second is not dropped yet, and one segment of each series is open.
LEFT_BEHIND = """
UPDATE howdah.gateway SET epoch = 5, node = 'old', generation = 3, started_at = now(),
    max_message_size = 1000, lineage = gen_random_uuid();
INSERT INTO howdah.ownership
VALUES (5, now(), 'old', '', 0, 0, 40, 30, now());
SELECT howdah.open_generation(2), howdah.open_generation(3);
INSERT INTO howdah.commit_mark (generation, number, messages) VALUES (2, 20, 10), (3, 41, 30);

INSERT INTO howdah.queue (vhost, name, kind, arguments) VALUES
    ('/', 'orders', 'classic', '{}'),
    ('/', 'log', 'stream', '{"x-queue-type": "stream"}'),
    ('/', '$session/sensor', 'classic', '{}'),
    ('/', 'once', 'classic', '{"x-deduplication-window": 60000}'),
    ('/', 'empty', 'classic', '{}');
INSERT INTO howdah.binding (vhost, source, destination_kind, destination, routing_key)
VALUES ('/', 'amq.topic', 'queue', 'orders', 'orders.#');

SELECT howdah.create_segment(), howdah.create_segment(), howdah.create_segment(2);
SELECT howdah.seal_segment(1, 6, 600, now());
INSERT INTO howdah.message (segment_id, queue_id, "offset", enqueued_at, durable, exchange,
                            routing_key, native, body)
SELECT CASE WHEN o < 6 THEN 1 ELSE 2 END, 1, o, now(), true, '', 'orders', ''::bytea,
       convert_to(o::text, 'UTF8')
FROM generate_series(0, 11) o
UNION ALL
SELECT 3, 2, o, now(), true, '', 'log', '', convert_to(o::text, 'UTF8')
FROM generate_series(0, 4) o
UNION ALL
SELECT 2, 3, o, now(), true, 'amq.topic', 'a', '', convert_to('s' || o, 'UTF8')
FROM generate_series(0, 2) o;

-- What an earlier generation says does not count.
INSERT INTO howdah.settlement (generation, seq, queue_id, group_name, floor, acked, is_full)
VALUES (2, 1, 1, '', 12, '{}', true), (2, 2, 2, 'g', 5, '{}', true);
INSERT INTO howdah.settlement
    (generation, seq, queue_id, group_name, floor, acked, is_full, handed_out)
VALUES
    (3, 10, 1, '', 1, '{[3,4)}', true, 8), (3, 11, 1, '', 2, '{[5,6)}', false, 9),
    (3, 14, 1, '', 2, '{[8,10)}', false, 0),
    (3, 12, 2, 'g', 3, '{}', true, 0), (3, 13, 3, '', 1, '{}', true, 2),
    (3, 15, 5, '', 77, '{}', true, 0);
INSERT INTO howdah.redelivery (generation, queue_id, "offset", count, reason)
VALUES (3, 1, 2, 1, 'x'), (3, 1, 2, 2, 'x'), (3, 1, 3, 1, 'settled since'), (2, 1, 4, 9, 'earlier');
INSERT INTO howdah.deduplication (generation, queue_id, message_id, seen_at)
VALUES (3, 4, 'one', now());

INSERT INTO howdah.session (vhost, client_id, protocol, queue_name, state, connected_at)
VALUES ('/', 'sensor', 'MQTT 5', '$session/sensor', 'connected', now());
INSERT INTO howdah.subscription (session_id, filter, qos, no_local, retain_as_published,
                                 retain_handling)
VALUES (1, 'a', 1, false, false, 0);
INSERT INTO howdah.packet
    (generation, seq, session_id, direction, packet_id, state, queue_id, "offset")
VALUES
    (3, 20, 1, 0, 7, 1, NULL, NULL), (3, 21, 1, 1, 9, 1, 3, 1), (3, 22, 1, 1, 9, 2, 3, 1),
    (3, 23, 1, 0, 8, 1, NULL, NULL), (3, 24, 1, 0, 8, 0, NULL, NULL),
    (2, 1, 1, 0, 5, 1, NULL, NULL);
INSERT INTO howdah.will (vhost, client_id, delay_seconds, retain, qos, durable, exchange,
                         routing_key, native, body, user_name, is_built_in)
VALUES ('/', 'sensor', 3600, false, 1, true, 'amq.topic', 'status', '', 'lost', 'anonymous', true);
INSERT INTO howdah.retained (vhost, topic, qos, retained_at, durable, exchange, routing_key,
                             native, body)
VALUES ('/', 'plant/1', 1, now(), true, 'amq.topic', 'plant.1', '', '21');
"""


@pytest.fixture
async def old(migrated_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection to a database of the first release, with what its gateway has left."""
    await migration.downgrade(migrated_url, FIRST_RELEASE)
    connection = await asyncpg.connect(migrated_url)
    await connection.execute(LEFT_BEHIND)
    yield connection
    await connection.close()


async def test_queues_are_taken_over_with_what_is_settled_and_what_failed(
    old: asyncpg.Connection, migrated_url: str
) -> None:
    assert await migration.upgrade(migrated_url) == migration.expected_version()
    house = await House(migrated_url).open()
    try:
        orders = await house.drain("orders")
        assert bodies(orders) == [b"2", b"4", b"6", b"7", b"10", b"11"]
        # Below handed_out, a message may have been in somebody's hands when the gateway ended.
        failures = {each.offset: each.failures for each in orders if each.failures}
        assert failures == {2: 2, 4: 1, 6: 1, 7: 1}
        assert [each.redelivered for each in orders] == [True] * 4 + [False] * 2
        reader, _ = await house.consume("log", group="g")
        assert [each.offset for each in await reader.has(2)] == [3, 4]
        await house.store("orders", b"new")
        assert (await house.drain("orders"))[0].offset == 12
        await house.store("empty", b"new")
        assert (await house.drain("empty"))[0].offset == 77
        await house.store("log", b"new")
        assert [each.offset for each in await reader.has(3)] == [3, 4, 5]
        window = house.manager._database.queues.queues[4].window
        assert isinstance(window, Window)
        assert [message_id for message_id, _ in window.stored()] == ["one"]
    finally:
        await house.close()


async def test_sessions_packets_wills_and_retained_messages_are_taken_over(
    old: asyncpg.Connection, migrated_url: str
) -> None:
    await migration.upgrade(migrated_url)
    async with world(migrated_url) as here:
        session = await here.open("sensor")
        packets = session.state.packets
        assert set(packets) == {(False, 7), (True, 9)}
        assert list(session.state.subscriptions) == ["a"]
        assert await (await here.listen("$session/sensor")).has_bodies(2) == [b"s1", b"s2"]
        kept = [each async for each in here.sessions.retained.match("/", "plant/#")]
        assert [each.message.body for each in kept] == [b"21"]
        assert await old.fetchval("SELECT count(*) FROM howdah.will") == 0  # its client came back


async def test_everything_gets_the_shard_of_its_name(
    old: asyncpg.Connection, migrated_url: str
) -> None:
    await migration.upgrade(migrated_url)
    queues = await old.fetch("SELECT name, shard FROM howdah.queue")
    assert len(queues) == 5
    assert all(row["shard"] == shard_of_queue("/", row["name"]) for row in queues)
    session = shard_of("/", "session", "sensor")
    assert await old.fetchval("SELECT shard FROM howdah.session") == session
    assert await old.fetchval("SELECT shard FROM howdah.will") == session
    retained = await old.fetchval("SELECT shard FROM howdah.retained")
    assert retained == shard_of("/", "retained", "plant/1")


async def test_its_segments_and_generations_are_those_of_all_shards_until_they_are_dropped(
    old: asyncpg.Connection, migrated_url: str
) -> None:
    await migration.upgrade(migrated_url)
    rows = await old.fetch("SELECT id, needed_by FROM howdah.segment ORDER BY id")
    stream = shard_of_queue("/", "log")
    assert [row["needed_by"] for row in rows] == [list(range(64)), None, [stream]]
    assert await old.fetchval("SELECT array_agg(DISTINCT generation) FROM howdah.shard") == [3]
    house = await House(migrated_url).open()
    try:
        assert house.manager.writer.generation > 3
        await house.drain("orders")
        await house.upkeep()
        assert await old.fetchval("SELECT to_regclass('howdah.message_1')") is None
        for number in (1, 2, 3):
            leaf = await old.fetchval("SELECT to_regclass($1)", f"howdah.settlement_{number}")
            assert leaf is None, number
    finally:
        await house.close()


async def test_the_way_back_keeps_what_a_gateway_has_written_since(
    old: asyncpg.Connection, migrated_url: str
) -> None:
    await migration.upgrade(migrated_url)
    house = await House(migrated_url).open()
    generation = house.manager.writer.generation
    await house.close()
    await migration.downgrade(migrated_url, FIRST_RELEASE)
    assert await old.fetchval("SELECT generation FROM howdah.gateway") == generation
    state = "SELECT floor, acked::text FROM howdah.settlement_state WHERE queue = 'orders'"
    assert tuple(await old.fetchrow(state) or ()) == (2, "{[3,4),[5,6),[8,10)}")
