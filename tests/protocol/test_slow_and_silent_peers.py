"""Strangers at the listeners: they may be slow, many or silent, and cost nobody else a thing."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway import acceptor
from gateway.acceptor import Acceptor, ListenerCounters, ProtocolFactory, bound_sockets
from gateway.config.keys import Listener, Tls
from gateway.connections import Connections
from gateway.file_descriptors import Descriptors, Share, end_oldest
from gateway.listeners import open_listener
from gateway.management import http_connection
from gateway.management.http_connection import HttpConnection
from gateway.tls_handshakes import TlsCounters
from tests import certificates
from tests.support.until import PATIENCE_SECONDS


class Kept(asyncio.Protocol):
    """Stays open, and says so."""

    awaits_us = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"hello")


async def said_to(reader: asyncio.StreamReader) -> bytes:
    """All that a peer hears until its connection ends."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


async def test_a_tls_handshake_that_does_not_go_on_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(acceptor, "HANDSHAKE_SECONDS", 0.05)
    tls = Tls(cert=certificates.SERVER, key=certificates.SERVER_KEY)
    counters = ListenerCounters()
    listener = Listener(host="127.0.0.1", port=0, tls=tls)
    opened = await open_listener("mqtt", listener, Kept, TlsCounters(), counters)
    try:
        port = opened.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        host, peer_port = writer.get_extra_info("sockname")
        writer.write(b"\x16\x03\x01")  # the beginning of a handshake, and never the rest
        assert await said_to(reader) == b""
        writer.close()
        await opened.wait_closed()
        assert counters.handshake_timeouts == 1
        assert opened.beginning == 0
        place = f"{host}:{peer_port}"
        assert f"TLS handshake of {place} on listener mqtt was not over" in caplog.text
    finally:
        opened.close()


@asynccontextmanager
async def accepting(
    counters: ListenerCounters, share: Share | None = None, factory: ProtocolFactory = Kept
) -> AsyncIterator[tuple[Acceptor, int]]:
    sockets = await bound_sockets("127.0.0.1", 0)
    opened = Acceptor("mqtt", sockets, factory, None, counters, share)
    opened.start()
    try:
        yield opened, sockets[0].getsockname()[1]
    finally:
        opened.close()
        await opened.wait_closed()


async def test_one_stranger_too_many_is_turned_away_and_the_next_let_in_when_there_is_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counters, taken = ListenerCounters(), [1]
    share = Share(Descriptors(100_000), 1, lambda: taken[0], "clients have yet to log in")
    async with accepting(counters, share) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await said_to(reader) == b""
        writer.close()
        assert counters.refused_connections == 1
        assert "1 clients have yet to log in" in caplog.text
        taken[0] = 0
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.readexactly(5) == b"hello"
        writer.close()


async def test_the_oldest_stranger_gives_way_to_who_comes_and_nobody_who_is_let_in() -> None:
    counters, connections, let_in = ListenerCounters(), Connections(), set[object]()
    strangers = connections.strangers(let_in.__contains__)
    made: list[Kept] = []
    kind = connections.tracked("mqtt", Kept)

    def factory() -> asyncio.Protocol:
        made.append(kind())
        return made[-1]

    def taken() -> int:
        return len(connections) - len(let_in)

    share = Share(Descriptors(100_000), 2, taken, "", lambda: end_oldest([strangers]))
    async with accepting(counters, share, factory) as (_, port):
        peers = []
        for number in range(6):
            peers.append(await asyncio.open_connection("127.0.0.1", port))
            assert await peers[-1][0].readexactly(5) == b"hello"
            if number == 0:
                let_in.add(made[0])
            made[1 if number else 0].awaits_us = number > 0
        assert counters.displaced_connections == 3
        assert counters.refused_connections == 0
        assert [await said_to(reader) for reader, _ in peers[2:5]] == [b""] * 3
        assert {made[0], made[1], made[5]} == set(connections._open)
        made[5].awaits_us = True
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await said_to(reader) == b""  # nobody dawdles: it is for this one to come again
        assert counters.refused_connections == 1
        writer.close()
        for _, writer in peers:
            writer.close()


async def test_a_handshake_that_lasts_gives_way_to_who_comes() -> None:
    tls = Tls(cert=certificates.SERVER, key=certificates.SERVER_KEY)
    counters, places = ListenerCounters(), list[Acceptor]()
    share = Share(
        Descriptors(100_000),
        1,
        lambda: sum(each.beginning for each in places),
        "",
        lambda: end_oldest(places),
    )
    listener = Listener(host="127.0.0.1", port=0, tls=tls)
    opened = await open_listener("mqtt", listener, Kept, TlsCounters(), counters, share)
    places.append(opened)
    try:
        port = opened.sockets[0].getsockname()[1]
        silent, silent_writer = await asyncio.open_connection("127.0.0.1", port)
        context = ssl.create_default_context(cafile=certificates.AUTHORITY)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname="localhost"
        )
        assert await reader.readexactly(5) == b"hello"
        assert await said_to(silent) == b""
        assert counters.displaced_connections == 1
        for each in (writer, silent_writer):
            each.close()
    finally:
        opened.close()
        await opened.wait_closed()


async def test_the_last_descriptors_are_kept_for_the_database() -> None:
    counters = ListenerCounters()
    with socket.socket() as lowest:
        descriptors = Descriptors(lowest.fileno() + 1)  # the next one is beyond the limit
    async with accepting(counters, Share(descriptors, 10, lambda: 0, "")) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await said_to(reader) == b""
        writer.close()
        assert counters.refused_connections == 1


@pytest.mark.parametrize("limit", [64, 256, 1024, 65_536, 1_048_576])
def test_http_and_strangers_together_leave_descriptors_for_clients(limit: int) -> None:
    shares = Descriptors(limit)
    assert shares.reserve + shares.for_http + shares.for_strangers < limit


async def test_a_listener_survives_that_there_are_no_descriptors(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(acceptor, "PAUSE_SECONDS", 0.01)
    counters = ListenerCounters()
    async with accepting(counters) as (opened, port):
        accept, failures = socket.socket.accept, [3]

        def scarce(listener: socket.socket) -> tuple[socket.socket, object]:
            if failures[0]:
                failures[0] -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return accept(listener)

        monkeypatch.setattr(socket.socket, "accept", scarce)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.readexactly(5) == b"hello"
        writer.close()
        assert counters.accept_failures == 3
        assert "listener mqtt cannot accept a connection: Too many open files; raise" in caplog.text
        assert opened.beginning == 0


@pytest.mark.parametrize("families", [{socket.AF_INET6}, {socket.AF_INET, socket.AF_INET6}])
async def test_a_family_of_addresses_that_the_machine_lacks_is_passed_over(
    families: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    make = socket.socket

    def lacking(family: int, *kind: int) -> socket.socket:
        if family in families:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return make(family, *kind)

    async def both(*_: object, **__: object) -> list[tuple[object, ...]]:
        stream = socket.SOCK_STREAM
        return [
            (socket.AF_INET6, stream, 6, "", ("::1", 0, 0, 0)),
            (socket.AF_INET, stream, 6, "", ("127.0.0.1", 0)),
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", both)
    monkeypatch.setattr(socket, "socket", lacking)
    if socket.AF_INET in families:
        with pytest.raises(OSError, match="not supported"):
            await bound_sockets("localhost", 0)
        return
    (each,) = await bound_sockets("localhost", 0)
    assert each.getsockname()[0] == "127.0.0.1"
    each.close()


@asynccontextmanager
async def management(
    counters: ListenerCounters, size: int = 1, present: dict[HttpConnection, None] | None = None
) -> AsyncIterator[int]:
    from aiohttp import web

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=b"x" * size)

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, **http_connection.OPTIONS)
    await runner.setup()
    server = runner.server
    assert server is not None
    sockets = await bound_sockets("127.0.0.1", 0)
    opened = Acceptor(
        "http", sockets, lambda: HttpConnection(server, counters, present), None, counters
    )
    opened.start()
    try:
        yield sockets[0].getsockname()[1]
    finally:
        opened.close()
        await runner.cleanup()


async def test_an_http_connection_is_known_while_it_is_there_and_can_give_way() -> None:
    present: dict[HttpConnection, None] = {}
    async with management(ListenerCounters(), present=present) as port:
        peers = []
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            peers.append((reader, writer))
        oldest, newest = present
        assert oldest.since <= newest.since
        oldest.give_way()
        assert await said_to(peers[0][0]) == b"x"
        assert list(present) == [newest]
        for _, writer in peers:
            writer.close()


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nAccept: "], ids=["nothing", "a part"])
async def test_an_http_request_that_does_not_come_ends_its_connection(
    begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "REQUEST_SECONDS", 0.05)
    counters = ListenerCounters()
    async with management(counters) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(begun)
        assert await said_to(reader) == b""
        writer.close()
    assert counters.handshake_timeouts == 1


async def test_an_http_answer_that_nobody_reads_ends_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_connection, "UNREAD_SECONDS", 0.05)
    counters, cut = ListenerCounters(), asyncio.Event()
    lost = HttpConnection.connection_lost

    def on_lost(connection: HttpConnection, error: BaseException | None) -> None:
        lost(connection, error)
        cut.set()

    monkeypatch.setattr(HttpConnection, "connection_lost", on_lost)
    async with management(counters, 64 * 1024 * 1024) as port:
        loop = asyncio.get_running_loop()
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.setblocking(False)
            await loop.sock_connect(deaf, ("127.0.0.1", port))
            await loop.sock_sendall(deaf, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            async with asyncio.timeout(PATIENCE_SECONDS):
                await cut.wait()
    assert counters.handshake_timeouts == 1


async def test_a_client_that_asks_in_time_is_answered_again_and_again() -> None:
    counters = ListenerCounters()
    async with management(counters) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(3):
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            assert await reader.readexactly(1) == b"x"
        writer.close()
    assert counters == ListenerCounters()


async def test_a_request_that_cannot_be_read_is_a_line_without_a_word_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with management(ListenerCounters()) as port:
        for request in (
            b"GET / HTTP/1.1\r\nAuthor ization: Basic czNjcmV0\r\n\r\n",
            b"GET /\x01czNjcmV0 HTTP/1.1\r\nAuthorization: Basic czNjcmV0\r\n\r\n",
            b"\x00czNjcmV0\r\nAuthorization: Basic czNjcmV0\r\n\r\n",
            b"GET / HTTP/1.1\r\nContent-Length: czNjcmV0\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            assert b" 400 " in await said_to(reader)
            writer.close()
    lines = [each for each in caplog.records if each.name == "gateway.management.http_connection"]
    assert [each.getMessage() for each in lines] == [
        "an HTTP request from 127.0.0.1 cannot be read"
    ] * 4
    assert "czNjcmV0" not in caplog.text
    assert "Traceback" not in caplog.text
