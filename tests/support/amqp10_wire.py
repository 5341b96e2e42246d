"""A client of frames: says exactly what a test wants on the wire, right or wrong."""

from __future__ import annotations

import socket
from typing import Any

from protocols.amqp10.wire.sasl import AMQP_HEADER, HEADER
from protocols.amqp10.wire.sasl import frame as sasl_frame
from protocols.amqp10.wire.types import Described, Symbol, UInt, ULong, decode, encode
from tests.support.gateway_process import GatewayProcess
from tests.support.until import PATIENCE_SECONDS

OPEN, BEGIN, ATTACH, FLOW, TRANSFER = 0x10, 0x11, 0x12, 0x13, 0x14
DISPOSITION, DETACH, END, CLOSE = 0x15, 0x16, 0x17, 0x18
SOURCE, TARGET = 0x28, 0x29


def frame(channel: int, code: int, fields: list[object], payload: bytes = b"") -> bytes:
    body = encode(Described(ULong(code), fields)) + payload
    return (8 + len(body)).to_bytes(4) + bytes((2, 0)) + channel.to_bytes(2) + body


class Wire:
    """One connection, logged in."""

    def __init__(self, gateway: GatewayProcess, *, logs_in: bool = True) -> None:
        self.socket = socket.create_connection(
            ("127.0.0.1", gateway.ports["amqp"]), PATIENCE_SECONDS
        )
        self._input = b""
        if logs_in:
            self.send(HEADER + sasl_frame(0x41, [Symbol("PLAIN"), b"\0guest\0guest"]))
            assert self.octets(8) == HEADER
            self.frame()
            outcome = self.frame()
            assert outcome is not None
            assert (outcome[0], outcome[1][0]) == (0x44, 0)
            self.send(AMQP_HEADER)
            assert self.octets(8) == AMQP_HEADER

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def octets(self, count: int) -> bytes:
        while len(self._input) < count:
            data = self.socket.recv(65_536)
            if not data:
                break
            self._input += data
        found, self._input = self._input[:count], self._input[count:]
        return found

    def frame(self) -> tuple[int, list[Any], bytes] | None:
        """The next frame that is not empty: its performative and its payload; None at the end."""
        while True:
            size = int.from_bytes(self.octets(4))
            if not size:
                return None
            rest = self.octets(size - 4)
            if size > 8:
                performative, end = decode(rest, 4)
                assert isinstance(performative, Described)
                assert isinstance(performative.value, list)
                code = performative.descriptor
                assert isinstance(code, int)
                return int(code), performative.value, rest[end:]

    def until(self, code: int) -> list[Any]:
        """The fields of the next frame of that kind."""
        while (found := self.frame()) is not None:
            if found[0] == code:
                return [*found[1], *([None] * 20)]
        raise AssertionError(f"the connection ended before 0x{code:02x} came")

    def open(self, **fields: object) -> None:
        self.send(frame(0, OPEN, ["wire", None, UInt(65_536)]))
        self.until(OPEN)

    def begin(self, channel: int = 0) -> None:
        self.send(frame(channel, BEGIN, [None, UInt(0), UInt(1000), UInt(1000)]))
        self.until(BEGIN)

    def attach_sender(self, address: str, handle: int = 0, name: str = "s") -> None:
        self.send(attach(address, handle, name, is_receiver=False))
        self.until(ATTACH)
        self.until(FLOW)

    def attach_receiver(self, address: str, handle: int = 0, name: str = "r") -> None:
        self.send(attach(address, handle, name, is_receiver=True))
        self.until(ATTACH)

    def close(self) -> None:
        self.socket.close()


def attach(address: str | None, handle: int, name: str, *, is_receiver: bool) -> bytes:
    source = Described(ULong(SOURCE), [address] if is_receiver else [])
    target = Described(ULong(TARGET), [] if is_receiver else [address])
    fields: list[object] = [name, UInt(handle), is_receiver, None, None, source, target]
    if not is_receiver:
        fields += [None, None, UInt(0)]
    return frame(0, ATTACH, fields)


def transfer(handle: int, number: int, payload: bytes, *, more: bool = False) -> bytes:
    fields: list[object] = [UInt(handle), UInt(number), number.to_bytes(4), UInt(0), False, more]
    return frame(0, TRANSFER, fields, payload)
