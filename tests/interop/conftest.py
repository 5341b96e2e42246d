"""Clients of the shared gateway that end with their test; and a gateway with TLS, client
certificates and a second virtual host, for the tests of those."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pika
import pytest

from queue_core.access.passwords import hash_password
from queue_core.access.scram import Verifier
from tests import certificates
from tests.support.amqp10_client import Connections
from tests.support.gateway_process import GatewayProcess, running
from tests.support.postgres import execute

SECOND_VHOST = "second"
TENANT, PASSWORD = "tenant", "secret"


# In SQL, as a DBA could: six runs of `howdah` would take longer than the tests.
SEED = f"""
INSERT INTO howdah.vhost (name) VALUES ('{SECOND_VHOST}');
INSERT INTO howdah."user" (name, password_hash, scram_verifier)
VALUES ('device-7', NULL, NULL),
       ('{TENANT}', '{hash_password(PASSWORD)}', '{Verifier.of(PASSWORD)}');
INSERT INTO howdah.permission (user_name, vhost, configure, write, read)
VALUES ('device-7', '/', '.*', '.*', '.*'), ('{TENANT}', '{SECOND_VHOST}', '.*', '.*', '.*');
INSERT INTO howdah.topic_permission (user_name, vhost, exchange, write, read)
VALUES ('device-7', '/', 'amq.topic', '^{{username}}\\.', '.*');
"""


@pytest.fixture
def connect(shared_gateway: GatewayProcess) -> Iterator[Connections]:
    """AMQP 1.0."""
    connections = Connections(shared_gateway)
    yield connections
    connections.close()


@pytest.fixture
def channel(shared_gateway: GatewayProcess) -> Iterator[Any]:
    """AMQP 0.9.1, to declare what 1.0 has no words for."""
    connection = pika.BlockingConnection(pika.URLParameters(shared_gateway.amqp_url()))
    yield connection.channel()
    with suppress(pika.exceptions.AMQPError):
        connection.close()


@pytest.fixture(scope="session")
def secured_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """Clients may show a certificate. `device-7` has no password; `tenant` may use the second
    virtual host, and nothing else."""
    folder = tmp_path_factory.mktemp("secured")
    bundle = folder / "authorities.pem"
    bundle.write_text(certificates.AUTHORITY.read_text() + certificates.NAMED.read_text())
    tls = {
        "cert": str(certificates.SERVER),
        "key": str(certificates.SERVER_KEY),
        "ca": str(bundle),
    }
    settings = {
        "listeners": {
            name: {"port": 0, "host": "127.0.0.1", "tls": tls}
            for name in ("mqtt", "mqtt_ws", "amqp")
        },
        "auth": {
            "mqtt_certificate_login": True,
            "allow_anonymous": "loopback",
            "guest": "loopback",
        },
    }
    with running(folder / "gateway", settings) as gateway:
        execute(gateway.database_url, SEED)
        yield gateway.restart()
