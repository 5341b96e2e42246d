"""Between AMQP 1.0's sections and the canonical properties: cell by cell, each way."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.amqp10.conversion.properties import FORM, VALUE_TYPE, contents_of, section, written
from protocols.amqp10.errors import Amqp10Error
from protocols.amqp10.wire.routing_facts import (
    MAX_KEPT_PROPERTIES,
    annotation_facts,
    check_user,
    expiry_of,
    header_facts,
    without_forgery,
)
from protocols.amqp10.wire.sections import (
    ANNOTATIONS,
    APPLICATION_PROPERTIES,
    HEADER,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    split,
)
from protocols.amqp10.wire.types import Malformed, Symbol, UByte, UInt, ULong
from queue_core.message.message import CANONICAL, Message, Properties

TIME = datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
UID = UUID("12345678123456781234567812345678")

FIELDS: list[Any] = [
    ULong(7), b"guest", "/queues/to", "subject", "/queues/reply", UID, Symbol("a/b"),
    Symbol("gzip"), TIME, TIME, "group", UInt(3), "other",
]  # fmt: skip


def canonical(**sections: object) -> Properties:
    data = b""
    if "annotations" in sections:
        data += section(ANNOTATIONS, sections["annotations"])
    if "fields" in sections:
        data += section(PROPERTIES, sections["fields"])
    if "application" in sections:
        data += section(APPLICATION_PROPERTIES, sections["application"])
    return FORM.properties(data)


def test_every_field_of_the_properties_has_its_place() -> None:
    found = canonical(fields=FIELDS)
    assert found == Properties(
        message_id=7,
        user_id="guest",
        subject="subject",
        reply_to="reply",
        correlation_id=UID,
        content_type="a/b",
        content_encoding="gzip",
        created_at=TIME,
        group_id="group",
        headers=(
            ("x-to", "/queues/to"),
            ("x-absolute-expiry-time", TIME),
            ("x-group-sequence", 3),
            ("x-reply-to-group-id", "other"),
            ("x-reply-address", "/queues/reply"),
        ),
    )


def test_application_properties_and_annotations_are_headers() -> None:
    found = canonical(
        annotations={Symbol("x-opt-a"): [1, {"b": None}], Symbol("x-app-id"): "me"},
        application={"one": 1, "flag": True, "id": UID, "when": TIME, "bin": b"\0"},
    )
    assert found.app_id == "me"
    assert found.headers == (
        ("one", 1),
        ("flag", True),
        ("id", UID),
        ("when", TIME),
        ("bin", b"\0"),
        ("x-opt-a", [1, {"b": None}]),
    )


def test_who_published_is_not_for_a_sender_to_say() -> None:
    notes = section(ANNOTATIONS, {Symbol("x-publisher-id"): "root", Symbol("x-b"): 1})
    rest = section(PROPERTIES, ["id"])
    assert annotation_facts(notes).is_forged
    cleaned = without_forgery(notes + rest, notes)
    assert contents_of(cleaned).annotations == {"x-b": 1}
    assert cleaned.endswith(rest)


# --- bodies


def native_of(body_sections: bytes, before: bytes = b"") -> tuple[bytes, bytes]:
    parts = split(before + body_sections)
    return parts.native, parts.body


def test_an_amqp_value_string_is_text_for_others_and_a_value_again_for_1_0() -> None:
    native, body = native_of(section(VALUE, "grüße"))
    said = FORM.properties(native)
    assert body == "grüße".encode()
    assert ("x-payload-format", 1) in said.headers
    back = written(Message(body, properties=said))
    assert back.opening + body == section(VALUE, "grüße")
    assert back.sections == b""


@pytest.mark.parametrize(
    "sections",
    [section(VALUE, {"a": 1}), section(VALUE, None), section(SEQUENCE, [1, 2]) * 2],
)
def test_another_value_travels_encoded_under_a_type_of_its_own(sections: bytes) -> None:
    before = section(PROPERTIES, [None] * 6 + [Symbol("app/own")])
    native, body = native_of(sections, before)
    said = FORM.properties(native)
    assert (said.content_type, body) == (VALUE_TYPE, sections)
    back = written(Message(body, properties=said))
    assert back.opening + body == sections
    assert contents_of(back.sections).properties == {"content-type": "app/own"}


def test_a_body_that_only_claims_to_be_encoded_is_data() -> None:
    back = written(Message(b"junk", properties=Properties(content_type=VALUE_TYPE)))
    assert back.opening == b"\x00\x53\x75\xa0\x04"


def test_text_from_elsewhere_says_so_in_its_content_type() -> None:
    said = Properties(headers=(("x-payload-format", 1),))
    back = written(Message(b"text", properties=said))
    assert contents_of(back.sections).properties == {"content-type": "text/plain;charset=utf-8"}


# --- from the canonical


def test_canonical_properties_have_their_places() -> None:
    said = Properties(
        content_type="a/b",
        message_id=UID,
        correlation_id=b"\0\1",
        reply_to="q",
        subject="s",
        app_id="app",
        user_id="guest",
        group_id="g",
        created_at=TIME,
        headers=(("plain", 5), ("x-opt", "y"), ("deep", {"a": [Decimal("1.5")]})),
    )
    found = contents_of(written(Message(b"", properties=said)).sections)
    assert found.properties == {
        "message-id": UID,
        "user-id": b"guest",
        "subject": "s",
        "reply-to": "q",
        "correlation-id": b"\0\1",
        "content-type": "a/b",
        "creation-time": TIME,
        "group-id": "g",
    }
    assert found.application == {"plain": 5, "deep": {"a": ["1.5"]}}
    assert found.annotations == {
        "x-opt": "y",
        "x-app-id": "app",
        "x-types": '[{"name":"deep","type":{"a":["decimal"]}}]',
        "x-repeated-headers": [["plain", 5], ["x-opt", "y"], ["deep", {"a": ["1.5"]}]],
    }


def test_repeated_headers_keep_their_order_through_1_0() -> None:
    pairs = (("a", "1"), ("b", "2"), ("a", "3"))
    back = written(Message(b"", properties=Properties(headers=pairs)))
    assert FORM.properties(back.sections).headers == pairs


def test_what_the_core_only_carries_is_restored() -> None:
    said = canonical(fields=FIELDS)
    stored = CANONICAL.properties(CANONICAL.encode(said))
    back = contents_of(written(Message(b"", properties=stored)).sections)
    expected = contents_of(section(PROPERTIES, FIELDS)).properties
    assert back.properties == expected
    assert back.annotations == {}


simple = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.binary(max_size=20),
    st.uuids(),
)
headers = st.dictionaries(st.text("abcde-", min_size=1, max_size=6), simple, max_size=6)


@given(headers, st.none() | st.text(max_size=10) | st.integers(0, (1 << 64) - 1) | st.uuids())
def test_canonical_properties_come_back_from_1_0(
    pairs: dict[str, Any], message_id: str | int | UUID | None
) -> None:
    said = Properties(message_id=message_id, headers=tuple(pairs.items()))
    found = FORM.properties(written(Message(b"", properties=said)).sections)
    assert found == said


# --- facts


def test_a_header_is_read_and_a_short_one_too() -> None:
    assert header_facts(section(HEADER, [True, UByte(9), UInt(1500)])) == (True, 9, 1.5)
    assert header_facts(section(HEADER, [])) == (False, None, None)
    assert header_facts(b"") == (False, None, None)


def test_a_message_without_sections_is_read_however_many_others_came_before() -> None:
    for number in range(MAX_KEPT_PROPERTIES + 1):
        header_facts(section(HEADER, [True, None, UInt(number)]))
        annotation_facts(section(ANNOTATIONS, {Symbol("x-delay"): number}))
    assert header_facts(b"") == (False, None, None)
    assert annotation_facts(b"") == (False, None, None)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param([True, -100], id="a priority below all"),
        pytest.param([True, 256], id="a priority above all"),
        pytest.param([True, UByte(4), 1 << 63], id="a ttl beyond the calendar"),
        pytest.param([True, UByte(4), -1], id="a ttl in the past"),
    ],
)
def test_a_header_with_a_number_that_its_field_cannot_hold_is_malformed(
    fields: list[object],
) -> None:
    with pytest.raises(Malformed):
        header_facts(section(HEADER, fields))


def test_an_absolute_expiry_time_is_found_at_its_place() -> None:
    assert expiry_of(section(PROPERTIES, FIELDS)) == TIME.timestamp()
    assert expiry_of(section(PROPERTIES, FIELDS[:8])) is None
    assert expiry_of(b"") is None


def test_a_user_id_is_ones_own() -> None:
    properties = section(PROPERTIES, FIELDS)
    check_user(properties, "guest")
    with pytest.raises(Amqp10Error):
        check_user(properties, "somebody")


def test_a_delay_is_whole_milliseconds() -> None:
    assert (
        annotation_facts(section(ANNOTATIONS, {Symbol("x-opt-delivery-delay"): 500})).delay == 0.5
    )
    with pytest.raises(Amqp10Error):
        annotation_facts(section(ANNOTATIONS, {Symbol("x-delay"): "soon"}))
