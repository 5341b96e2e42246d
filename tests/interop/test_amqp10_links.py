"""AMQP 1.0 with python-qpid-proton's blocking client: sending, receiving, outcomes and credit.

One gateway serves all tests; each has names of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.amqp10_client import (
    Connections,
    Delivery,
    LinkDetached,
    SendException,
    content,
    cut,
    data,
    nothing_comes,
    nothing_is_on_its_way,
    reactor,
    symbol,
)
from tests.support.names import fresh
from tests.support.until import PATIENCE_SECONDS

# --- sending


def test_a_message_is_accepted_and_received_by_another_connection(connect: Connections) -> None:
    queue = fresh("first")
    sent = connect().create_sender(f"queue://{queue}").send(data(b"hello", durable=True))
    assert (sent.remote_state, sent.settled) == (Delivery.ACCEPTED, True)
    receiver = connect().create_receiver(f"/queues/{queue}")
    message = receiver.receive()
    assert (bytes(message.body), message.durable) == (b"hello", True)
    assert (message.first_acquirer, message.delivery_count) == (True, 0)
    receiver.accept()


def test_what_is_accepted_by_the_receiver_never_comes_back(connect: Connections) -> None:
    queue = fresh("settled")
    connection = connect()
    connection.create_sender(f"queue://{queue}").send(data(b"once"))
    receiver = connection.create_receiver(f"queue://{queue}")
    receiver.receive()
    receiver.accept()
    connection.close()
    assert nothing_comes(connect().create_receiver(f"queue://{queue}"))


def test_a_message_that_no_queue_takes_is_released(connect: Connections) -> None:
    sender = connect().create_sender(f"topic://{fresh('nobody')}.listens")
    with pytest.raises(SendException) as raised:
        sender.send(data(b"lost"))
    assert raised.value.state == Delivery.RELEASED


def test_a_full_queue_rejects_and_says_which_and_why(connect: Connections, channel: Any) -> None:
    queue = fresh("full")
    channel.queue_declare(
        queue, durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"}
    )
    connection = connect()
    sender = connection.create_sender(f"/queues/{queue}")
    sender.send(data(b"fits"))
    delivery = sender.link.send(data(b"does not"))
    connection.wait(lambda: delivery.settled)
    assert delivery.remote_state == Delivery.REJECTED
    condition = delivery.remote.condition
    assert condition.name == "amqp:resource-limit-exceeded"
    assert queue in condition.description


def test_settled_transfers_arrive_without_an_answer(connect: Connections) -> None:
    queue = fresh("fire-and-forget")
    connection = connect()
    sender = connection.create_sender(f"queue://{queue}", options=reactor.AtMostOnce())
    for number in range(100):
        sender.send(data(str(number).encode()))
    receiver = connection.create_receiver(f"queue://{queue}", credit=100)
    assert [content(receiver) for _ in range(100)] == [
        str(number).encode() for number in range(100)
    ]


@pytest.mark.parametrize("size", [100_000, 1 << 20, 10 << 20])
def test_large_messages_pass_whole(connect: Connections, size: int) -> None:
    queue, body = fresh("large"), b"0123456789abcdef" * (size // 16)
    connection = connect()
    connection.create_sender(f"queue://{queue}").send(data(body))
    receiver = connection.create_receiver(f"queue://{queue}")
    assert content(receiver) == body
    receiver.accept()


def test_the_largest_message_is_announced_and_a_larger_one_ends_the_link(
    connect: Connections,
) -> None:
    connection = connect()
    sender = connection.create_sender(f"queue://{fresh('too-large')}")
    assert sender.link.remote_max_message_size == 16 << 20
    with pytest.raises(LinkDetached) as raised:
        sender.send(data(bytes((16 << 20) + 1)))
    assert "message-size-exceeded" in str(raised.value)
    connection.create_sender(f"queue://{fresh('next')}").send(data(b"the session goes on"))


def test_an_aborted_transfer_leaves_nothing(connect: Connections) -> None:
    queue = fresh("aborted")
    connection = connect()
    sender = connection.create_sender(f"queue://{queue}")
    delivery = sender.link.delivery("half")
    sender.link.stream(data(bytes(300_000)).encode()[:200_000])
    connection.container.process()
    delivery.abort()
    sender.send(data(b"whole"))
    receiver = connection.create_receiver(f"queue://{queue}", credit=2)
    assert content(receiver) == b"whole"
    assert nothing_comes(receiver)


def test_a_queue_with_a_window_stores_what_a_reconnecting_sender_repeats_once(
    connect: Connections, channel: Any
) -> None:
    queue = fresh("dedup")
    channel.queue_declare(queue, durable=True, arguments={"x-deduplication-window": 60_000})
    for _ in range(2):
        connection = connect()
        connection.create_sender(f"/queues/{queue}").send(data(b"same", id="one"))
        connection.close()
    receiver = connect().create_receiver(f"/queues/{queue}", credit=2)
    assert content(receiver) == b"same"
    assert nothing_comes(receiver)


# --- outcomes


def settle_one(connection: Any, queue: str, settle: Callable[[Any], None]) -> None:
    receiver = connection.create_receiver(f"/queues/{queue}", credit=1)
    receiver.receive()
    settle(receiver)
    receiver.close()


def test_released_comes_again_flagged_but_not_counted(connect: Connections) -> None:
    queue, connection = fresh("released"), connect()
    connection.create_sender(f"queue://{queue}").send(data(b"again"))
    settle_one(connection, queue, lambda receiver: receiver.release(delivered=False))
    message = connection.create_receiver(f"/queues/{queue}").receive()
    assert (message.first_acquirer, message.delivery_count) == (False, 0)


def fail(receiver: Any) -> None:
    delivery = receiver.fetcher.unsettled.popleft()
    delivery.local.failed = True
    delivery.update(Delivery.MODIFIED)
    delivery.settle()


def test_modified_with_delivery_failed_is_counted(connect: Connections) -> None:
    queue, connection = fresh("modified"), connect()
    connection.create_sender(f"queue://{queue}").send(data(b"again"))
    settle_one(connection, queue, fail)
    message = connection.create_receiver(f"/queues/{queue}").receive()
    assert (message.first_acquirer, message.delivery_count) == (False, 1)


def test_annotations_of_modified_stay_with_the_message(connect: Connections) -> None:
    queue, connection = fresh("annotated"), connect()
    connection.create_sender(f"queue://{queue}").send(
        data(b"again", subject="kept", annotations={symbol("x-old"): 1, symbol("x-mine"): "a"})
    )

    def annotate(receiver: Any) -> None:
        delivery = receiver.fetcher.unsettled.popleft()
        delivery.local.annotations = {symbol("x-mine"): "b", symbol("x-publisher-id"): "me"}
        delivery.update(Delivery.MODIFIED)
        delivery.settle()

    settle_one(connection, queue, annotate)
    message = connection.create_receiver(f"/queues/{queue}").receive()
    assert (bytes(message.body), message.subject) == (b"again", "kept")
    found = message.annotations
    assert (found[symbol("x-mine")], found[symbol("x-old")]) == ("b", 1)
    assert found[symbol("x-publisher-id")] == "guest"


def test_undeliverable_here_goes_to_somebody_else(connect: Connections) -> None:
    queue, connection = fresh("not-here"), connect()
    connection.create_sender(f"queue://{queue}").send(data(b"elsewhere"))
    receiver = connection.create_receiver(f"/queues/{queue}", credit=2)
    receiver.receive()
    delivery = receiver.fetcher.unsettled.popleft()
    delivery.local.undeliverable = True
    delivery.update(Delivery.MODIFIED)
    delivery.settle()
    assert nothing_comes(receiver)
    assert content(connect().create_receiver(f"/queues/{queue}")) == b"elsewhere"


def test_rejected_is_dead_lettered_with_its_story(connect: Connections, channel: Any) -> None:
    queue, dead = fresh("rejects"), fresh("dead")
    channel.queue_declare(dead, durable=True)
    channel.queue_declare(
        queue,
        durable=True,
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead},
    )
    connection = connect()
    connection.create_sender(f"/queues/{queue}").send(data(b"bad", subject="kept"))
    settle_one(connection, queue, lambda receiver: receiver.reject())
    message = connection.create_receiver(f"/queues/{dead}").receive()
    assert (bytes(message.body), message.subject) == (b"bad", "kept")
    (death,) = message.annotations[symbol("x-opt-deaths")]
    assert (death["queue"], death["reason"], death["count"]) == (queue, "rejected", 1)


def test_a_lost_connection_counts_as_a_failure_and_a_clean_close_does_not(
    connect: Connections,
) -> None:
    queue = fresh("lost")
    connect().create_sender(f"queue://{queue}").send(data(b"mine"))
    clean = connect()
    clean.create_receiver(f"/queues/{queue}").receive()
    clean.close()
    lost = connect()
    receiver = lost.create_receiver(f"/queues/{queue}")
    message = receiver.receive()
    assert (message.first_acquirer, message.delivery_count) == (False, 0)
    cut(lost)
    message = connect().create_receiver(f"/queues/{queue}").receive()
    assert (message.first_acquirer, message.delivery_count) == (False, 1)


# --- credit


def test_nothing_is_sent_beyond_the_credit(connect: Connections) -> None:
    queue, connection = fresh("credit"), connect()
    sender = connection.create_sender(f"queue://{queue}")
    for number in range(10):
        sender.send(data(str(number).encode()))
    receiver = connection.create_receiver(f"queue://{queue}", credit=0)
    receiver.link.flow(3)
    got = [receiver.receive() for _ in range(1)]
    connection.wait(lambda: len(receiver.fetcher.incoming) >= 2)
    assert nothing_is_on_its_way(connection, receiver)
    assert len(got) + len(receiver.fetcher.incoming) == 3


def test_draining_gives_what_is_there_and_takes_the_rest_of_the_credit_back(
    connect: Connections,
) -> None:
    queue, connection = fresh("drain"), connect()
    sender = connection.create_sender(f"queue://{queue}")
    for _ in range(3):
        sender.send(data(b"x"))
    receiver = connection.create_receiver(f"queue://{queue}", credit=0)
    receiver.link.drain(10)
    connection.wait(lambda: len(receiver.fetcher.incoming) == 3 and not receiver.link.draining())
    assert receiver.link.credit == 0
    sender.send(data(b"later"))
    assert nothing_is_on_its_way(connection, receiver)


def test_draining_an_empty_queue_answers_at_once(connect: Connections) -> None:
    connection = connect()
    receiver = connection.create_receiver(f"queue://{fresh('empty')}", credit=0)
    receiver.link.drain(5)
    connection.wait(lambda: not receiver.link.draining())
    assert receiver.link.credit == 0


def test_a_thousand_links_work_on_one_connection(connect: Connections) -> None:
    connection = connect()
    queue = fresh("links")
    connection.create_sender(f"queue://{queue}")
    session = connection.conn.session()
    session.open()
    links = []
    for number in range(1000):
        link = session.sender(f"link-{number}")
        link.target.address = f"/queues/{queue}"
        link.open()
        links.append(link)
    connection.wait(lambda: all(link.credit > 0 for link in links), timeout=PATIENCE_SECONDS)
    deliveries = [link.send(data(b"x")) for link in links]
    connection.wait(lambda: all(each.remote_state for each in deliveries), timeout=PATIENCE_SECONDS)
    assert {each.remote_state for each in deliveries} == {Delivery.ACCEPTED}
