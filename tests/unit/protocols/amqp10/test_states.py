"""Which frame may come in which state of an AMQP 1.0 connection: the tables, and who heeds them."""

from __future__ import annotations

import pytest

from protocols.amqp10.errors import Amqp10Error
from protocols.amqp10.states import (
    RECEIVED,
    SASL_RECEIVED,
    Performative,
    SaslState,
    State,
    step,
)
from protocols.amqp10.wire.sasl import AMQP_HEADER
from protocols.amqp10.wire.types import UInt
from tests.support.amqp10_wire import ATTACH, BEGIN, CLOSE, END, OPEN, attach, frame
from tests.unit.protocols.amqp10.conversation import Conversation, of

OPENED = frame(0, OPEN, ["client", None, UInt(65_536)])
BEGUN = frame(0, BEGIN, [None, UInt(0), UInt(1000), UInt(1000)])
AMQP_FRAMES = [each for each in Performative if each < 0x40]


@pytest.mark.parametrize(
    ("state", "performative", "following"),
    [
        (State.AWAITING_OPEN, Performative.OPEN, State.OPENING),
        (State.OPEN, Performative.ATTACH, State.OPEN),
        (State.OPEN, Performative.CLOSE, State.CLOSED),
        (State.CLOSING, Performative.ATTACH, State.CLOSING),
        (State.CLOSING, Performative.CLOSE, State.CLOSED),
    ],
)
def test_a_legal_frame_leads_to_the_next_state(
    state: State, performative: Performative, following: State
) -> None:
    assert step(RECEIVED, state, performative) is following


def test_whatever_is_not_in_the_table_is_an_illegal_state() -> None:
    with pytest.raises(Amqp10Error, match="attach while awaiting open") as caught:
        step(RECEIVED, State.AWAITING_OPEN, Performative.ATTACH)
    assert caught.value.condition == "amqp:illegal-state"


def test_a_frame_that_nobody_knows_is_named_by_its_number() -> None:
    with pytest.raises(Amqp10Error, match="0x44 while awaiting sasl-init"):
        step(SASL_RECEIVED, SaslState.AWAITING_INIT, 0x44)


@pytest.mark.parametrize("state", [State.OPENING, State.CLOSED])
def test_nothing_is_legal_while_a_connection_opens_or_when_it_is_closed(state: State) -> None:
    assert not [each for each in Performative if (state, each) in RECEIVED]


def test_everything_may_still_come_after_our_close() -> None:
    """The client has not heard of it yet [2.4.3]."""
    assert all((State.CLOSING, each) in RECEIVED for each in AMQP_FRAMES)


# --- the machine heeds it


@pytest.mark.parametrize(
    "early",
    [
        pytest.param(BEGUN, id="begin"),
        pytest.param(BEGUN + attach("queue://q", 0, "s", is_receiver=False), id="attach"),
    ],
)
async def test_a_session_before_the_open_ends_the_connection(early: bytes) -> None:
    talk = Conversation()
    heard = await talk.say(AMQP_HEADER, early)
    (closed,) = of(heard, CLOSE)
    assert closed[0].value[0] == "amqp:illegal-state"
    assert talk.machine.state is State.CLOSED
    assert talk.machine.is_failed


async def test_a_connection_goes_through_its_states() -> None:
    talk = Conversation()
    states = [talk.machine.state]
    command = talk.machine.receive(AMQP_HEADER + OPENED)
    states.append(talk.machine.state)
    assert command is not None
    await talk.machine.perform(command)
    talk.machine.proceed()
    states.append(talk.machine.state)
    await talk.say(BEGUN, frame(0, END, []), frame(0, CLOSE, []))
    states.append(talk.machine.state)
    assert states == [State.AWAITING_OPEN, State.OPENING, State.OPEN, State.CLOSED]
    assert talk.carrier.opened == [("ann", "/")]


async def test_what_comes_behind_an_open_that_is_refused_is_passed_over() -> None:
    talk = Conversation()
    unknown = frame(0, OPEN, ["client", "vhost:nowhere", UInt(65_536)])
    heard = await talk.say(
        AMQP_HEADER, unknown, BEGUN, attach("queue://q", 0, "s", is_receiver=False)
    )
    assert len(of(heard, CLOSE)) == 1
    assert not of(heard, ATTACH)
    states = [talk.machine.state]
    await talk.say(frame(0, CLOSE, []))
    states.append(talk.machine.state)
    assert states == [State.CLOSING, State.CLOSED]
    assert not talk.machine.is_failed


async def test_a_connection_that_the_gateway_ends_while_it_opens_stays_closed() -> None:
    talk = Conversation()
    command = talk.machine.receive(AMQP_HEADER + OPENED)
    assert command is not None
    talk.machine.fail("amqp:connection:forced", "the gateway stops")
    await talk.machine.perform(command)
    talk.machine.proceed()
    assert talk.machine.state is State.CLOSING
    assert talk.machine.client is None
    assert talk.carrier.opened == []
    await talk.machine.lost()
