"""AMQP 0.9.1: logging in with challenges (secure, secure-ok), and a new secret while connected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from protocols.amqp091.wire.frames import PROTOCOL_HEADER
from protocols.amqp091.wire.methods import (
    ConnectionClose,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
)
from tests.protocol.amqp091.listener import CAPABLE, Client
from tests.support.gateway_process import GatewayProcess
from tests.support.scram_client import ScramClient

SCRAM = "SCRAM-SHA-256"


@pytest.fixture
async def client(shared_gateway: GatewayProcess) -> AsyncIterator[Client]:
    """That has heard start."""
    reader, writer = await asyncio.open_connection("127.0.0.1", shared_gateway.ports["amqp"])
    client = Client(reader, writer)
    client.send(PROTOCOL_HEADER)
    start = await client.hear()
    assert isinstance(start, ConnectionStart)
    assert start.mechanisms.split() == [SCRAM.encode(), b"PLAIN", b"AMQPLAIN", b"ANONYMOUS"]
    yield client
    writer.close()


async def challenge(client: Client) -> bytes:
    heard = await client.hear()
    assert isinstance(heard, ConnectionSecure), heard
    return heard.challenge


async def prove(client: Client, scram: ScramClient) -> None:
    client.send(ConnectionStartOk(CAPABLE, SCRAM, scram.first(), "en_US"), channel=0)
    client.send(ConnectionSecureOk(scram.final(await challenge(client))), channel=0)


async def log_in(client: Client, scram: ScramClient) -> None:
    await prove(client, scram)
    assert scram.is_server_right(await challenge(client))
    client.send(ConnectionSecureOk(b""), channel=0)
    assert isinstance(await client.hear(), ConnectionTune)
    client.send(ConnectionTuneOk(0, 0, 0), ConnectionOpen("/"), channel=0)
    assert isinstance(await client.hear(), ConnectionOpenOk)


async def closed(client: Client) -> tuple[int, str]:
    heard = await client.hear()
    assert isinstance(heard, ConnectionClose), heard
    return heard.reply_code, heard.reply_text


async def test_scram_opens_a_connection(client: Client) -> None:
    await log_in(client, ScramClient("guest", "guest"))


@pytest.mark.parametrize(("name", "password"), [("guest", "wrong"), ("nobody", "guest")])
async def test_a_wrong_proof_is_refused_with_403(client: Client, name: str, password: str) -> None:
    await prove(client, ScramClient(name, password))
    assert await closed(client) == (403, "ACCESS_REFUSED - wrong user name or password")


async def test_a_client_may_begin_with_nothing(client: Client) -> None:
    client.send(ConnectionStartOk(CAPABLE, SCRAM, b"", "en_US"), channel=0)
    assert await challenge(client) == b""
    scram = ScramClient("guest", "guest")
    client.send(ConnectionSecureOk(scram.first()), channel=0)
    client.send(ConnectionSecureOk(scram.final(await challenge(client))), channel=0)
    assert scram.is_server_right(await challenge(client))


async def test_the_last_challenge_is_answered_with_nothing(client: Client) -> None:
    scram = ScramClient("guest", "guest")
    await prove(client, scram)
    await challenge(client)
    client.send(ConnectionSecureOk(b"more"), channel=0)
    code, text = await closed(client)
    assert code == 403
    assert "answer its last challenge with nothing" in text


@pytest.mark.parametrize("mechanism", ["EXTERNAL", "GSSAPI"])
async def test_a_mechanism_that_was_not_offered_is_refused(client: Client, mechanism: str) -> None:
    client.send(ConnectionStartOk(CAPABLE, mechanism, b"guest", "en_US"), channel=0)
    code, text = await closed(client)
    assert code == 403
    assert f"mechanism '{mechanism}' is not offered; use one of {SCRAM}, PLAIN" in text


async def test_secure_ok_that_answers_nothing_is_an_error(client: Client) -> None:
    client.send(ConnectionSecureOk(b"x"), channel=0)
    assert (await closed(client))[0] == 504


async def test_a_new_secret_keeps_the_connection_whatever_it_is(client: Client) -> None:
    await log_in(client, ScramClient("guest", "guest"))
    client.send(ConnectionUpdateSecret(b"guest", "rotated"), channel=0)
    assert isinstance(await client.hear(), ConnectionUpdateSecretOk)
    client.send(ConnectionUpdateSecret(b"another", "rotated"), channel=0)
    assert isinstance(await client.hear(), ConnectionUpdateSecretOk)
