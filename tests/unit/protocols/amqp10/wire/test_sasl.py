"""SASL before AMQP: however the bytes arrive, and whatever they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.amqp10.errors import Amqp10Error
from protocols.amqp10.states import SaslState
from protocols.amqp10.wire.sasl import HEADER, Sasl, frame
from protocols.amqp10.wire.types import Described, Symbol, decode
from queue_core.access.login import Begin, Continue
from queue_core.errors import AccessRefused

INIT = HEADER + frame(0x41, [Symbol("PLAIN"), b"\0guest\0secret"])


def sasl(*mechanisms: str) -> Sasl:
    return Sasl(lambda: mechanisms or ("SCRAM-SHA-256", "PLAIN", "ANONYMOUS"))


def test_mechanisms_are_offered_best_first() -> None:
    layer = sasl()
    layer.receive(HEADER)
    output = layer.take_output()
    assert output.startswith(HEADER)
    assert decode(output, len(HEADER) + 8)[0] == Described(
        0x40, [["SCRAM-SHA-256", "PLAIN", "ANONYMOUS"]]
    )


@pytest.mark.parametrize("cut", range(1, len(INIT)))
def test_a_login_is_understood_however_it_is_cut(cut: int) -> None:
    layer = sasl()
    found = layer.receive(INIT[:cut]) or layer.receive(INIT[cut:])
    assert found == Begin("PLAIN", b"\0guest\0secret")
    assert "secret" not in repr(found)


def test_what_follows_the_login_belongs_to_amqp() -> None:
    layer = sasl()
    layer.receive(INIT + b"AMQP\x00\x01\x00\x00")
    layer.accept()
    assert layer.state is SaslState.AUTHENTICATED
    assert layer.take_output().endswith(b"\x00\x53\x44\xc0\x03\x01\x50\x00")
    assert layer.rest() == b"AMQP\x00\x01\x00\x00"


CHALLENGED = frame(0x43, [b"c=biws"])


@pytest.mark.parametrize("cut", range(1, len(CHALLENGED)))
def test_a_challenge_is_answered_however_that_is_cut(cut: int) -> None:
    layer = sasl()
    layer.receive(HEADER + frame(0x41, [Symbol("SCRAM-SHA-256"), b"n,,n=me,r=x"]))
    layer.take_output()
    layer.challenge(b"r=xy")
    assert decode(layer.take_output(), 8)[0] == Described(0x42, [b"r=xy"])
    found = layer.receive(CHALLENGED[:cut]) or layer.receive(CHALLENGED[cut:])
    assert found == Continue(b"c=biws")
    layer.accept(b"v=mine")
    assert decode(layer.take_output(), 8)[0] == Described(0x44, [0, b"v=mine"])


def test_a_response_before_the_challenge_waits_for_it() -> None:
    layer = sasl()
    layer.receive(HEADER + frame(0x41, [Symbol("SCRAM-SHA-256"), b"n,,n=me,r=x"]) + CHALLENGED)
    layer.challenge(b"r=xy")
    assert layer.receive(b"") == Continue(b"c=biws")


def test_a_second_init_in_place_of_a_response_ends_the_connection() -> None:
    layer = sasl()
    layer.receive(INIT)
    layer.challenge(b"more")
    with pytest.raises(Amqp10Error, match="sasl-init while awaiting sasl-response"):
        layer.receive(INIT.removeprefix(HEADER))


def test_a_mechanism_that_was_not_offered_is_refused() -> None:
    with pytest.raises(AccessRefused, match="not offered"):
        sasl("PLAIN").receive(HEADER + frame(0x41, [Symbol("ANONYMOUS")]))


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff\x02\x01\x00\x00",
        b"\x00\x00\x00\x07\x02\x01\x00\x00",
        b"\x00\x00\x00\x10\x02\x00\x00\x00" + bytes(8),
        frame(0x44, []),
        frame(0x10, []),
    ],
)
def test_what_is_no_sasl_frame_ends_the_connection(data: bytes) -> None:
    with pytest.raises(Amqp10Error):
        sasl().receive(HEADER + data)


@given(st.binary(max_size=80))
def test_any_bytes_are_a_login_or_an_error_of_ours(data: bytes) -> None:
    try:
        sasl().receive(HEADER + data)
    except (Amqp10Error, AccessRefused):
        pass
