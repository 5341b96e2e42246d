"""Debian's rabbitmqadmin against the gateway: declares, binds, publishes, gets, purges and deletes;
exports definitions and imports them again."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.gateway_process import GatewayProcess
from tests.support.names import fresh

SECONDS = 60

pytestmark = pytest.mark.skipif(
    shutil.which("rabbitmqadmin") is None, reason="Debian's rabbitmq-server is not installed"
)


def admin(gateway: GatewayProcess, *arguments: str) -> str:
    ran = subprocess.run(
        ["rabbitmqadmin", "-P", str(gateway.ports["management"]), *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def listed(gateway: GatewayProcess, what: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(admin(gateway, "-f", "raw_json", "list", what))
    return found


def test_it_declares_publishes_gets_and_deletes(shared_gateway: GatewayProcess) -> None:
    name = fresh("admin")
    admin(shared_gateway, "declare", "exchange", f"name={name}", "type=topic")
    admin(
        shared_gateway,
        "declare",
        "queue",
        f"name={name}",
        "durable=true",
        'arguments={"x-max-length": 10}',
    )
    admin(
        shared_gateway,
        "declare",
        "binding",
        f"source={name}",
        f"destination={name}",
        "routing_key=a.*",
    )
    publish = ("publish", f"exchange={name}", "payload=hello", "routing_key=a.b")
    assert "Message published\n" in admin(shared_gateway, *publish)
    nowhere = ("publish", f"exchange={name}", "payload=hello", "routing_key=b")
    assert "NOT routed" in admin(shared_gateway, *nowhere)
    assert "hello" in admin(shared_gateway, "get", f"queue={name}")
    taken = admin(shared_gateway, "get", f"queue={name}", "ackmode=ack_requeue_false")
    assert "hello" in taken
    assert "hello" not in admin(shared_gateway, "get", f"queue={name}")
    for what in ("queues", "exchanges", "bindings"):
        fields = ("name", "source")
        assert any(name in [each.get(f) for f in fields] for each in listed(shared_gateway, what))
    admin(shared_gateway, "purge", "queue", f"name={name}")
    admin(
        shared_gateway,
        "delete",
        "binding",
        f"source={name}",
        "destination_type=queue",
        f"destination={name}",
        "properties_key=a.%2A",
    )
    admin(shared_gateway, "delete", "queue", f"name={name}")
    admin(shared_gateway, "delete", "exchange", f"name={name}")
    assert not any(each["name"] == name for each in listed(shared_gateway, "queues"))


def test_it_exports_definitions_and_imports_them_again(
    shared_gateway: GatewayProcess, tmp_path: Path
) -> None:
    name = fresh("exported")
    admin(shared_gateway, "declare", "queue", f"name={name}", "durable=true")
    path = tmp_path / "definitions.json"
    admin(shared_gateway, "export", str(path))
    assert name in [each["name"] for each in json.loads(path.read_text())["queues"]]
    admin(shared_gateway, "delete", "queue", f"name={name}")
    admin(shared_gateway, "import", str(path))
    assert any(each["name"] == name for each in listed(shared_gateway, "queues"))
