"""The requests of monitoring tools and of Terraform, as they send them, and the fields that they
read, with the types that they decode them into."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote

import pika
import pytest

from tests.support.gateway_process import GatewayProcess
from tests.support.http_api import HttpAnswer, ask
from tests.support.names import fresh
from tests.support.until import wait_until

NUMBER: Final = (int, float)


@pytest.fixture(scope="module")
def busy(managed_gateway: GatewayProcess) -> Iterator[str]:
    """A queue with traffic: two messages, one of them in the hands of a consumer."""
    name = fresh("busy queue")
    connection = pika.BlockingConnection(pika.URLParameters(managed_gateway.amqp_url()))
    channel = connection.channel()
    channel.queue_declare(name, durable=True)
    channel.confirm_delivery()
    channel.basic_qos(prefetch_count=1)
    for _ in range(2):
        channel.basic_publish("", name, b"hello", pika.BasicProperties(delivery_mode=2))
    kept: list[object] = []
    channel.basic_consume(name, lambda *found: kept.append(found))
    wait_until(lambda: connection.process_data_events(0.01) is None and bool(kept), "a message")
    path = f"/api/queues/%2F/{name.replace(' ', '%20')}"

    def has_rates() -> bool:
        stats = ask(managed_gateway, "GET", path).value.get("message_stats", {})
        return "publish_details" in stats and "deliver_get_details" in stats

    wait_until(has_rates, "rates of the queue")
    yield name
    connection.close()


def got(gateway: GatewayProcess, path: str) -> Any:
    answer = ask(gateway, "GET", path)
    assert answer.status == 200, answer.raw
    return answer.value


def at(value: Any, path: str) -> Any:
    for key in path.split("/"):
        value = value[key]
    return value


# --- KEDA


@pytest.mark.parametrize("vhost", ["%2F", "%2f"])
def test_keda_reads_one_queue(vhost: str, managed_gateway: GatewayProcess, busy: str) -> None:
    """KEDA escapes names as in a query: a space is a plus sign, which it also is in a path."""
    found = got(managed_gateway, f"/api/queues/{vhost}/{busy.replace(' ', '%20')}")
    assert (found["messages"], found["messages_ready"], found["messages_unacknowledged"]) == (
        2,
        1,
        1,
    )
    assert found["name"] == busy
    for rate in ("publish_details/rate", "deliver_get_details/rate"):
        assert isinstance(at(found["message_stats"], rate), NUMBER)


def test_keda_reads_queues_by_a_pattern(managed_gateway: GatewayProcess, busy: str) -> None:
    pattern = "^busy.%2A"
    found = got(
        managed_gateway,
        f"/api/queues/%2F?page=1&use_regex=true&pagination=false&name={pattern}&page_size=100",
    )
    assert [each["name"] for each in found["items"]] == [busy]
    assert (found["page_count"], found["items"][0]["messages"]) == (1, 2)


# --- Telegraf

TELEGRAF_NODE: Final = (
    *("uptime", "mem_used", "mem_limit", "disk_free", "disk_free_limit", "fd_used", "fd_total"),
    *("sockets_used", "sockets_total", "proc_used", "proc_total", "run_queue"),
)
TELEGRAF_QUEUE: Final = (
    *("consumers", "messages", "messages_ready", "messages_unacknowledged", "message_bytes"),
    "message_bytes_ready",
)


def test_telegraf_gathers_everything(managed_gateway: GatewayProcess, busy: str) -> None:
    overview = got(managed_gateway, "/api/overview")
    for part in ("message_stats", "object_totals", "queue_totals"):
        assert isinstance(overview[part], dict)
    assert {"amqp", "mqtt"} <= {each["protocol"] for each in overview["listeners"]}
    for key in ("channels", "connections", "consumers", "exchanges", "queues"):
        assert isinstance(overview["object_totals"][key], int)
    nodes = got(managed_gateway, "/api/nodes")
    for node in nodes:
        assert (node["running"], node["mem_alarm"], node["disk_free_alarm"]) == (True, False, False)
        for key in TELEGRAF_NODE:
            assert isinstance(node[key], int), key
        assert ask(managed_gateway, "GET", f"/api/nodes/{node['name']}/memory").status == 200
    (queue,) = [each for each in got(managed_gateway, "/api/queues") if each["name"] == busy]
    for key in TELEGRAF_QUEUE:
        assert isinstance(queue[key], int), key
    for key in ("vhost", "node", "state", "type"):
        assert isinstance(queue[key], str), key
    assert (queue["durable"], queue["auto_delete"]) == (True, False)
    exchanges = got(managed_gateway, "/api/exchanges")
    assert {"name", "vhost", "type", "durable", "auto_delete", "internal"} <= set(exchanges[0])
    assert got(managed_gateway, "/api/federation-links") == []


# --- Datadog


def test_datadog_checks_the_broker(managed_gateway: GatewayProcess, busy: str) -> None:
    assert "/" in [each["name"] for each in got(managed_gateway, "/api/vhosts")]
    overview = got(managed_gateway, "/api/overview")
    assert [int(part) for part in overview["rabbitmq_version"].split(".")]
    assert isinstance(overview["cluster_name"], str)
    for path in ("queue_totals/messages", "queue_totals/messages_details/rate"):
        assert isinstance(at(overview, path), NUMBER)
    for key in ("publish", "confirm", "deliver_get"):
        assert isinstance(at(overview, f"message_stats/{key}"), int)
        assert isinstance(at(overview, f"message_stats/{key}_details/rate"), NUMBER)
    node = got(managed_gateway, "/api/nodes")[0]
    assert node["partitions"] == []
    connections = got(managed_gateway, "/api/vhosts/%2F/connections")
    assert [each["user"] for each in connections] == ["guest"]
    assert got(managed_gateway, "/api/aliveness-test/%2F") == {"status": "ok"}


# --- Zabbix


def test_zabbix_reads_overview_and_health(managed_gateway: GatewayProcess, busy: str) -> None:
    overview = got(managed_gateway, "/api/overview")
    version = tuple(int(part) for part in overview["management_version"].split("."))
    assert version >= (3, 8, 10)  # below that, Zabbix asks /api/healthchecks/node alone
    for path in ("object_totals/queues", "queue_totals/messages_unacknowledged"):
        assert isinstance(at(overview, path), int)
    checks = (
        *("alarms", "local-alarms", "certificate-expiration/1/months", "virtual-hosts"),
        *("node-is-mirror-sync-critical", "node-is-quorum-critical"),
    )
    for check in checks:
        assert ask(managed_gateway, "GET", f"/api/health/checks/{check}").status == 200, check


# --- Terraform


def test_terraform_applies_twice_without_a_difference(managed_gateway: GatewayProcess) -> None:
    vhost, user = fresh("terraform"), fresh("terraform-user")

    def put(path: str, body: Any, *statuses: int) -> HttpAnswer:
        answer = ask(managed_gateway, "PUT", path, body)
        assert answer.status in statuses, answer.raw
        return answer

    def apply(status: int) -> list[Any]:
        put(f"/api/vhosts/{vhost}", {}, status)
        put(f"/api/users/{user}", {"password": "its-password", "tags": "management"}, status)
        rights = {"configure": ".*", "write": ".*", "read": ".*"}
        put(f"/api/permissions/{vhost}/{user}", rights, status)
        put(f"/api/permissions/{vhost}/guest", rights, 201, 204)
        topics = {"exchange": "amq.topic", "write": "^a", "read": ".*"}
        put(f"/api/topic-permissions/{vhost}/{user}", topics, status)
        exchange = {"type": "fanout", "durable": False, "auto_delete": True, "arguments": {}}
        put(f"/api/exchanges/{vhost}/ex", exchange, status)
        queue = {"durable": False, "auto_delete": True, "arguments": {"x-max-length": 9}}
        put(f"/api/queues/{vhost}/q", queue, status)
        policy = {
            "pattern": ".*",
            "priority": 0,
            "apply-to": "all",
            "definition": {"max-length": 5},
        }
        put(f"/api/policies/{vhost}/p", policy, status)
        put(f"/api/vhost-limits/{vhost}/max-queues", {"value": 40}, 201, 204)
        return [
            got(managed_gateway, f"/api/{path}")
            for path in (
                f"vhosts/{vhost}",
                f"permissions/{vhost}/{user}",
                f"topic-permissions/{vhost}/{user}",
                f"exchanges/{vhost}/ex",
                f"policies/{vhost}/p",
                f"vhost-limits/{vhost}",
            )
        ]

    first = apply(201)
    assert got(managed_gateway, f"/api/users/{user}")["tags"] == ["management"]
    made = ask(
        managed_gateway,
        "POST",
        f"/api/bindings/{vhost}/e/ex/q/q",
        {"routing_key": "a/b#", "arguments": {"k": "v"}},
    )
    assert made.status == 201
    key = unquote(made.headers["Location"].rsplit("/", 1)[-1])
    found = got(managed_gateway, f"/api/bindings/{vhost}/e/ex/q/q")
    assert key in [each["properties_key"] for each in found]
    assert without_figures(apply(204)) == without_figures(first)
    assert ask(managed_gateway, "DELETE", f"/api/vhosts/{vhost}").status == 204
    assert ask(managed_gateway, "DELETE", f"/api/users/{user}").status == 204
    for path in (f"vhosts/{vhost}", f"users/{user}", f"queues/{vhost}/q"):
        assert ask(managed_gateway, "GET", f"/api/{path}").status == 404, path


def without_figures(found: list[Any]) -> list[Any]:
    """Leaves out counters and rates, which change by themselves."""
    return [
        {
            key: value
            for key, value in each.items()
            if not key.startswith(("message", "recv", "send"))
        }
        if isinstance(each, dict)
        else each
        for each in found
    ]
