"""A message is put together again byte for byte, however its sender wrote it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.amqp10.conversion.properties import FORM, section
from protocols.amqp10.errors import RESOURCE_LIMIT, Amqp10Error
from protocols.amqp10.wire.delivery_sections import header_of, whole
from protocols.amqp10.wire.sections import (
    ANNOTATIONS,
    APPLICATION_PROPERTIES,
    FOOTER,
    HEADER,
    LARGEST_SECTIONS,
    MOST_BODY_SECTIONS,
    MOST_BODY_VALUES,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    is_encoded_body,
    shape_of,
    split,
    written_body,
)
from protocols.amqp10.wire.types import (
    MOST_VALUES,
    Described,
    Malformed,
    Symbol,
    UInt,
    ULong,
    decode,
    encode,
    skip,
)
from queue_core.message.message import Death, Message

PROPS = section(PROPERTIES, ["id", b"guest", None, "subject"])
APPS = section(APPLICATION_PROPERTIES, {"a": 1, "b": UInt(7)})
NOTES = section(ANNOTATIONS, {Symbol("x-a"): 1})
FOOT = section(FOOTER, {Symbol("sum"): b"1"})
DATA = b"\x00\x53\x75\xa0\x03abc"
BODIES = [
    pytest.param(DATA, b"abc", id="data"),
    pytest.param(b"\x00\x53\x75\xb0\x00\x00\x00\x03abc", b"abc", id="data in its long way"),
    pytest.param(b"\x00\x80" + bytes(7) + b"\x75\xa0\x03abc", b"abc", id="long descriptor"),
    pytest.param(b"\x00\xa3\x10amqp:data:binary\xa0\x03abc", b"abc", id="descriptor by name"),
    pytest.param(b"\x00\x53\x75\xb0\x00\x00\x01\x00" + b"x" * 256, b"x" * 256, id="long data"),
    pytest.param(DATA + DATA, b"abcabc", id="two data sections"),
    pytest.param(DATA * 300, b"abc" * 300, id="many data sections"),
    pytest.param(section(VALUE, "text"), b"text", id="text"),
    pytest.param(section(VALUE, "x" * 999), b"x" * 999, id="long text"),
    pytest.param(section(VALUE, 5), section(VALUE, 5), id="value"),
    pytest.param(section(VALUE, None), section(VALUE, None), id="null"),
    pytest.param(section(SEQUENCE, [1]) * 2, section(SEQUENCE, [1]) * 2, id="sequences"),
    pytest.param(b"", b"", id="no body at all"),
]


def bare(encoded: bytes) -> bytes:
    """Without header and annotations."""
    position = 0
    while position < len(encoded):
        code = decode(encoded, position + 1)[0]
        names = {"amqp:header:list": HEADER, "amqp:message-annotations:map": ANNOTATIONS}
        if names.get(str(code), code) not in (HEADER, ANNOTATIONS, 0x71):
            break
        position = skip(encoded, position)
    return encoded[position:]


@pytest.mark.parametrize("footer", [b"", FOOT])
@pytest.mark.parametrize("sections", [b"", PROPS, APPS, NOTES, NOTES + PROPS + APPS])
@pytest.mark.parametrize(("written", "body"), BODIES)
def test_the_bare_message_is_kept_byte_for_byte(
    written: bytes, body: bytes, sections: bytes, footer: bytes
) -> None:
    data = section(HEADER, [True]) + section(0x71, {Symbol("hop"): 1}) + sections + written + footer
    parts = split(data)
    assert parts.body == body
    shape = shape_of(parts.native)
    assert shape.sections == sections
    assert written_body(shape, parts.body) == written + footer
    message = Message(parts.body, "", routing_key="q", form=FORM, native=parts.native)
    out = whole(message, header_of(message, 0.0, True, 0), None)
    assert bare(out) == bare(data)


def test_the_gateways_annotations_come_after_the_senders_and_win() -> None:
    notes = section(ANNOTATIONS, {Symbol("x-exchange"): "forged", Symbol("mine"): UInt(3)})
    message = Message(
        b"abc",
        "e",
        routing_key="k",
        form=FORM,
        native=notes + PROPS,
        publisher="me",
        deaths=(Death(queue="q", reason="rejected", routing_keys=("k",)),),
    )
    out = whole(message, b"", 17)
    found, end = decode(out)
    assert isinstance(found, Described)
    assert isinstance(found.value, dict)
    assert found.descriptor == ANNOTATIONS
    assert out[end:] == PROPS + DATA
    assert found.value["mine"] == 3
    assert found.value["x-exchange"] == "e"
    assert found.value["x-routing-key"] == "k"
    assert found.value["x-publisher-id"] == "me"
    assert found.value["x-stream-offset"] == 17
    assert found.value["x-opt-deaths"][0]["queue"] == "q"


def test_a_header_counts_the_time_to_live_down() -> None:
    message = Message(b"", expires_at=100.0, durable=True, priority=7)
    found, _ = decode(header_of(message, 40.0, False, 2))
    assert found == Described(ULong(HEADER), [True, 7, 60_000, False, 2])


@pytest.mark.parametrize(
    "data",
    [
        b"\x41",
        PROPS + PROPS + DATA,
        APPS + PROPS + DATA,
        DATA + section(VALUE, 1),
        section(VALUE, 1) * 2,
        DATA + PROPS,
        FOOT + DATA,
        b"\x00\x53\x99\x40",
        PROPS[:-2],
        DATA[:-1],
    ],
)
def test_sections_out_of_order_or_cut_short_are_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        split(data)


@given(st.binary(max_size=60))
def test_any_bytes_are_split_or_malformed(data: bytes) -> None:
    try:
        parts = split(data)
    except Malformed:
        return
    assert shape_of(parts.native)


@given(st.lists(st.binary(max_size=400), max_size=4))
def test_data_sections_of_any_size_come_back(bodies: list[bytes]) -> None:
    written = b"".join(encode(Described(ULong(0x75), body)) for body in bodies)
    parts = split(PROPS + written)
    if bodies:
        assert parts.body == b"".join(bodies)
    assert written_body(shape_of(parts.native), parts.body) == written


@pytest.mark.parametrize("code", [HEADER, ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES])
def test_what_stands_before_the_body_is_not_read_if_it_is_very_large(code: int) -> None:
    """One message of 14 MB, all of it annotations, held up everybody for seconds."""

    def message(size: int) -> bytes:
        opening = b"\0\x53" + bytes((code,)) + b"\xb0" + (size - 8).to_bytes(4)
        return opening + bytes(size - len(opening)) + DATA

    split(message(LARGEST_SECTIONS))
    with pytest.raises(Amqp10Error) as caught:
        split(message(LARGEST_SECTIONS + 1))
    assert caught.value.condition == RESOURCE_LIMIT


@pytest.mark.parametrize("one", [DATA, b"\0\x53\x76\x45"], ids=["data", "sequence"])
def test_a_body_has_so_many_sections_and_no_more(one: bytes) -> None:
    split(one * MOST_BODY_SECTIONS)
    with pytest.raises(Amqp10Error) as caught:
        split(one * (MOST_BODY_SECTIONS + 1))
    assert caught.value.condition == RESOURCE_LIMIT


NESTED = [[None] * 60 for _ in range(60)]
OCTETS = (MOST_VALUES + 1).to_bytes(4) + b"\x50" + bytes(MOST_VALUES + 1)
PAIR = b"\xa3\1x\xf0" + len(OCTETS).to_bytes(4) + OCTETS
NOTED_ARRAY = b"\0\x53\x72\xd1" + (len(PAIR) + 4).to_bytes(4) + b"\0\0\0\2" + PAIR


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(section(ANNOTATIONS, {Symbol("x-a"): NESTED}) + DATA, id="lists in lists"),
        pytest.param(
            section(APPLICATION_PROPERTIES, {str(n): 1 for n in range(MOST_VALUES)}) + DATA,
            id="a map",
        ),
        pytest.param(NOTED_ARRAY + DATA, id="an array"),
        pytest.param(DATA + section(FOOTER, {Symbol("x-a"): NESTED}), id="in the footer"),
    ],
)
def test_a_message_has_a_bounded_number_of_values_beside_its_body(message: bytes) -> None:
    with pytest.raises(Amqp10Error, match=f"more than {MOST_VALUES} values"):
        split(message)


def test_as_many_values_as_are_allowed_are_read() -> None:
    few = {Symbol(f"x-{number}"): ["a" * 40] for number in range(MOST_VALUES // 4)}
    parts = split(section(ANNOTATIONS, few) + DATA)
    assert len(parts.native) > MOST_VALUES


def test_a_body_of_a_crowd_of_values_is_not_read_for_being_one() -> None:
    assert is_encoded_body(section(VALUE, [None] * 1000))
    assert not is_encoded_body(section(VALUE, [None] * MOST_BODY_VALUES))
    assert not is_encoded_body(section(SEQUENCE, []) * (MOST_BODY_SECTIONS + 1))
