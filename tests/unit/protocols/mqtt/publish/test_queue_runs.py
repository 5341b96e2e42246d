"""Publishes that lead into one queue and came in a row: taken together, and answered as if they had
come one by one. Nothing is acknowledged before the writer says that it is committed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.mqtt.deliver.delivering import Deliverer
from protocols.mqtt.deliver.send_window import Outbound
from protocols.mqtt.publish.acknowledgements import Inbound
from protocols.mqtt.publish.fast_path import take_hot
from protocols.mqtt.publish.known_topics import KnownTopic
from protocols.mqtt.publish.publishing import Publishing
from protocols.mqtt.wire.codec import decode, split
from protocols.mqtt.wire.encoder import encode
from protocols.mqtt.wire.packets import Packet, PubAck, Publish, Version
from protocols.mqtt.wire.property_set import PropertySet
from protocols.mqtt.wire.reasons import ReasonCode
from queue_core.commit.queue_log import Log
from queue_core.commit.unit import Unit
from queue_core.delivery.consumer import ConsumerSpec
from queue_core.errors import CoreError, InvalidArgument
from queue_core.message.message import Message
from queue_core.queues.classic import ClassicQueue
from queue_core.queues.ephemeral import EphemeralQueue
from queue_core.queues.queue import Queue
from queue_core.queues.spec import QueueSpec
from queue_core.routing.router import Router
from queue_core.sessions.subscription import Subscription
from queue_core.vhost import Vhost
from tests.support.contexts import queue_context
from tests.unit.protocols.mqtt.fake_connection import Link, Session, terms_of

LIMIT = 1 << 20
MAXIMUM = 20  # messages that may be open at once
SAID = PropertySet(content_type="text/csv", user=(("unit", "K"),))
VERSIONS = [Version.V311, Version.V5]


class Writer:
    """Commits when it is told to."""

    def __init__(self) -> None:
        self.units: list[Unit] = []

    def submit(self, unit: Unit) -> None:
        self.units.append(unit)

    def note(self, cursor: object) -> None: ...

    def commit(self) -> None:
        units, self.units = self.units, []
        for unit in units:
            for log, entry in unit.appends:
                entry.offset = log.next_offset
                log.next_offset += 1
                log.commit([entry])
            if unit.publisher is not None:
                unit.publisher.on_committed(list(unit.tokens))

    @property
    def messages(self) -> list[Message]:
        return [entry.message for unit in self.units for _, entry in unit.appends]


class Stage:
    """A vhost with one queue of each kind, and a publisher that knows its way to them."""

    def __init__(self, version: Version, **arguments: object) -> None:
        self.version = version
        self.writer, none = Writer(), None
        router = Router[Queue]()
        self.vhost = Vhost(
            "/",
            router,
            queue_context(router, writer=self.writer, journal=self.writer),
            self.writer,  # type: ignore[arg-type]
            none,  # type: ignore[arg-type]
            none,  # type: ignore[arg-type]
        )
        words = {"x-" + name.replace("_", "-"): value for name, value in arguments.items()}
        spec = QueueSpec.parse("q", words)
        log = Log(1, 0, is_stream=False)
        self.queue = ClassicQueue(spec, self.vhost.context, log, none)  # type: ignore[arg-type]
        self.passing = EphemeralQueue(QueueSpec.parse("e", {}, durable=False), self.vhost.context)
        self.vhost.add_queue(self.queue)
        self.vhost.add_queue(self.passing)
        self.vhost.subscribe("captured", self.queue)
        self.link = Link()
        deliverer = self._deliverer(self.link, version)
        ignore: Any = lambda _: None  # noqa: E731
        terms = terms_of(self.link, Session(self.vhost), version)
        inbound = Inbound(self.link.out.append, version, MAXIMUM, ignore, ignore)
        self.publishing = Publishing(terms, inbound, none)  # type: ignore[arg-type]
        self.deliverer = deliverer
        for known in (
            KnownTopic("$queue/q", self.queue, "q"),
            KnownTopic("$queue/e", self.passing, "e"),
            KnownTopic("captured"),
            KnownTopic("live"),
        ):
            self.publishing.topics[known.name.encode()] = known

    def _deliverer(self, link: Link, version: Version) -> Deliverer:
        terms = terms_of(link, Session(self.vhost), version)
        return Deliverer(terms, Outbound(1000), 1000, None)

    def subscriber(self) -> None:
        """Somebody who is there, to `live`."""
        queue = EphemeralQueue(QueueSpec.parse("own", {}, durable=False), self.vhost.context)
        self.vhost.add_queue(queue)
        deliverer = self._deliverer(Link(), self.version)
        consumer = queue.consume(deliverer, ConsumerSpec(auto_settle=True))
        deliverer.attach(consumer)
        consumer.wake()
        self.vhost.subscribe("live", queue, Subscription("live", 1))

    def take(self, *packets: Packet) -> int:
        """How many of them were taken the short way."""
        for topic in ("captured", "live"):
            self.vhost.router.route_topic(topic)
        frames = [encode(packet, self.version) for packet in packets]
        raw = b"".join(frames)
        end = take_hot(self.publishing, self.deliverer, raw, 0, LIMIT)
        ends = [len(b"".join(frames[:count])) for count in range(len(frames) + 1)]
        return ends.index(end)

    def heard(self) -> list[Any]:
        raw, found, position = b"".join(self.link.out), [], 0
        while position < len(raw):
            frame = split(raw, position, LIMIT)
            assert frame is not None
            found.append(decode(frame.head, raw[frame.start : frame.end], self.version))
            position = frame.end
        return found

    def answers(self) -> list[tuple[int, int]]:
        return [(packet.packet_id, packet.reason) for packet in self.heard()]


def row(
    count: int,
    topic: str = "$queue/q",
    first: int = 1,
    qos: int = 1,
    properties: PropertySet = PropertySet(),  # noqa: B008
) -> list[Publish]:
    return [
        Publish(topic, b"%d" % i, qos, packet_id=(first + i) * bool(qos), properties=properties)
        for i in range(count)
    ]


def facts(message: Message) -> tuple[object, ...]:
    return (
        message.body,
        message.exchange,
        message.routing_key,
        message.topic,
        message.durable,
        message.form,
        message.native,
        message.publisher,
        message.properties,
    )


@pytest.mark.parametrize("topic", ["$queue/q", "captured"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_row_is_one_unit_of_the_writer(version: Version, topic: str) -> None:
    """Else this would test nothing."""
    stage = Stage(version)
    assert stage.take(*row(12, topic)) == 12
    assert [len(unit.appends) for unit in stage.writer.units] == [12]


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_is_acknowledged_before_its_commit_and_all_in_order_then(version: Version) -> None:
    stage = Stage(version)
    stage.take(*row(5), *row(3, "captured", first=6), *row(1, first=9), *row(4, first=10))
    assert stage.link.out == []
    stage.writer.commit()
    assert stage.answers() == [(i, 0) for i in range(1, 14)]
    assert stage.queue.cursor.ready.count() == 13


@st.composite
def streams(draw: st.DrawFn, version: Version) -> list[Publish]:
    said = st.sampled_from([PropertySet(), SAID]) if version is Version.V5 else st.just(None)
    parts = draw(
        st.lists(
            st.tuples(
                st.sampled_from(["$queue/q", "$queue/e", "captured", "live"]),
                st.sampled_from([0, 1, 1]),
                st.sampled_from([b"", b"x", b"y" * 130]),
                said,
                st.integers(1, 4),
            ),
            max_size=5,
        )
    )
    flat = [part for part in parts for _ in range(part[-1])]
    return [
        Publish(topic, body, qos, packet_id=(i + 1) * qos, properties=said or PropertySet())
        for i, (topic, qos, body, said, _) in enumerate(flat)
    ]


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=100)
@given(data=st.data())
def test_a_run_is_taken_as_if_one_by_one(version: Version, data: st.DataObject) -> None:
    packets = data.draw(streams(version))
    whole, single = Stage(version), Stage(version)
    for stage in (whole, single):
        stage.subscriber()
    assert whole.take(*packets) == len(packets)
    for packet in packets:
        assert single.take(packet) == 1
    assert list(map(facts, whole.writer.messages)) == list(map(facts, single.writer.messages))
    assert whole.answers() == single.answers()
    for stage in (whole, single):
        stage.writer.commit()
    assert whole.answers() == single.answers()
    assert [each for each, _ in whole.answers()] == [p.packet_id for p in packets if p.qos]
    counts = [stage.vhost.context.counters.published for stage in (whole, single)]
    assert counts[0] == counts[1] == len(packets)
    for stage in (whole, single):
        assert stage.passing.cursor.ready.count() == sum(p.topic == "$queue/e" for p in packets)


def test_answers_of_queues_in_memory_stay_behind_those_before_them() -> None:
    """[MQTT-4.6.0-2]"""
    stage = Stage(Version.V5)
    stage.subscriber()
    packets = [*row(2, "live"), *row(1, "$queue/e", first=3), *row(2, "live", first=4)]
    packets += row(3, "$queue/e", first=6)
    assert stage.take(*packets) == 8
    assert stage.answers() == [(i, 0) for i in range(1, 9)]


def test_answers_of_queues_in_memory_wait_for_commits_before_them() -> None:
    """[MQTT-4.6.0-2]"""
    stage = Stage(Version.V5)
    assert stage.take(*row(2), *row(3, "$queue/e", first=3)) == 5
    assert stage.answers() == []
    stage.writer.commit()
    assert stage.answers() == [(i, 0) for i in range(1, 6)]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(Publish("$queue/q", b"x", 2, packet_id=9), id="QoS 2"),
        pytest.param(Publish("$queue/q", b"x", 1, packet_id=9, dup=True), id="DUP"),
        pytest.param(Publish("$queue/q", b"x", 1, packet_id=9, retain=True), id="retain"),
        pytest.param(
            Publish("$queue/q", b"x", 1, packet_id=9, properties=PropertySet(message_expiry=5)),
            id="an expiry",
        ),
        pytest.param(Publish("$queue/other", b"x", 1, packet_id=9), id="a topic that is new"),
    ],
)
def test_a_run_ends_at_what_is_unlike_it(other: Publish) -> None:
    """A packet unlike the run is left to the codec."""
    stage = Stage(Version.V5)
    assert stage.take(*row(4), other, *row(4, first=20)) == 4
    assert [message.body for message in stage.writer.messages] == [b"0", b"1", b"2", b"3"]


def test_a_run_ends_at_an_identifier_of_zero() -> None:
    """[MQTT-2.2.1-2]: the codec says what is wrong with it."""
    stage = Stage(Version.V311)
    raw = b"".join(encode(packet, stage.version) for packet in row(3))
    bad = bytearray(encode(row(1)[0], stage.version))
    at = bad.index(b"$queue/q") + 8
    bad[at : at + 2] = b"\0\0"
    end = take_hot(stage.publishing, stage.deliverer, raw + bytes(bad), 0, LIMIT)
    assert end == len(raw)


def test_mqtt_3_3_4_7_a_run_is_no_longer_than_the_receive_maximum() -> None:
    stage = Stage(Version.V5)
    assert stage.take(*row(5)) == 5
    assert stage.take(*row(MAXIMUM, first=6)) == MAXIMUM - 5
    stage.writer.commit()
    assert stage.take(*row(MAXIMUM + 1, first=100)) == MAXIMUM
    stage = Stage(Version.V311)  # which knows none
    assert stage.take(*row(3 * MAXIMUM)) == 3 * MAXIMUM


def test_the_same_identifier_again_is_another_message() -> None:
    """QoS 1 is at least once: each PUBLISH is stored, and each answered."""
    stage = Stage(Version.V5)
    packets = [Publish("$queue/q", b"%d" % i, 1, packet_id=7) for i in range(3)]
    assert stage.take(*packets) == 3
    stage.writer.commit()
    assert stage.answers() == [(7, 0)] * 3
    assert stage.queue.cursor.ready.count() == 3


def test_a_full_queue_refuses_the_right_ones_of_a_row() -> None:
    stage = Stage(Version.V5, max_length=3, overflow="reject-publish")
    assert stage.take(*row(6, properties=SAID)) == 6
    stage.writer.commit()
    full = ReasonCode.QUOTA_EXCEEDED
    assert stage.answers() == [(1, 0), (2, 0), (3, 0), (4, full), (5, full), (6, full)]
    assert stage.queue.cursor.ready.count() == 3


def test_a_full_queue_in_memory_refuses_the_right_ones_of_a_row() -> None:
    stage = Stage(Version.V5)
    spec = QueueSpec.parse("f", {"x-max-length": 2, "x-overflow": "reject-publish"}, durable=False)
    queue = EphemeralQueue(spec, stage.vhost.context)
    stage.publishing.topics[b"$queue/f"] = KnownTopic("$queue/f", queue, "f")
    assert stage.take(*row(3, "$queue/f")) == 3
    assert stage.answers() == [(1, 0), (2, 0), (3, ReasonCode.QUOTA_EXCEEDED)]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_store_refuses_of_a_row_is_answered_by_its_own_identifier(
    version: Version,
) -> None:
    """3.x has no word for it, and ends."""
    stage, refused = Stage(version), list[CoreError]()
    stage.publishing.inbound.refuse = refused.append
    stage.take(*row(4, first=11))
    (unit,) = stage.writer.units
    bad = InvalidArgument("it cannot be stored")
    inbound = stage.publishing.inbound
    first, second, third, fourth = unit.tokens
    inbound.on_refused([second], bad)
    assert stage.answers() == []
    inbound.on_committed([first])
    inbound.on_committed([third, fourth])
    if version is Version.V5:
        reason = stage.answers()[1][1]
        assert reason >= 0x80
        assert stage.answers() == [(11, 0), (12, reason), (13, 0), (14, 0)]
    else:
        assert refused == [bad]


def test_a_queue_that_wants_to_see_each_message_gets_each() -> None:
    """Deduplication, time to live: their messages go one by one."""
    stage = Stage(Version.V5, message_ttl=1000)
    assert stage.take(*row(3)) == 3
    assert [len(unit.appends) for unit in stage.writer.units] == [1, 1, 1]
    assert all(entry.expires_at for unit in stage.writer.units for _, entry in unit.appends)


def test_qos_0_goes_in_runs_as_well() -> None:
    stage = Stage(Version.V5)
    assert stage.take(*row(5, qos=0)) == 5
    assert [len(unit.appends) for unit in stage.writer.units] == [5]
    assert not any(message.durable for message in stage.writer.messages)
    stage.writer.commit()
    assert (stage.link.out, stage.queue.cursor.ready.count()) == ([], 5)


def test_messages_that_wait_are_answered_as_pubacks() -> None:
    stage = Stage(Version.V5)
    stage.take(*row(3, first=300))
    stage.writer.commit()
    assert stage.heard() == [PubAck(300), PubAck(301), PubAck(302)]
