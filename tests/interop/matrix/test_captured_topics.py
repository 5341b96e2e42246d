"""Captured topics: a durable queue or stream that is bound to a topic filter takes every match, and
the publisher's acknowledgement waits for its commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.interop.matrix.amqp091_actor import Amqp091
from tests.interop.matrix.amqp10_actor import Amqp10
from tests.interop.matrix.letters import Actor, Cast, Kind, Letter, Place, Verdict
from tests.interop.matrix.mqtt_actor import Mqtt5, Mqtt311
from tests.interop.matrix.sql_actor import Sql
from tests.support.names import fresh
from tests.support.until import PATIENCE_SECONDS

Bind = Callable[[Cast, str, str], None]
PUBLISHERS: dict[str, type[Actor]] = {
    "mqtt3.1.1": Mqtt311,
    "mqtt5": Mqtt5,
    "amqp0.9.1": Amqp091,
    "amqp1.0": Amqp10,
}
WAITING = """
SELECT EXISTS (
    SELECT FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
    WHERE NOT l.granted AND c.relnamespace = 'howdah'::regnamespace AND c.relname LIKE 'message%')
"""


def by_amqp091(cast: Cast, queue: str, topic_filter: str) -> None:
    key = topic_filter.replace("+", "*").translate(str.maketrans("./", "/."))
    cast(Amqp091).channel.queue_bind(queue, "amq.topic", key)


def by_command(cast: Cast, queue: str, topic_filter: str) -> None:
    done = cast.gateway.run("queue", "bind", queue, "--topic", topic_filter)
    assert done.returncode == 0, done.stderr


def by_sql(cast: Cast, queue: str, topic_filter: str) -> None:
    cast(Sql).command("SELECT howdah.bind_topic($1, $2)", queue, topic_filter)


BINDINGS: dict[str, Bind] = {"amqp0.9.1": by_amqp091, "command": by_command, "sql": by_sql}


def declared(house: Amqp091, kind: Kind) -> Place:
    words = {"x_queue_type": "stream"} if kind is Kind.STREAM else {}
    return house.declare(fresh("captured"), **words)


@pytest.mark.parametrize("kind", [Kind.CLASSIC, Kind.STREAM], ids=lambda kind: kind.value)
@pytest.mark.parametrize("bound_by", BINDINGS)
def test_a_captured_topic_keeps_every_match_of_every_publisher(
    cast: Cast, house: Amqp091, bound_by: str, kind: Kind
) -> None:
    root = fresh("plant")
    queue = declared(house, kind)
    BINDINGS[bound_by](cast, queue.name, f"{root}/+/v1.2/#")
    cast(Mqtt311).subscribe(f"{root}/#")  # somebody takes what is not captured
    expected = []
    everybody: dict[str, type[Actor]] = {**PUBLISHERS, "sql": Sql}
    for name, make in everybody.items():
        publisher = cast(make)
        for topic in ("7/v1.2", "7/v1.2/a/b", "7/v1/2", "7/8/v1.2"):
            publisher.publish(
                Place(Kind.TOPIC, f"{root}/{topic}"), Letter(f"{name} {topic}".encode())
            )
        expected += [f"{name} 7/v1.2".encode(), f"{name} 7/v1.2/a/b".encode()]
    consumer = cast(Amqp10)
    consumer.consume(queue)
    received = consumer.take(len(expected))
    assert [each.letter.body for each in received] == expected
    for each in received:
        consumer.settle(each, Verdict.ACCEPT)
    consumer.settled()
    left = cast(Sql)
    remaining = 0 if kind is Kind.CLASSIC else len(expected)
    left.until("SELECT count(*) = $2 FROM howdah.peek($1, 100)", queue.name, remaining)


@pytest.fixture
def helper() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as helper:
        yield helper


@pytest.mark.parametrize("kind", [Kind.CLASSIC, Kind.STREAM], ids=lambda kind: kind.value)
@pytest.mark.parametrize("publisher_of", PUBLISHERS)
def test_the_acknowledgement_waits_for_the_commit_of_the_captured_copy(
    cast: Cast, house: Amqp091, helper: ThreadPoolExecutor, publisher_of: str, kind: Kind
) -> None:
    """While somebody holds a lock that the commit needs there is none; when it goes, it comes."""
    topic = f"{fresh('plant')}/temperature"
    queue = declared(house, kind)
    by_amqp091(cast, queue.name, topic)
    live = cast(Mqtt5)
    live.subscribe(topic)
    publisher, locker, watcher = cast(PUBLISHERS[publisher_of]), cast(Sql), cast(Sql)
    locker.execute("BEGIN")
    locker.execute("LOCK TABLE howdah.message IN SHARE MODE")
    try:
        published = helper.submit(publisher.publish, Place(Kind.TOPIC, topic), Letter(b"21.5"))
        watcher.until(WAITING)
        # The live subscriber has it, and a whole round trip of another client's would have let an
        # early acknowledgement arrive.
        assert bytes(live.next().payload) == b"21.5"
        other = f"{topic}/other"
        live.subscribe(other)
        live.client.publish(other, b"transient", 0)
        assert bytes(live.next().payload) == b"transient"
        assert not published.done()
    finally:
        locker.execute("COMMIT")
    published.result(PATIENCE_SECONDS)
    consumer = cast(Amqp10)
    consumer.consume(queue)
    assert consumer.receive().letter.body == b"21.5"
