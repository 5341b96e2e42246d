"""SASL before AMQP: however the bytes arrive, and whatever they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.amqp10.errors import Amqp10Error
from protocols.amqp10.sasl import HEADER, Authenticate, Sasl, State, frame
from protocols.amqp10.types import Described, Symbol, decode
from queue_core.auth import Peer
from queue_core.errors import AccessRefused

PEER = Peer("127.0.0.1", tls_subject="CN=me")
INIT = HEADER + frame(0x41, [Symbol("PLAIN"), b"\0guest\0secret"])


def sasl(*mechanisms: str) -> Sasl:
    return Sasl(mechanisms or ("PLAIN", "ANONYMOUS", "SCRAM-SHA-256"), PEER)


def test_only_mechanisms_that_can_be_carried_out_are_offered() -> None:
    layer = sasl()
    layer.receive(HEADER)
    output = layer.take_output()
    assert output.startswith(HEADER)
    assert decode(output, len(HEADER) + 8)[0] == Described(0x40, [["PLAIN", "ANONYMOUS"]])


@pytest.mark.parametrize("cut", range(1, len(INIT)))
def test_a_login_is_understood_however_it_is_cut(cut: int) -> None:
    layer = sasl()
    found = layer.receive(INIT[:cut]) or layer.receive(INIT[cut:])
    assert isinstance(found, Authenticate)
    credentials = found.credentials
    assert (credentials.mechanism, credentials.username, credentials.password) == (
        "PLAIN",
        "guest",
        b"secret",
    )


def test_what_follows_the_login_belongs_to_amqp() -> None:
    layer = sasl()
    layer.receive(INIT + b"AMQP\x00\x01\x00\x00")
    layer.accept()
    assert layer.state is State.AUTHENTICATED
    assert layer.take_output().endswith(b"\x00\x53\x44\xc0\x03\x01\x50\x00")
    assert layer.rest() == b"AMQP\x00\x01\x00\x00"


def test_external_is_who_the_certificate_says() -> None:
    layer = sasl("EXTERNAL")
    found = layer.receive(HEADER + frame(0x41, [Symbol("EXTERNAL"), b""]))
    assert found is not None
    assert found.credentials.username == "CN=me"


def test_a_mechanism_that_was_not_offered_is_refused() -> None:
    with pytest.raises(AccessRefused, match="not offered"):
        sasl("PLAIN").receive(HEADER + frame(0x41, [Symbol("ANONYMOUS")]))


def test_a_malformed_response_is_refused() -> None:
    with pytest.raises(AccessRefused, match="malformed"):
        sasl().receive(HEADER + frame(0x41, [Symbol("PLAIN"), b"guest"]))


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
