"""AMQP 0.9.1 with pika: publishing, consuming, settling, streams, topics, and errors.

One gateway serves all tests; each has names of its own.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.amqp091_pika import Connect, connections, get_until, take
from tests.support.gateway_process import GatewayProcess
from tests.support.names import fresh

STREAM = {"x-queue-type": "stream"}


@pytest.fixture
def connect(shared_gateway: GatewayProcess) -> Iterator[Connect]:
    with connections(shared_gateway.amqp_url()) as made:
        yield made


@pytest.fixture
def channel(connect: Connect) -> BlockingChannel:
    return connect().channel()


# --- publishing


def test_an_unroutable_mandatory_message_is_returned(channel: BlockingChannel) -> None:
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError) as caught:
        channel.basic_publish("amq.direct", "nowhere", b"lost", mandatory=True)
    returned = caught.value.messages[0]
    assert returned.body == b"lost"
    assert returned.method.reply_code == 312
    assert (returned.method.exchange, returned.method.routing_key) == ("amq.direct", "nowhere")


def test_a_full_queue_that_rejects_publishes_nacks(channel: BlockingChannel) -> None:
    channel.confirm_delivery()
    queue = fresh("full")
    channel.queue_declare(
        queue, durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"}
    )
    channel.basic_publish("", queue, b"1")
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", queue, b"2")


def test_cc_and_bcc_route_too_and_bcc_is_not_shown(channel: BlockingChannel) -> None:
    queues = [channel.queue_declare("", exclusive=True).method.queue for _ in range(3)]
    channel.basic_publish(
        "",
        queues[0],
        b"copies",
        pika.BasicProperties(headers={"CC": [queues[1]], "BCC": [queues[2]]}),
    )
    for queue in queues:
        _, properties, body = get_until(channel, queue, auto_ack=True)
        assert body == b"copies"
        assert properties.headers == {"CC": [queues[1]]}


def test_a_user_id_that_is_not_ones_own_closes_the_channel(channel: BlockingChannel) -> None:
    channel.queue_declare(queue := fresh("ids"))
    channel.basic_publish("", queue, b"mine", pika.BasicProperties(user_id="guest"))
    assert get_until(channel, queue, auto_ack=True)[1].user_id == "guest"
    channel.basic_publish("", queue, b"forged", pika.BasicProperties(user_id="root"))
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.queue_declare(queue, passive=True)
    assert caught.value.reply_code == 406
    assert "user_id property set to 'root'" in caught.value.reply_text


def test_direct_reply_to_needs_no_queue(connect: Connect) -> None:
    queue = fresh("fast-rpc")
    server, client = connect().channel(), connect().channel()
    server.queue_declare(queue)
    replies: list[bytes] = []
    client.basic_consume(
        "amq.rabbitmq.reply-to",
        on_message_callback=lambda ch, m, p, body: replies.append(body),
        auto_ack=True,
    )
    client.basic_publish("", queue, b"ask", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to"))
    _, properties, _ = get_until(server, queue, auto_ack=True)
    assert properties.reply_to.startswith("amq.rabbitmq.reply-to.")
    server.queue_declare(properties.reply_to, passive=True)
    server.basic_publish("", properties.reply_to, b"answer")
    deadline = time.monotonic() + 10
    while not replies and time.monotonic() < deadline:
        client.connection.process_data_events(0.02)
        server.connection.process_data_events(0)
    assert replies == [b"answer"]


def test_a_transaction_is_seen_only_after_its_commit(
    connect: Connect,
) -> None:
    queue = fresh("tx")
    channel, watcher = connect().channel(), connect().channel()
    channel.queue_declare(queue, durable=True)
    channel.tx_select()
    channel.basic_publish("", queue, b"one", pika.BasicProperties(delivery_mode=2))
    channel.basic_publish("", queue, b"two", pika.BasicProperties(delivery_mode=2))
    assert watcher.queue_declare(queue, passive=True).method.message_count == 0
    channel.tx_commit()
    assert watcher.queue_declare(queue, passive=True).method.message_count == 2
    channel.basic_publish("", queue, b"three")
    channel.tx_rollback()
    assert watcher.queue_declare(queue, passive=True).method.message_count == 2


def test_an_ack_in_a_transaction_comes_back_with_a_rollback(
    connect: Connect,
) -> None:
    queue = fresh("tx-ack")
    channel = connect().channel()
    channel.queue_declare(queue, durable=True)
    channel.basic_publish("", queue, b"one", pika.BasicProperties(delivery_mode=2))
    channel.tx_select()
    method, _, _ = get_until(channel, queue)
    channel.basic_ack(method.delivery_tag)
    channel.tx_rollback()
    channel.basic_ack(method.delivery_tag)
    channel.tx_commit()
    assert channel.queue_declare(queue, passive=True).method.message_count == 0
    channel.close()
    other = connect().channel()
    assert other.basic_get(queue)[0] is None


def test_whoever_asks_sees_what_was_published_before_though_nothing_was_confirmed(
    channel: BlockingChannel,
) -> None:
    channel.queue_declare(queue := fresh("seen"), durable=True)
    for index in range(30):
        channel.basic_publish("", queue, str(index), pika.BasicProperties(delivery_mode=2))
        if index % 10 == 9:
            declared = channel.queue_declare(queue, passive=True)
            assert declared.method.message_count == 10
            assert channel.queue_purge(queue).method.message_count == 10
    channel.basic_publish("", queue, b"last", pika.BasicProperties(delivery_mode=2))
    assert channel.basic_get(queue, auto_ack=True)[2] == b"last"


# --- consuming


def test_nacked_messages_return_to_their_own_place(channel: BlockingChannel) -> None:
    channel.queue_declare(queue := fresh("order"), durable=True)
    for index in range(5):
        channel.basic_publish("", queue, str(index))
    found = take(channel, queue, 3)
    channel.basic_nack(found[2][0].delivery_tag, multiple=True, requeue=True)
    channel.cancel()
    again = take(channel, queue, 5)
    assert [body for _, _, body in again] == [b"0", b"1", b"2", b"3", b"4"]
    assert [method.redelivered for method, _, _ in again][:3] == [True, True, True]


def test_a_rejected_message_dead_letters_with_its_death(channel: BlockingChannel) -> None:
    dead, queue = fresh("dead"), fresh("work")
    channel.queue_declare(dead, durable=True)
    channel.queue_declare(
        queue,
        durable=True,
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead},
    )
    channel.basic_publish("", queue, b"poison", pika.BasicProperties(headers={"k": "v"}))
    method, _, _ = get_until(channel, queue)
    channel.basic_reject(method.delivery_tag, requeue=False)
    _, properties, body = get_until(channel, dead, auto_ack=True)
    assert body == b"poison"
    death = properties.headers["x-death"][0]
    assert (death["queue"], death["reason"], death["count"]) == (queue, "rejected", 1)
    assert (death["exchange"], death["routing-keys"]) == ("", [queue])
    assert properties.headers["x-first-death-queue"] == queue
    assert properties.headers["k"] == "v"


def test_an_expired_message_dead_letters_without_its_expiration(channel: BlockingChannel) -> None:
    dead, queue = fresh("dead"), fresh("short")
    channel.queue_declare(dead, durable=True)
    channel.queue_declare(
        queue,
        durable=True,
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead},
    )
    channel.basic_publish("", queue, b"late", pika.BasicProperties(expiration="100"))
    _, properties, _ = get_until(channel, dead, auto_ack=True)
    assert properties.expiration is None
    death = properties.headers["x-death"][0]
    assert (death["reason"], death["original-expiration"]) == ("expired", "100")


def test_a_message_that_fails_too_often_is_dead_lettered(channel: BlockingChannel) -> None:
    dead, queue = fresh("dead"), fresh("limited")
    channel.queue_declare(dead, durable=True)
    channel.queue_declare(
        queue,
        durable=True,
        arguments={
            "x-queue-type": "quorum",
            "x-delivery-limit": 2,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": dead,
        },
    )
    channel.basic_publish("", queue, b"poison")
    counts = []
    for _ in range(3):
        method, properties, _ = get_until(channel, queue)
        counts.append((properties.headers or {}).get("x-delivery-count", 0))
        channel.basic_reject(method.delivery_tag, requeue=True)
    assert counts == [0, 1, 2]
    _, properties, _ = get_until(channel, dead, auto_ack=True)
    assert properties.headers["x-death"][0]["reason"] == "delivery_limit"


def test_a_higher_priority_overtakes(channel: BlockingChannel) -> None:
    channel.queue_declare(queue := fresh("prio"), durable=True, arguments={"x-max-priority": 5})
    channel.confirm_delivery()
    for priority in (1, 5, 3):
        channel.basic_publish(
            "", queue, str(priority), pika.BasicProperties(priority=priority, delivery_mode=2)
        )
    assert [body for _, _, body in take(channel, queue, 3, auto_ack=True)] == [b"5", b"3", b"1"]


def test_a_channel_wide_prefetch_is_shared_by_its_consumers(
    connect: Connect,
) -> None:
    channel = connect().channel()
    queues = [channel.queue_declare("", exclusive=True).method.queue for _ in range(2)]
    for queue in queues:
        for index in range(5):
            channel.basic_publish("", queue, str(index))
    channel.basic_qos(prefetch_count=3, global_qos=True)
    found: list[int] = []
    for queue in queues:
        channel.basic_consume(queue, lambda ch, method, p, b: found.append(method.delivery_tag))
    channel.connection.process_data_events(0.3)
    assert found == [1, 2, 3]
    channel.basic_ack(2, multiple=True)
    channel.connection.process_data_events(0.3)
    assert found == [1, 2, 3, 4, 5]


def test_a_consumer_is_told_when_its_queue_is_deleted(
    connect: Connect,
) -> None:
    channel, other = connect().channel(), connect().channel()
    channel.queue_declare(queue := fresh("doomed"), durable=True)
    cancelled: list[str] = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = channel.basic_consume(queue, lambda *_: None)
    other.queue_delete(queue)
    deadline = time.monotonic() + 10
    while not cancelled and time.monotonic() < deadline:
        channel.connection.process_data_events(0.05)
    assert cancelled == [tag]


def test_an_unacknowledged_message_comes_back_when_its_connection_closes(
    connect: Connect,
) -> None:
    first, second = connect(), connect().channel()
    second.queue_declare(queue := fresh("returned"), durable=True)
    second.basic_publish("", queue, b"again")
    method, _, _ = get_until(first.channel(), queue)
    assert method.redelivered is False
    first.close()
    method, _, body = get_until(second, queue)
    assert (method.redelivered, body) == (True, b"again")


def test_a_lost_connection_counts_as_a_failed_delivery(connect: Connect) -> None:
    first, second = connect(), connect().channel()
    second.queue_declare(queue := fresh("lost"), durable=True)
    second.basic_publish("", queue, b"again")
    get_until(first.channel(), queue)
    first._impl._transport._sock.shutdown(socket.SHUT_RDWR)  # without a word
    method, properties, _ = get_until(second, queue)
    assert method.redelivered is True
    assert properties.headers == {"x-delivery-count": 1}


def test_recover_gives_everything_back(channel: BlockingChannel) -> None:
    channel.queue_declare(queue := fresh("recover"), durable=True)
    channel.basic_publish("", queue, b"one")
    get_until(channel, queue)
    channel.basic_recover(requeue=True)
    assert get_until(channel, queue)[0].redelivered is True


def test_large_bodies_go_through_in_many_frames(channel: BlockingChannel) -> None:
    channel.queue_declare(queue := fresh("large"), durable=True)
    body = bytes(range(256)) * 4096  # 1 MiB, eight frames
    channel.basic_publish("", queue, body)
    channel.basic_publish("", queue, b"")
    assert [body for _, _, body in take(channel, queue, 2, auto_ack=True)] == [body, b""]


def test_a_stream_is_read_from_an_offset_and_again(
    connect: Connect,
) -> None:
    channel = connect().channel()
    channel.queue_declare(queue := fresh("log"), durable=True, arguments=STREAM)
    channel.confirm_delivery()
    for index in range(6):
        channel.basic_publish("", queue, str(index))
    for offset, expected in (("first", 6), (3, 3), ("last", 1)):
        reader = connect().channel()
        reader.basic_qos(prefetch_count=100)
        found = take(reader, queue, expected, arguments={"x-stream-offset": offset})
        offsets = [properties.headers["x-stream-offset"] for _, properties, _ in found]
        assert offsets == list(range(6 - expected, 6))
        assert [int(body) for _, _, body in found] == offsets


def test_a_group_goes_on_reading_a_stream_where_it_stopped(connect: Connect) -> None:
    channel = connect().channel()
    channel.queue_declare(queue := fresh("group"), durable=True, arguments=STREAM)
    channel.confirm_delivery()
    for index in range(6):
        channel.basic_publish("", queue, str(index))
    arguments = {"x-stream-offset": "first", "x-consumer-group": "readers"}
    first = connect()
    reader = first.channel()
    found = take(reader, queue, 6, arguments=arguments)
    reader.basic_ack(found[2][0].delivery_tag, multiple=True)
    first.close()
    again = take(connect().channel(), queue, 3, arguments=arguments)
    assert [body for _, _, body in again] == [b"3", b"4", b"5"]


# --- pub/sub


def test_a_name_without_a_queue_is_a_topic(connect: Connect) -> None:
    prefix = fresh("topic")
    reader, writer = connect().channel(), connect().channel()
    found: list[tuple[str, bytes]] = []
    reader.basic_consume(
        f"{prefix}.*.temperature",
        lambda ch, method, p, body: found.append((method.routing_key, body)),
        auto_ack=True,
    )
    writer.confirm_delivery()
    writer.basic_publish("", f"{prefix}.kitchen.temperature", b"21", mandatory=True)
    writer.basic_publish("amq.topic", f"{prefix}.cellar.temperature", b"12", mandatory=True)
    with pytest.raises(pika.exceptions.UnroutableError):
        writer.basic_publish("", f"{prefix}.kitchen.humidity", b"40", mandatory=True)
    deadline = time.monotonic() + 10
    while len(found) < 2 and time.monotonic() < deadline:
        reader.connection.process_data_events(0.05)
    assert found == [
        (f"{prefix}.kitchen.temperature", b"21"),
        (f"{prefix}.cellar.temperature", b"12"),
    ]


# --- errors


def closed_by(
    channel: BlockingChannel, act: Callable[[BlockingChannel], object]
) -> tuple[int, str]:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        act(channel)
    return caught.value.reply_code, caught.value.reply_text


ERRORS = [
    pytest.param(404, lambda ch: ch.queue_declare("no-such", passive=True), id="no queue"),
    pytest.param(404, lambda ch: ch.exchange_declare("no-such", passive=True), id="no exchange"),
    pytest.param(404, lambda ch: ch.basic_get("no-such"), id="get from nowhere"),
    pytest.param(403, lambda ch: ch.queue_declare("amq.mine"), id="reserved queue name"),
    pytest.param(403, lambda ch: ch.exchange_declare("amq.mine"), id="reserved exchange name"),
    pytest.param(403, lambda ch: ch.exchange_delete("amq.topic"), id="predeclared exchange"),
    pytest.param(
        406, lambda ch: ch.queue_declare("q", arguments={"x-max-length": -1}), id="wrong value"
    ),
    pytest.param(
        406,
        lambda ch: ch.queue_declare("q", durable=True, arguments={"x-message-ttl": -1}),
        id="invalid argument",
    ),
    pytest.param(
        406, lambda ch: ch.exchange_declare("amq.topic", "fanout", durable=True), id="inequivalent"
    ),
    pytest.param(406, lambda ch: ch.tx_commit(), id="commit without select"),
]


@pytest.mark.parametrize(("code", "act"), ERRORS)
def test_a_request_that_cannot_be_met_closes_the_channel_alone(
    connect: Connect,
    code: int,
    act: Callable[[BlockingChannel], object],
) -> None:
    connection = connect()
    found, text = closed_by(connection.channel(), act)
    assert found == code
    assert " - " in text
    assert connection.channel().queue_declare("", exclusive=True).method.queue


def test_publishing_to_an_unknown_exchange_closes_the_channel(channel: BlockingChannel) -> None:
    channel.basic_publish("no-such", "k", b"lost")
    code, text = closed_by(channel, lambda ch: ch.queue_declare("", exclusive=True))
    assert (code, "no exchange 'no-such'" in text) == (404, True)


def test_acknowledging_twice_closes_the_channel(channel: BlockingChannel) -> None:
    channel.queue_declare(queue := fresh("twice"), durable=True)
    channel.basic_publish("", queue, b"once")
    method, _, _ = get_until(channel, queue)
    channel.basic_ack(method.delivery_tag)
    channel.basic_ack(method.delivery_tag)
    code, text = closed_by(channel, lambda ch: ch.queue_declare(queue, passive=True))
    assert (code, "unknown delivery tag 1" in text) == (406, True)


def test_a_message_that_is_not_acknowledged_in_time_closes_the_channel_alone(
    connect: Connect,
) -> None:
    connection = connect()
    slow, other = connection.channel(), connection.channel()
    slow.queue_declare(queue := fresh("slow"), durable=True, arguments={"x-consumer-timeout": 1000})
    slow.basic_publish("", queue, b"once")
    slow.basic_consume(queue, lambda *_: None)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        slow.start_consuming()
    assert caught.value.reply_code == 406
    assert "x-consumer-timeout" in caught.value.reply_text
    method, properties, body = get_until(other, queue, auto_ack=True)
    assert (method.redelivered, body) == (True, b"once")
    assert properties.headers == {"x-delivery-count": 1}


def test_an_exclusive_queue_is_locked_to_others(
    connect: Connect,
) -> None:
    owner, other = connect(), connect()
    queue = owner.channel().queue_declare("", exclusive=True).method.queue
    code, _ = closed_by(other.channel(), lambda ch: ch.queue_declare(queue, passive=True))
    assert code == 405
    owner.close()
    code, _ = closed_by(other.channel(), lambda ch: ch.queue_declare(queue, passive=True))
    assert code == 404


def test_a_wrong_password_is_refused_with_403(shared_gateway: GatewayProcess) -> None:
    url = shared_gateway.amqp_url(password="wrong")
    with pytest.raises(pika.exceptions.ProbableAuthenticationError, match="403"):
        pika.BlockingConnection(pika.URLParameters(url))


def test_an_unknown_vhost_is_refused_with_530(shared_gateway: GatewayProcess) -> None:
    url = shared_gateway.amqp_url(vhost="nowhere")
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="530"):
        pika.BlockingConnection(pika.URLParameters(url))


def test_an_immediate_publish_is_not_implemented(
    connect: Connect,
) -> None:
    connection = connect()
    channel = connection.channel()
    channel._impl._send_method(pika.spec.Basic.Publish(routing_key="k", immediate=True))
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        connection.process_data_events(5)
    assert caught.value.reply_code == 540
