"""Conversations that no client has: frames changed, shuffled, repeated and cut, commits in between.

Whatever comes, the machine answers or closes; it raises nothing, and the engine below it survives.
"""

from __future__ import annotations

import logging
from random import Random

import pytest

from protocols.amqp10.wire.sasl import AMQP_HEADER
from protocols.amqp10.wire.types import UInt
from tests.support.amqp10_wire import (
    BEGIN,
    CLOSE,
    DETACH,
    END,
    OPEN,
    attach,
    frame,
    transfer,
)
from tests.unit.protocols.amqp10.conversation import Conversation
from tests.unit.protocols.amqp10.test_machine import DATA, disposition, flow

START = [
    frame(0, OPEN, ["c", None, UInt(65_536)]),
    frame(0, BEGIN, [None, UInt(0), UInt(1000), UInt(1000)]),
]
FRAMES = [
    attach("queue://q", 0, "a", is_receiver=False),
    attach("queue://q", 1, "b", is_receiver=True),
    attach("topic://t.#", 2, "c", is_receiver=True),
    flow(1, 5),
    flow(2, 5),
    transfer(0, 0, DATA),
    transfer(0, 1, DATA),
    transfer(0, 2, DATA, more=True),
    transfer(0, 2, DATA),
    disposition(0, 0, 0x24),
    disposition(1, 1, 0x25),
    disposition(0, 5, 0x26, settled=False),
    flow(1, 9, delivery_count=2, drain=True),
    frame(0, DETACH, [UInt(1), True]),
    frame(0, DETACH, [UInt(0), False]),
    attach("queue://q", 3, "d", is_receiver=True),
    flow(3, 100),
    frame(0, END, []),
    frame(0, CLOSE, []),
]


def changed(chance: Random) -> list[bytes]:
    frames = [bytearray(each) for each in FRAMES]
    for _ in range(chance.randrange(1, 4)):
        one = chance.choice(frames)
        one[chance.randrange(8, len(one))] = chance.randrange(256)
    return [bytes(each) for each in frames]


def shuffled(chance: Random) -> list[bytes]:
    return chance.sample(FRAMES, chance.randrange(3, len(FRAMES)))


def repeated(chance: Random) -> list[bytes]:
    return FRAMES[:2] + chance.choices(FRAMES, k=40)


@pytest.mark.parametrize("make", [changed, shuffled, repeated])
@pytest.mark.parametrize("seed", range(60))
async def test_the_machine_survives(
    caplog: pytest.LogCaptureFixture, make: object, seed: int
) -> None:
    caplog.set_level(logging.CRITICAL)
    chance = Random(seed)
    talk = Conversation()
    assert callable(make)
    data = AMQP_HEADER + b"".join(START + make(chance))
    position = 0
    while position < len(data):
        size = chance.choice((1, 7, 50, 5000))
        command = talk.machine.receive(data[position : position + size])
        while command is not None:
            await talk.machine.perform(command)
            talk.machine.proceed()
            command = talk.machine.receive(b"")
        if chance.random() < 0.3:
            talk.services.writer.commit()
        if chance.random() < 0.5:
            talk.machine.take_output()
        position += size
    await talk.machine.lost()
    talk.services.writer.commit()
