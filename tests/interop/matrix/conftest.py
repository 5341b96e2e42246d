"""The cast of a test, on the gateway that all of them share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.matrix.amqp091_actor import Amqp091
from tests.interop.matrix.letters import Cast, cast_of
from tests.support.gateway_process import GatewayProcess


@pytest.fixture
def cast(shared_gateway: GatewayProcess) -> Iterator[Cast]:
    with cast_of(shared_gateway) as cast:
        yield cast


@pytest.fixture
def house(cast: Cast) -> Amqp091:
    """Declares what the others use: not all of them have words for it."""
    return cast(Amqp091)
