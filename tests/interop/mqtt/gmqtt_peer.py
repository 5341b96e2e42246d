"""gmqtt, on a loop of its own."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import gmqtt
from gmqtt.mqtt.handler import MQTTConnectError
from gmqtt.storage import PersistentStorage

from protocols.mqtt.wire.codec import decode
from protocols.mqtt.wire.packets import Disconnect, Publish, Version
from protocols.mqtt.wire.property_set import PropertySet
from tests.interop.mqtt.plans import Answer, Facts, Heard, Message, Plan, Refused
from tests.interop.mqtt.wire import fields_of
from tests.support.names import fresh
from tests.support.until import PATIENCE_SECONDS

NAMES: Final = {
    "payload_format": "payload_format_id",
    "message_expiry": "message_expiry_interval",
    "subscription_identifiers": "subscription_identifier",
    "session_expiry": "session_expiry_interval",
    "assigned_client_id": "assigned_client_identifier",
    "authentication_method": "auth_method",
    "request_problem": "request_problem_info",
    "will_delay": "will_delay_interval",
    "request_response": "request_response_info",
    "response_information": "response_info",
    "maximum_qos": "max_qos",
    "user": "user_property",
    "wildcard_available": "wildcard_subscription_available",
    "identifiers_available": "sub_id_available",
    "shared_available": "shared_subscription_available",
}
OURS: Final = {name: field for field, name in NAMES.items()}
SEVERAL: Final = ("user", "subscription_identifiers")
NO_RETRIES: Final = -2  # 0 is one more, and -1 is without end
DISCONNECT: Final = 0xE0
T = TypeVar("T")


def written(properties: PropertySet) -> dict[str, Any]:
    said = {}
    for field in fields_of(properties):
        value = getattr(properties, field)
        if field == "subscription_identifiers":
            value = value[0]
        said[NAMES.get(field, field)] = list(value) if field == "user" else value
    return said


def read(properties: dict[str, Any]) -> Facts:
    facts: Facts = {}
    for name, values in properties.items():
        if isinstance(values, list):
            field = OURS.get(name, name)
            facts[field] = tuple(values) if field in SEVERAL else values[0]
    return facts


class GmqttSeat:
    def __init__(self, loop: Loop, port: int, plan: Plan) -> None:
        self.heard = Heard()
        self._loop = loop
        self._messages: queue.Queue[Message] = queue.Queue()
        self._ends: queue.Queue[Answer] = queue.Queue()
        self._plan = plan
        loop.run(self._start(port, plan))

    async def _start(self, port: int, plan: Plan) -> None:
        self._subscribed: asyncio.Queue[Answer] = asyncio.Queue()
        self._unsubscribed: asyncio.Queue[Answer] = asyncio.Queue()
        will = plan.will
        self._storage = PersistentStorage()
        client = self._client = gmqtt.Client(
            plan.client_id or fresh("gmqtt"),
            clean_session=plan.is_clean,
            persistent_storage=self._storage,
            will_message=will
            and gmqtt.Message(
                will.topic,
                will.payload,
                qos=will.qos,
                retain=will.retain,
                **written(will.properties),
            ),
            **written(plan.connect),
        )
        client.set_config({"reconnect_retries": NO_RETRIES})
        client.on_connect = self._on_connect
        client.on_message = self._on_message
        client.on_disconnect = self._on_disconnect
        client.on_subscribe = self._on_subscribe
        client.on_unsubscribe = self._on_unsubscribe
        if plan.password is not None:
            client.set_auth_credentials("guest", plan.password)
        try:
            await client.connect(
                "127.0.0.1", port, keepalive=plan.keep_alive, version=int(plan.version)
            )
        except MQTTConnectError as error:
            raise Refused(error._code, {}) from error
        if plan.filters and not plan.resumes:
            for topic_filter in plan.filters:
                client.subscribe(topic_filter, plan.qos, **written(plan.subscribe))
                self.heard.suback = await self._subscribed.get()
        if plan.unsubscribe_from:
            client.unsubscribe(plan.unsubscribe_from, **written(plan.unsubscribe))
            self.heard.unsuback = await self._unsubscribed.get()

    def _on_connect(self, client: Any, flags: int, rc: int, properties: dict[str, Any]) -> None:
        self.heard.is_resumed = bool(flags & 1)
        self.heard.connack = read(properties)  # what it said itself it shows again, but as no list
        if client.session_expiry_interval != (self._plan.connect.session_expiry or 0):
            self.heard.connack["session_expiry"] = client.session_expiry_interval

    def _on_message(
        self, client: Any, topic: str, payload: bytes, qos: int, properties: dict[str, Any]
    ) -> int:
        retain = bool(properties["retain"])
        self._messages.put(Message(topic, payload, qos, retain, read(properties)))
        return 0

    def _on_disconnect(self, client: Any, packet: bytes, exc: object = None) -> None:
        """gmqtt shows the gateway's packet as the bytes that came; none: the connection is over."""
        if packet:
            said = decode(DISCONNECT, bytes(packet), Version.V5)
            assert isinstance(said, Disconnect)
            fields = fields_of(said.properties)
            facts: Facts = {field: getattr(said.properties, field) for field in fields}
            self._ends.put(Answer(said.reason, facts))

    def _on_subscribe(self, client: Any, mid: int, reasons: Any, properties: Any) -> None:
        self._subscribed.put_nowait(Answer(reasons[0], read(properties)))

    def _on_unsubscribe(self, client: Any, mid: int, reasons: Any) -> None:
        self._unsubscribed.put_nowait(Answer(reasons[0] if reasons else 0))

    def message(self) -> Message:
        return self._messages.get(timeout=PATIENCE_SECONDS)

    def ended(self) -> Answer:
        return self._ends.get(timeout=PATIENCE_SECONDS)

    async def publish(self, messages: tuple[Publish, ...]) -> None:
        for each in messages:
            self._client.publish(
                each.topic,
                each.payload,
                qos=each.qos,
                retain=each.retain,
                **written(each.properties),
            )
            await self._storage.wait_empty()

    def leave(self) -> None:
        self._loop.run(self._client.disconnect(**written(self._plan.disconnect)))

    def lose(self) -> None:
        self._loop.run(self._lose())

    async def _lose(self) -> None:
        self._client._connection._transport.abort()


class Loop:
    """A thread that runs coroutines."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(
            asyncio.wait_for(work, PATIENCE_SECONDS), self._loop
        )
        return future.result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class GmqttPeer:
    def __init__(self) -> None:
        self._loop = Loop()

    def listen(self, port: int, transport: str, plan: Plan) -> GmqttSeat:
        return GmqttSeat(self._loop, port, plan)

    def publish(
        self, port: int, transport: str, plan: Plan, messages: tuple[Publish, ...]
    ) -> list[Answer]:
        """Says nothing about the answers: gmqtt keeps them to itself."""
        seat = self.listen(port, transport, plan)
        self._loop.run(seat.publish(messages))
        seat.leave()
        return []

    def close(self) -> None:
        self._loop.close()
