"""A gateway whose operator offers MQTT clients as little as there is to choose: it says every
property of a CONNACK that tells of a limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.support.gateway_process import GatewayProcess, running

MAX_QOS: Final = 1
MAX_PACKET: Final = 64 * 1024
RECEIVE_MAXIMUM: Final = 20
MAX_SESSIONS: Final = 8
KEEP_ALIVE: Final = 4
SESSION_EXPIRY: Final = 60
ALIASES: Final = 7
ELSEWHERE: Final = "other.example:1883"

LIMITS: Final[dict[str, Any]] = {
    "broker": {"max_qos": MAX_QOS, "max_message_size": "64KiB"},
    "session": {"max_inflight_messages": RECEIVE_MAXIMUM, "max_sessions": MAX_SESSIONS},
    "mqtt": {
        "max_keep_alive": f"{KEEP_ALIVE}s",
        "max_session_expiry": f"{SESSION_EXPIRY}s",
        "topic_alias_maximum": ALIASES,
        "retained_messages": False,
        "wildcard_subscriptions": False,
        "shared_subscriptions": False,
        "subscription_identifiers": False,
        "server_reference": ELSEWHERE,
    },
}


@pytest.fixture(scope="session")
def limited_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """One for all tests of limits; they may restart it, and leave no session behind."""
    with running(tmp_path_factory.mktemp("limited"), LIMITS) as process:
        yield process
