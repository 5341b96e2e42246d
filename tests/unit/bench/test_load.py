"""The load finds out what a broker loses, doubles or turns around, however the bytes arrive."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from bench import amqp091_load, amqp10_load, mqtt5_load, mqtt_load
from bench.flow import HEAD, Bytes, Check, Disorder, Flow, Receiver, Sender, Spec, heads


class Wire:
    """Keeps what is written, instead of a transport."""

    def __init__(self) -> None:
        self.written = bytearray()

    def write(self, data: bytes) -> None:
        self.written += data


@pytest.fixture
async def flow() -> Flow:
    return Flow(Spec())


def on_wire(client: Sender | Receiver) -> Wire:
    wire = Wire()
    client.transport = cast(asyncio.Transport, wire)
    return wire


def head_rows(*pairs: tuple[int, int]) -> Bytes:
    return np.array(pairs, ">u4").view(np.uint8).reshape(-1, HEAD)


def no_socket() -> socket.socket:
    return cast(socket.socket, None)


# --- order


def test_streams_that_are_each_in_order_may_come_mixed() -> None:
    check = Check(streams=2, modulus=100)
    check.take(head_rows((0, 0), (1, 0), (0, 1)))
    check.take(head_rows((1, 1), (0, 2), (1, 2)))


@pytest.mark.parametrize(
    "second",
    [
        pytest.param([(0, 3)], id="one is lost"),
        pytest.param([(0, 1)], id="one came twice"),
        pytest.param([(0, 3), (0, 2)], id="two changed places"),
        pytest.param([(0, 2), (1, 1)], id="the other stream lost one"),
    ],
)
def test_what_is_lost_doubled_or_turned_around_is_found(second: list[tuple[int, int]]) -> None:
    check = Check(streams=2, modulus=100)
    check.take(head_rows((0, 0), (0, 1)))
    with pytest.raises(Disorder):
        check.take(head_rows(*second))


def test_the_ring_begins_anew_after_its_last_message() -> None:
    check = Check(streams=1, modulus=3)
    check.take(head_rows((0, 0), (0, 1), (0, 2), (0, 0)))
    check.take(head_rows((0, 1)))


def test_each_of_many_queues_has_a_numbering_of_its_own() -> None:
    spec = Spec(queues=3)
    ring = heads(spec, 0, 6)
    assert ring.view(">u4").reshape(-1, 2).tolist() == [
        [0, 0],
        [1, 0],
        [2, 0],
        [0, 1],
        [1, 1],
        [2, 1],
    ]
    Check(spec.streams, 2).take(ring)


def test_a_ring_is_a_multiple_of_the_queues_and_bounded_in_bytes() -> None:
    assert Spec(queues=1000).ring(200) % 1000 == 0
    assert Spec().ring(2**20) * 2**20 <= 2**26


# --- MQTT


@pytest.mark.parametrize("cut", range(1, 40, 7))
async def test_an_mqtt_subscriber_acknowledges_all_however_the_bytes_arrive(
    flow: Flow, cut: int
) -> None:
    flow.spec = replace(flow.spec, qos=1, payload=20)
    frames = mqtt_load.publish_frames(flow.spec, 0)[:10]
    subscriber = mqtt_load.Subscriber(flow, no_socket(), modulus=65_535)
    flow.receivers.append(subscriber)
    wire = on_wire(subscriber)
    data = frames.tobytes()
    for start in range(0, len(data), cut):
        subscriber.data_received(data[start : start + cut])
    assert subscriber.received == 10
    assert bytes(wire.written) == b"".join(
        b"\x40\x02" + struct.pack("!H", i + 1) for i in range(10)
    )


async def test_qos_2_goes_through_all_four_packets(flow: Flow) -> None:
    flow.spec = replace(flow.spec, qos=2, payload=20)
    frames = mqtt_load.publish_frames(flow.spec, 0)[:2]
    subscriber = mqtt_load.Subscriber(flow, no_socket(), modulus=65_535)
    flow.receivers.append(subscriber)
    received = on_wire(subscriber)
    subscriber.data_received(frames[0].tobytes() + b"\x62\x02\x00\x01" + frames[1].tobytes())
    assert received.written == b"\x50\x02\x00\x01\x70\x02\x00\x01\x50\x02\x00\x02"

    publisher = mqtt_load.Publisher(flow, no_socket(), frames)
    sent = on_wire(publisher)
    publisher.data_received(b"\x50\x02\x00\x01\x70\x02\x00\x01")
    assert sent.written == b"\x62\x02\x00\x01"
    assert publisher.confirmed == 1


def delivery5(number: int, packet_id: int) -> bytes:
    """A PUBLISH of a queue's, whose properties grow with the number."""
    properties = b"\x26" + mqtt5_load.text("offset") + mqtt5_load.text(str(number))
    body = mqtt5_load.text("$queue/bench") + struct.pack("!HB", packet_id, len(properties))
    body += properties + struct.pack("!II", 0, number) + bytes(12)
    return b"\x32" + mqtt_load.varint(len(body)) + body


@pytest.mark.parametrize("cut", [1, 7, 64, 1000, 100_000])
@pytest.mark.parametrize("payload", [20, 120])
async def test_an_mqtt_5_subscriber_reads_deliveries_that_grow(
    flow: Flow, cut: int, payload: int
) -> None:
    """Also where the length takes a byte more."""
    flow.spec = replace(flow.spec, qos=1, payload=payload)
    subscriber = mqtt5_load.Subscriber5(flow, no_socket(), modulus=65_535)
    flow.receivers.append(subscriber)
    wire = on_wire(subscriber)
    packets = [delivery5(number, number + 1) for number in range(120)]
    if payload > 20:
        packets = [_padded(packet, payload - 20) for packet in packets]
    data = b"".join(packets)
    for start in range(0, len(data), cut):
        subscriber.data_received(data[start : start + cut])
    assert subscriber.received == 120
    assert bytes(wire.written) == b"".join(
        b"\x40\x02" + struct.pack("!H", i + 1) for i in range(120)
    )


def _padded(packet: bytes, more: int) -> bytes:
    body = packet[2:] + bytes(more)
    return packet[:1] + mqtt_load.varint(len(body)) + body


def test_the_receive_maximum_of_a_broker_is_read_from_its_connack() -> None:
    user = b"\x26" + mqtt5_load.text("a") + mqtt5_load.text("b")
    assigned = b"\x12" + mqtt5_load.text("client")
    said = b"\x24\x01" + user + assigned + b"\x21\x00\x64" + b"\x22\x00\x05"
    assert mqtt5_load.receive_maximum_of(bytes([len(said)]) + said) == 100
    assert mqtt5_load.receive_maximum_of(b"\x00") == 65_535


# --- AMQP 0.9.1


def delivery(number: int, tag: int, headers: bytes = b"") -> bytes:
    arguments = amqp091_load.short("c-bench") + struct.pack("!QB", tag, 0)
    arguments += amqp091_load.short("") + amqp091_load.short("bench")
    body = struct.pack("!II", 0, number) + bytes(12)
    content = struct.pack("!HHQH", 60, 0, len(body), 0) + headers
    return (
        amqp091_load.method(1, 60, 60, arguments)
        + amqp091_load.frame(amqp091_load.HEADER, 1, content)
        + amqp091_load.frame(amqp091_load.BODY, 1, body)
    )


@pytest.mark.parametrize("cut", [1, 13, 50, 1000])
async def test_an_amqp_consumer_copes_with_deliveries_of_another_length(
    flow: Flow, cut: int
) -> None:
    consumer = amqp091_load.Consumer(flow, no_socket(), modulus=65_535)
    flow.receivers.append(consumer)
    wire = on_wire(consumer)
    data = b"".join(delivery(i, i + 1, bytes(4 if i in (3, 4) else 0)) for i in range(8))
    for start in range(0, len(data), cut):
        consumer.data_received(data[start : start + cut])
    assert consumer.received == 8
    last = bytes(wire.written[-amqp091_load.ACK_LENGTH :])
    assert struct.unpack_from("!QB", last, 11) == (8, 1)


async def test_confirms_count_once_whether_single_or_multiple(flow: Flow) -> None:
    publisher = amqp091_load.Publisher(flow, no_socket(), np.zeros((4, 8), np.uint8))
    flow.senders.append(publisher)
    flow.receivers.append(amqp091_load.Consumer(flow, no_socket(), 4))

    def ack(tag: int, multiple: int) -> bytes:
        return amqp091_load.method(1, 60, 80, struct.pack("!QB", tag, multiple))

    publisher.data_received(ack(2, 0) + ack(3, 1))
    assert publisher.confirmed == 3
    publisher.data_received(ack(5, 0) + ack(4, 0) + ack(5, 1))
    assert publisher.confirmed == 5


def test_a_large_body_is_cut_to_the_frame_size() -> None:
    frames = amqp091_load.publish_frames(Spec(source="q", payload=300_000), 0, 131_072)
    data = frames[0].tobytes()
    kinds, at = [], 0
    while at < len(data):
        kind, _channel, size = struct.unpack_from("!BHI", data, at)
        assert size + 8 <= 131_072
        kinds.append(kind)
        at += size + 8
    assert kinds == [1, 2, 3, 3, 3]


# --- AMQP 1.0


def test_a_transfer_decodes_to_what_was_meant() -> None:
    spec = Spec(source="q", payload=16, durable=True)
    rows, id_at = amqp10_load.transfers(spec)
    data = rows[5].tobytes()
    assert int.from_bytes(data[:4], "big") == len(data)
    code, fields = amqp10_load.fields_of(data[8:])
    assert code == amqp10_load.TRANSFER
    assert fields == [0, 0, b"\x00\x00\x00\x05", 0, False, False]
    assert data[id_at - 1] == 0x70


async def test_an_amqp10_sender_keeps_to_its_credit(flow: Flow) -> None:
    sender = amqp10_load.Publisher(flow, no_socket(), window=2**31)
    on_wire(sender)
    assert sender.room == 0
    session = [amqp10_load.uint(0), amqp10_load.uint(1000)]
    fields = [*session, amqp10_load.uint(0), amqp10_load.uint(9), amqp10_load.uint(0)]
    credit = [amqp10_load.uint(0), amqp10_load.uint(70)]
    body = amqp10_load.described(amqp10_load.FLOW, *fields, *credit)
    sender.take(amqp10_load.frame(body))
    sender.send(50)
    assert sender.room == 20


async def test_how_late_the_load_itself_was_is_counted_from_when_each_was_due() -> None:
    paced = Flow(Spec(rate=10.0))
    sender = Sender(paced, no_socket(), np.zeros((16, 8), np.uint8))
    wire = on_wire(sender)
    paced.senders.append(sender)
    now = time.perf_counter()
    paced._started = sender.send_times.started = now - 1.0
    paced._send_due(now, 0)
    assert len(wire.written) == 11 * 8
    (late,) = sender.send_times.late
    assert late[0] >= 1.0
    assert late[0] - late[10] == pytest.approx(1.0)
