"""AMQP 0.9.1 and users: what each may declare, write and read, and how a refusal is told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import aiormq
import pytest
from aiormq.abc import AbstractChannel, AbstractConnection, FieldValue

from tests.support.gateway_process import GatewayProcess
from tests.support.names import fresh

PASSWORD = "correct horse"
TOPICS = r"^sensors\."
Act = Callable[[AbstractChannel], Awaitable[object]]


@pytest.fixture(scope="module")
def user(shared_gateway: GatewayProcess) -> str:
    """Who may do everything to what begins with `own`, and use some topics."""
    name = fresh("user")
    names = ("--configure", "^own", "--write", "^(own|amq.topic)", "--read", "^(own|amq)")
    topics = ("--topic-write", TOPICS, "--topic-read", TOPICS)
    for arguments in (("add", name, "--no-permissions"), ("grant", name, *names, *topics)):
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
    return await aiormq.connect(url)


def dead_letters(key: str | None = None) -> dict[str, FieldValue]:
    """Arguments of a queue whose dead letters are topics."""
    found: dict[str, FieldValue] = {"x-dead-letter-exchange": "amq.topic"}
    if key is not None:
        found["x-dead-letter-routing-key"] = key
    return found


ALLOWED: list[object] = [
    pytest.param(lambda ch: ch.queue_declare("own-queue"), id="declare"),
    pytest.param(lambda ch: ch.exchange_declare("own-exchange"), id="declare an exchange"),
    pytest.param(
        lambda ch: ch.basic_publish(b"", exchange="amq.topic", routing_key="sensors.a"),
        id="publish to a topic",
    ),
    pytest.param(
        lambda ch: ch.queue_declare("own-letters", arguments=dead_letters("sensors.dead")),
        id="dead letters with a key that it may write",
    ),
    pytest.param(
        lambda ch: ch.exchange_declare(
            "own-spare", arguments={"alternate-exchange": "own-exchange"}
        ),
        id="an alternate exchange without rules",
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
    pytest.param(
        lambda ch: ch.queue_declare("own-any", arguments=dead_letters()),
        id="dead letters with whatever key they have",
    ),
    pytest.param(
        lambda ch: ch.queue_declare("own-other", arguments=dead_letters("orders.a")),
        id="dead letters with a key that it may not write",
    ),
    pytest.param(
        lambda ch: ch.exchange_declare("own-alt", arguments={"alternate-exchange": "amq.topic"}),
        id="an alternate exchange with rules",
    ),
    pytest.param(
        lambda ch: ch.exchange_bind("amq.topic", "amq.direct", routing_key="sensors.a"),
        id="lead messages with one key, and perhaps others, to a topic",
    ),
    pytest.param(
        lambda ch: ch.exchange_bind("amq.topic", "amq.fanout"),
        id="lead messages of any key to a topic",
    ),
    pytest.param(
        lambda ch: ch.exchange_bind("amq.topic", "amq.direct", routing_key="orders.a"),
        id="lead messages of another key to a topic",
    ),
    pytest.param(
        lambda ch: ch.exchange_bind("amq.topic", "amq.topic", routing_key="sensors.#"),
        id="lead messages of some keys to a topic",
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


DELAYED_TOPICS: dict[str, FieldValue] = {"x-delayed-type": "topic"}
DETOURS: list[object] = [
    pytest.param(lambda ch: ch.exchange_bind("own-delayed", "amq.fanout"), id="binding"),
    pytest.param(
        lambda ch: ch.queue_declare(
            "own-waits", arguments={"x-dead-letter-exchange": "own-delayed"}
        ),
        id="dead letters",
    ),
    pytest.param(
        lambda ch: ch.exchange_declare("own-a", arguments={"alternate-exchange": "own-delayed"}),
        id="alternate exchange",
    ),
    pytest.param(
        lambda ch: ch.exchange_declare(
            "own-read",
            exchange_type="x-delayed-message",
            arguments={**DELAYED_TOPICS, "alternate-exchange": "own-exchange"},
        ),
        id="alternate exchange of one with rules",
    ),
]


@pytest.mark.parametrize("act", DETOURS)
async def test_no_detour_leads_around_the_rules_of_a_delaying_topic_exchange(
    shared_gateway: GatewayProcess, user: str, connection: AbstractConnection, act: Act
) -> None:
    for name in ("own-delayed", "own-read"):
        rule = ("--topic-exchange", name, "--topic-write", TOPICS, "--topic-read", TOPICS)
        names = ("--configure", "^own", "--write", "^(own|amq.topic)", "--read", "^(own|amq)")
        done = shared_gateway.run("user", "grant", user, *names, *rule)
        assert done.returncode == 0, done.stderr
    channel = await connection.channel()
    await channel.exchange_declare("own-exchange")
    await channel.exchange_declare(
        "own-delayed", exchange_type="x-delayed-message", arguments=DELAYED_TOPICS
    )
    with pytest.raises(aiormq.exceptions.ChannelAccessRefused):
        await act(channel)
