"""SCRAM-SHA-256 and new secrets with real clients: MQTT.js (AUTH), rhea (SASL), aiormq."""

from __future__ import annotations

import aiormq
import pytest

from tests.interop.node_clients import run_script
from tests.support.gateway_process import GatewayProcess


@pytest.mark.parametrize(
    ("protocol", "password", "expected"),
    [
        ("mqtt", "guest", "connected to the right server"),
        ("mqtt", "wrong", "refused 135"),
        ("amqp", "guest", "connected"),
        ("amqp", "wrong", "refused amqp:unauthorized-access"),
    ],
)
def test_mqtt_js_and_rhea_log_in_by_scram(
    shared_gateway: GatewayProcess, protocol: str, password: str, expected: str
) -> None:
    port = str(shared_gateway.ports[protocol])
    ran = run_script("scram.js", protocol, port, "guest", password)
    assert ran.stdout.strip() == expected, ran.stderr


async def test_aiormq_gives_a_new_secret_which_changes_nothing(
    shared_gateway: GatewayProcess,
) -> None:
    """RabbitMQ does so for users of its own: their login does not end, so there is nothing that
    a secret could prolong."""
    connection = await aiormq.connect(shared_gateway.amqp_url())
    assert isinstance(connection, aiormq.Connection)
    await connection.update_secret("guest", reason="rotated")
    channel = await connection.channel()
    assert await channel.queue_declare("", exclusive=True)
    await connection.update_secret("another", reason="rotated")
    assert await channel.queue_declare("", exclusive=True)
    await connection.close()
