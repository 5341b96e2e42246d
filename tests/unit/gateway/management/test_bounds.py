"""Bounds of what one request of the HTTP API may cost the loop, and of numbers in its path."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.management.api_errors import ApiError
from gateway.management.call import whole_number
from gateway.management.lists import MOST_COLUMNS, ColumnsQuery, columns_of
from gateway.management.v1 import conversion as conversions
from gateway.management.v1.conversion import MOST_TRACED, conversion
from gateway.message_files import traces
from gateway.message_files.document import MOST_LEVELS, MessageFileError, untagged
from gateway.message_files.protocols import PROTOCOLS


def converted(headers: dict[str, Any]) -> conversions.Conversion:
    document = {"exchange": "", "routing-key": "q", "properties": {"headers": headers}, "body": b""}
    message = PROTOCOLS["amqp091"].read(document, 0.0)
    return conversion(message, document, "amqp091", "mqtt5", 0.0)


def test_properties_are_followed_one_by_one_only_while_that_converts_little() -> None:
    assert converted({f"h{number}": "x" * 10 for number in range(50)}).losses is not None
    large = converted({f"h{number}": "x" * 10_000 for number in range(50)})
    assert (large.losses, large.properties) == (None, None)


def test_properties_that_are_too_many_are_not_even_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []

    def counted(document: Any) -> Any:
        for each in traces.without_each(document):
            seen.append(each)
            yield each

    monkeypatch.setattr(conversions, "without_each", counted)
    assert converted({f"h{number}": 1 for number in range(1000)}).losses is None
    assert len(seen) == MOST_TRACED + 1


def test_a_document_that_is_nested_too_deeply_is_refused_with_its_place() -> None:
    value: Any = 1
    for _ in range(MOST_LEVELS):
        value = {"a": value}
    assert untagged(value, "top") == value
    with pytest.raises(MessageFileError, match="levels deep at most"):
        untagged([value], "top")


def test_a_long_name_is_not_written_again_for_each_value_inside() -> None:
    with pytest.raises(MessageFileError) as refused:
        untagged({"n" * 100_000: [0, [2**70]]}, "top")
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("000", 0),
        ("65535", 65535),
        ("0" * 5000 + "7", 7),
        ("65536", None),
        ("9" * 5000, None),
        ("0" * 30 + "9" * 30, None),
        ("-1", None),
        ("+1", None),
        ("1_0", None),
        ("\u0663", None),
        ("\u00b2", None),
        ("", None),
    ],
)
def test_a_number_of_a_path_is_read_only_up_to_its_bound(text: str, number: int | None) -> None:
    assert whole_number(text, 65535) == number


def test_an_answer_is_cut_to_so_many_columns_and_no_more() -> None:
    wanted = ",".join(["a.b"] * MOST_COLUMNS)
    assert len(columns_of(ColumnsQuery(columns=wanted))) == MOST_COLUMNS
    with pytest.raises(ApiError) as refused:
        columns_of(ColumnsQuery(columns=wanted + ",c"))
    assert refused.value.status == 400
