"""One topic space, written by two hands: what matches is the same from each side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.interop.matrix.amqp091_actor import Amqp091
from tests.interop.matrix.amqp10_actor import Amqp10
from tests.interop.matrix.letters import Actor, Cast, Kind, Letter, Place, Verdict
from tests.interop.matrix.mqtt_actor import Mqtt5, Mqtt311
from tests.interop.matrix.sql_actor import Sql
from tests.support.names import fresh

Subscribe = Callable[[Cast, str, str], Actor]

# Topics in slash form, below a name of the test's own, and what each pattern matches of them.
TOPICS = ["a", "a/b", "a/b/c", "a/x/c", "a/b.c", "a/", "a//c", "a/*", "b"]
PATTERNS = [
    #            MQTT      AMQP     matches
    pytest.param("a/+", "a.*", ["a/b", "a/b.c", "a/", "a/*"], id="one level"),
    pytest.param("a/+/c", "a.*.c", ["a/b/c", "a/x/c", "a//c"], id="one level inside"),
    pytest.param("a/#", "a.#", [topic for topic in TOPICS if topic != "b"], id="many levels"),
    pytest.param("#", "#", TOPICS, id="all"),
    pytest.param("+", "*", ["a", "b"], id="one level alone"),
    pytest.param("a/b.c", "a.b/c", ["a/b.c"], id="a dot inside a level"),
    pytest.param("a/b/c", "a.b.c", ["a/b/c"], id="no wildcard"),
    pytest.param("a//c", "a..c", ["a//c"], id="an empty level"),
    pytest.param("a/*", None, ["a/*"], id="MQTT's own star"),
    pytest.param(None, "a.#.c", ["a/b/c", "a/x/c", "a//c"], id="many levels inside"),
    pytest.param(None, "#.c", ["a/b/c", "a/x/c", "a//c"], id="many levels before"),
]


def by_mqtt(make: type[Mqtt311] | type[Mqtt5]) -> Subscribe:
    def subscribe(cast: Cast, mqtt: str, _key: str) -> Actor:
        actor = cast(make)
        actor.subscribe(mqtt)
        return actor

    return subscribe


def by_amqp091(cast: Cast, _filter: str, key: str) -> Actor:
    actor = cast(Amqp091)
    actor.consume(Place(Kind.CLASSIC, actor.bound(key)))
    return actor


def by_amqp10_filter(cast: Cast, mqtt: str, _key: str) -> Actor:
    actor = cast(Amqp10)
    actor.consume(Place(Kind.TOPIC, mqtt))
    return actor


def by_amqp10_key(cast: Cast, _filter: str, key: str) -> Actor:
    actor = cast(Amqp10)
    actor.listen(f"/exchanges/amq.topic/{key.replace('#', '%23').replace('/', '%2F')}")
    return actor


def by_sql_filter(cast: Cast, mqtt: str, _key: str) -> Actor:
    actor = cast(Sql)
    actor.consume(Place(Kind.TOPIC, mqtt))
    return actor


def by_sql_key(cast: Cast, _filter: str, key: str) -> Actor:
    actor = cast(Sql)
    actor.capture("SELECT howdah.bind($1, $2)", key)
    return actor


FILTERS: dict[str, Subscribe] = {
    "mqtt3.1.1": by_mqtt(Mqtt311),
    "mqtt5": by_mqtt(Mqtt5),
    "amqp1.0": by_amqp10_filter,
    "sql": by_sql_filter,
}
KEYS: dict[str, Subscribe] = {
    "amqp0.9.1": by_amqp091,
    "amqp1.0 by key": by_amqp10_key,
    "sql by key": by_sql_key,
}


@pytest.mark.parametrize(("mqtt", "key", "matches"), PATTERNS)
def test_a_pattern_matches_the_same_from_every_side(
    cast: Cast, mqtt: str | None, key: str | None, matches: list[str]
) -> None:
    """Published by each protocol in turn: the topic is the same, whoever writes it."""
    root = fresh("root")
    cast(Mqtt311).subscribe(f"{root}/#")  # 1.0 calls what nobody takes an error
    subscribers: dict[str, Actor] = {}
    if mqtt is not None:
        # a binding cannot write a star that is no wildcard: SQL refuses it
        ways = FILTERS if key is not None else {"mqtt5": FILTERS["mqtt5"]}
        subscribers |= {n: way(cast, f"{root}/{mqtt}", "") for n, way in ways.items()}
    if key is not None:
        subscribers |= {n: way(cast, "", f"{root}.{key}") for n, way in KEYS.items()}
    publishers = [cast(make) for make in (Mqtt311, Amqp091, Amqp10, Sql)]
    for number, topic in enumerate(TOPICS):
        place = Place(Kind.TOPIC, f"{root}/{topic}")
        publishers[number % len(publishers)].publish(place, Letter(topic.encode()))
    seen = {
        name: [each.letter.body.decode() for each in actor.take(len(matches))]
        for name, actor in subscribers.items()
    }
    assert seen == dict.fromkeys(subscribers, matches)
    # what comes next is the next one that matches: there was nothing in between
    last = Place(Kind.TOPIC, f"{root}/{matches[-1]}")
    publishers[0].publish(last, Letter(b"last"))
    after = {name: actor.receive().letter.body for name, actor in subscribers.items()}
    assert after == dict.fromkeys(subscribers, b"last")


def test_a_leading_wildcard_leaves_dollar_topics_alone_on_every_side(cast: Cast) -> None:
    """And a pattern that names the first level gets them."""
    name = fresh("dollar")
    ways = {**FILTERS, **KEYS}
    wild = {each: way(cast, f"+/{name}", f"*.{name}") for each, way in ways.items()}
    named = {each: way(cast, f"$own/{name}", f"$own.{name}") for each, way in ways.items()}
    publisher = cast(Amqp091)
    publisher.publish(Place(Kind.TOPIC, f"$own/{name}"), Letter(b"dollar"))
    publisher.publish(Place(Kind.TOPIC, f"plain/{name}"), Letter(b"plain"))
    assert {each: actor.receive().letter.body for each, actor in named.items()} == dict.fromkeys(
        named, b"dollar"
    )
    assert {each: actor.receive().letter.body for each, actor in wild.items()} == dict.fromkeys(
        wild, b"plain"
    )


def test_shared_subscriptions_and_competing_consumers_each_get_every_message_once(
    cast: Cast, house: Amqp091
) -> None:
    """A share of MQTT and a queue of AMQP take the same topic: each has its own copy of each
    message, and divides it among its own."""
    topic = f"{fresh('work')}/jobs"
    queue = house.declare(fresh("workers"))
    house.channel.queue_bind(queue.name, "amq.topic", topic.replace("/", "."))
    share = fresh("share")
    members: list[Actor] = []
    for make in (Mqtt5, Mqtt311):
        member = cast(make)
        member.subscribe(f"$share/{share}/{topic}")
        members.append(member)
    workers: list[Actor] = [cast(Amqp091, credit=2), cast(Amqp10, credit=2), cast(Mqtt5, credit=2)]
    for worker in workers:
        worker.consume(queue)
    count = 6
    for number in range(count):
        house.publish(Place(Kind.TOPIC, topic), Letter(b"%d" % number))
    of_share = Counter(
        each.letter.body for member in members for each in member.take(count // len(members))
    )
    of_queue: Counter[bytes] = Counter()
    for worker in workers:
        for each in worker.take(2):
            worker.settle(each, Verdict.ACCEPT)
            of_queue[each.letter.body] += 1
        worker.settled()
    assert of_share == of_queue == Counter(b"%d" % number for number in range(count))


def test_a_queue_that_is_bound_twice_gets_one_copy(cast: Cast) -> None:
    root = fresh("twice")
    twice = cast(Amqp091)
    twice.consume(Place(Kind.CLASSIC, twice.bound(f"{root}.#", f"{root}.*.c")))
    publisher = cast(Mqtt311)
    publisher.publish(Place(Kind.TOPIC, f"{root}/b/c"), Letter(b"first"))
    publisher.publish(Place(Kind.TOPIC, f"{root}/b/c"), Letter(b"second"))
    assert [each.letter.body for each in twice.take(2)] == [b"first", b"second"]
