"""Ready, delayed and in flight are told apart wherever a gateway counts: on the wire, in metrics,
over HTTP, in commands and in SQL, and after a crash as before it."""

from __future__ import annotations

import json

import asyncpg
import pika
import pytest

from tests.interop.amqp091_pika import connections
from tests.support.gateway_process import GatewayProcess
from tests.support.operator import answer, get
from tests.support.until import wait_until

HOUR = 3_600_000  # ms
COUNTED = ("ready", "delayed", "in_flight")
LISTED = ("messages_ready", "messages_delayed", "messages_unacknowledged")


def over_http(gateway: GatewayProcess, queue: str) -> tuple[int, ...]:
    found = {each["name"]: each for each in json.loads(get(gateway, "/api/queues")[1])}
    return tuple(found[queue][name] for name in LISTED)


def in_metrics(gateway: GatewayProcess, queue: str) -> tuple[int, ...]:
    lines = get(gateway, "/metrics")[1].splitlines()
    values = []
    for name in COUNTED:
        (line,) = [x for x in lines if x.startswith(f"howdah_queue_{name}{{") and f'"{queue}"' in x]
        values.append(int(float(line.rpartition(" ")[2])))
    return tuple(values)


def by_command(gateway: GatewayProcess, queue: str) -> tuple[int, ...]:
    status = json.loads(answer(gateway.run("queue", "show", queue, "--json")))["status"]
    return tuple(status[name] for name in COUNTED)


async def in_sql(gateway: GatewayProcess, queue: str) -> tuple[int, ...]:
    connection = await asyncpg.connect(gateway.database_url)
    try:
        row = await connection.fetchrow(
            "SELECT ready, delayed, in_flight FROM howdah.queue_status WHERE queue = $1", queue
        )
    finally:
        await connection.close()
    assert row is not None
    return tuple(row)


@pytest.mark.parametrize("has_crashed", [False, True])
async def test_a_delayed_message_is_counted_as_such_by_everybody(
    gateway: GatewayProcess, has_crashed: bool
) -> None:
    with connections(gateway.amqp_url()) as connect:
        channel = connect().channel()
        channel.confirm_delivery()
        arguments = {"x-delayed-type": "direct"}
        channel.exchange_declare("late", "x-delayed-message", durable=True, arguments=arguments)
        channel.queue_declare("orders", durable=True)
        channel.queue_bind("orders", "late", "orders")
        late = pika.BasicProperties(delivery_mode=2, headers={"x-delay": HOUR})
        for exchange in ("late", ""):  # the header alone delays, too
            channel.basic_publish(exchange, "orders", b"late", late)
        for _ in range(3):
            channel.basic_publish("", "orders", b"now", pika.BasicProperties(delivery_mode=2))
    if has_crashed:
        gateway.kill()
        gateway.start()
    with connections(gateway.amqp_url()) as connect:
        channel = connect().channel()
        assert channel.queue_declare("orders", passive=True).method.message_count == 3
        method, _, body = channel.basic_get("orders")
        assert (body, method.message_count) == (b"now", 2)
        assert over_http(gateway, "orders") == in_metrics(gateway, "orders") == (2, 2, 1)
        wait_until(lambda: by_command(gateway, "orders") == (2, 2, 1))  # noted once a second
        assert await in_sql(gateway, "orders") == (2, 2, 1)
        assert channel.queue_purge("orders").method.message_count == 4
        assert over_http(gateway, "orders") == (0, 0, 1)
