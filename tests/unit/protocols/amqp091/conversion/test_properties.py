"""Properties: the wire's, what publishing reads of them, and the canonical ones both ways."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pamqp.commands
import pamqp.header
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.amqp091.conversion.properties import FORM, native_of
from protocols.amqp091.errors import Amqp091Error, ReplyCode
from protocols.amqp091.wire.content import (
    Facts,
    decode_properties,
    encode_properties,
    facts_of,
    with_headers,
)
from queue_core.message.message import Message, Properties
from tests.unit.protocols.amqp091.strategies import error_of, moments, short_text, tables

contents = st.fixed_dictionaries(
    {},
    optional={
        "content_type": short_text,
        "content_encoding": short_text,
        "headers": tables,
        "delivery_mode": st.integers(0, 255),
        "priority": st.integers(0, 255),
        "correlation_id": short_text,
        "reply_to": short_text,
        "expiration": short_text,
        "message_id": short_text,
        "timestamp": moments,
        "type": short_text,
        "user_id": short_text,
        "app_id": short_text,
        "cluster_id": short_text,
    },
)


@given(contents)
def test_properties_come_back_as_they_were(found: dict[str, object]) -> None:
    assert decode_properties(encode_properties(found)) == found


@given(contents, tables)
def test_headers_can_be_added_to_any_properties(
    found: dict[str, object], extra: dict[str, object]
) -> None:
    headers = found.get("headers") or {}
    assert isinstance(headers, dict)
    together = decode_properties(with_headers(encode_properties(found), extra))
    assert together.pop("headers", {}) == {**headers, **extra}
    assert together == {name: value for name, value in found.items() if name != "headers"}


@given(st.binary(max_size=60))
def test_any_bytes_are_properties_or_a_protocol_error(data: bytes) -> None:
    error = error_of(decode_properties, data)
    assert error is None or error.code is ReplyCode.SYNTAX_ERROR


def test_an_independent_codec_writes_the_same_bytes() -> None:
    theirs = pamqp.header.ContentHeader(
        0,
        5,
        pamqp.commands.Basic.Properties(
            content_type="text/plain",
            headers={"a": "b"},
            delivery_mode=2,
            priority=3,
            correlation_id="c",
            timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        ),
    ).marshal()
    ours = encode_properties(
        {
            "content_type": "text/plain",
            "headers": {"a": "b"},
            "delivery_mode": 2,
            "priority": 3,
            "correlation_id": "c",
            "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
        }
    )
    assert theirs[12:] == ours


def facts(**found: object) -> Facts:
    return facts_of(encode_properties(found))


def test_publishing_reads_durability_priority_and_expiry() -> None:
    found = facts(delivery_mode=2, priority=7, expiration="1500")
    assert (found.durable, found.priority, found.expiration) == (True, 7, 1.5)
    assert facts(delivery_mode=1).durable is False
    assert facts().durable is False


TOO_LONG = ["99999999999999", "315360000001", "1000000000000", "0009" + 12 * "9"]


@pytest.mark.parametrize("expiration", ["", "-1", "1.5", "soon", "٣", *TOO_LONG])
def test_an_expiration_that_is_no_number_of_milliseconds_is_refused(expiration: str) -> None:
    with pytest.raises(Amqp091Error, match="invalid expiration") as caught:
        facts(expiration=expiration)
    assert caught.value.code is ReplyCode.PRECONDITION_FAILED


def test_bcc_routes_and_is_taken_off_the_message() -> None:
    found = facts(headers={"CC": ["a"], "BCC": ["b"], "kept": 1}, type="t")
    assert found.extra_keys == ("a", "b")
    assert decode_properties(found.native) == {"headers": {"CC": ["a"], "kept": 1}, "type": "t"}


def test_nobody_can_say_for_the_gateway_who_published() -> None:
    found = facts(headers={"x-publisher-id": "somebody else"})
    assert decode_properties(found.native) == {}


@pytest.mark.parametrize("keys", ["a", {"a": 1}, None])
def test_cc_must_be_an_array_of_keys(keys: object) -> None:
    with pytest.raises(Amqp091Error, match="invalid header CC"):
        facts(headers={"CC": keys})


def test_what_is_no_text_is_no_key() -> None:
    assert facts(headers={"CC": ["a", 1, b"\xff"]}).extra_keys == ("a",)


def test_delivery_mode_0_is_transient_as_none_is() -> None:
    assert not facts(delivery_mode=0).durable
    assert facts(delivery_mode=2).durable


@pytest.mark.parametrize("mode", [3, 255])
def test_a_delivery_mode_is_none_one_or_two(mode: int) -> None:
    with pytest.raises(Amqp091Error, match=f"invalid delivery mode {mode}"):
        facts(delivery_mode=mode)


def test_canonical_properties_are_read_from_the_wire() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    native = encode_properties(
        {
            "content_type": "text/plain",
            "content_encoding": "gzip",
            "headers": {"a": 1, "x-correlation-id": b"\xff\xfe", "x-group-id": "g"},
            "message_id": "m",
            "reply_to": "r",
            "timestamp": moment,
            "type": "s",
            "user_id": "u",
            "app_id": "app",
            "cluster_id": "cl",
        }
    )
    assert FORM.properties(native) == Properties(
        content_type="text/plain",
        content_encoding="gzip",
        message_id="m",
        correlation_id=b"\xff\xfe",
        reply_to="r",
        subject="s",
        app_id="app",
        user_id="u",
        group_id="g",
        created_at=moment,
        headers=(("a", 1), ("x-amqp091-cluster-id", "cl")),
    )


def built(properties: Properties, **more: object) -> dict[str, object]:
    message = Message(b"", routing_key="k", properties=properties, **more)  # type: ignore[arg-type]
    return decode_properties(native_of(message, now=1000.0))


def test_a_message_from_another_protocol_gets_a_content_header() -> None:
    found = built(
        Properties(
            content_type="text/plain",
            message_id=UUID(int=1),
            correlation_id=7,
            subject="s",
            group_id="g",
            headers=(("a", 1),),
        ),
        priority=4,
        expires_at=1001.5,
        publisher="device",
    )
    assert found == {
        "content_type": "text/plain",
        "message_id": f"urn:uuid:{UUID(int=1)}",
        "correlation_id": "7",
        "type": "s",
        "headers": {
            "a": 1,
            "x-group-id": "g",
            "x-publisher-id": "device",
            "x-types": '[{"field":"correlation_id","type":"integer"}]',
        },
        "delivery_mode": 2,
        "priority": 4,
        "expiration": "1500",
    }


@pytest.mark.parametrize("correlation", [b"\xff" * 3, b"x" * 256, "y" * 256])
def test_a_correlation_that_is_too_long_or_no_text_travels_as_a_header(
    correlation: str | bytes,
) -> None:
    found = built(Properties(correlation_id=correlation))
    assert found["headers"] == {"x-correlation-id": correlation}
    assert FORM.properties(encode_properties(found)).correlation_id == correlation


def test_repeated_headers_come_back_in_their_order() -> None:
    pairs = (("a", "1"), ("b", "2"), ("a", "3"))
    found = built(Properties(headers=pairs))
    headers = found["headers"]
    assert isinstance(headers, dict)
    assert (headers["a"], headers["b"]) == ("1", "2")
    assert FORM.properties(encode_properties(found)).headers == pairs


def test_a_key_that_no_short_string_holds_travels_whole_as_a_header() -> None:
    message = Message(b"", topic="/".join(["level"] * 60))
    found = decode_properties(native_of(message, now=0.0))
    assert found["headers"] == {"x-routing-key": message.routing_key}


def test_the_publishers_own_bytes_are_kept() -> None:
    native = encode_properties({"content_type": "a", "headers": {"z": 1, "a": 2}})
    assert native_of(Message(b"", form=FORM, native=native), now=0.0) is native
