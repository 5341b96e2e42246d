"""One account of memory, with a small mark: publishers are stopped in their protocol's own terms,
everybody else goes on, and when there is room again nothing was lost."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, Final

import pika
import pytest
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion
from prometheus_client.parser import text_string_to_metric_families

from protocols.mqtt.wire.websocket_codec import masked
from tests.support.amqp10_client import Connections, data
from tests.support.amqp10_wire import Wire, transfer
from tests.support.gateway_process import GatewayProcess, running
from tests.support.operator import get
from tests.support.until import PATIENCE_SECONDS, wait_until

KIB, MIB = 1024, 1024 * 1024
MARK: Final = 16 * MIB
BODY: Final = bytes(512 * KIB)
LIMITS: Final[dict[str, Any]] = {
    "broker": {
        "max_message_size": "1MiB",
        "max_transaction_size": "6MiB",
        "max_connection_transactions": "7MiB",
    },
    "memory": {"high_watermark": "16MiB", "grace": "10m", "partial_timeout": "10m"},
    "storage": {"cache_bytes": "1MiB", "write_buffer_bytes": "1MiB"},
}
HURRIED: Final[dict[str, Any]] = {
    **LIMITS,
    "memory": {
        "high_watermark": "16MiB",
        "grace": "1s",
        "partial_timeout": "1s",
        "unread_timeout": "1s",
    },
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """Patient: nobody is ended here for holding memory."""
    with running(tmp_path_factory.mktemp("small"), LIMITS) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def hurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """Whoever holds memory and does not go on is ended after a second."""
    with running(tmp_path_factory.mktemp("hurried"), HURRIED) as gateway:
        yield gateway


def metric(gateway: GatewayProcess, name: str, **labels: str) -> float:
    for family in text_string_to_metric_families(get(gateway, "/metrics")[1]):
        for sample in family.samples:
            if sample.name == f"howdah_memory_{name}" and sample.labels == labels:
                return float(sample.value)
    raise AssertionError(f"no metric {name} {labels}")


def is_short(gateway: GatewayProcess) -> bool:
    return metric(gateway, "alarm") == 1


def amqp(gateway: GatewayProcess, **options: Any) -> pika.BlockingConnection:
    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", gateway.ports["amqp"], heartbeat=0, **options)
    )


@contextmanager
def shortage(gateway: GatewayProcess) -> Iterator[None]:
    """Open transactions take more than the mark; at the end they are rolled back."""
    holders = [amqp(gateway) for _ in range(3)]
    try:
        channels = [holder.channel() for holder in holders]
        for channel in channels:
            channel.queue_declare("never", durable=True)
            channel.tx_select()
            for _ in range(11):
                channel.basic_publish("", "never", BODY)
        wait_until(lambda: is_short(gateway))
        yield
        for channel in channels:
            channel.tx_rollback()
        wait_until(lambda: not is_short(gateway))
    finally:
        for holder in holders:
            holder.close()


# --- what publishers see


def test_an_amqp091_publisher_is_told_that_it_is_blocked_and_loses_nothing(
    small: GatewayProcess,
) -> None:
    with closing(amqp(small)) as connection, closing(amqp(small)) as consuming:
        heard: list[str] = []
        connection.add_on_connection_blocked_callback(lambda *_: heard.append("blocked"))
        connection.add_on_connection_unblocked_callback(lambda *_: heard.append("unblocked"))
        channel, consumer = connection.channel(), consuming.channel()
        channel.queue_declare("blocked", durable=True)
        with shortage(small):
            channel.basic_publish("", "blocked", b"first")
            _listen(connection, heard, 1)
            for number in range(100):  # these wait in its socket
                channel.basic_publish("", "blocked", str(number).encode())
            # a consumer goes on, and so do its acknowledgements
            assert _bodies(consumer, "blocked", 1) == [b"first"]
            assert consumer.basic_get("blocked") == (None, None, None)
            status, text, _ = get(small, "/health/ready")
            assert (status, "memory is short" in text) == (503, True)
        _listen(connection, heard, 2)
        assert heard == ["blocked", "unblocked"]
        assert _bodies(consumer, "blocked", 100) == [str(number).encode() for number in range(100)]


def _listen(connection: pika.BlockingConnection, heard: list[str], count: int) -> None:
    def is_heard() -> bool:
        connection.process_data_events(0.02)
        return len(heard) >= count

    wait_until(is_heard)


def _bodies(channel: Any, queue: str, count: int) -> list[bytes]:
    found: list[bytes] = []

    def is_all() -> bool:
        method, _, body = channel.basic_get(queue)
        if method is not None:
            channel.basic_ack(method.delivery_tag)
            found.append(body)
        return len(found) == count

    wait_until(is_all)
    return found


def test_an_mqtt_publisher_waits_and_a_subscriber_does_not(small: GatewayProcess) -> None:
    with _paho(small) as publisher, _paho(small) as subscriber:
        got: list[bytes] = []
        subscriber.on_message = lambda _client, _data, message: got.append(message.payload)
        assert subscriber.subscribe("short/#", 1)[0] == paho.MQTT_ERR_SUCCESS
        wait_until(subscriber.is_subscribed.is_set)
        with shortage(small):
            publisher.publish("short/1", b"the last that is read", 1).wait_for_publish(
                PATIENCE_SECONDS
            )
            waiting = publisher.publish("short/2", b"waits", 1)
            wait_until(lambda: len(got) == 1)
            # somebody else may still ask for things
            assert subscriber.subscribe("other", 1)[0] == paho.MQTT_ERR_SUCCESS
            assert not waiting.is_published()
        waiting.wait_for_publish(PATIENCE_SECONDS)
        wait_until(lambda: len(got) == 2)
        assert got == [b"the last that is read", b"waits"]


@contextmanager
def _paho(gateway: GatewayProcess) -> Iterator[Any]:
    client: Any = paho.Client(CallbackAPIVersion.VERSION2)
    client.is_subscribed = threading.Event()
    client.on_subscribe = lambda *_: client.is_subscribed.set()
    client.connect("127.0.0.1", gateway.ports["mqtt"])
    client.loop_start()
    try:
        yield client
    finally:
        client.disconnect()
        client.loop_stop()


def test_an_amqp10_sender_gets_no_credit_while_memory_is_short(small: GatewayProcess) -> None:
    connections = Connections(small)
    try:
        connection = connections()
        with shortage(small):
            sender = connection.create_sender("$queue/credit")
            receiver = connections().create_receiver("$queue/credit")
            assert sender.link.credit == 0
        connection.wait(lambda: sender.link.credit > 0, timeout=PATIENCE_SECONDS)
        sender.send(data(b"in time"), timeout=PATIENCE_SECONDS)
        assert bytes(receiver.receive(timeout=PATIENCE_SECONDS).body) == b"in time"
        receiver.accept()
    finally:
        connections.close()


# --- unfinished messages


def _mqtt_begin(gateway: GatewayProcess, name: str, size: int) -> socket.socket:
    """Has begun a PUBLISH of that size, and sent a tenth of it."""
    made = socket.create_connection(("127.0.0.1", gateway.ports["mqtt"]), PATIENCE_SECONDS)
    client_id = name.encode()
    made.sendall(
        b"\x10"
        + bytes((12 + len(client_id),))
        + b"\0\x04MQTT\x04\x02\0\0"
        + len(client_id).to_bytes(2)
        + client_id
    )
    assert made.recv(4) == b"\x20\x02\0\0"
    made.sendall(_publish(size)[: size // 10])
    return made


def _publish(size: int) -> bytes:
    """A QoS 1 PUBLISH of so many bytes, to the topic `t`."""
    left, octets = size, b""
    while left:
        octets += bytes((left & 0x7F | (0x80 if left >> 7 else 0),))
        left >>= 7
    return b"\x32" + octets + b"\0\x01t\0\x01" + bytes(size - 5)


def test_unfinished_publishes_count_with_their_declared_size_and_all_arrive(
    small: GatewayProcess,
) -> None:
    size = 900 * KIB
    clients = [_mqtt_begin(small, f"partial-{number}", size) for number in range(8)]
    try:
        # a fourth of the mark is for these: four fit, and four wait without being read
        wait_until(lambda: metric(small, "bytes", kind="partial") > 4 * size - KIB)
        assert metric(small, "bytes", kind="partial") <= MARK // 4
        assert not is_short(small), "others publish as they like"
        with _paho(small) as other:
            other.publish("u", b"small", 1).wait_for_publish(PATIENCE_SECONDS)
        rest = _publish(size)[size // 10 :]
        threads = [threading.Thread(target=client.sendall, args=(rest,)) for client in clients]
        for thread in threads:
            thread.start()
        for client, thread in zip(clients, threads, strict=True):
            assert client.recv(4) == b"\x40\x02\0\x01"
            thread.join()
        wait_until(lambda: metric(small, "bytes", kind="partial") == 0)
    finally:
        for client in clients:
            client.close()


def test_fragments_of_a_websocket_and_frames_of_amqp_count_as_unfinished_messages(
    small: GatewayProcess,
) -> None:
    web = _websocket_begin(small)
    with closing(web), _amqp091_begin(small), closing(_amqp10_begin(small)):
        wait_until(lambda: metric(small, "bytes", kind="partial") > 2.5 * MIB)
    wait_until(lambda: metric(small, "bytes", kind="partial") == 0)


def _websocket_begin(gateway: GatewayProcess) -> socket.socket:
    """900 KiB declared by the packet, a piece of it in the first of several fragments."""
    made = socket.create_connection(("127.0.0.1", gateway.ports["mqtt_ws"]), PATIENCE_SECONDS)
    made.sendall(
        b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
    )
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += made.recv(4096)
    mask = b"abcd"
    connect = b"\x10\x10\0\x04MQTT\x04\x02\0\0\0\x04web1"
    made.sendall(bytes((0x82, 0x80 | len(connect))) + mask + masked(connect, mask))
    made.recv(64)
    piece = _publish(900 * KIB)[:1000]
    size = (126).to_bytes() + len(piece).to_bytes(2)
    made.sendall(b"\x02" + bytes((0x80 | size[0],)) + size[1:] + mask + masked(piece, mask))
    return made


@contextmanager
def _amqp091_begin(gateway: GatewayProcess) -> Iterator[None]:
    """A publish whose content header declares 900 KiB, and nothing of the body."""
    connection = amqp(gateway)
    channel = connection.channel()
    publish = pika.spec.Basic.Publish(exchange="", routing_key="never")
    header = pika.frame.Header(channel.channel_number, 900 * KIB, pika.BasicProperties())
    frames = pika.frame.Method(channel.channel_number, publish).marshal() + header.marshal()
    connection._impl._transport.write(frames)
    connection.process_data_events(0)
    yield
    with suppress(pika.exceptions.AMQPError):  # a method in the middle of a message
        connection.close()


def _amqp10_begin(gateway: GatewayProcess) -> Wire:
    """Transfers of which more is to come: one does not say how long a message is."""
    wire = Wire(gateway)
    wire.open()
    wire.begin()
    wire.attach_sender("$queue/never")
    for _ in range(8):
        wire.send(transfer(0, 0, bytes(100 * KIB), more=True))
    return wire


def test_a_message_that_does_not_go_on_ends_its_connection_with_a_reason(
    hurried: GatewayProcess,
) -> None:
    before = metric(hurried, "stalled_messages_total")
    with closing(_mqtt_begin(hurried, "stalled", 900 * KIB)) as client:
        assert client.recv(100) == b"", "the gateway has closed it"
    assert metric(hurried, "stalled_messages_total") == before + 1
    assert re.search(r"'stalled' at 127.0.0.1.*unfinished message.*not gone on", hurried.log())


# --- transactions


def test_all_open_transactions_of_a_connection_have_a_limit_together(
    small: GatewayProcess,
) -> None:
    with closing(amqp(small)) as connection:
        first, second = connection.channel(), connection.channel()
        first.queue_declare("together", durable=True)
        for channel in (first, second):
            channel.tx_select()
        for _ in range(8):
            first.basic_publish("", "together", BODY)
        for _ in range(8):
            second.basic_publish("", "together", BODY)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="max_connection_trans"):
            second.tx_commit()
        first.tx_commit()
        assert first.queue_declare("together", passive=True).method.message_count == 8
        first.queue_delete("together")


def test_when_memory_stays_short_the_largest_holder_is_ended_and_publishers_go_on(
    hurried: GatewayProcess,
) -> None:
    before = metric(hurried, "relieved_connections_total")
    with closing(amqp(hurried)) as publishing:
        publisher = publishing.channel()
        publisher.queue_declare("relief", durable=True)
        publisher.confirm_delivery()
        holders = [amqp(hurried) for _ in range(3)]
        for holder in holders:
            channel = holder.channel()
            channel.tx_select()
            for _ in range(11):
                channel.basic_publish("", "relief", BODY)
            holder.process_data_events(0)
        publisher.basic_publish("", "relief", b"confirmed at last")
        wait_until(lambda: not is_short(hurried))
        assert metric(hurried, "relieved_connections_total") > before
        assert _bodies(publisher, "relief", 1) == [b"confirmed at last"]
        for holder in holders:
            try:
                holder.close()
            except pika.exceptions.AMQPError as error:
                assert "it held" in str(error)  # noqa: PT017 - which of them it was is open


# --- output


def test_a_subscriber_that_reads_nothing_is_ended_and_others_get_all(
    hurried: GatewayProcess,
) -> None:
    before = metric(hurried, "unread_connections_total")
    with _paho(hurried) as publisher, _paho(hurried) as subscriber:
        got: list[bytes] = []
        subscriber.on_message = lambda _client, _data, message: got.append(message.payload)
        subscriber.subscribe("deaf", 1)
        wait_until(subscriber.is_subscribed.is_set)
        deaf = _deaf_subscriber(hurried, "deaf")
        with closing(deaf):
            for _ in range(8):
                publisher.publish("deaf", bytes(900 * KIB), 0).wait_for_publish(PATIENCE_SECONDS)
            wait_until(lambda: metric(hurried, "unread_connections_total") == before + 1)
        wait_until(lambda: len(got) == 8)
    assert re.search(r"'deaf' at 127.0.0.1.*nothing of what waits for it was read", hurried.log())


def _deaf_subscriber(gateway: GatewayProcess, topic: str) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    made.settimeout(PATIENCE_SECONDS)
    made.connect(("127.0.0.1", gateway.ports["mqtt"]))
    made.sendall(b"\x10\x10\0\x04MQTT\x04\x02\0\0\0\x04deaf")
    assert made.recv(4) == b"\x20\x02\0\0"
    name = topic.encode()
    made.sendall(b"\x82" + bytes((5 + len(name), 0, 1, 0, len(name))) + name + b"\0")
    assert made.recv(5) == b"\x90\x03\0\x01\0"
    return made
