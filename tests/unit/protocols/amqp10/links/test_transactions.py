"""Transactions without a socket: what ends one, and what becomes of what was done in it."""

from __future__ import annotations

import pytest

from protocols.amqp10.links.transactions import MAX_COMMAND_BYTES
from protocols.amqp10.wire.types import Described, UInt, ULong, encode
from tests.support.amqp10_wire import (
    ATTACH,
    DETACH,
    DISPOSITION,
    END,
    SOURCE,
    TRANSFER,
    frame,
    transfer,
)
from tests.unit.protocols.amqp10.conversation import Conversation, of
from tests.unit.protocols.amqp10.test_machine import DATA, flow, state_of

DECLARE, DISCHARGE = 0x31, 0x32
ACCEPTED, REJECTED, TRANSACTIONAL = 0x24, 0x25, 0x34
CONTROL, SENDER, RECEIVER = 0, 1, 2  # handles


def control(handle: int = CONTROL) -> bytes:
    source, coordinator = Described(ULong(SOURCE), []), Described(ULong(0x30), [])
    name = f"control-{handle}"
    fields = [name, UInt(handle), False, None, None, source, coordinator, None, None, UInt(0)]
    return frame(0, ATTACH, fields)


def command(number: int, code: int, *fields: object, handle: int = CONTROL) -> bytes:
    value = Described(ULong(code), list(fields))
    return transfer(handle, number, encode(Described(ULong(0x77), value)))


def posted(number: int, txn: bytes, payload: bytes = DATA, *, settled: bool = False) -> bytes:
    state = Described(ULong(TRANSACTIONAL), [txn])
    tag = number.to_bytes(4)
    fields: list[object] = [UInt(SENDER), UInt(number), tag, UInt(0), settled, False, None, state]
    return frame(0, TRANSFER, fields, payload)


def retired(txn: bytes, outcome: int | None, *, settled: bool = True) -> bytes:
    said = [txn] if outcome is None else [txn, Described(ULong(outcome), [])]
    state = Described(ULong(TRANSACTIONAL), said)
    return frame(0, DISPOSITION, [True, UInt(0), UInt(0), settled, state])


@pytest.fixture
async def talk() -> Conversation:
    """With a control link, a sender and a receiver of a queue, and one message in its hands."""
    talk = Conversation()
    await talk.begin()
    await talk.say(control())
    await talk.attach("queue://q", SENDER, is_receiver=False)
    await talk.attach("queue://q", RECEIVER, is_receiver=True)
    await talk.say(transfer(SENDER, 0, DATA), flow(RECEIVER, 1))
    talk.services.writer.commit()
    assert of(talk.heard(), TRANSFER)
    return talk


async def declared(talk: Conversation, number: int = 1, handle: int = CONTROL) -> bytes:
    (answer,) = of(await talk.say(command(number, DECLARE, handle=handle)), DISPOSITION)
    txn = answer[4].value[0]
    assert isinstance(txn, bytes)
    return txn


async def discharged(
    talk: Conversation, number: int, txn: bytes, handle: int = CONTROL
) -> str | None:
    """None, or the condition of the error."""
    found = talk.machine.receive(command(number, DISCHARGE, txn, False, handle=handle))
    assert found is not None
    found.send(None)  # up to the commit
    talk.services.writer.commit()
    with pytest.raises(StopIteration):
        found.send(None)
    talk.machine.proceed()
    (answer,) = of(talk.heard(), DISPOSITION)
    return None if state_of(answer) == ACCEPTED else str(answer[4].value[0].value[0])


def counts(talk: Conversation) -> tuple[int, int]:
    found = talk.services.root.queues["q"].counts()
    return found.ready, found.in_flight


@pytest.mark.parametrize(
    "end", [frame(0, DETACH, [UInt(CONTROL), True]), frame(0, DETACH, [UInt(CONTROL), False])]
)
async def test_what_was_declared_on_a_control_link_ends_with_it(
    talk: Conversation, end: bytes
) -> None:
    """[4.1] 'immediately rolled back, and attempts to perform further transactional work on them
    will lead to failure'."""
    txn = await declared(talk)
    await talk.say(posted(2, txn), retired(txn, ACCEPTED))
    await talk.say(end)
    assert counts(talk) == (1, 0)
    (answer,) = of(await talk.say(posted(3, txn)), DISPOSITION)
    assert state_of(answer) == REJECTED
    await talk.say(control(handle=7))
    heard = await talk.say(command(4, DISCHARGE, txn, False, handle=7))
    (answer,) = of(heard, DISPOSITION)
    assert answer[4].value[0].value[0] == "amqp:transaction:unknown-id"
    delivery = await talk.services.root.get("q")
    assert delivery is not None
    assert delivery.failures == 1


@pytest.mark.parametrize("closed", [True, False])
async def test_what_was_retired_stays_so_when_its_link_ends_before_the_discharge(
    talk: Conversation, closed: bool
) -> None:
    txn = await declared(talk)
    await talk.say(retired(txn, ACCEPTED))
    await talk.say(frame(0, DETACH, [UInt(RECEIVER), closed]))
    assert counts(talk) == (0, 1)
    assert await discharged(talk, 2, txn) is None
    assert counts(talk) == (0, 0)


async def test_what_was_retired_comes_back_when_all_of_it_ends(talk: Conversation) -> None:
    txn = await declared(talk)
    await talk.say(retired(txn, ACCEPTED))
    await talk.say(frame(0, END, []))
    assert counts(talk) == (1, 0)


async def test_what_was_retired_comes_back_with_the_loss_of_the_connection(
    talk: Conversation,
) -> None:
    txn = await declared(talk)
    await talk.say(retired(txn, ACCEPTED))
    await talk.machine.lost()
    delivery = await talk.services.root.get("q")
    assert delivery is not None
    assert delivery.failures == 1


async def test_a_settled_message_that_is_refused_lets_no_discharge_succeed(
    talk: Conversation,
) -> None:
    txn = await declared(talk)
    await talk.say(posted(2, txn), posted(3, txn, b"no message", settled=True))
    heard = await talk.say(command(4, DISCHARGE, txn, False))
    (answer,) = of(heard, DISPOSITION)
    condition, text = answer[4].value[0].value[:2]
    assert condition == "amqp:transaction:rollback"
    assert "malformed" in text
    assert not talk.services.writer.units
    assert talk.counters.dropped_transfers == 1


async def test_a_receiver_that_names_a_transaction_and_no_outcome_still_has_the_message(
    talk: Conversation,
) -> None:
    txn = await declared(talk)
    assert not of(await talk.say(retired(txn, None, settled=False)), DISPOSITION)
    await talk.say(retired(txn, ACCEPTED))
    assert await discharged(talk, 2, txn) is None
    assert counts(talk) == (0, 0)


async def test_settled_in_a_transaction_without_an_outcome_is_a_release(
    talk: Conversation,
) -> None:
    txn = await declared(talk)
    await talk.say(retired(txn, None))
    assert counts(talk) == (0, 1)
    assert await discharged(talk, 2, txn) is None
    assert counts(talk) == (1, 0)


@pytest.mark.parametrize("more", [True, False])
async def test_a_command_has_a_size(talk: Conversation, more: bool) -> None:
    heard = await talk.say(transfer(CONTROL, 1, bytes(MAX_COMMAND_BYTES + 1), more=more))
    (detached,) = of(heard, DETACH)
    assert detached[2].value[0] == "amqp:link:message-size-exceeded"
