"""The rules that no client lets one break, broken frame by frame against the real gateway."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from protocols.amqp10.wire.sasl import AMQP_HEADER, HEADER
from protocols.amqp10.wire.sasl import frame as sasl_frame
from protocols.amqp10.wire.types import Described, Symbol, UInt, ULong
from tests.support.amqp10_wire import (
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    OPEN,
    TRANSFER,
    Wire,
    attach,
    frame,
    transfer,
)
from tests.support.gateway_process import GatewayProcess
from tests.support.names import fresh

DATA = b"\x00\x53\x75\xa0\x01x"


@pytest.fixture
def wire(shared_gateway: GatewayProcess) -> Iterator[Wire]:
    made = Wire(shared_gateway)
    yield made
    made.close()


@pytest.fixture
def begun(wire: Wire) -> Wire:
    """With a connection open and a session begun."""
    wire.open()
    wire.begin()
    return wire


def condition(field: object) -> str:
    assert isinstance(field, Described)
    assert isinstance(field.value, list)
    return str(field.value[0])


def still_serves(gateway: GatewayProcess) -> bool:
    """Nobody else notices."""
    other = Wire(gateway)
    other.open()
    other.begin()
    other.attach_sender(f"queue://{fresh('other')}")
    other.send(transfer(0, 0, DATA))
    found = other.until(DISPOSITION)
    other.close()
    return isinstance(found[4], Described) and found[4].descriptor == 0x24


# --- the start


def test_a_wrong_password_gets_an_outcome_and_the_end(shared_gateway: GatewayProcess) -> None:
    wire = Wire(shared_gateway, logs_in=False)
    wire.send(HEADER + sasl_frame(0x41, [Symbol("PLAIN"), b"\0guest\0wrong"]))
    assert wire.octets(8) == HEADER
    wire.frame()
    outcome = wire.frame()
    assert outcome is not None
    assert (outcome[0], outcome[1]) == (0x44, [1])
    assert wire.frame() is None
    wire.close()


def test_garbage_instead_of_sasl_ends_the_connection(shared_gateway: GatewayProcess) -> None:
    wire = Wire(shared_gateway, logs_in=False)
    wire.send(HEADER + b"\xff" * 64)
    assert wire.octets(8) == HEADER
    wire.frame()
    assert wire.frame() is None
    wire.close()
    assert still_serves(shared_gateway)


def test_amqp_without_sasl_is_anonymous_from_loopback(shared_gateway: GatewayProcess) -> None:
    wire = Wire(shared_gateway, logs_in=False)
    wire.send(AMQP_HEADER)
    assert wire.octets(8) == AMQP_HEADER
    wire.open()
    wire.close()


def test_everything_may_be_sent_before_anything_is_answered(
    shared_gateway: GatewayProcess,
) -> None:
    wire = Wire(shared_gateway, logs_in=False)
    queue = fresh("pipelined")
    wire.send(
        HEADER
        + sasl_frame(0x41, [Symbol("PLAIN"), b"\0guest\0guest"])
        + AMQP_HEADER
        + frame(0, OPEN, ["wire", None, UInt(65_536)])
        + frame(0, BEGIN, [None, UInt(0), UInt(100), UInt(100)])
        + attach(f"queue://{queue}", 0, "s", is_receiver=False)
    )
    assert wire.octets(8) == HEADER
    wire.frame()
    wire.frame()
    assert wire.octets(8) == AMQP_HEADER
    for code in (OPEN, BEGIN, ATTACH, FLOW):
        wire.until(code)
    wire.close()


# --- broken frames


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\xff" * 32, id="no frame at all"),
        pytest.param(b"\x00\x00\x00\x04\x02\x00\x00\x00", id="a size that is too small"),
        pytest.param(b"\x7f\xff\xff\xff\x02\x00\x00\x00", id="a size beyond max-frame-size"),
        pytest.param(b"\x00\x00\x00\x0c\x02\x00\x00\x00garb", id="a body that is no value"),
        pytest.param(frame(0, 0x99, []), id="an unknown performative"),
        pytest.param(frame(0, TRANSFER, [UInt(0), UInt(0), b"t"]), id="a transfer before begin"),
        pytest.param(frame(0, ATTACH, ["n"]), id="an attach before begin"),
    ],
)
def test_a_broken_frame_ends_that_connection_alone(
    shared_gateway: GatewayProcess, wire: Wire, data: bytes
) -> None:
    wire.open()
    wire.send(data)
    while (found := wire.frame()) is not None:
        if found[0] == CLOSE:
            assert condition(found[1][0]).startswith("amqp:")
    assert still_serves(shared_gateway)


def test_a_frame_larger_than_the_agreed_size_ends_the_connection(
    shared_gateway: GatewayProcess, begun: Wire
) -> None:
    begun.attach_sender(f"queue://{fresh('frames')}")
    begun.send(transfer(0, 0, bytes(140_000)))
    found = begun.until(CLOSE)
    assert condition(found[0]) in ("amqp:connection:framing-error", "amqp:framing-error")
    assert still_serves(shared_gateway)


def test_a_transfer_on_an_unknown_handle_is_an_error(
    shared_gateway: GatewayProcess, begun: Wire
) -> None:
    begun.send(transfer(77, 0, DATA))
    found = begun.frame()
    assert found is not None
    assert found[0] in (END, CLOSE)
    assert still_serves(shared_gateway)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(frame(0, DETACH, [UInt(77), True]), id="detach"),
        pytest.param(frame(9, FLOW, [UInt(0), UInt(9), UInt(0), UInt(9)]), id="another channel"),
        pytest.param(frame(9, END, []), id="the end of a session that there is not"),
    ],
)
def test_a_frame_for_what_is_not_there_ends_that_connection_alone(
    shared_gateway: GatewayProcess, begun: Wire, data: bytes
) -> None:
    begun.send(data)
    while (found := begun.frame()) is not None:
        if found[0] in (END, CLOSE):
            break
    assert still_serves(shared_gateway)


def test_attaching_the_same_handle_twice_is_an_error(
    shared_gateway: GatewayProcess, begun: Wire
) -> None:
    address = f"queue://{fresh('twice')}"
    begun.attach_sender(address, 0, "one")
    begun.send(attach(address, 0, "other", is_receiver=False))
    assert condition(begun.until(END)[0]) == "amqp:session:handle-in-use"
    assert still_serves(shared_gateway)


def test_nothing_is_sent_beyond_the_window_of_the_session(wire: Wire) -> None:
    """[2.5.6] The credit allows ten; the session takes three transfers, then two more."""
    wire.open()
    wire.send(frame(0, BEGIN, [None, UInt(0), UInt(3), UInt(1000)]))
    wire.until(BEGIN)
    queue = f"queue://{fresh('window')}"
    wire.attach_sender(queue, 0)
    for number in range(10):
        wire.send(transfer(0, number, DATA))
        wire.until(DISPOSITION)
    wire.attach_receiver(queue, 1)

    def widened(received: int, window: int) -> bytes:
        fields = [UInt(received), UInt(window), UInt(10), UInt(1000), UInt(1), UInt(0), UInt(10)]
        return frame(0, FLOW, list(fields))

    def transfers() -> int:
        """Until a disposition: what was to come before it has come."""
        wire.send(transfer(0, next(numbers), DATA))
        count = 0
        while (found := wire.frame()) is not None and found[0] != DISPOSITION:
            count += found[0] == TRANSFER
        return count

    numbers = iter(range(10, 20))
    wire.send(widened(0, 3))
    assert transfers() == 3
    assert transfers() == 0
    wire.send(widened(3, 2))
    assert transfers() == 2
    wire.send(widened(5, 100))
    assert transfers() == 5  # what is left of the credit


def test_an_echo_is_answered_with_the_state_of_the_link(begun: Wire) -> None:
    queue = f"queue://{fresh('echo')}"
    begun.attach_receiver(queue, 0)
    begun.send(flow(0, 7, echo=True))
    said = begun.until(FLOW)
    assert (said[4], said[5], said[6]) == (0, 0, 7)


def test_attaching_the_same_name_twice_is_an_error(
    shared_gateway: GatewayProcess, begun: Wire
) -> None:
    address = f"queue://{fresh('twice')}"
    begun.attach_sender(address, 0, "same")
    begun.send(attach(address, 1, "same", is_receiver=False))
    found = begun.frame()
    assert found is not None
    assert found[0] in (CLOSE, END, DETACH)
    assert still_serves(shared_gateway)


def test_more_transfers_than_the_credit_end_the_link(
    shared_gateway: GatewayProcess, begun: Wire
) -> None:
    begun.attach_sender(f"queue://{fresh('greedy')}")
    begun.send(b"".join(transfer(0, number, DATA) for number in range(20_000)))
    found = begun.until(DETACH)
    assert condition(found[2]) == "amqp:link:transfer-limit-exceeded"
    assert still_serves(shared_gateway)


# --- broken messages


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"", id="nothing is a message without a body"),
        pytest.param(b"\x41", id="no section"),
        pytest.param(b"\x00\x53\x75\xa0\xff", id="data that ends too early"),
        pytest.param(b"\x00\x53\x73\xc0\x01\x09" + DATA, id="properties with fewer than they say"),
        pytest.param(b"\x00\x53\x74\xc1\x03\x01\x40\x40" + DATA, id="half a pair"),
    ],
)
def test_a_malformed_message_is_rejected_and_the_link_goes_on(begun: Wire, payload: bytes) -> None:
    begun.attach_sender(f"queue://{fresh('malformed')}")
    begun.send(transfer(0, 0, payload))
    state = begun.until(DISPOSITION)[4]
    assert isinstance(state, Described)
    if payload:
        assert state.descriptor == 0x25
        assert isinstance(state.value, list)
        assert condition(state.value[0]) == "amqp:decode-error"
    begun.send(transfer(0, 1, DATA))
    state = begun.until(DISPOSITION)[4]
    assert isinstance(state, Described)
    assert state.descriptor == 0x24


def test_a_message_in_many_frames_is_one_message(begun: Wire) -> None:
    queue = f"queue://{fresh('frames')}"
    begun.attach_sender(queue)
    whole = b"\x00\x53\x75\xb0\x00\x00\x10\x00" + bytes(4096)
    pieces = [whole[start : start + 100] for start in range(0, len(whole), 100)]
    for piece in pieces:
        begun.send(transfer(0, 0, piece, more=piece is not pieces[-1]))
    begun.until(DISPOSITION)
    begun.attach_receiver(queue, 1)
    begun.send(flow(1, 1))
    while (found := begun.frame()) is not None:
        if found[0] == TRANSFER:
            assert found[2].endswith(whole)
            return
    raise AssertionError("nothing came")


def flow(handle: int, credit: int, *, drain: bool = False, echo: bool = False) -> bytes:
    return frame(
        0,
        FLOW,
        [
            UInt(0), UInt(1000), UInt(0), UInt(1000), UInt(handle), UInt(0), UInt(credit), None,
            drain, echo,
        ],
    )  # fmt: skip


def test_a_link_error_detaches_the_link_and_the_session_goes_on(begun: Wire) -> None:
    begun.send(attach(f"/queues/{fresh('missing')}", 0, "a", is_receiver=True))
    answered = begun.until(ATTACH)
    assert answered[5] is None  # no source: the link is about to go [2.6.3]
    detached = begun.until(DETACH)
    assert (detached[1], condition(detached[2])) == (True, "amqp:not-found")
    begun.send(frame(0, DETACH, [UInt(0), True]))
    begun.attach_sender(f"queue://{fresh('there')}", 0, "b")
    begun.send(transfer(0, 0, DATA))
    begun.until(DISPOSITION)


def test_a_link_that_would_resume_hears_that_nothing_is_unsettled_here(begun: Wire) -> None:
    """[2.6.13] So that its sender sends again what it never saw settled."""
    source, target = Described(ULong(0x28), []), Described(ULong(0x29), [f"queue://{fresh('r')}"])
    unsettled = {b"tag": None}
    fields = ["s", UInt(0), False, None, None, source, target, unsettled, False, UInt(0)]
    begun.send(frame(0, ATTACH, list(fields)))
    answered = begun.until(ATTACH)
    assert (answered[7], bool(answered[8])) == (None, False)


# --- time


def test_idle_times_are_kept_both_ways(wire: Wire) -> None:
    wire.send(frame(0, OPEN, ["wire", None, UInt(65_536), None, UInt(1000)]))
    assert wire.until(OPEN)[4] == 30_000  # half of what is meant [2.4.5]
    wire.socket.settimeout(3)
    assert wire.octets(8) == b"\x00\x00\x00\x08\x02\x00\x00\x00"
