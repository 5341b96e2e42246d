"""Confirms: told in order, in as few frames as possible, and nothing told twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocols.amqp091.publish.confirms import Confirms
from protocols.amqp091.wire.codec import decode_method
from protocols.amqp091.wire.frames import split
from protocols.amqp091.wire.methods import BasicAck, BasicNack, Method


def told(confirms: Confirms) -> list[Method]:
    data, position, found = confirms.take(1), 0, []
    while position < len(data):
        frame = split(data, position, 4096)
        assert frame is not None
        assert frame.channel == 1
        found.append(decode_method(data[frame.start : frame.end]))
        position = frame.end + 1
    return found


def after(count: int) -> Confirms:
    confirms = Confirms()
    assert [confirms.next() for _ in range(count)] == list(range(1, count + 1))
    return confirms


def test_one_ack_speaks_for_all_that_were_committed_together() -> None:
    confirms = after(5)
    confirms.accept_all([1, 2, 3])
    confirms.accept_all([4, 5])
    assert told(confirms) == [BasicAck(5, multiple=True)]
    assert told(confirms) == []


def test_a_single_confirm_is_not_multiple() -> None:
    confirms = after(1)
    confirms.accept(1)
    assert told(confirms) == [BasicAck(1, multiple=False)]


def test_what_is_done_at_once_waits_for_an_earlier_commit() -> None:
    confirms = after(3)
    confirms.accept(2)
    assert told(confirms) == []
    confirms.accept_all([1])
    assert told(confirms) == [BasicAck(2, multiple=True)]
    confirms.accept_all([3])
    assert told(confirms) == [BasicAck(3)]


def test_a_refusal_is_told_at_its_place() -> None:
    confirms = after(4)
    confirms.refuse([2])
    confirms.accept_all([1, 3, 4])
    assert told(confirms) == [BasicAck(1), BasicNack(2, requeue=False), BasicAck(4, multiple=True)]
    assert confirms.outstanding == 0


@given(st.permutations(range(1, 13)), st.sets(st.integers(1, 12)), st.integers(1, 12))
def test_every_number_is_told_once_in_order_whatever_order_they_end_in(
    order: list[int], refused: set[int], step: int
) -> None:
    confirms = after(12)
    known: list[tuple[int, bool]] = []
    for start in range(0, 12, step):
        for tag in order[start : start + step]:
            confirms.refuse([tag]) if tag in refused else confirms.accept(tag)
        for method in told(confirms):
            assert isinstance(method, BasicAck | BasicNack)
            first = len(known) + 1 if method.multiple else method.delivery_tag
            known += [
                (tag, isinstance(method, BasicAck)) for tag in range(first, method.delivery_tag + 1)
            ]
    assert known == [(tag, tag not in refused) for tag in range(1, 13)]
