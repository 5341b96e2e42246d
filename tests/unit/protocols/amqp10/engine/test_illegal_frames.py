"""Things that a peer may not do and the engine lets it: go on with ended links, begin and open
again, send where it receives."""

from __future__ import annotations

import pytest
from cproton_ffi import lib

from protocols.amqp10.engine import proton as pn
from protocols.amqp10.settings import Settings
from protocols.amqp10.wire.types import UInt
from tests.support.amqp10_wire import (
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    OPEN,
    TRANSFER,
    attach,
    frame,
    transfer,
)
from tests.unit.protocols.amqp10.conversation import Conversation, of
from tests.unit.protocols.amqp10.links.test_transactions import control
from tests.unit.protocols.amqp10.test_machine import DATA, flow, state_of

PIECE = bytes(60_000)


def kept_bytes(talk: Conversation) -> int:
    """Returns how many bytes the engine keeps for somebody to read."""
    link = lib.pn_link_head(talk.machine.engine.connection, 0)
    return int(lib.pn_session_incoming_bytes(pn.session_of(link)))


@pytest.mark.parametrize(
    "begin",
    [
        pytest.param(attach("queue://q", 0, "s", is_receiver=False), id="failed"),
        pytest.param(attach("/queues/no-such", 0, "s", is_receiver=False), id="refused"),
        pytest.param(control(handle=0), id="control"),
    ],
)
@pytest.mark.parametrize("more", [True, False])
async def test_what_is_sent_to_a_link_that_has_ended_is_not_kept(begin: bytes, more: bool) -> None:
    talk = Conversation(settings=Settings(max_message_size=50_000))
    await talk.begin()
    heard = await talk.say(begin, transfer(0, 0, PIECE, more=more))
    assert of(heard, DETACH)
    for number in range(1, 20):
        await talk.say(transfer(0, 0 if more else number, PIECE, more=more))
    assert kept_bytes(talk) == 0
    assert talk.machine.partial_bytes == 0
    await talk.say(
        frame(0, DETACH, [UInt(0), True]), attach("queue://q", 1, "t", is_receiver=False)
    )
    await talk.say(transfer(1, 1 if more else 20, DATA))
    talk.services.writer.commit()
    (answer,) = of(talk.heard(), DISPOSITION)
    assert state_of(answer) == 0x24  # the session goes on


async def test_refused_links_that_nobody_detaches_have_a_limit() -> None:
    talk = Conversation(settings=Settings(max_links=3))
    await talk.begin()
    for handle in range(3):
        heard = await talk.attach("/queues/no-such", handle, is_receiver=False)
        assert not of(heard, CLOSE)
    heard = await talk.attach("queue://q", 3, is_receiver=False)
    assert of(heard, CLOSE)[0][0].value[0] == "amqp:resource-limit-exceeded"
    assert talk.machine.is_failed
    assert talk.counters.connection_errors == 1


@pytest.mark.parametrize("end", ["detach", "end"])
async def test_refused_links_that_are_detached_are_forgotten(end: str) -> None:
    talk = Conversation(settings=Settings(max_links=3))
    await talk.begin()
    for number in range(9):
        await talk.attach("/queues/no-such", number % 3, is_receiver=False)
        if end == "detach":
            heard = await talk.say(frame(0, DETACH, [UInt(number % 3), True]))
        elif number % 3 == 2:
            heard = await talk.say(frame(0, END, []))
            await talk.say(frame(0, BEGIN, [None, UInt(0), UInt(1000), UInt(1000)]))
        assert not of(heard if number > 1 else [], CLOSE)
    assert not of(await talk.attach("queue://q", 0, is_receiver=False), DETACH)


async def test_a_transfer_from_a_receiver_is_an_error() -> None:
    """The engine would keep it, and give it back as the next delivery."""
    talk = Conversation()
    await talk.begin()
    await talk.attach("queue://q", 0, is_receiver=True)
    (closed,) = of(await talk.say(transfer(0, 0, PIECE)), CLOSE)
    assert closed[0].value[0] == "amqp:not-allowed"


async def test_a_channel_that_begins_again_and_again_has_an_end() -> None:
    talk = Conversation(settings=Settings(channel_max=3))
    await talk.begin()
    begin = frame(0, BEGIN, [None, UInt(0), UInt(1000), UInt(1000)])
    for _ in range(9):
        await talk.say(frame(0, END, []), begin)
    assert not of(await talk.say(begin, begin, begin), CLOSE)
    (closed,) = of(await talk.say(begin), CLOSE)
    assert closed[0].value[0] == "amqp:not-allowed"


async def test_a_second_open_is_an_error_and_opens_nothing() -> None:
    talk = Conversation()
    await talk.begin()
    (closed,) = of(await talk.say(frame(0, OPEN, ["another", "vhost:other"])), CLOSE)
    assert closed[0].value[0] == "amqp:illegal-state"
    assert talk.client.terms.container == "client"
    assert (talk.counters.connections, talk.counters.connection_errors) == (1, 1)


async def test_a_handle_that_is_in_use_is_said_counted_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    talk = Conversation()
    await talk.begin()
    await talk.attach("queue://q", 0, is_receiver=False)
    heard = await talk.say(attach("queue://q", 0, "other", is_receiver=False))
    assert of(heard, END)[0][0].value[0] == "amqp:session:handle-in-use"
    assert talk.counters.link_errors == 1
    assert "handle-in-use" in caplog.text


async def test_a_receiver_that_takes_its_drain_back_keeps_its_credit() -> None:
    sender = Conversation()
    talk = Conversation(sender.services)
    await sender.begin()
    await talk.begin()
    await sender.attach("queue://q", 0, is_receiver=False)
    await talk.attach("queue://q", 0, is_receiver=True)
    await sender.say(transfer(0, 0, DATA))
    sender.services.writer.commit()
    talk.machine.pause()  # nothing leaves, so nothing is drained yet
    await talk.say(flow(0, 5, drain=True))
    await talk.say(flow(0, 5))
    talk.machine.resume()
    assert len(of(talk.heard(), TRANSFER)) == 1
    await sender.say(transfer(0, 1, DATA))
    sender.services.writer.commit()
    assert len(of(talk.heard(), TRANSFER)) == 1
