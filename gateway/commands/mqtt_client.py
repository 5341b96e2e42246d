"""A small MQTT 5 client for trying things, against the gateway's own listener.

Answers for connecting, subscribing and publishing with errors that a person can act on. It must not
know what the command line looks like or how messages are shown.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import uuid
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from gmqtt import Client, Message, Subscription
from gmqtt.mqtt.handler import MQTTConnectError

from gateway.commands.command import CommandError
from gateway.config.keys import Config

T = TypeVar("T")

ANSWER_SECONDS: Final = 10.0
PASSWORD_VARIABLE: Final = "HOWDAH_PASSWORD"
REFUSED: Final = 0x80
NO_MATCHING_SUBSCRIBERS: Final = 0x10
EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


@dataclass(frozen=True, slots=True)
class Received:
    topic: str
    payload: bytes
    qos: int
    properties: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """The address of an MQTT listener, and the login to use there."""

    host: str
    port: int
    context: ssl.SSLContext | None = None
    username: str | None = None
    password: str | None = None


def target_of(config: Config, host: str | None, port: int | None, username: str | None) -> Target:
    """Takes the listener's address from the configuration, where the command line says nothing
    else."""
    listener = config.listeners.mqtt
    if listener is None and port is None:
        raise CommandError("listeners.mqtt is switched off: give --port of another MQTT listener")
    if port is None and listener is not None and listener.port == 0:
        raise CommandError(
            "listeners.mqtt.port is 0, any free one: give --port as the gateway printed it"
        )
    own_host = listener.host if listener is not None else "127.0.0.1"
    is_same = listener is not None and (port is None or listener.port in (0, port))
    tls = listener.tls if listener is not None and is_same else None
    return Target(
        host or EVERYWHERE.get(own_host, own_host),
        port if port is not None else listener.port if listener is not None else 0,
        None if tls is None else _trusting(tls.cert),
        username,
        os.environ.get(PASSWORD_VARIABLE) if username is not None else None,
    )


def _trusting(certificate: Path) -> ssl.SSLContext:
    """Trusts one certificate, the gateway's own file: that is the strictest check, and makes the
    name in it irrelevant."""
    context = ssl.create_default_context(cafile=certificate)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False
    return context


class MqttClient:
    """An MQTT client that is connected until the block of `connected_to` ends."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._messages: asyncio.Queue[tuple[Received, asyncio.Event] | None] = asyncio.Queue()
        self._granted: asyncio.Future[tuple[int, ...]] | None = None
        self._acks: asyncio.Queue[int] = asyncio.Queue()
        self._end: str | None = None  # why the gateway ended the connection
        self._wanted: int | None = None
        client.on_message = self._on_message
        client.on_subscribe = self._on_subscribe
        client.on_disconnect = self._on_disconnect
        handler = client._package_handler
        settle = handler._handle_puback_packet

        def on_puback(header: int, packet: bytes) -> None:
            # gmqtt does not look at the reason; a refusal must not be taken for success.
            self._acks.put_nowait(packet[2] if len(packet) > 2 else 0)
            settle(header, packet)

        handler._handle_puback_packet = on_puback
        handler._reconnect_callback = _stay_away

    # --- receiving

    async def subscribe(
        self, filters: list[str], qos: int, wanted: int | None, properties: Mapping[str, str]
    ) -> None:
        self._granted = asyncio.get_running_loop().create_future()
        self._wanted = wanted
        extra = {"user_property": list(properties.items())} if properties else {}
        self._client.subscribe([Subscription(name, qos=qos) for name in filters], **extra)
        codes = await _answered(self._granted, "subscription")
        refused = [
            f"'{name}' (0x{code:02X})"
            for name, code in zip(filters, codes, strict=False)
            if code >= REFUSED
        ]
        if refused:
            raise CommandError(
                f"the gateway refused to subscribe to {', '.join(refused)}: see that the filter is "
                "valid, the queue exists and the user may read it; its log says why"
            )

    async def messages(self) -> AsyncIterator[Received]:
        """Yields messages as they come; each is acknowledged when the next is asked for."""
        while (got := await self._messages.get()) is not None:
            message, is_taken = got
            yield message
            is_taken.set()
            if self._wanted is not None:
                self._wanted -= 1
                if self._wanted <= 0:
                    await _turns_until_acknowledged()
                    return
        raise CommandError(f"the gateway closed the connection: {self._end}")

    async def _on_message(
        self, _client: Client, topic: str, payload: bytes, qos: int, properties: dict[str, Any]
    ) -> int:
        """Queues one message. gmqtt acknowledges it when this returns: a message beyond the number
        wanted is not acknowledged, and stays in the queue."""
        is_taken = asyncio.Event()
        if self._wanted is None or self._messages.qsize() < self._wanted:
            self._messages.put_nowait((Received(topic, payload, qos, properties), is_taken))
        await is_taken.wait()
        return 0

    def _on_subscribe(
        self, _client: Client, _mid: int, codes: tuple[int, ...], _properties: object
    ) -> None:
        if self._granted is not None and not self._granted.done():
            self._granted.set_result(codes)

    def _on_disconnect(self, client: Client, packet: object, _error: object = None) -> None:
        self._end = self._end or _goodbye(client, packet)
        self._messages.put_nowait(None)
        self._acks.put_nowait(REFUSED)

    # --- publishing

    async def publish(
        self, topic: str, body: bytes, qos: int, retain: bool, **properties: object
    ) -> bool:
        """Publishes a message, and returns when the gateway has it, as far as the QoS promises;
        False if it said that nobody subscribes."""
        given = {name: value for name, value in properties.items() if value is not None}
        self._client.publish(Message(topic, body, qos=qos, retain=retain, **given))
        if qos == 0:
            return True
        code = await _answered(self._acks.get(), f"message to '{topic}'")
        if self._end is not None:
            raise CommandError(
                f"the gateway closed the connection at the message to '{topic}': {self._end}"
            )
        if code >= REFUSED:
            raise CommandError(
                f"the gateway refused the message to '{topic}' (0x{code:02X}): see its log"
            )
        return code != NO_MATCHING_SUBSCRIBERS


async def _stay_away(delay: bool = False) -> None:
    """Replaces gmqtt's reconnect: a command ends with its connection."""


def _goodbye(client: Client, packet: object) -> str:
    """Returns the reason in a DISCONNECT packet, where one came."""
    if not isinstance(packet, bytes) or not packet:
        return "see its log for the reason"
    said, _ = client._package_handler._parse_properties(packet[1:]) if packet[1:] else ({}, b"")
    words = "".join(said.get("reason_string", ()))
    return f"{words or 'see its log for the reason'} (0x{packet[0]:02X})"


async def _answered(answer: Awaitable[T], what: str) -> T:
    try:
        return await asyncio.wait_for(answer, ANSWER_SECONDS)
    except TimeoutError:
        raise CommandError(
            f"the gateway did not confirm the {what} within {ANSWER_SECONDS:.0f} s: see its "
            "log and /health/ready; it may still do it when its database is back"
        ) from None


async def _turns_until_acknowledged() -> None:
    """Waits until gmqtt has sent the PUBACK: the handler wakes up, ends, and the callback sends it,
    a turn of the loop each."""
    for _ in range(3):
        await asyncio.sleep(0)


@asynccontextmanager
async def connected_to(target: Target, prefetch: int = 100) -> AsyncIterator[MqttClient]:
    client = Client(
        f"howdah-{uuid.uuid4().hex[:12]}",
        optimistic_acknowledgement=False,
        receive_maximum=max(1, min(prefetch, 65535)),
    )
    client.set_config({"reconnect_retries": 0, "reconnect_delay": 1})
    if target.username is not None:
        client.set_auth_credentials(target.username, target.password)
    mine = MqttClient(client)
    place = f"{target.host}:{target.port}"
    try:
        await asyncio.wait_for(
            client.connect(target.host, target.port, ssl=target.context or False), ANSWER_SECONDS
        )
    except MQTTConnectError as error:
        raise CommandError(
            f"the gateway at {place} refused the login: {error}: see --username and "
            f"${PASSWORD_VARIABLE}, and `howdah user list`; its log says why"
        ) from error
    except (OSError, TimeoutError) as error:
        raise CommandError(
            f"no MQTT listener answers at {place}: {str(error) or 'it does not answer'}: start the "
            "gateway with `howdah serve`, or give --host and --port"
        ) from error
    try:
        yield mine
    finally:
        await client.disconnect()
