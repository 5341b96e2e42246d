"""The matrix: every publisher, every consumer, every kind of place; and every way to settle, seen
by every protocol."""

from __future__ import annotations

import pytest

from tests.interop.matrix.amqp091_actor import Amqp091
from tests.interop.matrix.amqp10_actor import Amqp10
from tests.interop.matrix.letters import Actor, Cast, Kind, Letter, Place, Verdict
from tests.interop.matrix.mqtt_actor import Mqtt5, Mqtt311
from tests.interop.matrix.reason_actor import Mqtt5Reasons
from tests.interop.matrix.sql_actor import Sql
from tests.support.names import fresh

ACTORS = {
    "mqtt3.1.1": Mqtt311,
    "mqtt5": Mqtt5,
    "amqp0.9.1": Amqp091,
    "amqp1.0": Amqp10,
    "sql": Sql,
}
Kinds = type[Actor]
anybody = [pytest.param(actor, id=name) for name, actor in ACTORS.items()]
ANSWERS = fresh("answers")
LETTERS = [
    Letter(
        body=b"\x00\xff first",
        content_type="application/json",
        content_encoding="gzip",
        correlation_id="c-1",
        reply_to=ANSWERS,
        message_id="m-1",
        subject="order.created",
        priority=7,
        headers=(("region", "eu"), ("größe", "10 cm"), ("empty", "")),
    ),
    Letter(body=b"", headers=(("n", "2"),), priority=7),
    Letter(body=b"x" * 70_000, content_type="text/plain", priority=7),
]


def place_for(kind: Kind, house: Amqp091) -> Place:
    if kind is Kind.TOPIC:
        return Place(kind, f"{fresh('plant')}/v1.2/temperature")
    if kind is Kind.STREAM:
        return house.declare(fresh("stream"), x_queue_type="stream")
    return house.declare(fresh("queue"))


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.value)
@pytest.mark.parametrize("consumer_of", anybody)
@pytest.mark.parametrize("publisher_of", anybody)
def test_what_is_published_is_what_is_consumed(
    cast: Cast, house: Amqp091, publisher_of: Kinds, consumer_of: Kinds, kind: Kind
) -> None:
    """Body, properties, headers and order; flagged by nobody, since nobody had it before."""
    house.channel.queue_declare(ANSWERS, durable=True)
    publisher, consumer = cast(publisher_of), cast(consumer_of)
    place = place_for(kind, house)
    comes_first = kind is Kind.TOPIC or (kind is Kind.STREAM and not consumer.reads_back)
    if comes_first:
        consumer.consume(place)
    for letter in LETTERS:
        publisher.publish(place, letter)
    if not comes_first:
        consumer.consume(place)
    received = consumer.take(len(LETTERS))
    common = publisher.says & consumer.hears
    if not (publisher.orders_headers and consumer.orders_headers):
        common -= {"headers"}
        assert [dict(each.letter.headers) for each in received] == [
            dict(letter.headers) if "headers" in publisher.says else {} for letter in LETTERS
        ] or "headers" not in consumer.hears
    assert [each.letter.only(common) for each in received] == [
        letter.only(common) for letter in LETTERS
    ]
    assert [each.redelivered for each in received] == [False] * len(LETTERS)
    assert {each.failures for each in received} <= {0, None}


SETTLERS: dict[str, Kinds] = {**ACTORS, "mqtt5 by reason code": Mqtt5Reasons}
settlers = [
    pytest.param(actor, verdict, id=f"{name} {verdict.name.lower()}s")
    for name, actor in SETTLERS.items()
    for verdict in Verdict
    if verdict in actor.verdicts
]


@pytest.mark.parametrize("observer_of", anybody)
@pytest.mark.parametrize(("settler_of", "verdict"), settlers)
def test_a_verdict_means_the_same_to_everybody(
    cast: Cast, house: Amqp091, settler_of: Kinds, verdict: Verdict, observer_of: Kinds
) -> None:
    dead = house.declare(fresh("dead"))
    place = house.declare(
        fresh("work"), x_dead_letter_exchange="", x_dead_letter_routing_key=dead.name
    )
    house.publish(place, Letter(b"first"))
    house.publish(place, Letter(b"second"))
    settler = cast(settler_of)
    settler.consume(place)
    first, _ = settler.take(2)
    settler.stop()
    if verdict is not Verdict.CUT:
        settler.settle(first, verdict)
        settler.settled()
        settler.close()  # so that the second one is free for the observer
    else:
        settler.cut()
    # Confirmed after what was settled before it: SQL sees what is committed.
    house.publish(house.declare(fresh("behind")), Letter(b"behind"))
    observer = cast(observer_of)
    observer.consume(place)
    seen = observer.receive()
    if verdict in (Verdict.ACCEPT, Verdict.REJECT):
        assert seen.letter.body == b"second"
    else:
        assert seen.letter.body == b"first"
        failures = 0 if verdict is Verdict.RELEASE else 1
        assert seen.failures in (failures, None)
        # the database has no flag: it tells how often a delivery failed
        assert seen.redelivered or (observer_of is Sql and failures == 0)
    if verdict is Verdict.REJECT:
        mourner = cast(observer_of)
        mourner.consume(dead)
        lost = mourner.receive()
        assert lost.letter.body == b"first"
        if observer_of is not Mqtt311:  # which has no words for it
            assert (lost.died_in, lost.reason) == (place.name, "rejected")


readers = [
    pytest.param(actor, verdict, id=f"{name} {verdict.name.lower()}s")
    for name, actor in ACTORS.items()
    for verdict in (Verdict.ACCEPT, Verdict.RELEASE, Verdict.REJECT)
    if verdict in actor.verdicts
]


@pytest.mark.parametrize(("reader_of", "verdict"), readers)
def test_a_stream_loses_nothing_and_requeues_nothing(
    cast: Cast, house: Amqp091, reader_of: Kinds, verdict: Verdict
) -> None:
    """Whatever a reader says of a message, the next one comes, and the others read them all."""
    stream = house.declare(fresh("stream"), x_queue_type="stream")
    reader = cast(reader_of, credit=1)
    reader.consume(stream)
    for number in range(4):
        house.publish(stream, Letter(b"%d" % number))
    bodies = []
    for _ in range(4):
        received = reader.receive()
        bodies.append(received.letter.body)
        assert not received.redelivered
        reader.settle(received, verdict)
    assert bodies == [b"0", b"1", b"2", b"3"]
    reader.settled()
    for other_of in (Mqtt5, Amqp091, Amqp10, Sql):
        other = cast(other_of)
        other.consume(stream)
        assert [each.letter.body for each in other.take(4)] == bodies
