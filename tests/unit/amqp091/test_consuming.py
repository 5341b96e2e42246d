"""What a consumer may ask for, and what a delivery carries beside the publisher's own words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from protocols.amqp091.consuming import position
from protocols.amqp091.content import decode_properties, encode_properties
from protocols.amqp091.deliveries import properties_of
from protocols.amqp091.methods import (
    BasicConsume,
    BasicGet,
    BasicGetOk,
    BasicReject,
    ChannelClose,
    QueueDeclare,
)
from protocols.amqp091.properties import FORM
from queue_core.consumers import Position
from queue_core.errors import InvalidArgument
from queue_core.message import Death, Message
from tests.unit.amqp091.conversation import Conversation, anns_gateway, published

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
        {"x-cancel-on-ha-failover": True},
        {"x-priority": "high"},
        {"x-priority": True},
        {"x-priority": 1 << 31},
        {"x-consumer-group": 7},
        {"x-consumer-group": ""},
        {"x-stream-offset": "first"},  # of a queue that is no stream
    ],
)
async def test_an_argument_that_would_be_ignored_is_refused(arguments: dict[str, object]) -> None:
    talk = await Conversation().open()
    await talk.say(QueueDeclare(0, "q"))
    (answer,) = await talk.say(BasicConsume(0, "q", "c", arguments=arguments))
    assert isinstance(answer, ChannelClose)
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
