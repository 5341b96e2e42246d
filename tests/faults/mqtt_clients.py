"""MQTT clients of fault tests, on paho: sessions that last, and a library that sends again.

paho runs in a thread of its own and connects again by itself; what it sees is noted on the event
loop, in the order in which it saw it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any, Final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MessageState, MQTTErrorCode

from tests.faults.actors import Actor
from tests.faults.history import Confirmed, Delivered, Ended, Event, History, Name, Sent

HOST: Final = "127.0.0.1"
LAST_SECONDS: Final = 8


class Paho(paho.Client):
    """paho 2.2 forgets that it released a QoS 2 message when it has to knock twice before it is let
    in, and publishes it again, which [MQTT-4.3.3-1] forbids and no broker could make good. And it
    knows one port: this one asks for the next before each connection."""

    def __init__(self, name: str, port: Callable[[], int]) -> None:
        super().__init__(
            CallbackAPIVersion.VERSION2, name, clean_session=False, protocol=paho.MQTTv311
        )
        self._next_port = port

    def reconnect(self) -> MQTTErrorCode:
        self._port = self._next_port()
        return super().reconnect()

    def _messages_reconnect_reset_out(self) -> None:
        for message in self._out_messages.values():
            if message.state == MessageState.MQTT_MS_RESEND_PUBREL:
                message.state = MessageState.MQTT_MS_WAIT_FOR_PUBCOMP
        super()._messages_reconnect_reset_out()


class MqttActor(Actor):
    """One session, whatever becomes of its connections."""

    def __init__(self, history: History, name: str, port: Callable[[], int], qos: int) -> None:
        super().__init__(history, name)
        self.qos = qos
        self.connections = 0
        self._port = port
        self._connected_port = 0
        self._stopping = asyncio.Event()
        self._is_connected = asyncio.Event()
        self._client = Paho(name, port)
        self._client.reconnect_delay_set(1, 1)
        self._client.on_connect = self._call_connect
        self._client.on_disconnect = self._call_disconnect

    def ask_to_stop(self) -> None:
        super().ask_to_stop()
        self._stopping.set()

    async def live(self, connection: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._client.connect_async(HOST, self._port(), keepalive=60)
        self._client.loop_start()
        try:
            await self.work()
        finally:
            self._client.disconnect()
            await asyncio.to_thread(self._client.loop_stop)

    async def work(self) -> None:
        await self._stopping.wait()

    @property
    def connection(self) -> str:
        return f"{self.name}#{self.connections}@{self._connected_port}"

    # --- paho's thread

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)

    def _call_connect(self, client: Any, data: Any, flags: Any, reason: Any, props: Any) -> None:
        if not reason.is_failure:
            self._call(self.on_connect, client.port)

    def _call_disconnect(
        self, client: Any, data: Any, flags: Any, reason: Any, properties: Any
    ) -> None:
        self._call(self.on_disconnect)

    # --- the event loop's

    def on_connect(self, port: int) -> None:
        self.connections += 1
        self._connected_port = port
        self._is_connected.set()

    def on_disconnect(self) -> None:
        self._is_connected.clear()

    def note(self, event: Event) -> None:
        self.history.add(event)


class MqttPublisher(MqttActor):
    """Publishes to a topic that leads to a queue. paho sends again what was not acknowledged."""

    def __init__(
        self,
        history: History,
        name: str,
        port: Callable[[], int],
        qos: int,
        *,
        queue: str,
        topic: str | None = None,
        window: int = 20,
    ) -> None:
        super().__init__(history, name, port, qos)
        self._queue = queue
        self._topic = topic or queue
        self._numbers = count(1)
        self._open: dict[int, Name] = {}  # by packet id
        self._room = asyncio.Semaphore(window)
        self._client.max_inflight_messages_set(window)
        self._client.on_publish = self._call_publish

    async def work(self) -> None:
        await self._is_connected.wait()
        while not self.is_stopping:
            await self._room.acquire()
            name = Name(self._queue, self.name, next(self._numbers))
            self.note(Sent(name, is_once=self.qos == 2))
            info = self._client.publish(self._topic, name.encode(100), self.qos)
            self._open[info.mid] = name
        while self._open:
            await asyncio.wait_for(self._room.acquire(), LAST_SECONDS)

    def _call_publish(self, client: Any, data: Any, mid: int, reason: Any, props: Any) -> None:
        self._call(self._on_publish, mid)

    def _on_publish(self, mid: int) -> None:
        self.note(Confirmed(self._open.pop(mid)))
        self._room.release()

    def on_disconnect(self) -> None:
        super().on_disconnect()
        for name in self._open.values():
            self.note(Sent(name, is_once=self.qos == 2))  # again, when it is back


class MqttSubscriber(MqttActor):
    """Subscribes with a session that outlasts its connections. With QoS 2 each message comes once,
    with QoS 1 perhaps again, and then flagged as a duplicate."""

    def __init__(
        self, history: History, name: str, port: Callable[[], int], qos: int, *, topic: str
    ) -> None:
        super().__init__(history, name, port, qos)
        self._topic = topic
        self.is_subscribed = asyncio.Event()
        self._client.on_message = self._call_message
        self._client.on_subscribe = lambda *_: self._call(self.is_subscribed.set)

    def on_connect(self, port: int) -> None:
        super().on_connect(port)
        if not self.is_subscribed.is_set():
            self._client.subscribe(self._topic, self.qos)

    def on_disconnect(self) -> None:
        super().on_disconnect()
        self.note(Ended(self.connection))

    def _call_message(self, client: Any, data: Any, message: paho.MQTTMessage) -> None:
        self._call(self._on_message, message.payload, message.qos, message.dup)

    def _on_message(self, payload: bytes, qos: int, is_duplicate: bool) -> None:
        assert qos == self.qos
        is_once = qos == 2
        flag = None if is_once else is_duplicate
        self.note(Delivered(Name.decode(payload), self.connection, flag, is_once))
