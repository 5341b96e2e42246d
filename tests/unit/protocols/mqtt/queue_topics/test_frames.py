"""A queue's subscriber gets the same bytes on the short way as on the long one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import protocols.amqp091.conversion.properties as amqp091
from protocols.amqp091.wire.content import encode_properties
from protocols.mqtt.conversion.properties import MQTT3, MQTT5
from protocols.mqtt.deliver.delivering import Deliverer
from protocols.mqtt.deliver.send_window import Outbound
from protocols.mqtt.deliver.sinks import SharedSink, StoredSink
from protocols.mqtt.queue_topics.sink import QueueSink
from protocols.mqtt.wire.packets import Version
from protocols.mqtt.wire.property_set import PropertySet, encode_property_bytes
from queue_core.delivery.dispatch import UNDELIVERED
from queue_core.errors import QueueNotFound
from queue_core.message.message import Death, Message
from queue_core.sessions.subscription import Subscription
from tests.unit.protocols.mqtt.fake_connection import Link, terms_of

SAID = encode_property_bytes(PropertySet(content_type="a/b", user=(("n", "1"),)))
MESSAGES = [
    pytest.param(Message(b"body", "", routing_key="q"), id="nothing said"),
    pytest.param(Message(b"", "", routing_key="q", form=MQTT5, native=SAID), id="MQTT 5"),
    pytest.param(
        Message(
            b"x" * 5000,
            "amq.topic",
            routing_key="a.b/c",
            form=amqp091.FORM,
            native=encode_properties({"reply_to": "q", "headers": {"n": 1}}),
            publisher="somebody",
        ),
        id="AMQP 0.9.1, from a topic",
    ),
]


def delivery(message: Message, offset: int, *, redelivered: bool = False) -> Any:
    return SimpleNamespace(
        message=message, offset=offset, redelivered=redelivered, failures=0, is_open=True
    )


def sink(
    version: Version, largest: int = 1 << 20, window: int = 100, **wishes: Any
) -> tuple[QueueSink, Link]:
    link = Link()
    vhost: Any = SimpleNamespace(queues={"q": None})
    none: Any = None
    session: Any = SimpleNamespace(vhost=vhost, client_id="client", is_persistent=False)
    terms = terms_of(link, session, version, max_packet=largest)
    deliverer = Deliverer(terms, Outbound(window), window, None)
    subscription = Subscription("$queue/q", 1, queue="q", **wishes)
    return QueueSink(deliverer, session, subscription, none), link


@pytest.mark.parametrize("offset", [0, 9, 10, 12_345_678, (1 << 63) - 1])
@pytest.mark.parametrize("version", [Version.V311, Version.V5])
@pytest.mark.parametrize("wishes", [{}, {"identifier": 300}, {"extra": {"consumer-group": "g"}}])
@pytest.mark.parametrize("message", MESSAGES)
def test_both_ways_write_the_same(
    message: Message, wishes: dict[str, Any], version: Version, offset: int
) -> None:
    (short, by_short), (long, by_long) = sink(version, **wishes), sink(version, **wishes)
    none: Any = None
    short.deliver(none, [delivery(message, offset), delivery(message, offset)])
    for _ in range(2):
        long._deliver(delivery(message, offset))
    assert by_short.out == by_long.out
    assert len(by_short.out) == 2


def said(**contents: object) -> dict[str, Any]:
    return {"form": amqp091.FORM, "native": encode_properties(contents)}


ALIKE: dict[str, Any] = {"routing_key": "q", "publisher": "p", **said(content_type="a/b")}
UNLIKE: list[dict[str, Any]] = [
    {},
    {"native": encode_properties({"content_type": "a/c"})},
    {"native": encode_properties({"reply_to": "q"})},
    {"native": encode_properties({"reply_to": "no queue"})},
    {"native": encode_properties({"content_type": "text/plain; charset=utf-8"})},
    {"form": MQTT5, "native": SAID},
    {"form": MQTT3},
    {"form": None, "native": b""},
    {"publisher": "another"},
    {"durable": False},
    {"priority": 3},
    {"deaths": (Death(queue="d", reason="expired"),)},
    {"routing_key": "k"},
    {"exchange": "amq.fanout"},
    {"body": b"longer"},
    {"body": b"\xff\xfe"},
]


@given(st.lists(st.tuples(st.sampled_from(UNLIKE), st.sampled_from([3, 99, 100]))))
def test_each_is_written_as_if_none_had_come_before_it(row: list[tuple[Any, int]]) -> None:
    short, by_short = sink(Version.V5)
    none: Any = None
    deliveries = []
    for facts, offset in row:
        values = {"body": b"body", "exchange": "", **ALIKE, **facts}
        deliveries.append(delivery(Message(**values), offset))
    short.deliver(none, deliveries)
    alone = []
    for number, each in enumerate(deliveries, 1):
        long, by_long = sink(Version.V5)
        long._deliverer.outbound._last_id = number - 1
        long._deliver(each)
        alone += by_long.out
    assert by_short.out == alone


def test_what_was_delivered_before_says_so_and_what_is_too_large_is_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    short, link = sink(Version.V5, largest=1000)
    none: Any = None
    small, large = Message(b"s", "", routing_key="q"), Message(bytes(2000), "", routing_key="q")
    again = delivery(small, 1, redelivered=True)
    short._vhost.settle = lambda *_: None  # type: ignore[method-assign]
    short.deliver(none, [delivery(small, 0), again, delivery(large, 2), delivery(small, 3)])
    assert [frame[0] for frame in link.out] == [0x32, 0x3A, 0x32]
    assert short._deliverer._counters.dropped_too_large == 1
    assert short._deliverer._counters.messages_sent == 3
    short.deliver(none, [delivery(large, 4)])
    assert short._deliverer._counters.dropped_too_large == 2
    (line,) = [record.getMessage() for record in caplog.records]
    assert "2000 bytes" in line


def test_the_window_holds_back_what_does_not_fit() -> None:
    short, link = sink(Version.V5, window=2)
    none: Any = None
    message = Message(b"s", "", routing_key="q")
    short.deliver(none, [delivery(message, offset) for offset in range(4)])
    assert len(link.out) == 2
    assert len(short._deliverer.outbound.pending) == 2


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
@pytest.mark.parametrize("key", ["k" * 70_000, "+" * 30_000])
def test_a_key_that_no_topic_can_hold_stops_nothing(version: Version, key: str) -> None:
    """Other protocols have longer ones, and an escape makes them longer still."""
    message = Message(b"body", "amq.fanout", routing_key=key)
    none: Any = None
    for _ in range(2):
        (short, by_short), (long, by_long) = sink(version), sink(version)
        short.deliver(none, [delivery(message, 0)])
        long._deliver(delivery(message, 0))
        assert by_short.out == by_long.out
        assert [frame[-4:] for frame in by_short.out] == [b"body"]
        assert not short._frames._sources


def test_one_that_must_be_in_the_topic_is_dropped_and_counted() -> None:
    picky, link = sink(Version.V5)
    picky._filter = "#"
    settled: list[Any] = []
    picky._vhost.settle = lambda *told: settled.append(told)  # type: ignore[method-assign]
    none: Any = None
    picky.deliver(none, [delivery(Message(b"", "amq.fanout", routing_key="k" * 70_000), 0)])
    assert not link.out
    assert picky._deliverer._counters.dropped_too_large == 1


def test_a_bug_in_delivering_ends_the_connection_and_the_end_of_a_queue_does_not() -> None:
    short, link = sink(Version.V5)
    none: Any = None
    deliverer = short._deliverer
    sinks: list[Any] = [
        deliverer,
        StoredSink(deliverer, none, none, none),
        SharedSink(deliverer, none, "$share/g/a"),
    ]
    for each in sinks:
        each.on_cancel(none, QueueNotFound("gone"))
    assert not link.complaints
    for each in sinks:
        each.on_cancel(none, UNDELIVERED)
    assert link.complaints == [str(UNDELIVERED)] * 3
