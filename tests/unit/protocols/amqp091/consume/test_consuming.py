"""Consumers: what they may ask for, and what a delivery carries beside the publisher's words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from protocols.amqp091.consume.consuming import position
from protocols.amqp091.consume.deliveries import properties_of
from protocols.amqp091.conversion.properties import FORM
from protocols.amqp091.settings import Settings
from protocols.amqp091.wire.content import (
    decode_properties,
    encode_properties,
    facts_of,
    with_headers,
)
from protocols.amqp091.wire.methods import (
    BasicConsume,
    BasicGet,
    BasicGetOk,
    BasicReject,
    ChannelClose,
    ChannelOpen,
    ExchangeBind,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
)
from protocols.amqp091.wire.tables import LongInt
from queue_core.delivery.consumer import Position
from queue_core.errors import InvalidArgument
from queue_core.message.message import Death, Message
from tests.support.amqp091_conversation import Conversation, anns_gateway, published

NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (None, None),
        ("first", Position(name="first")),
        ("last", Position(name="last")),
        ("next", Position(name="next")),
        (0, Position(offset=0)),
        (17, Position(offset=17)),
        (datetime(2026, 1, 1, tzinfo=UTC), Position(time=1_767_225_600.0)),
        ("90s", Position(time=NOW - 90)),
        ("1h", Position(time=NOW - 3600)),
    ],
)
def test_a_stream_is_read_from_where_the_consumer_says(
    said: object, meant: Position | None
) -> None:
    assert position(said, NOW) == meant


@pytest.mark.parametrize(
    "said", ["", "soon", "1x", "h", -1, True, 1.5, b"first", ["first"], f"{'9' * 5000}s"]
)
def test_a_place_that_no_stream_has_is_refused(said: object) -> None:
    with pytest.raises(InvalidArgument, match="x-stream-offset"):
        position(said, NOW)


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-cancel-on-ha-failover": 1},
        {"x-priority": "high"},
        {"x-priority": True},
        {"x-priority": 1 << 31},
        {"x-consumer-group": 7},
        {"x-consumer-group": ""},
        {"x-stream-offset": "first"},  # of a queue that is no stream
    ],
)
async def test_an_argument_with_a_wrong_value_is_refused(arguments: dict[str, object]) -> None:
    talk = await Conversation().open()
    await talk.say(QueueDeclare(0, "q"))
    (answer,) = await talk.say(BasicConsume(0, "q", "c", arguments=arguments))
    assert isinstance(answer, ChannelClose)
    assert answer.reply_code == 406


@pytest.mark.parametrize("is_strict", [False, True])
async def test_what_has_no_effect_is_taken_and_refused_by_strict(is_strict: bool) -> None:
    talk = await Conversation(settings=Settings(strict=is_strict)).open()
    await talk.say(QueueDeclare(0, "q"), ExchangeDeclare(0, "x", "direct"))
    odd: dict[str, object] = {"x-my": 1}
    methods = (
        QueueDeclare(0, "odd", arguments=odd),
        QueueDeclare(0, "lazy", arguments={"x-queue-mode": "lazy"}),
        ExchangeDeclare(0, "odd", "direct", arguments=odd),
        QueueBind(0, "q", "x", "k", arguments=odd),
        ExchangeBind(0, "x", "amq.fanout", "k", arguments=odd),
        BasicConsume(0, "q", "c", arguments=odd),
    )
    for number, method in enumerate(methods, 2):
        (_, answer) = await talk.say(ChannelOpen(), method, channel=number)
        assert isinstance(answer, ChannelClose) is is_strict, method
        if isinstance(answer, ChannelClose):
            assert answer.reply_code == 406


DEATHS = (
    Death(queue="second", reason="expired", count=2, time=20.0, exchange="x", routing_keys=("k",)),
    Death(queue="first", reason="rejected", time=10.0, exchange="", routing_keys=("first",)),
)


def test_a_message_tells_of_its_deaths_newest_first() -> None:
    native = encode_properties({"headers": {"own": 1, "x-death": "forged"}, "expiration": "500"})
    found = decode_properties(
        properties_of(Message(b"", form=FORM, native=native, deaths=DEATHS), NOW)
    )
    assert "expiration" not in found
    headers = found["headers"]
    assert isinstance(headers, dict)
    assert headers["own"] == 1
    assert [(death["queue"], death["count"]) for death in headers["x-death"]] == [
        ("second", 2),
        ("first", 1),
    ]
    assert headers["x-death"][0]["time"] == datetime.fromtimestamp(20, UTC)
    assert headers["x-first-death-queue"] == "first"
    assert headers["x-last-death-reason"] == "expired"


TYPED = (  # one of each size that a client may tell apart, as it stands on the wire
    b"\x01b" + b"b\x05"
    b"\x01s" + b"s\x00\x05"
    b"\x01i" + b"I\x00\x00\x00\x05"
    b"\x01l" + b"l\x00\x00\x00\x00\x00\x00\x00\x05"
    b"\x01f" + b"f\x3f\x80\x00\x00"
    b"\x01x" + b"x\x00\x00\x00\x01a"
)


@pytest.mark.parametrize("forged", [b"", b"\x07x-deathS\x00\x00\x00\x00"], ids=["", "forged"])
def test_numbers_of_the_gateway_have_64_bits_and_a_publishers_headers_keep_their_types(
    forged: bytes,
) -> None:
    fields = forged + TYPED
    native = (1 << 13).to_bytes(2) + len(fields).to_bytes(4) + fields
    found = properties_of(Message(b"", form=FORM, native=native, deaths=DEATHS), NOW)
    assert TYPED in found
    assert b"\x05countl\x00\x00\x00\x00\x00\x00\x00\x02" in found  # Java reads a Long there


def test_a_header_that_takes_anothers_place_leaves_the_rest_as_it_was() -> None:
    fields = b"\x10x-delivery-countI\x00\x00\x00\x09" + TYPED
    native = (1 << 13).to_bytes(2) + len(fields).to_bytes(4) + fields
    found = with_headers(native, {"x-delivery-count": LongInt(1)})
    assert TYPED in found
    assert b"\x10x-delivery-countl" + (1).to_bytes(8) in found
    assert decode_properties(found)["headers"]["x-delivery-count"] == 1  # type: ignore[index]


def test_a_copy_that_nobody_may_see_is_taken_off_and_the_rest_stays_as_it_was() -> None:
    fields = b"\x03BCCA\x00\x00\x00\x00" + TYPED
    native = (1 << 13).to_bytes(2) + len(fields).to_bytes(4) + fields
    kept = facts_of(native).native
    assert kept == (1 << 13).to_bytes(2) + len(TYPED).to_bytes(4) + TYPED


async def test_a_rejected_delivery_that_comes_again_says_how_often_it_failed() -> None:
    talk = await Conversation(anns_gateway()).open()
    await talk.say(QueueDeclare(0, "q"), published("q", headers={"own": 1}))
    for count in range(3):
        (got, native, _) = await talk.say(BasicGet(0, "q"))
        assert isinstance(got, BasicGetOk)
        assert isinstance(native, bytes)
        expected = {"own": 1, "x-delivery-count": count} if count else {"own": 1}
        assert decode_properties(native)["headers"] == expected
        await talk.say(BasicReject(got.delivery_tag, requeue=True))
