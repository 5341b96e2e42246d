"""Clients of all protocols, of independent libraries, for tests of what the API says of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import paho.mqtt.client as paho
import pika
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.support.gateway_process import GatewayProcess
from tests.support.until import PATIENCE_SECONDS


@contextmanager
def amqp091(gateway: GatewayProcess, name: str = "") -> Iterator[Any]:
    """A blocking connection of pika, which names itself."""
    parameters = pika.ConnectionParameters(
        "127.0.0.1",
        gateway.ports["amqp"],
        client_properties={"connection_name": name} if name else None,
        heartbeat=60,
    )
    connection = pika.BlockingConnection(parameters)
    try:
        yield connection
    finally:
        if connection.is_open:
            connection.close()


class MqttClient:
    """A paho client with a thread of its own; `reason` is how its connection ended."""

    def __init__(self, gateway: GatewayProcess, name: str, version: MQTTProtocolVersion) -> None:
        self.client = paho.Client(CallbackAPIVersion.VERSION2, name, protocol=version)
        self._connected, self._ended = threading.Event(), threading.Event()
        self._subscribed = threading.Event()
        self.reason = ""
        self.client.reconnect_delay_set(60, 60)
        self.client.on_connect = lambda *_: self._connected.set()
        self.client.on_subscribe = lambda *_: self._subscribed.set()
        self.client.on_disconnect = self._on_disconnect
        self.client.connect("127.0.0.1", gateway.ports["mqtt"])
        self.client.loop_start()
        assert self._connected.wait(PATIENCE_SECONDS)

    def _on_disconnect(self, _c: Any, _u: Any, _f: Any, reason: Any, _p: Any) -> None:
        self.reason = str(reason)
        self._ended.set()

    def subscribe(self, topic: str, qos: int = 1) -> None:
        self.client.subscribe(topic, qos)
        assert self._subscribed.wait(PATIENCE_SECONDS)

    def publish(self, topic: str, count: int = 1, qos: int = 1) -> None:
        for _ in range(count):
            self.client.publish(topic, b"x", qos).wait_for_publish(PATIENCE_SECONDS)

    def ended(self) -> str:
        """Waits for the end of the connection, and tells its reason."""
        assert self._ended.wait(PATIENCE_SECONDS)
        return self.reason

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@contextmanager
def mqtt(
    gateway: GatewayProcess, name: str, version: MQTTProtocolVersion = paho.MQTTv5
) -> Iterator[MqttClient]:
    client = MqttClient(gateway, name, version)
    try:
        yield client
    finally:
        client.close()
