"""The security layer without a socket: SASL bytes in, an identity and the rest of the input out."""

from __future__ import annotations

import pytest

from protocols.amqp10.context import Context
from protocols.amqp10.security_layer import SecurityLayer
from protocols.amqp10.states import Performative
from protocols.amqp10.wire.sasl import AMQP_HEADER, HEADER, Sasl, frame
from protocols.amqp10.wire.types import Symbol
from queue_core.access.auth import Identity, Peer
from tests.support.amqp091_conversation import anns_gateway
from tests.support.fake_carrier import HERE


class FakeEntrance:
    def __init__(self) -> None:
        self.entered: list[tuple[str, bytes]] = []

    def peer(self) -> Peer:
        return HERE

    def on_authenticated(self, identity: Identity, mechanism: str, rest: bytes) -> None:
        self.entered.append((identity.name, rest))


def login(password: bytes) -> bytes:
    return HEADER + frame(Performative.SASL_INIT, [Symbol("PLAIN"), b"\0ann\0" + password])


async def said(data: bytes) -> tuple[SecurityLayer, FakeEntrance, Context]:
    entrance, context = FakeEntrance(), Context(anns_gateway())
    layer = SecurityLayer(context, entrance)
    command = layer.receive(data)
    while command is not None:
        await layer.perform(command)
        layer.proceed()
        command = layer.receive(b"")
    return layer, entrance, context


async def test_the_rest_of_the_input_goes_to_amqp_with_the_identity() -> None:
    _, entrance, _ = await said(login(b"secret") + AMQP_HEADER)
    assert entrance.entered == [("ann", AMQP_HEADER)]


async def test_a_wrong_password_ends_the_connection_with_an_outcome() -> None:
    layer, entrance, context = await said(login(b"wrong"))
    assert entrance.entered == []
    assert layer.is_over
    assert layer.take_output().endswith(b"\x00\x53\x44\xc0\x03\x01\x50\x01")
    assert context.counters.refused_connections == 1


async def test_a_client_without_sasl_hears_that_it_is_needed() -> None:
    layer, entrance, context = await said(AMQP_HEADER)
    assert entrance.entered == []
    assert (layer.take_output(), layer.is_over) == (HEADER, True)
    assert context.counters.refused_connections == 1


async def test_a_frame_that_is_not_due_ends_the_connection() -> None:
    layer, _, context = await said(HEADER + frame(Performative.SASL_RESPONSE, [b""]))
    assert layer.is_over
    assert context.counters.refused_connections == 1


async def test_nothing_is_handled_while_the_login_is_looked_at() -> None:
    entrance = FakeEntrance()
    layer = SecurityLayer(Context(anns_gateway()), entrance)
    command = layer.receive(login(b"secret"))
    assert command is not None
    assert layer.receive(AMQP_HEADER) is None
    await layer.perform(command)
    assert entrance.entered == [("ann", AMQP_HEADER)]


async def test_a_bug_ends_the_connection_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Sasl, "receive", fail)
    layer, entrance, context = await said(login(b"secret"))
    assert entrance.entered == []
    assert layer.is_over
    assert context.counters.bugs == 1
