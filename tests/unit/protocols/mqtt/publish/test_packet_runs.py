"""Messages that are handed over as a run arrive as if they had been handed over one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.mqtt.counters import MqttCounters
from protocols.mqtt.deliver.delivering import Deliverer
from protocols.mqtt.deliver.send_window import Outbound
from protocols.mqtt.publish.acknowledgements import Inbound
from protocols.mqtt.publish.fast_path import take_hot
from protocols.mqtt.publish.known_topics import KnownTopic
from protocols.mqtt.publish.packet_runs import find_run
from protocols.mqtt.publish.publishing import Publishing
from protocols.mqtt.wire.codec import decode, split
from protocols.mqtt.wire.encoder import encode
from protocols.mqtt.wire.packets import PubAck, Publish, Version
from protocols.mqtt.wire.property_set import PropertySet
from queue_core.delivery.consumer import ConsumerSpec
from queue_core.queues.ephemeral import EphemeralQueue
from queue_core.queues.queue import Queue
from queue_core.queues.spec import QueueSpec
from queue_core.routing.router import Router
from queue_core.sessions.subscription import Subscription
from queue_core.vhost import Vhost
from tests.support.contexts import queue_context
from tests.unit.protocols.mqtt.fake_connection import Link, Session, terms_of

LIMIT = 1 << 20
TOPICS = ("a", "a/b", "x" * 200)


class Stage:
    """A vhost with subscribers, and a publisher of one version."""

    def __init__(self, version: Version, *, is_async: bool = False) -> None:
        self.version = version
        self.counters = MqttCounters()
        none: Any = None
        router = Router[Queue]()
        self.vhost = Vhost("/", router, queue_context(router), none, none, none)
        self.outputs: list[Link] = []
        self.deliverers: list[Deliverer] = []
        own = self._deliverer(Link(), version, 10)
        ignore: Any = lambda _: None  # noqa: E731
        self.answers = Link()
        terms = terms_of(
            self.answers,
            Session(self.vhost),
            version,
            counters=self.counters,
            is_async=is_async,
        )
        inbound = Inbound(self.answers.out.append, version, 10_000, ignore, ignore)
        self.publishing = Publishing(terms, inbound, none)
        self.own = own
        for topic in TOPICS:
            self.publishing.topics[topic.encode()] = KnownTopic(topic)

    def _deliverer(self, link: Link, version: Version, window: int, largest: int = LIMIT) -> Any:
        session = Session(self.vhost)
        session.client_id = "subscriber"
        terms = terms_of(link, session, version, max_packet=largest, counters=self.counters)
        return Deliverer(terms, Outbound(window), window, None)

    def subscriber(
        self,
        qos: int,
        version: Version | None = None,
        window: int = 5000,
        largest: int = LIMIT,
        **options: Any,
    ) -> None:
        link = Link()
        name = f"subscriber {len(self.outputs)}"
        queue = EphemeralQueue(QueueSpec.parse(name, {}, durable=False), self.vhost.context)
        self.vhost.add_queue(queue)
        deliverer = self._deliverer(link, version or self.version, window, largest)
        deliverer.is_plain = not options
        consumer = queue.consume(deliverer, ConsumerSpec(auto_settle=True))
        deliverer.attach(consumer)
        consumer.wake()
        for topic in TOPICS:
            self.vhost.subscribe(topic, queue, Subscription(topic, qos, **options))
            self.vhost.router.route_topic(topic)
        self.outputs.append(link)
        self.deliverers.append(deliverer)

    def take(self, raw: bytes) -> int:
        for topic in TOPICS:
            self.vhost.router.route_topic(topic)
        return take_hot(self.publishing, self.own, raw, 0, LIMIT)

    def heard(self) -> list[list[Any]]:
        return [
            packets(b"".join(link.out), deliverer._version)
            for link, deliverer in zip(self.outputs, self.deliverers, strict=True)
        ]


def packets(raw: bytes, version: Version) -> list[Any]:
    found, position = [], 0
    while position < len(raw):
        frame = split(raw, position, LIMIT)
        assert frame is not None
        found.append(decode(frame.head, raw[frame.start : frame.end], version))
        position = frame.end
    return found


def stream(version: Version) -> st.SearchStrategy[list[Publish]]:
    """Publishes, most of them in runs."""
    user = PropertySet(user=(("a", "b"),)) if version is Version.V5 else PropertySet()
    one = st.builds(
        lambda topic, qos, payload, properties: (topic, qos, payload, properties),
        st.sampled_from(TOPICS),
        st.sampled_from([0, 1]),
        st.sampled_from([b"", b"x", b"y" * 130, b"z" * 5000]),
        st.sampled_from([PropertySet(), PropertySet(), PropertySet(), user]),
    )
    repeated = st.lists(st.tuples(one, st.integers(1, 4)), max_size=6)

    def build(parts: list[tuple[Any, int]]) -> list[Publish]:
        flat = [part for part, count in parts for _ in range(count)]
        return [
            Publish(topic, payload, qos, packet_id=(i + 1) * qos, properties=properties)
            for i, (topic, qos, payload, properties) in enumerate(flat)
        ]

    return repeated.map(build)


def one_by_one(house: Stage, published: list[Publish]) -> None:
    for packet in published:
        raw = encode(packet, house.version)
        assert house.take(raw) == len(raw)


def flow(stage: Stage) -> tuple[int, int]:
    """The messages that came in and went out, those that were passed on at once with them."""
    context = stage.vhost.context
    passed_on = sum(traffic.passed_on for traffic in context.changed)
    return context.counters.published, context.counters.delivered + passed_on


def states(deliverer: Deliverer) -> dict[int, int]:
    return {number: flight.state for number, flight in deliverer.outbound.in_flight.items()}


SUBSCRIBERS: list[list[dict[str, Any]]] = [
    [{"qos": 0}],
    [{"qos": 1}],
    [{"qos": 2}, {"qos": 1}],
    [{"qos": 1}, {"qos": 0}],
    [{"qos": 1}, {"qos": 1, "version": Version.V31}],
    [{"qos": 1, "window": 3}],
    [{"qos": 1, "largest": 150}, {"qos": 1}],
    [{"qos": 1, "no_local": True}, {"qos": 0}],
]


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
@pytest.mark.parametrize("subscribers", SUBSCRIBERS)
@settings(max_examples=25)
@given(data=st.data())
def test_a_run_arrives_as_if_one_by_one(
    version: Version, subscribers: list[dict[str, Any]], data: st.DataObject
) -> None:
    published = data.draw(stream(version))
    whole, single = Stage(version), Stage(version)
    for house in (whole, single):
        for options in subscribers:
            house.subscriber(**options)
    raw = b"".join(encode(packet, version) for packet in published)
    assert whole.take(raw) == len(raw)
    one_by_one(single, published)
    assert whole.heard() == single.heard()
    assert b"".join(whole.answers.out) == b"".join(single.answers.out)
    assert whole.counters == single.counters
    assert flow(whole) == flow(single)
    for one, other_one in zip(whole.deliverers, single.deliverers, strict=True):
        assert states(one) == states(other_one)
        assert one._live.is_paused == other_one._live.is_paused  # type: ignore[union-attr]


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_a_run_is_one_write_for_each_subscriber(version: Version, qos: int) -> None:
    """Else this would test nothing."""
    house = Stage(version)
    house.subscriber(1)
    house.subscriber(2)
    published = [Publish("a", b"%d" % i, qos, packet_id=(i + 1) * qos) for i in range(200)]
    raw = b"".join(encode(packet, version) for packet in published)
    assert house.take(raw) == len(raw)
    assert [len(link.out) for link in house.outputs] == [1, 1]
    assert [m.payload for m in house.heard()[0]] == [b"%d" % i for i in range(200)]
    acknowledged = packets(b"".join(house.answers.out), version)
    assert acknowledged == [PubAck(i + 1) for i in range(200 * qos)]


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_a_run_ends_where_the_chunk_is_cut(version: Version) -> None:
    published = [Publish("a/b", b"x" * (i % 3) * 100, 1, packet_id=i + 1) for i in range(9)]
    frames = [encode(packet, version) for packet in published]
    raw = b"".join(frames)
    ends = [len(b"".join(frames[:i])) for i in range(1, 10)]
    for cut in range(ends[0], len(raw) + 1):
        run_end, run_marks, run_ends = find_run(
            (raw[:cut], 0, 2, 7, ends[0]),
            most=1000,
            limit=LIMIT,
            properties=b"\0" if version is Version.V5 else b"",
        )
        assert run_end == max(end for end in ends if end <= cut)
        assert run_ends == ends[: ends.index(run_end) + 1]
        assert len(run_marks) == len(run_ends)


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
@pytest.mark.parametrize("subscribers", SUBSCRIBERS)
@settings(max_examples=25)
@given(data=st.data())
def test_asynchronous_fan_out_answers_first_and_delivers_the_same(
    version: Version, subscribers: list[dict[str, Any]], data: st.DataObject
) -> None:
    published = data.draw(stream(version))
    later, at_once = Stage(version, is_async=True), Stage(version)
    for stage in (later, at_once):
        for options in subscribers:
            stage.subscriber(**options)
    raw = b"".join(encode(packet, version) for packet in published)
    assert later.take(raw) == at_once.take(raw) == len(raw)
    assert b"".join(later.answers.out) == b"".join(at_once.answers.out)
    assert not any(later.heard())
    lane = later.publishing.wide_lane()
    while lane.is_busy:
        lane.hand_over_some()
    assert later.heard() == at_once.heard()
    assert flow(later) == flow(at_once)
    assert (lane.count, lane.bytes, lane.deliveries) == (0, 0, 0)
