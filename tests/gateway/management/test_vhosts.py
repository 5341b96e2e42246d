"""Virtual hosts over HTTP."""

from __future__ import annotations

import threading
from typing import Any
from urllib.parse import quote

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from tests.support.gateway_process import GatewayProcess
from tests.support.http_api import ask
from tests.support.operator import answer
from tests.support.until import PATIENCE_SECONDS


def test_a_virtual_host_is_made_shown_and_removed(own_gateway: GatewayProcess) -> None:
    path = f"/api/vhosts/{quote('http/a b', safe='')}"
    assert ask(own_gateway, "PUT", path).status == 201
    assert ask(own_gateway, "PUT", path).status == 204
    found = ask(own_gateway, "GET", path).value
    assert found["name"] == "http/a b"
    assert list(found["cluster_state"].values()) == ["running"]
    assert found["name"] in [each["name"] for each in ask(own_gateway, "GET", "/api/vhosts/").value]
    assert ask(own_gateway, "DELETE", path).status == 204
    assert ask(own_gateway, "GET", path).error == (404, "Object Not Found")
    assert ask(own_gateway, "DELETE", path).error == (404, "Object Not Found")


def test_messages_of_a_virtual_host_are_added_up(own_gateway: GatewayProcess) -> None:
    ask(own_gateway, "PUT", "/api/vhosts/http-sums")
    for queue in ("a", "b"):
        answer(own_gateway.run("queue", "declare", queue, "--vhost", "http-sums"))
    found = ask(own_gateway, "GET", "/api/vhosts/http-sums").value
    assert (found["messages"], found["messages_ready"], found["messages_unacknowledged"]) == (
        0,
        0,
        0,
    )


def test_a_virtual_host_goes_with_everything_in_it(own_gateway: GatewayProcess) -> None:
    path = "/api/vhosts/http-full"
    ask(own_gateway, "PUT", path)
    for queue in ("a", "b"):
        answer(own_gateway.run("queue", "declare", queue, "--vhost", "http-full"))
    answer(own_gateway.run("publish", "--queue", "a", "--vhost", "http-full", "x"))
    words = "a long word\n"
    answer(own_gateway.run("user", "add", "http-full", "--no-permissions", words=words))
    answer(own_gateway.run("user", "grant", "http-full", "--vhost", "http-full"))
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="http-full", clean_session=False)
    client.username_pw_set("http-full:http-full", "a long word")
    is_subscribed = threading.Event()

    def subscribe(*_: Any) -> None:
        client.subscribe("full/#", 1)

    client.on_connect = subscribe
    client.on_subscribe = lambda *_: is_subscribed.set()
    client.connect("127.0.0.1", own_gateway.ports["mqtt"])
    client.loop_start()
    try:
        assert is_subscribed.wait(PATIENCE_SECONDS)
        assert ask(own_gateway, "DELETE", path).status == 204
    finally:
        client.loop_stop()
    assert ask(own_gateway, "GET", path).status == 404
    assert ask(own_gateway, "PUT", path).status == 201
    assert ask(own_gateway, "GET", "/api/queues/http-full").value == []
    assert ask(own_gateway, "DELETE", path).status == 204


@pytest.mark.parametrize("path", ["/api/vhosts/%2F", "/api/vhosts//"])
def test_the_default_virtual_host_stays(own_gateway: GatewayProcess, path: str) -> None:
    assert ask(own_gateway, "DELETE", path).error == (400, "bad_request")
    assert ask(own_gateway, "GET", path).value["name"] == "/"


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_no_name_is_no_virtual_host(own_gateway: GatewayProcess, method: str) -> None:
    assert ask(own_gateway, method, "/api/vhosts/").status == 405


@pytest.mark.parametrize("name", ["%00", "x" * 256])
def test_a_wrong_name_is_refused(own_gateway: GatewayProcess, name: str) -> None:
    assert ask(own_gateway, "PUT", f"/api/vhosts/{name}").error == (400, "bad_request")
