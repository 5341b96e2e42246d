"""A queue's worth of traffic for tests of our own API, by clients that are not ours, and the SQL of
an answer run by a DBA."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import asyncpg
import paho.mqtt.client as paho
import pika
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.gateway_process import GatewayProcess
from tests.support.http_api import HttpAnswer, ask
from tests.support.operator import answer
from tests.support.until import PATIENCE_SECONDS

V1 = "/api/howdah/v1"
SECRET = "secret word"


def get(gateway: GatewayProcess, path: str, **options: Any) -> HttpAnswer:
    return ask(gateway, "GET", V1 + path, **options)


def post(gateway: GatewayProcess, path: str, body: Any, **options: Any) -> HttpAnswer:
    return ask(gateway, "POST", V1 + path, body, **options)


async def run_shown(gateway: GatewayProcess, sql: str) -> list[dict[str, Any]]:
    """Runs the SQL of an answer as the DBA does."""
    connection = await asyncpg.connect(gateway.database_url)
    try:
        return [dict(row) for row in await connection.fetch(sql)]
    finally:
        await connection.close()


@contextmanager
def amqp_channel(gateway: GatewayProcess) -> Iterator[BlockingChannel]:
    """A channel of pika with confirms."""
    connection = pika.BlockingConnection(pika.URLParameters(gateway.amqp_url()))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel
    finally:
        connection.close()


@contextmanager
def mqtt_client(
    gateway: GatewayProcess, client_id: str, *, expiry: int = 0
) -> Iterator[paho.Client]:
    """A connected client of paho that speaks MQTT 5."""
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=paho.MQTTv5)
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # paho's
    properties.SessionExpiryInterval = expiry
    connected = threading.Event()
    client.on_connect = lambda *_: connected.set()
    client.connect(
        "127.0.0.1", gateway.ports["mqtt"], clean_start=not expiry, properties=properties
    )
    client.loop_start()
    try:
        assert connected.wait(PATIENCE_SECONDS)
        yield client
    finally:
        client.disconnect()
        client.loop_stop()


def subscribed(client: paho.Client, topic_filter: str, qos: int = 1) -> None:
    """Subscribes, and returns when the gateway has said yes."""
    answered = threading.Event()
    client.on_subscribe = lambda *_: answered.set()
    client.subscribe(topic_filter, qos)
    assert answered.wait(PATIENCE_SECONDS)


def published(client: paho.Client, topic: str, payload: bytes, **options: Any) -> None:
    """Publishes with QoS 1, and returns when it is committed."""
    client.publish(topic, payload, qos=1, **options).wait_for_publish(PATIENCE_SECONDS)


def messages(gateway: GatewayProcess, queue: str, **query: Any) -> Any:
    """Browses a queue of virtual host /."""
    text = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in query.items())
    found = get(gateway, f"/queues/%2F/{quote(queue, safe='')}/messages?{text}")
    assert found.status == 200, found.raw
    return found.value


def add_user(gateway: GatewayProcess, name: str, tag: str, *options: str) -> str:
    """Adds a user, and returns its login."""
    answer(gateway.run("user", "add", name, "--tag", tag, *options, words=f"{SECRET}\n"))
    return f"{name}:{SECRET}"
