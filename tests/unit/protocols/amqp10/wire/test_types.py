"""The type system, held to the standard's encodings, to hypothesis and to Proton's own codec."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.amqp10.wire.types import (
    EPOCH,
    Array,
    Char,
    Described,
    Float,
    Malformed,
    Opaque,
    Symbol,
    UByte,
    UInt,
    ULong,
    decode,
    decode_all,
    encode,
    skip,
)

proton: Any = import_module("proton")

VECTORS = [
    pytest.param("40", None, id="null"),
    pytest.param("41", True, id="true"),
    pytest.param("42", False, id="false"),
    pytest.param("50 c8", UByte(200), id="ubyte"),
    pytest.param("43", UInt(0), id="uint0"),
    pytest.param("52 ff", UInt(255), id="smalluint"),
    pytest.param("70 00 00 01 00", UInt(256), id="uint"),
    pytest.param("44", ULong(0), id="ulong0"),
    pytest.param("53 24", ULong(0x24), id="smallulong"),
    pytest.param("80 ff ff ff ff ff ff ff ff", ULong((1 << 64) - 1), id="ulong"),
    pytest.param("55 ff", -1, id="smalllong"),
    pytest.param("81 80 00 00 00 00 00 00 00", -(1 << 63), id="long"),
    pytest.param("72 3f c0 00 00", Float(1.5), id="float"),
    pytest.param("82 40 02 00 00 00 00 00 00", 2.25, id="double"),
    pytest.param("73 00 00 00 fc", Char("ü"), id="char"),
    pytest.param("83 00 00 00 00 00 00 03 e8", EPOCH + timedelta(seconds=1), id="timestamp"),
    pytest.param("98" + "12" * 16, UUID("12" * 16), id="uuid"),
    pytest.param("a0 02 00 ff", b"\x00\xff", id="binary"),
    pytest.param("a1 03 c3 bc 78", "üx", id="string"),
    pytest.param("a3 01 61", Symbol("a"), id="symbol"),
    pytest.param("45", [], id="empty list"),
    pytest.param("c0 03 02 40 41", [None, True], id="list"),
    pytest.param("c1 05 02 a3 01 61 40", {Symbol("a"): None}, id="map"),
    pytest.param("00 53 24 45", Described(ULong(0x24), []), id="described"),
    pytest.param("74 01 02 03 04", Opaque(0x74, b"\1\2\3\4"), id="decimal32"),
]
ONE_WAY = [
    pytest.param("56 01", True, id="boolean"),
    pytest.param("60 ea 60", 60_000, id="ushort"),
    pytest.param("51 9c", -100, id="byte"),
    pytest.param("61 8a d0", -30_000, id="short"),
    pytest.param("54 05", 5, id="smallint"),
    pytest.param("71 00 00 00 05", 5, id="int"),
    pytest.param("b0 00 00 00 01 78", b"x", id="binary32"),
    pytest.param("d0 00 00 00 04 00 00 00 00", [], id="list32"),
    pytest.param("e0 04 02 50 01 02", [1, 2], id="array8"),
    pytest.param("f0 00 00 00 05 00 00 00 03 41", [True] * 3, id="array32 of no width"),
]


def raw(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


@pytest.mark.parametrize(("text", "value"), VECTORS)
def test_a_value_is_written_in_its_shortest_way(text: str, value: object) -> None:
    assert encode(value) == raw(text)


@pytest.mark.parametrize(("text", "value"), VECTORS + ONE_WAY)
def test_a_value_is_read_in_whatever_way_it_is_written(text: str, value: object) -> None:
    found = decode_all(raw(text))
    assert found == value
    assert type(found) is type(value) or isinstance(found, type(value))
    assert skip(raw(text), 0) == len(raw(text))


@pytest.mark.parametrize(("text", "value"), VECTORS)
def test_a_value_that_is_cut_short_is_malformed(text: str, value: object) -> None:
    whole = raw(text)
    for size in range(len(whole)):
        with pytest.raises(Malformed):
            decode(whole[:size])


@given(st.binary(max_size=80))
def test_any_bytes_decode_or_are_malformed(data: bytes) -> None:
    for read in (decode, skip):
        try:
            read(data, 0)
        except Malformed:
            pass


@given(st.binary(max_size=64))
def test_skipping_goes_as_far_as_reading_does(data: bytes) -> None:
    try:
        _, end = decode(data)
    except Malformed:
        return
    assert skip(data, 0) == end


def test_nesting_has_a_bound() -> None:
    with pytest.raises(Malformed, match="nested"):
        decode(b"\x00" * 50_000)
    value: object = 1
    for _ in range(100):
        value = [value]
    with pytest.raises(Malformed, match="nested"):
        decode_all(encode(value))


def test_a_few_bytes_do_not_become_many_items() -> None:
    """Items of an array may take no bytes at all, and each has all of its descriptors."""
    with pytest.raises(Malformed, match="items"):
        decode(b"\xf0" + (5).to_bytes(4) + (65_536).to_bytes(4) + b"\x41")
    described = b"\x00\x53\x01" * 20 + b"\x50" + bytes(100)
    with pytest.raises(Malformed, match="described"):
        decode(b"\xf0" + (4 + len(described)).to_bytes(4) + (100).to_bytes(4) + described)


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(0, (1 << 64) - 1).map(ULong),
    st.integers(0, (1 << 32) - 1).map(UInt),
    st.floats(allow_nan=False),
    st.text(max_size=300),
    st.binary(max_size=300),
    st.uuids(),
    st.text("abc:-", min_size=1).map(Symbol),
    st.datetimes(datetime(1, 1, 2), datetime(9999, 1, 1)).map(
        lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000, tzinfo=UTC)
    ),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=20,
)


@given(values)
def test_what_is_written_is_read_again(value: object) -> None:
    assert decode_all(encode(value)) == value


@given(values)
def test_proton_reads_what_we_write(value: object) -> None:
    data = proton.Data()
    encoded = encode(value)
    assert data.decode(encoded) == len(encoded)
    data.rewind()
    assert data.next()
    assert decode_all(bytes(data.encode())) == value


def test_an_array_of_symbols_is_read_as_a_list() -> None:
    assert decode_all(encode(Array(("a", "bc")))) == ["a", "bc"]
