"""Python clients of RabbitMQ's HTTP API against the gateway: amqpstorm, pyrabbit2 and Flower."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pika
import pytest
from amqpstorm.connection import Connection
from amqpstorm.management.api import ManagementApi
from amqpstorm.management.exception import ApiError
from pyrabbit2.api import Client
from pyrabbit2.http import HTTPError

from tests.support.gateway_process import GatewayProcess
from tests.support.names import fresh
from tests.support.ports import lasting_port
from tests.support.until import PATIENCE_SECONDS, wait_until


@pytest.fixture
def storm(managed_gateway: GatewayProcess) -> Any:
    return ManagementApi(managed_gateway.http_url(""), "guest", "guest")


@pytest.fixture
def rabbit(managed_gateway: GatewayProcess) -> Any:
    return Client(f"127.0.0.1:{managed_gateway.ports['management']}", "guest", "guest")


def test_amqpstorm_declares_publishes_and_gets(storm: Any) -> None:
    name = fresh("storm")
    storm.exchange.declare(name, "topic", durable=True)
    storm.queue.declare(name, durable=True, arguments={"x-max-length": 5})
    storm.queue.bind(queue=name, exchange=name, routing_key="a.#")
    assert storm.basic.publish("caf\u00e9", "a.b", name) == {"routed": True}
    assert storm.basic.publish("x", "b", name) == {"routed": False}
    (message,) = storm.basic.get(name, requeue=True)
    assert message.body == "caf\u00e9"
    (message,) = storm.basic.get(name, requeue=True, to_dict=True)
    assert (message["routing_key"], message["redelivered"]) == ("a.b", False)
    assert storm.queue.get(name)["messages"] == 1
    (binding,) = [each for each in storm.queue.bindings(name) if each["source"] == name]
    assert binding["routing_key"] == "a.#"
    assert name in [each["name"] for each in storm.queue.list("/", show_all=True)]
    storm.queue.purge(name)
    assert storm.basic.get(name) == []
    storm.queue.unbind(name, name, "a.#", properties_key=binding["properties_key"])
    storm.queue.delete(name)
    storm.exchange.delete(name)
    with pytest.raises(ApiError) as refused:
        storm.queue.get(name)
    assert refused.value.error_code == 404


def test_amqpstorm_sees_the_broker(storm: Any) -> None:
    assert storm.whoami()["name"] == "guest"
    assert storm.overview()["product_name"] == "Howdah"
    (node,) = storm.nodes()
    assert storm.node(node["name"])["running"] is True
    assert storm.aliveness_test("/") == {"status": "ok"}
    assert storm.healthchecks.get() == {"status": "ok"}


def test_amqpstorm_lists_and_ends_a_connection(storm: Any, managed_gateway: GatewayProcess) -> None:
    port = managed_gateway.ports["amqp"]
    with Connection("127.0.0.1", "guest", "guest", port=port) as connection:
        connection.channel()
        assert connection.socket is not None
        own = connection.socket.getsockname()[1]
        wait_until(lambda: any(c["peer_port"] == own for c in storm.connection.list()), "it")
        (found,) = [each for each in storm.connection.list() if each["peer_port"] == own]
        assert found["client_properties"]["product"] == "AMQPStorm"
        wait_until(
            lambda: any(c["connection_details"]["peer_port"] == own for c in storm.channel.list()),
            "its channel",
        )
        storm.connection.close(found["name"], reason="told by a test")
        wait_until(lambda: connection.is_closed, "the connection's end")


def test_amqpstorm_manages_users_and_virtual_hosts(storm: Any) -> None:
    name = fresh("storm-user")
    storm.virtual_host.create(name)
    storm.user.create(name, "its-password", tags="monitoring")
    storm.user.set_permission(name, name, configure_regex="^a", write_regex=".*", read_regex=".*")
    assert storm.user.get(name)["tags"] in ("monitoring", ["monitoring"])
    assert storm.user.get_permission(name, name)["configure"] == "^a"
    assert [each["user"] for each in storm.virtual_host.get_permissions(name)] == [name]
    storm.user.delete_permission(name, name)
    storm.user.delete(name)
    storm.virtual_host.delete(name)


def test_pyrabbit_declares_publishes_and_gets(rabbit: Any) -> None:
    name = fresh("pyrabbit")
    assert rabbit.is_alive()
    rabbit.create_exchange("/", name, "direct")
    rabbit.create_queue("/", name, durable=True)
    rabbit.create_binding("/", name, name, "key")
    assert rabbit.publish("/", name, "key", "hello") is True
    assert rabbit.get_queue_depth("/", name) == 1
    (message,) = rabbit.get_messages("/", name, requeue=True)
    assert message["payload"] == "hello"
    (binding,) = [each for each in rabbit.get_queue_bindings("/", name) if each["source"] == name]
    rabbit.delete_binding("/", name, name, binding["properties_key"])
    rabbit.purge_queue("/", name)
    rabbit.delete_queue("/", name)
    rabbit.delete_exchange("/", name)
    with pytest.raises(HTTPError):
        rabbit.get_queue("/", name)


def test_pyrabbit_sees_and_changes_the_broker(rabbit: Any) -> None:
    name = fresh("pyrabbit-user")
    assert rabbit.get_whoami()["name"] == "guest"
    assert rabbit.get_overview()["object_totals"]["exchanges"] > 0
    assert "/" in rabbit.get_vhost_names()
    assert rabbit.get_nodes()[0]["running"] is True
    assert isinstance(rabbit.get_extensions(), list)
    rabbit.create_vhost(name)
    rabbit.create_user(name, "its-password", tags="management")
    for user in (name, "guest"):
        rabbit.set_vhost_permissions(name, user, ".*", ".*", ".*")
    assert rabbit.get_permission(name, name)["read"] == ".*"
    rabbit.create_policy(name, "short", pattern="^q", definition={"message-ttl": 1000})
    assert rabbit.get_policy(name, "short")["definition"] == {"message-ttl": 1000}
    assert name in [each["name"] for each in rabbit.get_definitions()["users"]]
    rabbit.delete_policy(name, "short")
    rabbit.delete_user(name)
    rabbit.delete_vhost(name)


@contextmanager
def flower(gateway: GatewayProcess) -> Iterator[str]:
    port = lasting_port()
    api = f"http://guest:guest@127.0.0.1:{gateway.ports['management']}/api/"
    command = [
        *(sys.executable, "-m", "celery", "--broker", gateway.amqp_url(vhost="/"), "flower"),
        *("--address=127.0.0.1", f"--port={port}", f"--broker-api={api}"),
    ]
    environ = {**os.environ, "FLOWER_UNAUTHENTICATED_API": "true"}
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)


def fetched(url: str) -> bytes | None:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
            body: bytes = answer.read()
            return body
    except OSError:
        return None


def test_flower_shows_the_lengths_of_celerys_queues(managed_gateway: GatewayProcess) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(managed_gateway.amqp_url()))
    channel = connection.channel()
    channel.queue_declare("celery", durable=True)
    channel.queue_purge("celery")
    channel.confirm_delivery()
    for _ in range(3):
        channel.basic_publish("", "celery", b"{}")

    def lengths() -> dict[str, int]:
        found = fetched(f"{page}/api/queues/length")
        queues = [] if found is None else json.loads(found)["active_queues"]
        return {each["name"]: each["messages"] for each in queues}

    with flower(managed_gateway) as page:
        wait_until(lambda: lengths().get("celery") == 3, "three messages")
        shown = fetched(f"{page}/broker")
        assert shown is not None
        assert b"celery" in shown
    channel.queue_delete("celery")
    connection.close()
