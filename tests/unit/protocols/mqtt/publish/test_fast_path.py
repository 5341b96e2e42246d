"""The hot path and the codec are held to the same vectors: whatever the one takes, the other would
have understood in the same way, and whatever is odd is left to the codec."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.mqtt.conversion.properties import FACTS, native_of, published_qos
from protocols.mqtt.deliver.delivering import Deliverer
from protocols.mqtt.deliver.send_window import (
    ACKNOWLEDGED,
    LIVE_1,
    LIVE_2,
    LIVE_2_RECEIVED,
    Outbound,
    Sent,
)
from protocols.mqtt.publish.acknowledgements import Inbound
from protocols.mqtt.publish.fast_path import take_hot
from protocols.mqtt.publish.known_topics import KnownTopic
from protocols.mqtt.publish.packet_runs import find_run
from protocols.mqtt.publish.publishing import Publishing
from protocols.mqtt.wire.codec import decode, split
from protocols.mqtt.wire.encoder import encode
from protocols.mqtt.wire.packets import (
    Packet,
    PingReq,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Version,
)
from protocols.mqtt.wire.property_set import PropertySet
from protocols.mqtt.wire.reasons import MqttError, ReasonCode
from queue_core.message.message import Message
from queue_core.outcomes import Published
from queue_core.routing.route import Match
from queue_core.routing.router import Router
from tests.unit.protocols.mqtt.fake_connection import Link, terms_of
from tests.unit.protocols.mqtt.vectors import VECTORS

LIMIT = 1 << 20
TOPICS = ("a", "a/b", "bench/topic")


class Place:
    """Where messages go one by one."""

    takes_runs = False
    is_ephemeral = False

    def direct_consumer(self) -> None:
        return None


class Routes:
    """A vhost, as much of it as publishing needs: every topic leads to one place."""

    name = "/"

    def __init__(self, outcome: Published) -> None:
        self.router: Router[Any] = Router()
        self.published: list[Message] = []
        self.pressed: list[Any] = []
        self._outcome = outcome
        for topic in TOPICS:
            self.router.topic_routes[topic] = (Match(Place(), ()),)

    def publish_to(
        self, message: Message, route: object, publisher: object, token: int, records: object
    ) -> Published:
        self.published.append(message)
        return self._outcome


class Session:
    client_id = "publisher"
    is_persistent = False

    def __init__(self, vhost: Routes) -> None:
        self.vhost = vhost

    def note(self, is_outgoing: bool, packet_id: int, state: int) -> tuple[()]:
        return ()

    def forget_packet(self, is_outgoing: bool, packet_id: int) -> None: ...


def make(
    version: Version, outcome: Published = Published.DONE
) -> tuple[Publishing, Deliverer, Routes, Link]:
    link, vhost = Link(), Routes(outcome)
    ignore: Callable[[Any], None] = lambda _: None  # noqa: E731
    terms = terms_of(link, Session(vhost), version, max_packet=LIMIT)
    deliverer = Deliverer(terms, Outbound(10), 10, None)
    inbound = Inbound(deliverer.put, version, 10, ignore, ignore)
    publishing = Publishing(terms, inbound, None)  # type: ignore[arg-type]
    for topic in TOPICS:
        publishing.topics[topic.encode()] = KnownTopic(topic)
    return publishing, deliverer, vhost, link


def check_same(raw: bytes, version: Version) -> None:
    """Takes a stream by the hot path as far as that goes; the codec must agree with each."""
    publishing, deliverer, vhost, _ = make(version)
    in_flight = deliverer.outbound.in_flight
    for packet_id in range(1, 20):
        in_flight[packet_id] = LIVES[packet_id % 3]
    before = dict(in_flight)
    stopped = take_hot(publishing, deliverer, raw, 0, LIMIT)
    position, published, opened = 0, [], set()
    while position < stopped:
        frame = split(raw, position, LIMIT)
        assert frame is not None
        packet = decode(frame.head, raw[frame.start : frame.end], version)
        position = frame.end
        if isinstance(packet, Publish):
            published.append(packet)
            if packet.qos == 2:
                assert packet.packet_id not in opened
                opened.add(packet.packet_id)
        elif isinstance(packet, PubRel):
            assert packet.reason == 0
            opened.remove(packet.packet_id)
        else:
            assert isinstance(packet, PubAck | PubRec | PubComp)
            assert packet.reason == 0
            held = before.pop(packet.packet_id)
            state = ACKNOWLEDGED[held.state, type(packet)]
            if state is not Sent.OVER:
                before[packet.packet_id] = LIVE_2_RECEIVED
    assert position == stopped
    assert in_flight == before
    assert publishing.inbound.open.keys() == opened
    assert len(vhost.published) == len(published)
    for message, packet in zip(vhost.published, published, strict=True):
        facts = FACTS.of(packet.raw_properties)
        assert message.topic == packet.topic
        assert message.body == packet.payload
        assert message.native == native_of(facts.native, packet.qos, False)
        assert published_qos(message) == packet.qos
        assert not packet.retain
        assert facts.alias is None
        assert facts.expiry is None


@pytest.mark.parametrize(("version", "octets", "packet"), VECTORS)
def test_every_vector_is_taken_alike_or_left_to_the_codec(
    version: Version, octets: str, packet: object
) -> None:
    check_same(bytes.fromhex(octets), version)


LIVES = (LIVE_1, LIVE_2, LIVE_2_RECEIVED)
STREAM: list[Packet] = [
    Publish("a", b"one"),
    Publish("a/b", b"two", 1, packet_id=9),
    PubAck(3),
    Publish("bench/topic", b"x" * 300),
    Publish("a", b"", 1, packet_id=65_535),
    Publish("a/b", b"once", 2, packet_id=7),
    PubRec(4),
    PubRel(7),
    PubComp(4),
    PubAck(6),
]


@pytest.mark.parametrize("version", list(Version))
def test_a_stream_of_hot_packets_is_taken_whole(version: Version) -> None:
    publishing, deliverer, vhost, link = make(version)
    deliverer.outbound.in_flight |= {3: LIVE_1, 4: LIVE_2, 6: LIVE_1}
    raw = b"".join(encode(packet, version) for packet in STREAM)
    assert take_hot(publishing, deliverer, raw, 0, LIMIT) == len(raw)
    assert [m.body for m in vhost.published] == [b"one", b"two", b"x" * 300, b"", b"once"]
    answers = "40020009 4002ffff 50020007 62020004 70020007"
    assert b"".join(link.out) == bytes.fromhex(answers)
    assert not deliverer.outbound.in_flight


@pytest.mark.parametrize("version", list(Version))
def test_a_stream_cut_anywhere_is_taken_up_to_the_cut(version: Version) -> None:
    raw = b"".join(encode(packet, version) for packet in STREAM)
    ends = [len(b"".join(encode(p, version) for p in STREAM[:i])) for i in range(len(STREAM) + 1)]
    for cut in range(len(raw)):
        publishing, deliverer, _, _ = make(version)
        deliverer.outbound.in_flight |= {3: LIVE_1, 4: LIVE_2, 6: LIVE_1}
        stopped = take_hot(publishing, deliverer, raw[:cut], 0, LIMIT)
        assert stopped == max(end for end in ends if end <= cut)


ODD: list[Packet] = [
    Publish("unknown", b""),
    Publish("a", b"", retain=True),
    Publish("a", b"", 1, dup=True, packet_id=1),
    Publish("a", b"", 2, dup=True, packet_id=1),
    PubRel(5),
    PubComp(3),
    Publish("a", b"", properties=PropertySet(topic_alias=1)),
    Publish("a", b"", properties=PropertySet(message_expiry=1)),
    Publish("a", b"\xff", properties=PropertySet(payload_format=1)),
    Publish("a", b"", properties=PropertySet(user=(("priority", "3"),))),
    Publish("a", b"", properties=PropertySet(user=(("x-publisher-id", "me"),))),
    PubAck(3, 0x83),
    PubAck(77),
    PubRec(3),
    PingReq(),
]


@pytest.mark.parametrize("packet", ODD)
def test_what_is_odd_is_left_to_the_codec(packet: Any) -> None:
    publishing, deliverer, vhost, link = make(Version.V5)
    deliverer.outbound.in_flight[3] = LIVE_1
    raw = encode(packet, 5)
    assert take_hot(publishing, deliverer, raw, 0, LIMIT) == 0
    assert not vhost.published
    assert not link.out


def test_qos_2_that_is_open_is_left_to_the_codec() -> None:
    publishing, deliverer, vhost, _ = make(Version.V5)
    raw = encode(Publish("a", b"", 2, packet_id=1), 5)
    assert take_hot(publishing, deliverer, raw, 0, LIMIT) == len(raw)
    assert take_hot(publishing, deliverer, raw, 0, LIMIT) == 0
    assert len(vhost.published) == 1


@pytest.mark.parametrize("max_qos", [0, 1])
def test_a_qos_above_the_highest_is_left_to_the_codec(max_qos: int) -> None:
    publishing, deliverer, vhost, _ = make(Version.V5)
    publishing.max_qos = max_qos
    raw = encode(Publish("a", b"", max_qos + 1, packet_id=1), 5)
    assert take_hot(publishing, deliverer, raw, 0, LIMIT) == 0
    assert not vhost.published


def test_a_packet_over_the_limit_is_left_to_the_codec() -> None:
    publishing, deliverer, vhost, _ = make(Version.V311)
    raw = encode(Publish("a", b"x" * 100), 4)
    assert take_hot(publishing, deliverer, raw, 0, len(raw) - 1) == 0
    assert take_hot(publishing, deliverer, raw, 0, len(raw)) == len(raw)
    assert len(vhost.published) == 1


def test_nothing_is_acknowledged_before_it_is_committed() -> None:
    publishing, deliverer, _, link = make(Version.V5, Published.PENDING)
    raw = b"".join(encode(Publish("a", b"", 1, packet_id=i), 5) for i in (5, 6))
    assert take_hot(publishing, deliverer, raw, 0, LIMIT) == len(raw)
    assert not link.out
    publishing.inbound.on_committed([0])
    assert link.out == [bytes.fromhex("40020005")]


def test_a_full_queue_is_told_to_5_and_ends_3_1_1() -> None:
    for version, answer in ((Version.V5, 0x97), (Version.V311, None)):
        publishing, deliverer, _, link = make(version, Published.REFUSED)
        raw = encode(Publish("a", b"", 1, packet_id=5), version)
        assert take_hot(publishing, deliverer, raw, 0, LIMIT) == len(raw)
        if answer is None:
            assert link.failures == [ReasonCode.QUOTA_EXCEEDED]
        else:
            assert link.out[0][4] == answer


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("version", [Version.V5, Version.V311])
def test_a_full_queue_in_memory_is_told_as_well(version: Version, qos: int) -> None:
    publishing, deliverer, _, link = make(version, Published.REFUSED)
    known = publishing.topics[b"a"]
    known.look_at(publishing.vhost.router.topic_routes["a"])
    known.is_live = True
    raw = encode(Publish("a", b"", qos, packet_id=5), version)
    assert take_hot(publishing, deliverer, raw, 0, LIMIT) == len(raw)
    if version is Version.V5:
        assert [(frame[0], frame[4]) for frame in link.out] == [(0x30 + qos * 0x10, 0x97)]
    else:
        assert (link.failures, link.out) == ([ReasonCode.QUOTA_EXCEEDED], [])
    assert not publishing.inbound.open


@pytest.mark.parametrize("count", [1, 256, 257, 700])
def test_acknowledgements_in_a_row_are_taken_up_to_one_that_is_odd(count: int) -> None:
    """Another packet behind them is taken, too; a stray one, one with a reason and one that is cut
    off are left to the codec."""
    row = b"".join(encode(PubAck(number), Version.V5) for number in range(1, count + 1))
    publish = encode(Publish("a", b"x"), Version.V5)
    stray = encode(PubAck(60_000), Version.V5)
    reason = encode(PubAck(50_000, ReasonCode.UNSPECIFIED_ERROR), Version.V5)
    for tail, taken in ((publish, len(publish)), (stray, 0), (reason, 0), (row[:3], 0), (b"", 0)):
        publishing, deliverer, _, _ = make(Version.V5)
        in_flight = deliverer.outbound.in_flight
        in_flight.update(dict.fromkeys([*range(1, count + 1), 50_000], LIVE_1))
        stopped = take_hot(publishing, deliverer, row + tail, 0, LIMIT)
        while publishing.is_tired:
            stopped = take_hot(publishing, deliverer, row + tail, stopped, LIMIT)
        assert stopped == len(row) + taken
        assert list(in_flight) == [50_000]


def test_a_length_that_takes_more_bytes_than_it_needs_is_left_to_the_codec() -> None:
    """[MQTT-1.5.5-1]"""
    raw = bytes.fromhex("30 84 00 000161 78")
    publishing, deliverer, vhost, _ = make(Version.V311)
    assert take_hot(publishing, deliverer, raw, 0, LIMIT) == 0
    assert not vhost.published
    short = bytes.fromhex("30 04 000161 78")
    end, *_ = find_run((short + raw, 0, 2, 5, len(short)), most=9, limit=LIMIT, properties=b"")
    assert end == len(short)


@given(st.lists(st.sampled_from([*STREAM, *ODD]), max_size=8), st.data())
def test_any_mixture_is_taken_alike(packets: list[Any], data: st.DataObject) -> None:
    version = data.draw(st.sampled_from([Version.V311, Version.V5]))
    raw = b"".join(encode(packet, version) for packet in packets)
    check_same(raw, version)


@given(
    st.binary(max_size=60),
    st.sampled_from([b"\x30", b"\x32", b"\x34", b"\x40", b"\x50\x02", b"\x62\x02"]),
)
def test_any_bytes_are_taken_alike_or_left(tail: bytes, head: bytes) -> None:
    raw = head + tail
    try:
        check_same(raw, Version.V5)
    except MqttError:  # pragma: no cover
        pytest.fail("the hot path took what the codec refuses")
