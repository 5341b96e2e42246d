"""python-qpid-proton as the tests use it: connections that are closed again, short words.

The names of `proton` are taken from here, as `Any`: its own types are not strict.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.support.gateway_process import GatewayProcess
from tests.support.until import PATIENCE_SECONDS

proton: Any = import_module("proton")
reactor: Any = import_module("proton.reactor")
utils: Any = import_module("proton.utils")

Delivery, Message, Described = proton.Delivery, proton.Message, proton.Described
Timeout, symbol, ulong = proton.Timeout, proton.symbol, proton.ulong
LinkDetached, SendException = utils.LinkDetached, utils.SendException
ConnectionClosed, BlockingConnection = utils.ConnectionClosed, utils.BlockingConnection
Filter = reactor.Filter


def trusting(authority: Path, check: Any) -> Any:
    """Makes the client's side of TLS: whom it trusts, and how closely it looks."""
    if not proton.SSL.present():
        pytest.skip(
            "python-qpid-proton was built without TLS: 'apt-get install -y libssl-dev pkg-config', "
            "and 'rm -r .venv' so that it is built again"
        )
    domain = proton.SSLDomain(proton.SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(authority))
    domain.set_peer_authentication(check)
    return domain


class Connections:
    """Opens connections to one gateway; call it for a new one."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self._gateway = gateway
        self._made: list[Any] = []

    def __call__(self, login: str = "guest:guest", **options: Any) -> Any:
        options.setdefault("allowed_mechs", "PLAIN")
        port = self._gateway.ports["amqp"]
        url = f"amqp://{login}@127.0.0.1:{port}"
        self._made.append(BlockingConnection(url, timeout=PATIENCE_SECONDS, **options))
        return self._made[-1]

    def named(self, container: str, login: str = "guest:guest") -> Any:
        """A connection whose container has that name."""
        made = reactor.Container()
        made.container_id = container
        return self(login, container=made)

    def close(self) -> None:
        for each in self._made:
            with suppress(proton.ProtonException, OSError):
                each.close()


def nothing_comes(receiver: Any, seconds: float = 0.3) -> bool:
    try:
        receiver.receive(timeout=seconds)
    except Timeout:
        return True
    return False


def data(body: bytes, **fields: Any) -> Any:
    return Message(body=body, inferred=True, **fields)


def content(receiver: Any) -> bytes:
    """The next body; the message must live for as long as one looks at it."""
    message = receiver.receive()
    return bytes(message.body)


def cut(connection: Any) -> None:
    """Ends the socket and says nothing."""
    transport = connection.conn.transport
    selectable = transport._selectable
    selectable._delegate.shutdown(socket.SHUT_RDWR)


def nothing_is_on_its_way(connection: Any, receiver: Any) -> bool:
    before = len(receiver.fetcher.incoming)
    with suppress(Timeout):
        connection.wait(lambda: len(receiver.fetcher.incoming) > before, timeout=0.3)
    return len(receiver.fetcher.incoming) == before


def filters_of(link: Any) -> dict[Any, Any]:
    found = link.remote_source.filter
    found.rewind()
    return found.get_dict() if found.next() else {}


class Capable(reactor.SenderOption):  # type: ignore[misc]
    """Target capabilities."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def apply(self, sender: Any) -> None:
        sender.target.capabilities.put_array(False, proton.Data.SYMBOL)
        sender.target.capabilities.enter()
        for name in self.names:
            sender.target.capabilities.put_symbol(name)
        sender.target.capabilities.exit()


class Wanting(reactor.ReceiverOption):  # type: ignore[misc]
    """Source capabilities."""

    def __init__(self, *names: str, durable: bool = False) -> None:
        self.names = names
        self.durable = durable

    def apply(self, receiver: Any) -> None:
        receiver.source.capabilities.put_array(False, proton.Data.SYMBOL)
        receiver.source.capabilities.enter()
        for name in self.names:
            receiver.source.capabilities.put_symbol(name)
        receiver.source.capabilities.exit()
        if self.durable:
            receiver.source.durability = proton.Terminus.DELIVERIES
            receiver.source.expiry_policy = proton.Terminus.EXPIRE_NEVER


EVERY_TYPE: dict[str, Any] = {
    "null": None,
    "true": True,
    "ubyte": proton.ubyte(200),
    "ushort": proton.ushort(60_000),
    "uint": proton.uint(4_000_000_000),
    "ulong": ulong((1 << 64) - 1),
    "byte": proton.byte(-100),
    "short": proton.short(-30_000),
    "int": proton.int32(-2_000_000_000),
    "long": -(1 << 62),
    "float": proton.float32(1.5),
    "double": 2.25,
    "decimal32": proton.decimal32(5),
    "decimal64": proton.decimal64(6),
    "decimal128": proton.decimal128(b"0123456789abcdef"),
    "char": proton.char("ü"),
    "timestamp": proton.timestamp(1_700_000_000_123),
    "uuid": UUID("12345678123456781234567812345678"),
    "binary": b"\x00\xff",
    "string": "grüße",
    "symbol": symbol("sym"),
}
