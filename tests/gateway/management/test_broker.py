"""The broker as a whole over HTTP: overview, versions, logins, and lists that are empty here."""

from __future__ import annotations

import asyncio
from typing import Any

import aio_pika
import aio_pika.abc
import pytest

from tests.support.gateway_process import GatewayProcess
from tests.support.http_api import HttpAnswer, ask
from tests.support.operator import answer
from tests.support.until import wait_until

# The fields, with their types, that RabbitMQ's strictest client does not do without.
OVERVIEW = {
    "cluster_name": str,
    "node": str,
    "erlang_full_version": str,
    "erlang_version": str,
    "rabbitmq_version": str,
    "management_version": str,
    "product_name": str,
    "product_version": str,
    "statistics_db_event_queue": int,
    "churn_rates": dict,
    "queue_totals": dict,
    "object_totals": dict,
    "message_stats": dict,
    "listeners": list,
}
COUNTED = ("connections", "channels", "queues", "consumers")
CHURN = (
    "connection_created",
    "connection_closed",
    "queue_declared",
    "queue_created",
    "queue_deleted",
    "channel_created",
    "channel_closed",
)


def overview(gateway: GatewayProcess, query: str = "", login: str = "guest:guest") -> Any:
    found: HttpAnswer = ask(gateway, "GET", f"/api/overview{query}", login=login)
    assert found.status == 200, found.raw
    return found.value


def test_the_overview_has_what_clients_need(own_gateway: GatewayProcess) -> None:
    found = overview(own_gateway)
    assert {name: type(found[name]) for name in OVERVIEW} == OVERVIEW
    assert all(type(found["churn_rates"][name]) is int for name in CHURN)
    assert type(found["queue_totals"]["messages"]) is int
    assert type(found["queue_totals"]["messages_details"]["rate"]) is float
    names = {"connections", "channels", "queues", "exchanges", "consumers"}
    assert found["object_totals"].keys() == names
    ports = {each["protocol"]: each["port"] for each in found["listeners"]}
    assert ports["amqp"] == own_gateway.ports["amqp"]
    assert all({"node", "protocol", "port", "ip_address"} <= set(x) for x in found["listeners"])


async def ignore(_message: aio_pika.abc.AbstractIncomingMessage) -> None:
    """Takes a message."""


async def test_the_overview_counts_objects(own_gateway: GatewayProcess) -> None:
    before = overview(own_gateway)["object_totals"]
    async with await aio_pika.connect(own_gateway.amqp_url()) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("overview.counted", exclusive=True)
        await queue.consume(ignore)
        wanted = {name: before[name] + 1 for name in COUNTED}

        def is_counted() -> bool:
            found = overview(own_gateway)["object_totals"]
            return {name: found[name] for name in COUNTED} == wanted

        await asyncio.to_thread(wait_until, is_counted)  # consumers are sampled


def test_the_overview_counts_messages(own_gateway: GatewayProcess) -> None:
    before = overview(own_gateway)["message_stats"]["publish"]
    answer(own_gateway.run("queue", "declare", "overview.messages"))
    answer(own_gateway.run("publish", "--queue", "overview.messages", "x"))

    def is_counted() -> bool:
        found = overview(own_gateway)
        totals = found["queue_totals"]
        return bool(found["message_stats"]["publish"] > before and totals["messages_ready"] >= 1)

    wait_until(is_counted)


def test_columns_of_the_overview_are_chosen_by_path(own_gateway: GatewayProcess) -> None:
    found = overview(own_gateway, "?columns=rabbitmq_version,queue_totals.messages")
    assert found.keys() == {"rabbitmq_version", "queue_totals"}
    assert found["queue_totals"].keys() == {"messages"}


def test_who_does_not_monitor_sees_what_is_its_own(own_gateway: GatewayProcess) -> None:
    words = "a long word\n"
    tags = ("--tag", "management", "--no-permissions")
    answer(own_gateway.run("user", "add", "overview-own", *tags, words=words))
    answer(own_gateway.run("vhost", "add", "overview-own"))
    answer(own_gateway.run("user", "grant", "overview-own", "--vhost", "overview-own"))
    answer(own_gateway.run("queue", "declare", "a", "--vhost", "overview-own"))
    found = overview(own_gateway, login="overview-own:a long word")
    assert {name: type(found[name]) for name in OVERVIEW} == OVERVIEW
    assert found["object_totals"]["queues"] == 1
    assert found["queue_totals"]["messages"] == 0
    assert found["listeners"] == []


def test_the_version_and_the_name_are_told(own_gateway: GatewayProcess) -> None:
    version = ask(own_gateway, "GET", "/api/version").value
    assert version == overview(own_gateway)["rabbitmq_version"]
    name = ask(own_gateway, "GET", "/api/cluster-name").value["name"]
    assert name == overview(own_gateway)["cluster_name"]


@pytest.mark.parametrize(
    "path", ["extensions", "feature-flags", "deprecated-features", "deprecated-features/used"]
)
def test_lists_that_are_empty_here(own_gateway: GatewayProcess, path: str) -> None:
    assert ask(own_gateway, "GET", f"/api/{path}").value == []
    assert ask(own_gateway, "GET", f"/api/{path}/").value == []


def test_logins_are_counted_by_protocol(own_gateway: GatewayProcess) -> None:
    node = overview(own_gateway)["node"]

    def attempts() -> Any:
        rows = ask(own_gateway, "GET", f"/api/auth/attempts/{node}").value
        return {each["protocol"]: each for each in rows}

    before = attempts()["http"]
    ask(own_gateway, "GET", "/api/whoami", login="nobody:x")
    after = attempts()["http"]
    assert after["auth_attempts_failed"] == before["auth_attempts_failed"] + 1
    assert after["auth_attempts_succeeded"] == before["auth_attempts_succeeded"] + 1
    assert {"amqp091", "amqp10", "mqtt"} <= attempts().keys()
