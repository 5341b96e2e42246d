"""AMQP 0.9.1 and users: what each may declare, write and read, and how a refusal is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import aiormq
import pytest
from aiormq.abc import AbstractChannel, AbstractConnection

from tests.gateway_process import GatewayProcess
from tests.interop.amqp091_names import fresh

PASSWORD = "correct horse"
TOPICS = r"^sensors\."
NOT_YET = (
    aiormq.exceptions.AuthenticationError,
    aiormq.exceptions.ProbableAuthenticationError,
    aiormq.exceptions.InvalidFrameError,  # how it takes a close that answers `open`
)
Act = Callable[[AbstractChannel], Awaitable[object]]


@pytest.fixture(scope="module")
def user(shared_gateway: GatewayProcess) -> str:
    """Who may do everything to what begins with `own`, and use some topics."""
    name = fresh("user")
    for arguments in (
        ("add", name, "--no-permissions"),
        ("grant", name, "--topic-exchange", "amq.topic", "--write", TOPICS, "--read", TOPICS),
        # Last, as it opens the virtual host: who can log in has everything granted above.
        (
            "grant",
            name,
            "--configure",
            "^own",
            "--write",
            "^(own|amq.topic)",
            "--read",
            "^(own|amq)",
        ),
    ):
        done = shared_gateway.run("user", *arguments, words=f"{PASSWORD}\n{PASSWORD}\n")
        assert done.returncode == 0, done.stderr
    return name


@pytest.fixture
async def connection(
    shared_gateway: GatewayProcess, user: str
) -> AsyncIterator[AbstractConnection]:
    made = await _login(shared_gateway, user)
    yield made
    await made.close()


async def _login(gateway: GatewayProcess, name: str) -> AbstractConnection:
    url = gateway.amqp_url(name, PASSWORD.replace(" ", "%20"))
    for _ in range(100):  # users are read anew about once a second
        try:
            return await aiormq.connect(url)
        except NOT_YET:
            await asyncio.sleep(0.2)
    raise AssertionError("the new user cannot log in")


ALLOWED: list[object] = [
    pytest.param(lambda ch: ch.queue_declare("own-queue"), id="declare"),
    pytest.param(lambda ch: ch.exchange_declare("own-exchange"), id="declare an exchange"),
    pytest.param(
        lambda ch: ch.basic_publish(b"", exchange="amq.topic", routing_key="sensors.a"),
        id="publish to a topic",
    ),
]

REFUSED: list[object] = [
    pytest.param(lambda ch: ch.queue_declare("other"), id="declare"),
    pytest.param(lambda ch: ch.queue_delete("other"), id="delete"),
    pytest.param(lambda ch: ch.exchange_declare("other"), id="declare an exchange"),
    pytest.param(lambda ch: ch.basic_get("other"), id="get"),
    pytest.param(lambda ch: ch.basic_consume("other", _ignore), id="consume"),
    pytest.param(lambda ch: ch.queue_purge("other"), id="purge"),
    pytest.param(
        lambda ch: ch.basic_publish(b"", exchange="amq.direct", routing_key="k"), id="publish"
    ),
    pytest.param(
        lambda ch: ch.basic_publish(b"", exchange="amq.topic", routing_key="orders.a"),
        id="publish to another topic",
    ),
    pytest.param(lambda ch: ch.basic_consume("orders.#", _ignore), id="subscribe to a pattern"),
    pytest.param(
        lambda ch: ch.queue_declare("own-dead", arguments={"x-dead-letter-exchange": "amq.direct"}),
        id="dead letters to where it may not write",
    ),
]


async def _ignore(message: object) -> None:
    """Nothing is expected."""


@pytest.mark.parametrize("act", ALLOWED)
async def test_what_is_granted_is_done(connection: AbstractConnection, act: Act) -> None:
    await act(await connection.channel())


@pytest.mark.parametrize("act", REFUSED)
async def test_what_is_not_granted_is_refused_with_403(
    connection: AbstractConnection, act: Act
) -> None:
    with pytest.raises(aiormq.exceptions.ChannelAccessRefused):
        await act(await connection.channel())
    assert (await (await connection.channel()).queue_declare("own-after")).queue == "own-after"
