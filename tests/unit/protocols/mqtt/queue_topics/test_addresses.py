"""Places in a queue, as MQTT clients write them."""

from __future__ import annotations

import pytest

from protocols.mqtt.queue_topics.addresses import parse_message_id, parse_position
from queue_core.delivery.consumer import Position
from queue_core.errors import InvalidArgument


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("first", Position(name="first")),
        ("0", Position(offset=0)),
        ("9223372036854775807", Position(offset=2**63 - 1)),
        ("1970-01-01T00:01:00Z", Position(time=60.0)),
        ("1970-01-01T00:01:00", Position(time=60.0)),
        ("1970-01-01T01:01:00+01:00", Position(time=60.0)),
    ],
)
def test_a_stream_is_read_from_where_the_subscriber_says(text: str, meant: Position) -> None:
    assert parse_position(text) == meant


@pytest.mark.parametrize("text", ["", "-1", "soon", "9" * 20, "9" * 5000, "2026-13-01"])
def test_a_place_that_no_stream_has_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is no place in a stream"):
        parse_position(text)


@pytest.mark.parametrize("text", ["q", "q:", "other:1", "q:-1", f"q:{'9' * 5000}"])
def test_a_message_id_that_the_queue_never_gave_is_refused(text: str) -> None:
    assert parse_message_id("q:17", "q") == 17
    with pytest.raises(InvalidArgument, match="is none of queue 'q'"):
        parse_message_id(text, "q")
