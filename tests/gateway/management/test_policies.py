"""Policies, limits and parameters over HTTP, as RabbitMQ's tools set and read them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.gateway_process import GatewayProcess
from tests.support.http_api import ask
from tests.support.names import fresh

BODY = {"pattern": "^nobody$", "definition": {"max-length": 5}}
VHOST = "/api/vhosts/limited"
PASSWORD = "a long word"


@pytest.mark.parametrize("kind", ["policies", "operator-policies"])
def test_a_policy_is_made_changed_read_and_removed(own_gateway: GatewayProcess, kind: str) -> None:
    path = f"/api/{kind}/%2F/http-short"
    assert ask(own_gateway, "GET", path).error == (404, "Object Not Found")
    assert ask(own_gateway, "PUT", path, BODY).status == 201
    changed = {**BODY, "priority": 7, "apply-to": "queues", "vhost": "/", "name": "ignored"}
    assert ask(own_gateway, "PUT", path, changed).status == 204
    expected = {
        "vhost": "/",
        "name": "http-short",
        "pattern": "^nobody$",
        "apply-to": "queues",
        "definition": {"max-length": 5},
        "priority": 7,
    }
    assert ask(own_gateway, "GET", path).value == expected
    assert expected in ask(own_gateway, "GET", f"/api/{kind}").value
    assert expected in ask(own_gateway, "GET", f"/api/{kind}/%2F").value
    assert ask(own_gateway, "DELETE", path).status == 204
    assert ask(own_gateway, "DELETE", path).error == (404, "Object Not Found")


def test_an_exchange_shows_the_policy_that_acts_on_it(own_gateway: GatewayProcess) -> None:
    name = fresh("shown")
    path, policy = f"/api/exchanges/%2F/{name}", f"/api/policies/%2F/{name}"
    assert ask(own_gateway, "PUT", path, {"type": "topic"}).status == 201
    assert "policy" not in ask(own_gateway, "GET", path).value
    definition = {"alternate-exchange": "amq.fanout"}
    body = {"pattern": f"^{name}$", "definition": definition, "apply-to": "exchanges"}
    assert ask(own_gateway, "PUT", policy, body).status == 201
    assert ask(own_gateway, "GET", path).value["policy"] == name
    for others in ("/api/exchanges", "/api/exchanges/%2F?sort=policy&columns=name,policy"):
        rows = ask(own_gateway, "GET", others).value
        assert [each["name"] for each in rows if each.get("policy") == name] == [name]
    assert ask(own_gateway, "DELETE", policy).status == 204
    assert "policy" not in ask(own_gateway, "GET", path).value


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({}, "pattern"),
        ({"pattern": "x"}, "definition"),
        ({**BODY, "definition": {}}, "has no keys"),
        ({**BODY, "definition": {"colour": 1}}, "key 'colour' is not known"),
        ({**BODY, "definition": {"federation-upstream": "u"}}, "there is no federation here"),
        ({**BODY, "pattern": "("}, "not a regular expression"),
        ({**BODY, "apply-to": "topics"}, "apply-to"),
        ({**BODY, "priority": "high"}, "priority"),
        (b"{", "JSON"),
    ],
)
def test_a_policy_that_makes_no_sense_is_a_bad_request(
    own_gateway: GatewayProcess, body: Any, word: str
) -> None:
    answer = ask(own_gateway, "PUT", "/api/policies/%2F/http-bad", body)
    assert answer.status == 400
    assert word in answer.value["reason"]
    assert ask(own_gateway, "GET", "/api/policies/%2F/http-bad").status == 404


def test_policies_want_a_virtual_host_that_is_there(own_gateway: GatewayProcess) -> None:
    assert ask(own_gateway, "PUT", "/api/policies/nowhere/p", BODY).status == 404
    assert ask(own_gateway, "GET", "/api/policies/nowhere").status == 404


def test_who_may_set_policies_is_a_matter_of_tags(own_gateway: GatewayProcess) -> None:
    for tag in ("management", "policymaker"):
        user = {"tags": [tag], "password": PASSWORD}
        ask(own_gateway, "PUT", f"/api/users/http-{tag}", user)
        permission = {"configure": ".*", "write": ".*", "read": ".*"}
        ask(own_gateway, "PUT", f"/api/permissions/%2F/http-{tag}", permission)
    manager, maker = f"http-management:{PASSWORD}", f"http-policymaker:{PASSWORD}"
    own, operator = "/api/policies/%2F/http-tags", "/api/operator-policies/%2F/http-tags"
    assert ask(own_gateway, "PUT", own, BODY, login=manager).error == (401, "not_authorised")
    assert ask(own_gateway, "GET", "/api/policies", login=manager).status == 200
    assert ask(own_gateway, "PUT", own, BODY, login=maker).status == 201
    assert ask(own_gateway, "PUT", operator, BODY, login=maker).error == (401, "not_authorised")
    assert ask(own_gateway, "DELETE", own, login=maker).status == 204
    for tag in ("management", "policymaker"):
        ask(own_gateway, "DELETE", f"/api/users/http-{tag}")


def test_virtual_hosts_have_metadata_and_limits(own_gateway: GatewayProcess) -> None:
    said = {"description": "for tests", "tags": "a, b", "default_queue_type": "quorum"}
    assert ask(own_gateway, "PUT", VHOST, {**said, "metadata": {"cost": 1}}).status == 201
    assert ask(own_gateway, "PUT", VHOST, {"description": "changed"}).status == 204
    found = ask(own_gateway, "GET", VHOST).value
    assert found["description"] == "changed"
    assert found["tags"] == ["a", "b"]
    assert (found["default_queue_type"], found["metadata"]["cost"]) == ("quorum", 1)
    assert ask(own_gateway, "PUT", VHOST, {"default_queue_type": "fast"}).status == 400
    limits = "/api/vhost-limits/limited"
    assert ask(own_gateway, "GET", limits).value == []
    assert ask(own_gateway, "PUT", f"{limits}/max-queues", {"value": 3}).status == 204
    assert ask(own_gateway, "PUT", f"{limits}/max-connections", {"value": -1}).status == 204
    row = {"vhost": "limited", "value": {"max-connections": -1, "max-queues": 3}}
    assert ask(own_gateway, "GET", limits).value == [row]
    assert row in ask(own_gateway, "GET", "/api/vhost-limits").value
    assert ask(own_gateway, "PUT", f"{limits}/max-topics", {"value": 3}).status == 400
    assert ask(own_gateway, "PUT", f"{limits}/max-queues", {"value": "3"}).status == 400
    assert ask(own_gateway, "PUT", f"{limits}/max-queues", {"value": 2**40}).status == 400
    assert ask(own_gateway, "DELETE", f"{limits}/max-queues").status == 204
    assert ask(own_gateway, "DELETE", f"{limits}/max-connections").status == 204
    assert ask(own_gateway, "GET", limits).value == []
    assert ask(own_gateway, "DELETE", VHOST).status == 204
    assert ask(own_gateway, "PUT", f"{limits}/max-queues", {"value": 3}).status == 404


def test_users_have_limits(own_gateway: GatewayProcess) -> None:
    name = fresh("limited")
    limits = f"/api/user-limits/{name}"
    assert ask(own_gateway, "PUT", f"{limits}/max-channels", {"value": 3}).status == 404
    ask(own_gateway, "PUT", f"/api/users/{name}", {"tags": [], "password": PASSWORD})
    assert ask(own_gateway, "PUT", f"{limits}/max-channels", {"value": 3}).status == 204
    row = {"user": name, "value": {"max-channels": 3}}
    assert ask(own_gateway, "GET", limits).value == [row]
    assert row in ask(own_gateway, "GET", "/api/user-limits").value
    assert ask(own_gateway, "GET", f"/api/users/{name}").value["limits"] == row["value"]
    assert ask(own_gateway, "PUT", f"{limits}/max-queues", {"value": 3}).status == 400
    assert ask(own_gateway, "DELETE", f"{limits}/max-channels").status == 204
    assert ask(own_gateway, "GET", limits).value == []
    ask(own_gateway, "DELETE", f"/api/users/{name}")


def test_parameters_are_kept_for_tools(own_gateway: GatewayProcess) -> None:
    path = "/api/parameters/tool/%2F/setting"
    assert ask(own_gateway, "PUT", path, {"value": {"a": [1]}}).status == 201
    assert ask(own_gateway, "PUT", path, {"value": {"a": [2]}}).status == 204
    row = {"vhost": "/", "component": "tool", "name": "setting", "value": {"a": [2]}}
    assert ask(own_gateway, "GET", path).value == row
    for list_path in ("/api/parameters", "/api/parameters/tool", "/api/parameters/tool/%2F"):
        assert row in ask(own_gateway, "GET", list_path).value
    assert ask(own_gateway, "DELETE", path).status == 204
    assert ask(own_gateway, "DELETE", path).status == 404
    assert ask(own_gateway, "GET", path).status == 404


@pytest.mark.parametrize("component", ["shovel", "federation-upstream"])
def test_a_parameter_that_would_do_something_elsewhere_is_refused(
    own_gateway: GatewayProcess, component: str
) -> None:
    answer = ask(own_gateway, "PUT", f"/api/parameters/{component}/%2F/x", {"value": {}})
    assert answer.status == 400
    assert component in answer.value["reason"]


def test_global_parameters_are_kept_for_tools(own_gateway: GatewayProcess) -> None:
    path = "/api/global-parameters/http-tool"
    assert ask(own_gateway, "PUT", path, {"value": "x"}).status == 201
    assert ask(own_gateway, "PUT", path, {"value": None}).status == 204
    assert ask(own_gateway, "GET", path).value == {"name": "http-tool", "value": None}
    assert {"name": "http-tool", "value": None} in ask(
        own_gateway, "GET", "/api/global-parameters"
    ).value
    assert ask(own_gateway, "DELETE", path).status == 204
    assert ask(own_gateway, "DELETE", path).status == 404
