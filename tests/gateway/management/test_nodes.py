"""Nodes, health checks, and what there will never be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.management.compat.never import NEVER
from gateway.postgres.server import EmbeddedPostgres
from tests.support.gateway_process import GatewayProcess, running
from tests.support.http_api import ask
from tests.support.until import wait_until

CERTIFICATES = Path(__file__).parents[2] / "certificates"

# The fields, with their types, that RabbitMQ's strictest client does not do without.
NODE = {
    "name": str,
    "uptime": int,
    "run_queue": int,
    "processors": int,
    "os_pid": str,
    "fd_total": int,
    "proc_total": int,
    "mem_limit": int,
    "mem_alarm": bool,
    "disk_free_limit": int,
    "disk_free_alarm": bool,
    "rates_mode": str,
    "enabled_plugins": list,
    "being_drained": bool,
    "partitions": list,
    "running": bool,
}


def test_the_node_has_what_clients_need(own_gateway: GatewayProcess) -> None:
    (node,) = ask(own_gateway, "GET", "/api/nodes").value
    assert {name: type(node[name]) for name in NODE} == NODE
    assert node["os_pid"] == str(own_gateway.pid)
    assert node["disk_free"] > 0
    same = ask(own_gateway, "GET", f"/api/nodes/{node['name']}").value
    assert (same["name"], same["os_pid"]) == (node["name"], node["os_pid"])
    memory = ask(own_gateway, "GET", f"/api/nodes/{node['name']}/memory").value["memory"]
    assert memory["total"]["rss"] > 1_000_000


@pytest.mark.parametrize("path", ["/api/nodes/other", "/api/nodes/other/memory"])
def test_other_nodes_are_not_found(own_gateway: GatewayProcess, path: str) -> None:
    assert ask(own_gateway, "GET", path).error == (404, "Object Not Found")


@pytest.mark.parametrize(
    "check",
    [
        "alarms",
        "local-alarms",
        "virtual-hosts",
        "node-is-quorum-critical",
        "ready-to-serve-clients",
        "is-in-service",
        "below-node-connection-limit",
        "protocol-listener/amqp",
        "protocol-listener/amqp091,mqtt,http%2Fweb-mqtt,http",
        "certificate-expiration/1/months",
    ],
)
def test_a_gateway_that_runs_passes(own_gateway: GatewayProcess, check: str) -> None:
    found = ask(own_gateway, "GET", f"/api/health/checks/{check}")
    assert (found.status, found.value) == (200, {"status": "ok"})


def test_a_port_is_listened_on_or_not(own_gateway: GatewayProcess) -> None:
    path = "/api/health/checks/port-listener"
    port = own_gateway.ports["amqp"]
    assert ask(own_gateway, "GET", f"{path}/{port}").status == 200
    found = ask(own_gateway, "GET", f"{path}/1")
    assert (found.status, found.value["status"], found.value["missing"]) == (503, "failed", 1)
    assert set(found.value["ports"]) == set(own_gateway.ports.values())


def test_a_protocol_that_nobody_listens_for_is_missing(own_gateway: GatewayProcess) -> None:
    found = ask(own_gateway, "GET", "/api/health/checks/protocol-listener/amqp,stomp")
    assert (found.status, found.value["missing"]) == (503, ["stomp"])
    assert "amqp" in found.value["protocols"]


@pytest.mark.parametrize(
    "check",
    [
        "port-listener/x",
        "port-listener/99999999999999999999",
        "port-listener/-1",
        "certificate-expiration/1/moons",
        "certificate-expiration/one/days",
        "certificate-expiration/99999999999/years",
    ],
)
def test_a_check_of_nonsense_is_a_bad_request(own_gateway: GatewayProcess, check: str) -> None:
    found = ask(own_gateway, "GET", f"/api/health/checks/{check}")
    assert found.error == (400, "bad_request")


def test_a_certificate_that_ends_soon_fails_its_check(tmp_path: Path) -> None:
    tls = {"cert": str(CERTIFICATES / "server.pem"), "key": str(CERTIFICATES / "server.key")}
    with running(tmp_path / "gateway", {"listeners": {"mqtt": {"tls": tls}}}) as gateway:
        path = "/api/health/checks/certificate-expiration"
        assert ask(gateway, "GET", f"{path}/0/days").status == 200
        found = ask(gateway, "GET", f"{path}/1000/years")
        assert (found.status, found.value["certificates"][0]["listener"]) == (503, "mqtt")


def test_checks_fail_while_postgresql_is_gone(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "database", settings={"shared_buffers": "32MB"})
    with server, running(tmp_path / "gateway", {"database": {"url": server.url}}) as gateway:
        server.stop()

        def answer(path: str) -> Any:
            return ask(gateway, "GET", path)

        wait_until(lambda: answer("/api/health/checks/alarms").status == 503)
        found = answer("/api/health/checks/local-alarms").value
        assert found["status"] == "failed"
        assert found["alarms"][0]["resource"] == "database"
        assert answer("/api/health/checks/ready-to-serve-clients").status == 503
        old = answer("/api/healthchecks/node")
        assert (old.status, old.value["status"]) == (200, "failed")
        change = ask(gateway, "PUT", "/api/users/somebody", {"tags": []})
        assert change.error == (503, "unavailable")


@pytest.mark.parametrize(("method", "path", "reason"), NEVER)
def test_what_there_will_never_be_says_why(
    own_gateway: GatewayProcess, method: str, path: str, reason: str
) -> None:
    for name in ("vhost", "name", "node"):
        path = path.replace(f"{{{name}}}", "x")
    found = ask(own_gateway, method, path)
    assert found.error == (404, "Object Not Found")
    assert found.value["reason"] == reason
