"""AMQP 1.0 with rhea (JavaScript), an implementation that shares no code with Proton."""

from __future__ import annotations

import json
import shutil

from tests.interop.node_clients import SOURCES, installed, run_script
from tests.interop.relay import Relay, run_over
from tests.support.gateway_process import GatewayProcess
from tests.support.names import fresh


def test_rhea_sees_outcomes_credit_drain_dynamic_nodes_and_errors(
    shared_gateway: GatewayProcess,
) -> None:
    ran = run_script("rhea.js", str(shared_gateway.ports["amqp"]), fresh("rhea"))
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


def lines_of(gateway: GatewayProcess, what: str) -> list[str]:
    ran = run_script("rhea_links.js", what, str(gateway.ports["amqp"]), fresh("rhea"))
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_rhea_gets_what_its_credit_allows_and_the_rest_by_draining(
    shared_gateway: GatewayProcess,
) -> None:
    assert lines_of(shared_gateway, "credit") == ["starved 0,1", "drained 7 credit 0"]


def test_rhea_has_a_thousand_links_on_one_connection(shared_gateway: GatewayProcess) -> None:
    assert lines_of(shared_gateway, "links") == ["links 1000"]


def test_rhea_comes_back_by_itself_and_finds_what_it_had(shared_gateway: GatewayProcess) -> None:
    home = installed()
    shutil.copy(SOURCES / "rhea_links.js", home)
    with Relay(shared_gateway.ports["amqp"]) as relay:
        command = ["node", "rhea_links.js", "reconnect", str(relay.port), fresh("rhea")]
        lines = run_over(relay, command, home)
    assert lines == ["again: kept false 1", "after: after"]
