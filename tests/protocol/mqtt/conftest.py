"""The gateway that these tests speak frames to."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.gateway_process import GatewayProcess
from tests.support.mqtt_raw_client import Mqtt


@pytest.fixture
async def mqtt(shared_gateway: GatewayProcess) -> AsyncIterator[Mqtt]:
    mqtt = Mqtt(shared_gateway.ports["mqtt"])
    yield mqtt
    await mqtt.close()
