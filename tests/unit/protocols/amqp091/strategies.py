"""Values of every type that AMQP 0.9.1 can write, for hypothesis."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

from hypothesis import strategies as st

from protocols.amqp091.errors import Amqp091Error
from protocols.amqp091.wire.methods import METHODS, Domain, Layout, Method

short_text = st.text(max_size=60).filter(lambda text: len(text.encode()) <= 255)
moments = st.integers(0, 4_102_444_800).map(lambda s: datetime.fromtimestamp(s, UTC))
decimals = st.builds(
    lambda unscaled, scale: Decimal(unscaled).scaleb(-scale),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.integers(0, 20),
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=40)
    | st.binary(max_size=40)
    | moments
    | decimals
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(short_text, inner, max_size=4),
    max_leaves=12,
)
tables = st.dictionaries(short_text, values, max_size=6)

DOMAINS = {
    Domain.BIT: st.booleans(),
    Domain.OCTET: st.integers(0, 255),
    Domain.SHORT: st.integers(0, (1 << 16) - 1),
    Domain.LONG: st.integers(0, (1 << 32) - 1),
    Domain.LONG_LONG: st.integers(0, (1 << 64) - 1),
    Domain.SHORT_STR: short_text,
    Domain.LONG_STR: st.binary(max_size=300),
    Domain.TABLE: tables,
}


def of(layout: Layout) -> st.SearchStrategy[Method]:
    """Any method of that layout."""
    return st.builds(layout.kind, *[DOMAINS[domain] for _, domain in layout.fields])


methods = st.sampled_from(sorted(METHODS)).flatmap(lambda index: of(METHODS[index]))


def error_of(read: Callable[[bytes], object], data: bytes) -> Amqp091Error | None:
    """Returns our own error that these bytes raise; any other goes through and fails the test."""
    try:
        read(data)
    except Amqp091Error as error:
        return error
    return None
