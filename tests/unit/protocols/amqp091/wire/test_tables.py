"""Field tables: every type there and back; nothing malformed goes further than an error."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pamqp.decode
import pamqp.encode
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.amqp091.errors import Amqp091Error, ReplyCode
from protocols.amqp091.wire.codec import LARGEST_ARGUMENTS_BYTES, decode_method, encode_method
from protocols.amqp091.wire.content import decode_properties, encode_properties, facts_of
from protocols.amqp091.wire.methods import QueueDeclare
from protocols.amqp091.wire.tables import (
    MAX_TABLE_DEPTH,
    MOST_VALUES,
    decode_table,
    encode_table,
    require_few,
)
from tests.unit.protocols.amqp091.strategies import error_of, tables

TYPES = [
    pytest.param("74 01", True, id="t bool"),
    pytest.param("62 ff", -1, id="b int8"),
    pytest.param("42 ff", 255, id="B uint8"),
    pytest.param("73 fffe", -2, id="s int16"),
    pytest.param("55 fffe", -2, id="U int16, the standard's letter"),
    pytest.param("75 ffff", 65535, id="u uint16"),
    pytest.param("49 ffffffff", -1, id="I int32"),
    pytest.param("69 ffffffff", (1 << 32) - 1, id="i uint32"),
    pytest.param("6c 8000000000000000", -(1 << 63), id="l int64"),
    pytest.param("4c 0000000000000001", 1, id="L int64, the standard's letter"),
    pytest.param("66 3fc00000", 1.5, id="f float"),
    pytest.param("64 3ff8000000000000", 1.5, id="d double"),
    pytest.param("44 02 0000007b", Decimal("1.23"), id="D decimal"),
    pytest.param("53 00000002 6869", "hi", id="S long string"),
    pytest.param("53 00000001 ff", b"\xff", id="S that is no UTF-8"),
    pytest.param("78 00000002 00ff", b"\x00\xff", id="x byte array"),
    pytest.param("41 00000004 7401 7400", [True, False], id="A array"),
    pytest.param("54 0000000000000000", datetime(1970, 1, 1, tzinfo=UTC), id="T timestamp"),
    pytest.param("54 0000018bcfe56800", 1_700_000_000_000, id="T in milliseconds by mistake"),
    pytest.param("46 00000004 0161 7401", {"a": True}, id="F table"),
    pytest.param("56", None, id="V void"),
]


@pytest.mark.parametrize(("wire", "value"), TYPES)
def test_every_type_that_rabbitmq_writes_is_read(wire: str, value: object) -> None:
    field = b"\x01k" + bytes.fromhex(wire)
    table, end = decode_table(len(field).to_bytes(4) + field + b"rest")
    assert table == {"k": value}
    assert end == 4 + len(field)


@given(tables)
def test_a_table_comes_back_as_it_was(table: dict[str, object]) -> None:
    encoded = encode_table(table)
    assert decode_table(encoded) == (table, len(encoded))


@given(tables)
def test_an_independent_codec_reads_our_tables(table: dict[str, object]) -> None:
    size, theirs = pamqp.decode.field_table(encode_table(table))
    assert theirs.keys() == table.keys()
    assert size == len(encode_table(table))


@given(st.binary(max_size=100))
def test_any_bytes_are_a_table_or_a_syntax_error(data: bytes) -> None:
    error = error_of(decode_table, data)
    assert error is None or error.code is ReplyCode.SYNTAX_ERROR


def test_tables_nested_without_end_are_refused() -> None:
    data = encode_table({})
    for _ in range(MAX_TABLE_DEPTH + 1):
        field = b"\x01kF" + data
        data = len(field).to_bytes(4) + field
    with pytest.raises(Amqp091Error, match="nested more than 32 deep"):
        decode_table(data)


def test_a_number_that_no_type_holds_is_written_as_text() -> None:
    assert decode_table(encode_table({"n": 1 << 80}))[0] == {"n": str(1 << 80)}


def test_a_decimal_that_the_wire_cannot_hold_is_written_as_text() -> None:
    value = Decimal("12345678901234567890.5")
    assert decode_table(encode_table({"d": value}))[0] == {"d": str(value)}


def test_a_uuid_is_written_as_a_urn() -> None:
    value = UUID(int=1)
    assert decode_table(encode_table({"u": value}))[0] == {"u": f"urn:uuid:{value}"}


CROWDS = [
    pytest.param({"a": [None] * MOST_VALUES}, id="an array"),
    pytest.param({f"{n:04}": True for n in range(MOST_VALUES + 1)}, id="a table"),
    pytest.param({"a": [[{"b": [1.5] * 50}] * 10] * 5}, id="a nest"),
]


@pytest.mark.parametrize("table", CROWDS)
def test_a_table_has_a_bounded_number_of_values(table: dict[str, object]) -> None:
    encoded = encode_table(table)
    with pytest.raises(Amqp091Error, match=f"{MOST_VALUES} values"):
        require_few(encoded, 0, ReplyCode.PRECONDITION_FAILED)


@pytest.mark.parametrize("table", CROWDS)
def test_neither_a_new_message_nor_an_argument_has_more_but_an_old_message_may(
    table: dict[str, object],
) -> None:
    native = encode_properties({"headers": table})
    assert decode_properties(native)["headers"] == table
    with pytest.raises(Amqp091Error) as refusal:
        facts_of(native)
    assert not refusal.value.ends_connection
    with pytest.raises(Amqp091Error, match=f"{MOST_VALUES} values"):
        decode_method(encode_method(QueueDeclare(0, "q", arguments=table)))


def test_as_many_values_as_are_allowed_are_read() -> None:
    times = [datetime.fromtimestamp(5, UTC), Decimal("1.5"), b"x", "y" * 40, 1 << 40, None, True]
    table = {f"{n}": [times, {"a": 1}] for n in range(MOST_VALUES // 11)}
    encoded = encode_table(table)
    require_few(encoded, 0, ReplyCode.PRECONDITION_FAILED)
    require_few(encoded[:-5], 0, ReplyCode.PRECONDITION_FAILED)  # malformed: for others to say
    assert len(encoded) > MOST_VALUES


def test_what_a_declaration_says_is_not_kept_without_end() -> None:
    fitting = QueueDeclare(0, "q", arguments={"x": "y" * (LARGEST_ARGUMENTS_BYTES - 100)})
    assert decode_method(encode_method(fitting)) == fitting
    with pytest.raises(Amqp091Error, match=f"{LARGEST_ARGUMENTS_BYTES} bytes") as refusal:
        decode_method(
            encode_method(QueueDeclare(0, "q", arguments={"x": "y" * LARGEST_ARGUMENTS_BYTES}))
        )
    assert refusal.value.code is ReplyCode.NOT_ALLOWED
