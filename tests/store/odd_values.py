"""Odd values that no sane client sends, for tests that send them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from math import inf, nan
from random import Random
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from queue_core.message.message import Message, Properties

_random = Random(7)


def noise(size: int) -> str:
    """Text that does not compress: an index takes 2.7 kB, of `aaaa...` much more."""
    return "".join(_random.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=size))


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


TEXTS = [
    *("", " ", "\0", "a\0b", "\ud800", "half \udfff", "\ufffe", "\U0010ffff", "\x7f\r\n\t"),
    *("'; DROP TABLE howdah.queue; --", "\\u0000", "\\x00", "%00", "$share/a/b", "#", "a/+/#", "{"),
    *("amq.topic", "$session/a", "x-howdah-types", "a" * 3000, noise(3000), noise(70_000)),
]
INTEGERS = [
    *(-(2**63) - 1, -(2**63), -(2**31) - 1, -32_769, -1, 0, 255, 256, 32_768, 2**31, 2**32),
    *(2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30, 10**400),
]
FLOATS = [nan, inf, -inf, -0.0, 5e-324, 1e308, -1e12, 1e11, 253_402_300_799.0, 1e18]
TIMES = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime.max.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    datetime(2026, 2, 3, 4, 5, 6, 7),  # without a zone
]
OTHERS = [None, True, b"", b"\0\xff", Decimal("NaN"), Decimal("1e-400"), UUID(int=0)]

texts = st.sampled_from(TEXTS) | st.text(st.characters(codec=None), max_size=8)
integers = st.sampled_from(INTEGERS)
floats = st.sampled_from(FLOATS)
scalars = st.sampled_from([*OTHERS, *TIMES]) | texts | integers | floats
values = st.recursive(
    scalars
    | st.sampled_from([31, 40, 5000]).map(nested)
    | st.sampled_from([20_000]).map(lambda count: [1] * count),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
# Of queues, exchanges and bindings: no protocol lets tables in that are nested deeper.
arguments = st.dictionaries(
    texts | st.sampled_from(["x-max-length", "x-match"]),
    scalars | st.sampled_from([1, 31]).map(nested) | st.dictionaries(texts, scalars, max_size=3),
    max_size=3,
)
headers = st.lists(st.tuples(texts | st.just("twice"), values), max_size=3).map(tuple)
times = st.none() | floats | st.just(1_900_000_000.0)


def properties() -> st.SearchStrategy[Properties]:
    text = st.none() | texts
    identifier = text | st.sampled_from([b"\0\xff", 2**64, -1, UUID(int=1)])
    return st.builds(
        Properties,
        content_type=text,
        message_id=identifier,
        correlation_id=identifier,
        reply_to=text,
        subject=text,
        user_id=text | st.just(b"\xff"),
        created_at=st.none() | st.sampled_from(TIMES),
        headers=headers,
    )


def messages() -> st.SearchStrategy[Message]:
    """To a fanout exchange, so that any key leads to its queues."""
    return st.builds(
        Message,
        st.just(b"odd"),
        st.just("amq.fanout"),
        routing_key=texts,
        properties=properties(),
        priority=st.none() | integers,
        expires_at=times,
        not_before=times,
        publisher=st.none() | texts,
    )
