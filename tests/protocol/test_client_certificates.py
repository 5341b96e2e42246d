"""A listener learns the names in a client's certificate that it has verified."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from gateway.config.keys import CERTIFICATE_NAMES, Listener, Tls
from gateway.listeners import open_listener
from gateway.tls import server_context
from gateway.tls_handshakes import TlsCounters
from queue_core.access.auth import Peer
from tests import certificates


class Peers(asyncio.Protocol):
    """Notes who came."""

    def __init__(self, came: asyncio.Queue[Peer]) -> None:
        self._came = came

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._came.put_nowait(Peer.described_by(transport.get_extra_info))
        transport.close()


async def described(tmp_path: Path, pair: tuple[Path, Path] | None) -> Peer:
    """A client with that certificate, as the listener sees it."""
    bundle = tmp_path / "authorities.pem"
    bundle.write_text(certificates.AUTHORITY.read_text() + certificates.NAMED.read_text())
    tls = Tls(cert=certificates.SERVER, key=certificates.SERVER_KEY, ca=bundle)
    came: asyncio.Queue[Peer] = asyncio.Queue()
    listener = Listener(port=0, tls=tls)
    server = await open_listener("amqp", listener, lambda: Peers(came), TlsCounters())
    context = ssl.create_default_context(cafile=certificates.AUTHORITY)
    if pair is not None:
        context.load_cert_chain(*pair)
    try:
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        peer = await asyncio.wait_for(came.get(), 10)
        writer.close()
    finally:
        server.close()
    return peer


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("cn", "device-8"),
        ("dns", "device-8.example"),
        ("email", "device-8@example.com"),
        ("uri", "urn:device:8"),
    ],
)
async def test_every_kind_of_name_that_may_be_configured_is_found(
    tmp_path: Path, key: str, name: str
) -> None:
    peer = await described(tmp_path, (certificates.NAMED, certificates.NAMED_KEY))
    assert peer.tls
    assert peer.named_by(CERTIFICATE_NAMES[key]) == name


async def test_a_client_without_a_certificate_has_no_names(tmp_path: Path) -> None:
    peer = await described(tmp_path, None)
    assert peer.tls
    assert peer.certificate == ()


def test_no_client_has_the_handshake_of_tls_1_2_again_and_again() -> None:
    context = server_context("amqp", Tls(cert=certificates.SERVER, key=certificates.SERVER_KEY))
    assert context.options & ssl.OP_NO_RENEGOTIATION
