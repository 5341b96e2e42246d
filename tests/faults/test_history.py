"""The checker finds each way in which a broker can break its promises, and nothing else."""

from __future__ import annotations

import pytest

from tests.faults.history import (
    Calm,
    Confirmed,
    Delivered,
    Ended,
    Event,
    Fault,
    History,
    Name,
    Sent,
    Settled,
    check,
)

ONE, TWO, THREE = (Name("orders", "p", number) for number in (1, 2, 3))
THREE_OF = (ONE, TWO, THREE)
CRASH = Fault("kill -9")


def to(connection: str, name: Name, flag: bool | None = False) -> Delivered:
    return Delivered(name, connection, flag)


def rules(*events: Event, is_complete: bool = True) -> list[str]:
    return [violation.rule for violation in check(events, is_complete=is_complete)]


def sent(*names: Name) -> list[Event]:
    return [event for name in names for event in (Sent(name), Confirmed(name))]


HONEST = [
    pytest.param([], id="nothing at all"),
    pytest.param([*sent(ONE), to("a", ONE), Settled(ONE)], id="one message, once"),
    pytest.param([Sent(ONE), CRASH], id="never confirmed, never seen"),
    pytest.param([Sent(ONE), CRASH, to("a", ONE), Settled(ONE)], id="never confirmed, yet there"),
    pytest.param([Sent(ONE), to("a", ONE), Confirmed(ONE)], id="delivered before it was confirmed"),
    pytest.param(
        [*sent(ONE), to("a", ONE), CRASH, to("b", ONE, True), Settled(ONE)],
        id="back after a crash, flagged",
    ),
    pytest.param(
        [*sent(ONE), to("a", ONE), Ended("a"), to("b", ONE, True)],
        id="back after its consumer went, flagged",
    ),
    pytest.param([*sent(ONE), CRASH, to("a", ONE, True)], id="flagged, for it may have been seen"),
    pytest.param([*sent(ONE, TWO), to("a", ONE), to("b", TWO)], id="two consumers share"),
    pytest.param(
        [*sent(*THREE_OF), to("b", THREE), to("a", TWO), Ended("b"), to("a", ONE, True)],
        id="what another held comes back behind what this one has seen",
    ),
    pytest.param(
        [Sent(ONE), CRASH, Sent(ONE), Confirmed(ONE), to("a", ONE), Settled(ONE), to("a", ONE)],
        id="sent twice, so two copies",
    ),
    pytest.param(
        [*sent(ONE), to("a", ONE, None), Ended("a"), to("b", ONE, None)],
        id="a protocol without a flag",
    ),
]


@pytest.mark.parametrize("events", HONEST)
def test_an_honest_broker_passes(events: list[Event]) -> None:
    assert rules(*events) == []


def test_a_confirmed_message_that_never_comes_is_lost() -> None:
    assert rules(*sent(ONE, TWO), CRASH, to("a", TWO, True)) == ["lost"]


def test_nothing_is_lost_before_all_was_drained() -> None:
    assert rules(*sent(ONE), is_complete=False) == []


def test_a_settled_message_that_comes_again_has_returned() -> None:
    again = to("b", ONE, True)
    assert rules(*sent(ONE), to("a", ONE), Settled(ONE), CRASH, again) == ["returned"]


def test_a_message_seen_before_must_be_flagged() -> None:
    assert rules(*sent(ONE), to("a", ONE), CRASH, to("b", ONE)) == ["unflagged"]


def test_a_flag_before_anything_broke_is_false() -> None:
    assert rules(*sent(ONE), to("a", ONE, True)) == ["falsely flagged"]


def test_a_message_twice_on_one_connection_is_doubled_whatever_broke() -> None:
    again = to("a", ONE, True)
    assert rules(*sent(ONE), to("a", ONE), CRASH, again) == ["doubled"]


def test_a_message_that_one_consumer_holds_may_not_go_to_another() -> None:
    assert rules(*sent(ONE), to("a", ONE), to("b", ONE, True)) == ["doubled"]


def test_in_trouble_another_may_get_it_before_its_holder_has_noticed() -> None:
    first, again = to("a", ONE), to("b", ONE, True)
    assert rules(*sent(ONE), CRASH, first, again, Ended("a"), Calm()) == []
    assert rules(*sent(ONE), CRASH, first, Calm(), again, Ended("a")) == ["doubled"]


def test_exactly_once_means_once_even_after_a_crash() -> None:
    first = Delivered(ONE, "a", None, is_once=True)
    second = Delivered(ONE, "b", None, is_once=True)
    assert rules(*sent(ONE), first, CRASH, second) == ["doubled"]


def test_sending_again_with_qos_2_makes_no_copy() -> None:
    events: list[Event] = [Sent(ONE, is_once=True), CRASH, Sent(ONE, is_once=True), Confirmed(ONE)]
    assert rules(*events, to("a", ONE), Settled(ONE), to("a", ONE)) == [
        "returned",
        "unflagged",
        "doubled",
    ]


def test_first_deliveries_out_of_order_are_found() -> None:
    assert rules(*sent(ONE, TWO, THREE), to("a", TWO), to("a", ONE), to("a", THREE)) == [
        "reordered"
    ]


def test_what_comes_back_to_a_lone_consumer_comes_in_order_too() -> None:
    seen = [*sent(ONE, TWO), to("a", ONE), to("a", TWO), Ended("a")]
    assert rules(*seen, to("b", TWO, True), to("b", ONE, True)) == ["reordered"]
    assert rules(*seen, to("b", ONE, True), to("b", TWO, True)) == []


def test_order_is_each_publishers_own() -> None:
    other = Name("orders", "q", 1)
    assert rules(*sent(TWO, other), to("a", TWO), to("a", other)) == []


def test_what_nobody_sent_is_strange() -> None:
    assert rules(to("a", ONE)) == ["strange"]


def test_a_name_survives_the_way_through_a_body() -> None:
    body = ONE.encode(64)
    assert len(body) == 64
    assert Name.decode(body) == ONE


async def test_a_test_can_wait_for_what_it_needs() -> None:
    history = History()
    history.add(Sent(ONE))
    await history.until(lambda: ONE in history.sent, "sent")
    with pytest.raises(AssertionError, match="1 more confirmed; 1 sent, 0 confirmed"):
        await history.grow(1, seconds=0.01)
