"""AMQP 1.0 with python-qpid-proton's blocking client: bodies, addresses, filters, connections.

One gateway serves all tests; each has names of its own.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest

from tests.support.amqp10_client import (
    EVERY_TYPE,
    BlockingConnection,
    Capable,
    ConnectionClosed,
    Connections,
    Delivery,
    Described,
    Filter,
    LinkDetached,
    Message,
    SendException,
    Timeout,
    Wanting,
    content,
    data,
    filters_of,
    nothing_comes,
    proton,
    reactor,
    symbol,
    ulong,
)
from tests.support.gateway_process import GatewayProcess
from tests.support.names import fresh
from tests.support.until import PATIENCE_SECONDS

# --- bodies and types

BODIES = [
    pytest.param(b"", True, id="empty data"),
    pytest.param(bytes(300), True, id="data"),
    pytest.param("text", False, id="value string"),
    pytest.param("x" * 70_000, False, id="value long string"),
    pytest.param(None, False, id="value null"),
    pytest.param(ulong(7), False, id="value ulong"),
    pytest.param({"a": [1, 2, {"b": UUID(int=5)}]}, False, id="value map"),
    pytest.param([1, "two", None], False, id="value list"),
    pytest.param([1, "two", None], True, id="sequence"),
    pytest.param(Described(symbol("my:type"), [1]), False, id="value described"),
    pytest.param(EVERY_TYPE, False, id="value of every type"),
]


@pytest.mark.parametrize(("body", "inferred"), BODIES)
def test_the_bare_message_arrives_byte_for_byte(
    connect: Connections, body: object, inferred: bool
) -> None:
    queue, connection = fresh("bytes"), connect()
    message = Message(
        body=body,
        inferred=inferred,
        id=UUID(int=9),
        user_id=b"guest",
        subject="s",
        correlation_id=ulong(5),
        reply_to="/queues/r",
        content_type="a/b",
        content_encoding="gzip",
        creation_time=1_700_000_000.5,
        group_id="g",
        group_sequence=3,
        reply_to_group_id="h",
        properties=EVERY_TYPE,
        annotations={symbol("x-opt-all"): EVERY_TYPE},
    )
    message.address = "somewhere"
    sent = message.encode()
    connection.create_sender(f"queue://{queue}").send(message)
    receiver = connection.create_receiver(f"/queues/{queue}")
    received = receiver.receive()
    assert bare(received.encode()) == bare(sent)
    assert received.annotations[symbol("x-opt-all")] == EVERY_TYPE
    receiver.accept()


def bare(encoded: bytes) -> bytes:
    """From the properties on."""
    return encoded[encoded.index(b"\x00\x53\x73") :]


def test_the_gateway_says_who_published_and_nobody_else_can(connect: Connections) -> None:
    queue, connection = fresh("forged"), connect()
    message = data(b"x", annotations={symbol("x-publisher-id"): "somebody", symbol("x-mine"): 1})
    connection.create_sender(f"queue://{queue}").send(message)
    found = connection.create_receiver(f"/queues/{queue}").receive().annotations
    assert (found[symbol("x-publisher-id")], found[symbol("x-mine")]) == ("guest", 1)


def test_a_user_id_that_is_not_the_users_own_is_rejected(connect: Connections) -> None:
    connection = connect()
    sender = connection.create_sender(f"queue://{fresh('user')}")
    with pytest.raises(SendException) as raised:
        sender.send(data(b"x", user_id=b"root"))
    assert raised.value.state == Delivery.REJECTED


def test_a_time_to_live_is_counted_down_and_ends(connect: Connections) -> None:
    queue, connection = fresh("ttl"), connect()
    sender = connection.create_sender(f"queue://{queue}")
    sender.send(data(b"lives", ttl=60.0))
    sender.send(data(b"dies", ttl=0.05))
    time.sleep(0.1)  # a rule about time: the second lives for 50 ms
    receiver = connection.create_receiver(f"/queues/{queue}", credit=2)
    message = receiver.receive()
    assert bytes(message.body) == b"lives"
    assert 50 < message.ttl < 60
    assert nothing_comes(receiver)


# --- addresses


def test_an_unknown_queue_is_not_found_and_the_connection_goes_on(connect: Connections) -> None:
    connection = connect()
    for make in (connection.create_sender, connection.create_receiver):
        with pytest.raises(LinkDetached) as raised:
            make(f"/queues/{fresh('missing')}")
        assert raised.value.condition == "amqp:not-found"
        assert "declare it first" in str(raised.value)
    connection.create_sender(f"queue://{fresh('there')}").send(data(b"x"))


def test_the_capability_queue_makes_the_queue(connect: Connections) -> None:
    queue, connection = fresh("capable"), connect()
    connection.create_sender(queue, options=Capable("queue")).send(data(b"x"))
    assert content(connection.create_receiver(f"$queue/{queue}")) == b"x"


def test_a_bare_name_is_the_queue_if_there_is_one_and_else_a_topic(
    connect: Connections, channel: Any
) -> None:
    queue, connection = fresh("bare"), connect()
    listener = connection.create_receiver(f"{queue}/+")
    connection.create_sender(f"{queue}/x").send(data(b"topic"))
    assert content(listener) == b"topic"
    channel.queue_declare(queue, durable=True)
    connection.create_sender(queue).send(data(b"queue"))
    assert content(connection.create_receiver(queue)) == b"queue"


def test_exchanges_are_addressed_as_rabbitmq_does(connect: Connections, channel: Any) -> None:
    exchange, queue = fresh("x/y"), fresh("bound")
    channel.exchange_declare(exchange, "direct", durable=True)
    channel.queue_declare(queue, durable=True)
    channel.queue_bind(queue, exchange, "a key")
    connection = connect()
    address = f"/exchanges/{exchange.replace('/', '%2F')}/a%20key"
    connection.create_sender(address).send(data(b"x"))
    assert content(connection.create_receiver(f"/queues/{queue}")) == b"x"


def test_topics_have_wildcards_in_either_way_of_writing(connect: Connections) -> None:
    root, connection = fresh("root"), connect()
    dots = connection.create_receiver(f"topic://{root}.*.c", credit=5)
    slashes = connection.create_receiver(f"topic://{root}/#", credit=5)
    connection.create_sender(f"topic://{root}.b.c").send(data(b"one"))
    connection.create_sender(f"topic://{root}/b/d").send(data(b"two"))
    assert content(dots) == b"one"
    assert [content(slashes) for _ in range(2)] == [b"one", b"two"]
    assert nothing_comes(dots)


def test_the_anonymous_relay_sends_each_message_where_it_says(connect: Connections) -> None:
    one, two, connection = fresh("one"), fresh("two"), connect()
    for name in (one, two):
        connection.create_sender(f"queue://{name}")
    sender = connection.create_sender(None)
    sender.send(Message(address=f"/queues/{one}", body="1"))
    sender.send(Message(address=f"queue://{two}", body="2"))
    assert connection.create_receiver(f"/queues/{one}").receive().body == "1"
    assert connection.create_receiver(f"/queues/{two}").receive().body == "2"
    with pytest.raises(SendException):
        sender.send(Message(address=f"/queues/{fresh('nowhere')}", body="3"))
    with pytest.raises(SendException):
        sender.send(Message(body="without an address"))


def test_a_dynamic_source_takes_replies_and_goes_with_its_link(connect: Connections) -> None:
    requests, server, client = fresh("requests"), connect(), connect()
    worker = server.create_receiver(f"queue://{requests}")
    replies = client.create_receiver(None, dynamic=True)
    address = replies.link.remote_source.address
    client.create_sender(f"queue://{requests}").send(Message(body="ping", reply_to=address))
    asked = worker.receive()
    worker.accept()
    server.create_sender(asked.reply_to).send(Message(body="pong"))
    assert replies.receive().body == "pong"
    replies.close()
    with pytest.raises(LinkDetached):
        connect().create_sender(address)


def test_a_durable_subscription_keeps_what_comes_while_nobody_is_there(
    connect: Connections,
) -> None:
    topic, name, container = fresh("news"), fresh("sub"), fresh("container")
    first = connect.named(container)
    receiver = first.create_receiver(
        f"topic://{topic}", name=name, options=reactor.DurableSubscription()
    )
    receiver.link.detach()
    first.container.process()
    first.close()
    connect().create_sender(f"topic://{topic}").send(data(b"missed", durable=True))
    second = connect.named(container)
    receiver = second.create_receiver(
        f"topic://{topic}", name=name, options=reactor.DurableSubscription()
    )
    assert content(receiver) == b"missed"
    receiver.accept()
    receiver.close()  # which ends the subscription
    with pytest.raises(SendException):
        connect().create_sender(f"topic://{topic}").send(data(b"for nobody"))


def test_a_user_of_the_same_names_takes_neither_backlog_nor_binding(
    connect: Connections, shared_gateway: GatewayProcess
) -> None:
    topic, name, container, thief = fresh("news"), fresh("sub"), fresh("container"), fresh("eve")
    words = "correct-horse-battery"
    done = shared_gateway.run("user", "add", thief, words=f"{words}\n{words}\n")
    assert done.returncode == 0, done.stderr
    durable = reactor.DurableSubscription()
    first = connect.named(container)
    first.create_receiver(f"topic://{topic}", name=name, options=durable).link.detach()
    first.container.process()
    first.close()
    sender = connect().create_sender(f"topic://{topic}")
    sender.send(data(b"before", durable=True))
    stolen = connect.named(container, f"{thief}:{words}")
    elsewhere = f"topic://{fresh('other')}"
    other = stolen.create_receiver(elsewhere, name=name, options=durable)
    connect().create_sender(elsewhere).send(data(b"its own", durable=True))
    assert content(other) == b"its own"  # and not what came before it
    other.accept()
    other.close()  # which ends the thief's own subscription
    sender.send(data(b"after", durable=True))
    second = connect.named(container)
    receiver = second.create_receiver(f"topic://{topic}", name=name, options=durable)
    assert content(receiver) == b"before"
    receiver.accept()
    assert content(receiver) == b"after"
    receiver.accept()
    receiver.close()


def test_members_of_a_shared_subscription_compete(connect: Connections) -> None:
    topic, name = fresh("work"), fresh("team")
    members = []
    for number in range(2):
        connection = connect()
        members.append(
            connection.create_receiver(
                f"topic://{topic}",
                credit=10,
                name=f"{name}|{number}",
                options=Wanting("shared", "global"),
            )
        )
    sender = connect().create_sender(f"topic://{topic}")
    for number in range(10):
        sender.send(data(str(number).encode()))
    for member in members:
        with suppress(Timeout):
            member.connection.wait(lambda m=member: len(m.fetcher.incoming) >= 5, timeout=2)
    assert sum(len(member.fetcher.incoming) for member in members) == 10
    assert all(member.fetcher.incoming for member in members)


def test_browsing_takes_nothing(connect: Connections) -> None:
    queue, connection = fresh("browse"), connect()
    sender = connection.create_sender(f"queue://{queue}")
    for number in range(5):
        sender.send(data(str(number).encode()))
    browser = connection.create_receiver(f"/queues/{queue}", credit=10, options=reactor.Copy())
    assert [content(browser) for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]
    browser.close()
    receiver = connection.create_receiver(f"/queues/{queue}", credit=10)
    message = receiver.receive()
    assert (bytes(message.body), message.first_acquirer) == (b"0", True)


# --- filters


def test_a_selector_on_a_topic_lets_through_what_it_says(connect: Connections) -> None:
    topic, connection = fresh("selected"), connect()
    receiver = connection.create_receiver(
        f"topic://{topic}", credit=5, options=reactor.Selector("colour = 'red' AND size > 3")
    )
    assert symbol("selector") in filters_of(receiver.link)
    sender = connection.create_sender(f"topic://{topic}")
    for colour, size in (("red", 1), ("red", 4), ("blue", 9), ("red", 5)):
        sender.send(Message(body=f"{colour} {size}", properties={"colour": colour, "size": size}))
    assert [receiver.receive().body for _ in range(2)] == ["red 4", "red 5"]
    assert nothing_comes(receiver)


def test_a_selector_on_a_queue_leaves_to_others_what_it_does_not_want(
    connect: Connections,
) -> None:
    queue, connection = fresh("selected"), connect()
    sender = connection.create_sender(f"queue://{queue}")
    reds = connection.create_receiver(
        f"/queues/{queue}", name="reds", credit=5, options=reactor.Selector("colour = 'red'")
    )
    assert symbol("selector") in filters_of(reds.link)
    for number, colour in enumerate(("blue", "red", "green", "red")):
        sender.send(Message(body=f"{colour} {number}", properties={"colour": colour}))
    assert [reds.receive().body for _ in range(2)] == ["red 1", "red 3"]
    assert nothing_comes(reds)
    others = connection.create_receiver(
        f"/queues/{queue}", name="others", credit=5, options=reactor.Selector("colour <> 'red'")
    )
    message = others.receive()
    assert (message.body, message.first_acquirer, message.delivery_count) == ("blue 0", True, 0)
    others.release(delivered=False)
    others.close()  # what it had comes back for whoever takes it
    rest = connection.create_receiver(f"/queues/{queue}", credit=5)
    assert [rest.receive().body for _ in range(2)] == ["blue 0", "green 2"]


def test_draining_with_a_selector_gives_what_matches_and_the_credit_back(
    connect: Connections,
) -> None:
    queue, connection = fresh("selected"), connect()
    sender = connection.create_sender(f"queue://{queue}")
    for number in range(6):
        sender.send(Message(body=number, properties={"n": number}))
    receiver = connection.create_receiver(
        f"/queues/{queue}", credit=0, options=reactor.Selector("n >= 4 OR missing IS NOT NULL")
    )
    receiver.link.drain(5)
    connection.wait(lambda: len(receiver.fetcher.incoming) == 2 and not receiver.link.draining())
    assert [receiver.receive().body for _ in range(2)] == [4, 5]


@pytest.mark.parametrize("node", ["topic://", "queue://"])
def test_a_selector_that_is_none_is_refused_with_its_fault(connect: Connections, node: str) -> None:
    with pytest.raises(LinkDetached) as raised:
        connect().create_receiver(
            f"{node}{fresh('t')}", options=reactor.Selector("colour = = 'red'")
        )
    assert raised.value.condition == "amqp:invalid-field"
    assert "9" in str(raised.value)  # where


def test_a_filter_that_is_not_supported_is_left_out_of_the_answer(connect: Connections) -> None:
    unknown = Filter({symbol("odd"): Described(symbol("example.com:odd"), "x")})
    receiver = connect().create_receiver(f"topic://{fresh('t')}", options=unknown)
    assert symbol("odd") not in filters_of(receiver.link)


def test_no_local_keeps_away_what_the_same_connection_sent(connect: Connections) -> None:
    topic, mine, other = fresh("local"), connect(), connect()
    no_local = Filter(
        {symbol("no-local"): Described(symbol("apache.org:no-local-filter:list"), [])}
    )
    receiver = mine.create_receiver(f"topic://{topic}", credit=5, options=no_local)
    mine.create_sender(f"topic://{topic}").send(data(b"mine"))
    other.create_sender(f"topic://{topic}").send(data(b"other"))
    assert content(receiver) == b"other"
    assert nothing_comes(receiver)


@pytest.mark.parametrize(
    ("start", "expected"),
    [("first", [b"0", b"1", b"2"]), ("last", [b"2"]), (ulong(1), [b"1", b"2"])],
)
def test_a_stream_is_read_from_where_the_filter_says(
    connect: Connections, channel: Any, start: object, expected: list[bytes]
) -> None:
    stream, connection = fresh("stream"), connect()
    channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
    sender = connection.create_sender(f"/queues/{stream}")
    for number in range(3):
        sender.send(data(str(number).encode()))
    offset = Filter(
        {
            symbol("rabbitmq:stream-offset-spec"): Described(
                symbol("rabbitmq:stream-offset-spec"), start
            )
        }
    )
    receiver = connection.create_receiver(f"/queues/{stream}", credit=10, options=offset)
    messages = [receiver.receive() for _ in expected]
    assert [bytes(message.body) for message in messages] == expected
    assert messages[-1].annotations[symbol("x-stream-offset")] == 2


# --- the connection


def test_the_connection_names_the_product_and_offers_what_it_can(connect: Connections) -> None:
    connection = connect()
    assert connection.conn.remote_properties[symbol("product")] == "Howdah"
    assert symbol("ANONYMOUS-RELAY") in connection.conn.remote_offered_capabilities


def test_a_wrong_password_is_refused(shared_gateway: GatewayProcess) -> None:
    url = f"amqp://guest:wrong@127.0.0.1:{shared_gateway.ports['amqp']}"
    with pytest.raises(proton.ConnectionException, match="unauthorized-access"):
        BlockingConnection(url, timeout=PATIENCE_SECONDS, allowed_mechs="PLAIN")


def test_anonymous_is_let_in_from_loopback(shared_gateway: GatewayProcess) -> None:
    url = f"amqp://127.0.0.1:{shared_gateway.ports['amqp']}"
    connection = BlockingConnection(url, timeout=PATIENCE_SECONDS, allowed_mechs="ANONYMOUS")
    connection.create_sender(f"queue://{fresh('anonymous')}").send(data(b"x"))
    connection.close()


def test_an_unknown_vhost_is_not_found(connect: Connections) -> None:
    with pytest.raises(ConnectionClosed) as raised:
        connect(virtual_host="vhost:nowhere")
    assert raised.value.condition == "amqp:not-found"
