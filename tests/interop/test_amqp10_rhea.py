"""AMQP 1.0 with rhea (JavaScript), an implementation that shares no code with Proton."""

from __future__ import annotations

import json
from uuid import uuid4

from tests.gateway_process import GatewayProcess
from tests.interop.node_clients import run_script

SECONDS = 60


def test_rhea_sees_outcomes_credit_drain_dynamic_nodes_and_errors(
    shared_gateway: GatewayProcess,
) -> None:
    ran = run_script("rhea.js", str(shared_gateway.ports["amqp"]), f"rhea-{uuid4().hex[:12]}")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {
        "product": "Howdah",
        "outcomes": ["accepted", "accepted", "accepted", "accepted", "released"],
        "bodies": ["one", {"deep": [1, 2, 3]}, "raw"],
        "redelivered": [["one", False, 1], ["one", False, 1]],
        "large": True,
        "credit": 0,
        "reply": "pong",
        "error": "amqp:not-found",
    }
