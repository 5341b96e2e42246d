"""AMQP 1.0: logging in with challenges (sasl-challenge, sasl-response), frame by frame."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from protocols.amqp10.wire.sasl import AMQP_HEADER, HEADER
from protocols.amqp10.wire.sasl import frame as sasl_frame
from protocols.amqp10.wire.types import Symbol
from tests.support.amqp10_wire import Wire
from tests.support.gateway_process import GatewayProcess
from tests.support.scram_client import ScramClient

SCRAM = "SCRAM-SHA-256"
INIT, CHALLENGE, RESPONSE, OUTCOME = 0x41, 0x42, 0x43, 0x44


@pytest.fixture
def wire(shared_gateway: GatewayProcess) -> Iterator[Wire]:
    """That has heard which mechanisms there are."""
    made = Wire(shared_gateway, logs_in=False)
    made.send(HEADER)
    assert made.octets(8) == HEADER
    mechanisms = made.frame()
    assert mechanisms is not None
    assert mechanisms[1] == [[SCRAM, "PLAIN", "ANONYMOUS"]]
    yield made
    made.close()


def challenge(wire: Wire) -> bytes:
    found = wire.frame()
    assert found is not None
    assert found[0] == CHALLENGE
    return bytes(found[1][0])


def prove(wire: Wire, scram: ScramClient) -> list[object]:
    """The outcome."""
    wire.send(sasl_frame(INIT, [Symbol(SCRAM), scram.first()]))
    wire.send(sasl_frame(RESPONSE, [scram.final(challenge(wire))]))
    found = wire.frame()
    assert found is not None
    assert found[0] == OUTCOME
    return found[1]


def test_scram_opens_a_connection(wire: Wire) -> None:
    scram = ScramClient("guest", "guest")
    code, proof = prove(wire, scram)
    assert code == 0
    assert isinstance(proof, bytes)
    assert scram.is_server_right(proof)
    wire.send(AMQP_HEADER)
    assert wire.octets(8) == AMQP_HEADER
    wire.open()
    wire.begin()


@pytest.mark.parametrize(("name", "password"), [("guest", "wrong"), ("nobody", "guest")])
def test_a_wrong_proof_ends_in_outcome_auth(wire: Wire, name: str, password: str) -> None:
    assert prove(wire, ScramClient(name, password)) == [1]
    assert wire.frame() is None


def test_a_client_may_begin_with_nothing(wire: Wire) -> None:
    wire.send(sasl_frame(INIT, [Symbol(SCRAM)]))
    assert challenge(wire) == b""
    scram = ScramClient("guest", "guest")
    wire.send(sasl_frame(RESPONSE, [scram.first()]))
    wire.send(sasl_frame(RESPONSE, [scram.final(challenge(wire))]))
    found = wire.frame()
    assert found is not None
    assert (found[0], found[1][0]) == (OUTCOME, 0)


def test_what_comes_with_the_last_response_is_read_after_the_outcome(wire: Wire) -> None:
    scram = ScramClient("guest", "guest")
    wire.send(sasl_frame(INIT, [Symbol(SCRAM), scram.first()]))
    wire.send(sasl_frame(RESPONSE, [scram.final(challenge(wire))]) + AMQP_HEADER)
    found = wire.frame()
    assert found is not None
    assert (found[0], found[1][0]) == (OUTCOME, 0)
    assert wire.octets(8) == AMQP_HEADER
    wire.open()


@pytest.mark.parametrize("mechanism", ["EXTERNAL", "GSSAPI"])
def test_a_mechanism_that_was_not_offered_is_refused(wire: Wire, mechanism: str) -> None:
    wire.send(sasl_frame(INIT, [Symbol(mechanism), b"guest"]))
    assert wire.frame() == (OUTCOME, [1], b"")
    assert wire.frame() is None


def test_a_response_that_nobody_asked_for_ends_the_connection(wire: Wire) -> None:
    wire.send(sasl_frame(RESPONSE, [b"x"]))
    assert wire.frame() is None
