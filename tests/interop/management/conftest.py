"""A gateway whose `guest` is a user like any other, as in RabbitMQ, and may do everything."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from queue_core.access.passwords import hash_password
from queue_core.access.scram import Verifier
from tests.support.gateway_process import GatewayProcess, running
from tests.support.postgres import execute

SEED = f"""
INSERT INTO howdah."user" (name, password_hash, scram_verifier, tags)
VALUES ('guest', '{hash_password("guest")}', '{Verifier.of("guest")}', '{{administrator}}');
INSERT INTO howdah.permission (user_name, vhost, configure, write, read)
VALUES ('guest', '/', '.*', '.*', '.*');
"""


@pytest.fixture(scope="module")
def managed_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with running(tmp_path_factory.mktemp("managed") / "gateway") as gateway:
        execute(gateway.database_url, SEED)
        yield gateway.restart()
