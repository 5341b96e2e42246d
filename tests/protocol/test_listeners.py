"""Listeners: where they open, whom TLS lets in, and what an error says."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import uvloop

from gateway.config.keys import ConfigError, Listener, Tls
from gateway.listeners import announcement, open_listener
from gateway.tls_handshakes import TlsCounters
from tests import certificates
from tests.support.until import PATIENCE_SECONDS, until


class Greeting(asyncio.Protocol):
    """Says hello and hangs up, as soon as the handshake is over."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"hello")
        transport.close()


@asynccontextmanager
async def listening(config: Listener) -> AsyncIterator[int]:
    server = await open_listener("mqtt", config, Greeting, TlsCounters())
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


async def greeting(port: int, context: ssl.SSLContext | None = None) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        return await reader.read()
    finally:
        writer.close()


async def is_let_in(port: int, context: ssl.SSLContext) -> bool:
    """In TLS 1.3 a client learns only when it reads that its certificate was not good enough."""
    try:
        return await greeting(port, context) == b"hello"
    except (ssl.SSLError, ConnectionError):
        return False


def client_context(cert: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificates.AUTHORITY)
    if cert is not None:
        context.load_cert_chain(cert, key)
    return context


def secured(*, ca: Path | None = None, verify_client: bool = False) -> Listener:
    tls = Tls(
        cert=certificates.SERVER, key=certificates.SERVER_KEY, ca=ca, verify_client=verify_client
    )
    return Listener(port=0, tls=tls)


async def test_a_plain_listener_takes_any_free_port_and_says_which() -> None:
    config = Listener(port=0)
    server = await open_listener("mqtt", config, Greeting, TlsCounters())
    port = server.sockets[0].getsockname()[1]
    assert announcement("mqtt", config, server) == f"mqtt listening on 127.0.0.1:{port}"
    assert await greeting(port) == b"hello"
    server.close()


async def test_a_tls_listener_shows_its_certificate() -> None:
    async with listening(secured()) as port:
        assert await greeting(port, client_context()) == b"hello"


async def test_mutual_tls_lets_in_whom_the_authority_signed() -> None:
    config = secured(ca=certificates.AUTHORITY, verify_client=True)
    async with listening(config) as port:
        known = client_context(certificates.CLIENT, certificates.CLIENT_KEY)
        assert await is_let_in(port, known)


@pytest.mark.parametrize(
    ("cert", "key"),
    [(None, None), (certificates.STRANGER, certificates.STRANGER_KEY)],
    ids=["no certificate", "a stranger's"],
)
async def test_mutual_tls_keeps_everyone_else_out(cert: Path | None, key: Path | None) -> None:
    config = secured(ca=certificates.AUTHORITY, verify_client=True)
    async with listening(config) as port:
        assert not await is_let_in(port, client_context(cert, key))


async def stranger(port: int) -> None:
    """Does not know who signed the server's certificate, and says so, which asyncio would not."""

    def greet() -> None:
        known = ssl.create_default_context()
        with (
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as raw,
            pytest.raises(ssl.SSLCertVerificationError),
        ):
            known.wrap_socket(raw, server_hostname="localhost")

    await asyncio.to_thread(greet)


async def plain(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00")
    with suppress(ConnectionError):
        await reader.read()
    writer.close()


async def without_certificate(port: int) -> None:
    await is_let_in(port, client_context())


async def with_a_strangers(port: int) -> None:
    await is_let_in(port, client_context(certificates.STRANGER, certificates.STRANGER_KEY))


@pytest.mark.parametrize(
    ("come", "words"),
    [
        (plain, "the client does not speak TLS"),
        (stranger, "the client does not trust this certificate"),
        (without_certificate, "the client showed no certificate; tls.verify_client asks"),
        (with_a_strangers, "the client's certificate is not one that tls.ca vouches for"),
    ],
)
async def test_a_handshake_that_fails_is_counted_and_the_log_says_why(
    come: Callable[[int], Awaitable[None]], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    counters = TlsCounters()
    config = secured(ca=certificates.AUTHORITY, verify_client=True)
    server = await open_listener("mqtt", config, Greeting, counters)
    await come(server.sockets[0].getsockname()[1])
    await until(lambda: counters.failed_handshakes == 1)
    said = r"TLS handshake of 127\.0\.0\.1:\d+ on listener mqtt failed: " + re.escape(words)
    assert re.search(said, caplog.text)
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_handshake_that_fails_is_logged_with_the_address_of_the_peer(
    loop: Callable[[], asyncio.AbstractEventLoop], caplog: pytest.LogCaptureFixture
) -> None:
    async def come_and_go() -> str:
        counters = TlsCounters()
        server = await open_listener("mqtt", secured(), Greeting, counters)
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        host, peer_port = writer.get_extra_info("sockname")
        writer.write(b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00")
        await until(lambda: counters.failed_handshakes == 1)
        writer.close()
        server.close()
        await server.wait_closed()
        return f"{host}:{peer_port}"

    with asyncio.Runner(loop_factory=loop) as runner:
        place = runner.run(come_and_go())
    assert f"TLS handshake of {place} on listener mqtt failed: " in caplog.text


async def test_a_port_that_is_taken_names_the_key_to_change() -> None:
    async with listening(Listener(port=0)) as port:
        with pytest.raises(ConfigError, match=rf"listeners\.mqtt\.port: 127.0.0.1:{port} is taken"):
            await open_listener("mqtt", Listener(port=port), Greeting, TlsCounters())


async def test_an_address_of_another_machine_names_the_key_to_change() -> None:
    with pytest.raises(ConfigError, match=r"listeners\.mqtt\.host: 192\.0\.2\.1:0 cannot"):
        await open_listener("mqtt", Listener(host="192.0.2.1", port=0), Greeting, TlsCounters())


@pytest.mark.parametrize(
    ("tls", "words"),
    [
        (
            Tls(cert=Path("/missing.pem"), key=certificates.SERVER_KEY),
            r"listeners\.mqtt\.tls\.cert: /missing\.pem is not a file",
        ),
        (
            Tls(cert=certificates.SERVER, key=certificates.CLIENT_KEY),
            r"listeners\.mqtt\.tls: .* are no certificate and its key",
        ),
        (
            Tls(
                cert=certificates.SERVER,
                key=certificates.SERVER_KEY,
                ca=certificates.SERVER_KEY,
            ),
            r"listeners\.mqtt\.tls\.ca: .* holds no certificates",
        ),
    ],
    ids=["missing", "mismatched", "no authorities"],
)
async def test_files_that_are_no_certificates_name_the_key_to_change(tls: Tls, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        await open_listener("mqtt", Listener(port=0, tls=tls), Greeting, TlsCounters())
