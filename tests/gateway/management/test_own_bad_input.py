"""Bad input for every route of our own API: the right status with a reason, and never a bug."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from gateway.management.routes import Route
from gateway.management.v1.table import ROUTES
from tests.support.gateway_process import GatewayProcess
from tests.support.http_api import ask
from tests.support.operator import answer

NAMES = [
    "nowhere",
    "a/b",
    "%",
    "'; DROP TABLE howdah.queue; --",
    "<script>",
    "\0",
    "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
    "x" * 2000,
    "..",
    "$session/nobody",
    "9" * 40,
    "0" * 20 + "9" * 30,
    "-1",
]
VALUES = [
    "",
    "x",
    "-1",
    "0",
    "1e9",
    "9" * 40,
    "\0",
    "'",
    "true",
    "null",
    "%",
    "a=\0",
    "#/#",
    "a:b:c",
    "9999-12-31T23:59:59-23:00",
    "2026-01-01T00:00:00+23:59:59.999999",
]
BODIES: list[Any] = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'"text"',
    b"\xff\xfe",
    b'{"a": ' * 5000,
    b'{"from": "amqp091", "message": {"a": ' + b"[" * 400 + b"]" * 400 + b"}}",
    b'{"topic": "a", "headers": {"a": ' + b"[" * 400 + b"]" * 400 + b"}}",
    {"unknown": 1},
    {"condition": "\0"},
    {"condition": "x" * 5000},
    {"condition": 1, "dry_run": "maybe"},
    {"topic": "\0"},
    {"topic": "a" * 70_000},
    {"exchange": "\0", "routing_key": "\0"},
    {"exchange": "", "routing_key": "x" * 70_000},
    {"topic": "a", "headers": {"a": [1, {"b": None}], "c": 1e308}},
    {"topic": "a", "headers": {"\0": "\0"}},
    {"exchange": "amq.headers", "headers": {"big": 2**70}},
    {"from": "mqtt5", "message": {"topic": 1}},
    {"from": "amqp10", "message": {"body": {"value": {"$decimal": "x"}}}},
    {"from": "amqp091", "message": {"properties": {"headers": {"a": 2**64}}}},
    {"from": "sql", "message": {"headers": {"a": {"$binary": "AA=="}}}, "to": ["mqtt5"]},
]


@pytest.fixture(scope="module")
def queue(own_gateway: GatewayProcess) -> str:
    answer(own_gateway.run("queue", "declare", "bad.queue"))
    return "bad.queue"


def _path(route: Route, vhost: str, name: str) -> str:
    """The path of a route, with a virtual host and a name in every other place."""
    path = route.path.replace("{vhost}", quote(vhost, safe=""))
    for place in route.names:
        path = path.replace(f"{{{place}}}", quote(name, safe=""))
    return path


def _require_good_manners(gateway: GatewayProcess, method: str, path: str, body: Any) -> None:
    found = ask(gateway, method, path, body)
    assert found.status < 500, (method, path[:200], found.raw)
    if found.status >= 400:
        assert json.loads(found.raw)["reason"], (method, path[:200])


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_names_that_nobody_has_are_answered(own_gateway: GatewayProcess, route: Route) -> None:
    if route.path.endswith("/events") or not route.names:
        return
    for name in NAMES:
        for vhost in ("/", name):
            _require_good_manners(own_gateway, route.method, _path(route, vhost, name), b"{}")


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_parameters_that_make_no_sense_are_answered(
    own_gateway: GatewayProcess, queue: str, route: Route
) -> None:
    if route.method != "GET" or route.path.endswith("/events"):
        return
    path = _path(route, "/", "0" if "{offset}" in route.path else queue)
    for field in msgspec.structs.fields(route.query):
        for value in VALUES:
            query = f"?{field.encode_name}={quote(value, safe='')}"
            _require_good_manners(own_gateway, "GET", path + query, None)


@pytest.mark.parametrize(
    "route",
    [route for route in ROUTES if route.method == "POST"],
    ids=lambda route: route.path,
)
def test_bodies_that_make_no_sense_are_answered(
    own_gateway: GatewayProcess, queue: str, route: Route
) -> None:
    for body in BODIES:
        _require_good_manners(own_gateway, "POST", _path(route, "/", queue), body)


@pytest.mark.usefixtures("queue")
def test_nothing_of_it_was_taken_for_a_bug(own_gateway: GatewayProcess) -> None:
    assert "a bug:" not in own_gateway.said()
