"""Consumers of every protocol, as a DBA and the command line see them: who consumes what, with
which prefetch and arguments, and what each has in its hands."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import gmqtt
import pika
from proton import reactor

from tests.interop.amqp091_pika import connections, take
from tests.support.amqp10_client import Connections
from tests.support.gateway_process import GatewayProcess
from tests.support.names import fresh
from tests.support.operator import answer
from tests.support.postgres import fetch_value
from tests.support.until import PATIENCE_SECONDS, wait_until


def shown(gateway: GatewayProcess, queue: str) -> list[dict[str, Any]]:
    found = json.loads(answer(gateway.run("queue", "consumers", queue, "--json")))
    assert isinstance(found, list)
    return found


def await_held(gateway: GatewayProcess, queue: str, count: int) -> None:
    query = f"SELECT count(*) FROM howdah.in_flight WHERE queue = '{queue}'"
    wait_until(lambda: fetch_value(gateway.database_url, query) == count)


def declare_and_fill(gateway: GatewayProcess, queue: str, count: int) -> None:
    with connections(gateway.amqp_url()) as connect:
        channel = connect().channel()
        channel.queue_declare(queue, durable=True)
        channel.confirm_delivery()
        for number in range(count):
            properties = pika.BasicProperties(delivery_mode=2)
            channel.basic_publish("", queue, b"%d" % number, properties)


def test_a_consumer_of_amqp_091_is_shown_with_its_arguments(shared_gateway: GatewayProcess) -> None:
    queue = fresh("watched")
    declare_and_fill(shared_gateway, queue, 3)
    url = shared_gateway.amqp_url()
    parameters = pika.URLParameters(url)
    parameters.client_properties = {"connection_name": "billing"}
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.basic_qos(prefetch_count=2)
    arguments = {"x-priority": 3, "x-from-a-framework": "kept"}
    found = take(channel, queue, 2, arguments=arguments)
    await_held(shared_gateway, queue, 2)
    (consumer,) = shown(shared_gateway, queue)
    expected = {
        "protocol": "AMQP 0.9.1",
        "user_name": "guest",
        "client": "billing",
        "prefetch": 2,
        "in_flight": 2,
        "state": "active",
        "priority": 3,
        "arguments": arguments,
    }
    assert {name: consumer[name] for name in expected} == expected
    assert consumer["address"].startswith("127.0.0.1:")
    text = answer(shared_gateway.run("queue", "consumers", queue))
    assert '{"x-priority": 3, "x-from-a-framework": "kept"}' in text
    held = answer(shared_gateway.run("queue", "in-flight", queue, "-n", "1"))
    assert held.splitlines()[1].split()[0] == "0"
    assert held.splitlines()[-1] == "and 1 more"
    channel.basic_ack(found[1][0].delivery_tag, multiple=True)
    await_held(shared_gateway, queue, 1)
    connection.close()
    await_held(shared_gateway, queue, 0)
    assert shown(shared_gateway, queue) == []


def test_a_message_taken_by_basic_get_is_in_somebodys_hands(
    shared_gateway: GatewayProcess,
) -> None:
    queue = fresh("got")
    declare_and_fill(shared_gateway, queue, 1)
    with connections(shared_gateway.amqp_url()) as connect:
        channel = connect().channel()
        channel.basic_get(queue)
        await_held(shared_gateway, queue, 1)
        (consumer,) = shown(shared_gateway, queue)
        assert (consumer["user_name"], consumer["state"]) == ("guest", "cancelled")


def test_a_receiver_of_amqp_10_is_shown_with_its_credit_and_filter(
    shared_gateway: GatewayProcess, connect: Connections
) -> None:
    queue = fresh("received")
    declare_and_fill(shared_gateway, queue, 2)
    connection = connect.named("container-7")
    selector = "region IS NULL"
    receiver = connection.create_receiver(
        f"/queues/{queue}", credit=5, name="link-1", options=reactor.Selector(selector)
    )
    receiver.receive(timeout=PATIENCE_SECONDS)
    await_held(shared_gateway, queue, 2)
    (consumer,) = shown(shared_gateway, queue)
    assert (consumer["protocol"], consumer["tag"], consumer["client"]) == (
        "AMQP 1.0",
        "link-1",
        "container-7",
    )
    assert (consumer["prefetch"], consumer["in_flight"]) == (None, 2)
    assert consumer["credit"] > 0
    assert consumer["arguments"] == {"apache.org:selector-filter:string": selector}


async def test_a_session_and_a_queue_subscriber_of_mqtt_are_shown(
    shared_gateway: GatewayProcess,
) -> None:
    queue, name = fresh("device-work"), fresh("device")
    declare_and_fill(shared_gateway, queue, 1)
    client = gmqtt.Client(name, clean_session=True, receive_maximum=7)
    client.on_message = lambda *_: 0x10
    await client.connect("127.0.0.1", shared_gateway.ports["mqtt"], version=5)
    client.subscribe(f"$queue/{queue}", qos=1, user_property=[("ack", "manual")])
    connection = await asyncpg.connect(shared_gateway.database_url)
    try:
        query = "SELECT * FROM howdah.consumer_status WHERE queue = $1 AND in_flight = 1"
        row = None
        while row is None:
            row = await connection.fetchrow(query, queue)
    finally:
        await connection.close()
        await client.disconnect()
    assert (row["protocol"], row["client"], row["tag"]) == ("MQTT 5.0", name, f"$queue/{queue}")
    assert (row["prefetch"], row["arguments"]) == (7, '{"ack": "manual"}')
