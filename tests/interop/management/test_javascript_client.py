"""A JavaScript client of RabbitMQ's HTTP API against the gateway."""

from __future__ import annotations

from tests.interop.node_clients import run_script
from tests.support.gateway_process import GatewayProcess
from tests.support.names import fresh


def test_rabbitmq_admin_declares_publishes_and_deletes(managed_gateway: GatewayProcess) -> None:
    name = fresh("admin-js")
    ran = run_script("rabbitmq_admin.js", managed_gateway.http_url(""), name)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "product Howdah",
        "routed true",
        f"queue {name} true 5",
        "bound a.#",
        "nodes true",
        "left false",
    ]
