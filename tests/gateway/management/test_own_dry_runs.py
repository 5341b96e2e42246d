"""Routing and conversion dry runs over our own API, on a running gateway."""

from __future__ import annotations

from typing import Any

import pika
import pytest

from tests.support.gateway_process import GatewayProcess
from tests.support.http_api import ask
from tests.support.operator import answer
from tests.support.own_api import (
    SECRET,
    V1,
    add_user,
    amqp_channel,
    mqtt_client,
    post,
    run_shown,
    subscribed,
)


def test_a_routing_dry_run_tells_who_gets_it_and_why_not_the_others(
    own_gateway: GatewayProcess,
) -> None:
    with amqp_channel(own_gateway) as channel:
        channel.exchange_declare("own.topic", "topic", durable=True)
        channel.exchange_declare("own.headers", "headers", durable=True)
        for name, key in (("own.route.a", "plant.*.temp"), ("own.route.b", "other.#")):
            channel.queue_declare(name, durable=True)
            channel.queue_bind(name, "own.topic", key)
        channel.exchange_bind("own.headers", "own.topic", "plant.#")
        arguments = {"x-match": "all", "region": "eu", "level": 3}
        channel.queue_bind("own.route.b", "own.headers", arguments=arguments)
    body = {"exchange": "own.topic", "routing_key": "plant.7.temp", "headers": {"region": "us"}}
    found = post(own_gateway, "/routing/%2F", body).value
    assert found["verdict"] == "routed"
    assert [(each["queue"], each["outcome"]) for each in found["queues"]] == [
        ("own.route.a", "takes it")
    ]
    topic, headers = found["steps"]
    assert {each["destination"] for each in topic["taken"]} == {"own.route.a", "own.headers"}
    (other,) = topic["passed_over"]
    assert other["why_not"] == "the pattern 'other.#' does not match 'plant.7.temp'"
    assert "'level' is missing" in headers["passed_over"][0]["why_not"]
    assert "'region' has another value" in headers["passed_over"][0]["why_not"]
    body["headers"] = {"region": "eu", "level": 3}
    both = post(own_gateway, "/routing/%2F", body).value
    assert {each["queue"] for each in both["queues"]} == {"own.route.a", "own.route.b"}
    lost = post(own_gateway, "/routing/%2F", {"exchange": "own.topic", "routing_key": "x"}).value
    assert lost["verdict"] == "unroutable"


async def test_the_sql_of_a_routing_dry_run_finds_the_same_queues(
    own_gateway: GatewayProcess,
) -> None:
    with amqp_channel(own_gateway) as channel:
        channel.queue_declare("own.bound", durable=True)
        channel.queue_bind("own.bound", "amq.direct", "own'key")
        channel.queue_bind("own.bound", "amq.headers", "", {"it's": 1})
    for body in (
        {"exchange": "amq.direct", "routing_key": "own'key"},
        {"exchange": "amq.headers", "headers": {"it's": 1}},
        {"exchange": "", "routing_key": "own.bound"},
        {"exchange": "amq.direct", "routing_key": "nobody's"},
    ):
        found = post(own_gateway, "/routing/%2F", body).value
        shown = await run_shown(own_gateway, found["sql"])
        assert {row["queue"] for row in shown} == {each["queue"] for each in found["queues"]}


def test_a_routing_dry_run_knows_permissions_and_limits(own_gateway: GatewayProcess) -> None:
    add_user(own_gateway, "own-device", "management", "--no-permissions")
    grant = ("user", "grant", "own-device", "--configure", "^$", "--read", "^$")
    answer(own_gateway.run(*grant, "--write", "^amq[.]topic$"))
    body = {"topic": "own/x", "user": "own-device"}
    assert post(own_gateway, "/routing/%2F", body).value["publisher"]["may_publish"] is True
    body = {"exchange": "amq.direct", "routing_key": "k", "user": "own-device"}
    refused = post(own_gateway, "/routing/%2F", body).value
    assert refused["verdict"] == "refused"
    assert "no write access" in refused["publisher"]["why_not"]
    login = f"own-device:{SECRET}"
    nosy = post(own_gateway, "/routing/%2F", {**body, "user": "guest"}, login=login)
    assert nosy.error == (401, "not_authorised")
    assert post(own_gateway, "/routing/%2F", {**body, "user": "nobody"}).status == 404
    with amqp_channel(own_gateway) as channel:
        arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
        channel.queue_declare("own.full", durable=True, arguments=arguments)
        channel.basic_publish("", "own.full", b"1", pika.BasicProperties(delivery_mode=2))
    full = post(own_gateway, "/routing/%2F", {"exchange": "", "routing_key": "own.full"}).value
    assert (full["verdict"], full["queues"][0]["outcome"]) == ("refused", "refuses it")


def test_a_routing_dry_run_tells_what_subscribers_lose(own_gateway: GatewayProcess) -> None:
    with mqtt_client(own_gateway, "own-listener", expiry=60) as client:
        subscribed(client, "own/loss/+", qos=1)
        message = {
            "exchange": "amq.topic",
            "routing-key": "own.loss.1",
            "properties": {"priority": 3, "delivery-mode": 2},
        }
        body = {"protocol": "amqp091", "message": message}
        found = post(own_gateway, "/routing/%2F", body).value
        queues = {each["queue"]: each for each in found["queues"]}
        stored = queues["$session/own-listener"]
        assert (stored["client_id"], stored["outcome"]) == ("own-listener", "takes it")
        assert list(stored["losses"]) == ["mqtt5"]
        quiet = post(own_gateway, "/routing/%2F", {"topic": "own/loss/1", "durable": False}).value
        by_name = {each["queue"]: each["outcome"] for each in quiet["queues"]}
        assert by_name["$session/own-listener"] == "leaves it out"
        assert by_name["$live/session/own-listener"] == "takes it"
    assert ask(own_gateway, "DELETE", f"{V1}/sessions/%2F/own-listener").status == 204


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "give a topic"),
        ({"topic": "a/#"}, "wildcard"),
        ({"topic": "a", "exchange": "x"}, "not both"),
        ({"exchange": "own.nowhere"}, "no exchange"),
        ({"topic": "a", "headers": 3}, "headers"),
        ({"topic": "a", "message": {}}, "together"),
        ({"protocol": "mqtt5", "message": {"nonsense": 1}}, "no such key"),
        ({"topic": "a", "more": 1}, "more"),
    ],
)
def test_a_wrong_routing_question_is_refused(
    own_gateway: GatewayProcess, body: Any, said: str
) -> None:
    found = post(own_gateway, "/routing/%2F", body)
    assert found.status in (400, 404)
    assert said in found.value["reason"]


def test_a_conversion_dry_run_names_the_losses(own_gateway: GatewayProcess) -> None:
    message = {
        "topic": "a/b",
        "payload": "21.5",
        "properties": {"content-type": "text/plain", "user-properties": {"unit": "C"}},
    }
    found = post(own_gateway, "/conversion", {"from": "mqtt5", "message": message}).value
    seen = {each["protocol"]: each for each in found["conversions"]}
    assert list(seen) == ["mqtt311", "mqtt5", "amqp091", "amqp10"]
    assert seen["amqp091"]["message"]["routing-key"] == "a.b"
    assert seen["amqp091"]["message"]["properties"]["content-type"] == "text/plain"
    assert "properties.content-type" in seen["mqtt311"]["losses"]
    only = post(own_gateway, "/conversion", {"from": "mqtt5", "message": message, "to": ["sql"]})
    assert [each["protocol"] for each in only.value["conversions"]] == ["sql"]


@pytest.mark.parametrize(
    "body",
    [
        {"message": {}},
        {"from": "smtp", "message": {}},
        {"from": "mqtt5", "message": {"nonsense": 1}},
        {"from": "mqtt5", "message": {"topic": "a/#"}},
        {"from": "mqtt5", "message": {}, "to": ["smtp"]},
        {"from": "amqp10", "message": {"properties": {"message-id": {"$uuid": "x"}}}},
    ],
)
def test_a_wrong_conversion_is_refused(own_gateway: GatewayProcess, body: Any) -> None:
    assert post(own_gateway, "/conversion", body).error == (400, "bad_request")
