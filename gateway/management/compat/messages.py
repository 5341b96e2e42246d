"""Messages over HTTP, for people and tools: got from a queue, published to an exchange, and one
sent around to see that the gateway is alive."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Literal

from msgspec import UNSET, Struct

from gateway.management.api_errors import ApiError, bad_request
from gateway.management.call import Call
from gateway.management.compat.flexible_fields import Flag, Number, Table, flag, number, table
from gateway.management.compat.message_rows import (
    Encoding,
    MessageRow,
    PayloadEncoding,
    message_of,
    read_payload,
    read_properties,
    written,
)
from gateway.management.compat.queue_changes import PATH as QUEUE_PATH
from gateway.management.compat.queue_changes import queue_of
from gateway.management.routes import Body, NoQuery, Route
from protocols.amqp091.wire.content import Facts
from queue_core.access.auth import Action, Resource
from queue_core.commit.waiter import Waiter
from queue_core.delivery.consumer import Delivery, Entry
from queue_core.errors import CoreError, MessageTooLarge, QueueFull
from queue_core.message.message import Message
from queue_core.outcomes import ACCEPTED, FAILED, REJECTED, RELEASED, Published, Verdict
from queue_core.queues.queue import Queue
from queue_core.queues.spec import QueueSpec
from queue_core.vhost import Vhost

MOST_GOT: Final = 1000  # messages in one answer
MOST_GOT_BYTES: Final = 16 * 1024 * 1024  # after which an answer takes no more messages
BROWSED_AT_ONCE: Final = 20
CONFIRM_SECONDS: Final = 10.0
MOST_PUBLISH_BYTES: Final = 24 * 1024 * 1024  # base64 of 16 MiB, and its properties
REJECTED_TEXT: Final = "Unable to publish message. Check queue limits."
ALIVE_PREFIX: Final = "aliveness-test-"

AckMode = Literal[
    "ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false"
]
PEEK: Final = "ack_requeue_true"
VERDICTS: Final[dict[str, Verdict]] = {
    "ack_requeue_false": ACCEPTED,
    "reject_requeue_true": FAILED,
    "reject_requeue_false": REJECTED,
}


class GetBody(Body, frozen=True):
    """How many messages to get, and what becomes of them. `ack_requeue_true` only looks: nothing is
    flagged, moved or counted. `requeue` is the older form of `ackmode`."""

    count: Number
    encoding: Encoding
    ackmode: AckMode | None = None
    ack_mode: AckMode | None = None
    requeue: Flag | None = None
    truncate: Number | None = None


class PublishBody(Body, frozen=True):
    """A message to publish."""

    routing_key: str
    payload: str
    payload_encoding: PayloadEncoding
    properties: Table = {}  # noqa: RUF012 - msgspec copies it


class Routed(Struct, frozen=True):
    """Tells whether a queue got the message."""

    routed: bool


class Alive(Struct, frozen=True):
    status: str


# --- getting


async def get(call: Call[NoQuery, GetBody]) -> list[MessageRow]:
    vhost, body = call.own_vhost(), call.body
    queue = queue_of(call, vhost)
    call.require(Action.READ, Resource("queue", vhost.name, queue.name))
    vhost.check_usable(queue.name)
    count = min(number("count", body.count), MOST_GOT)
    truncate = None if body.truncate is None else number("truncate", body.truncate)
    mode = _mode(body)
    await vhost.writer.flushed()  # what was published before is there
    if mode == PEEK:
        found = await browsed(vhost, queue, 0, count)
        return rows_of(call, queue, found, body.encoding, truncate)
    deliveries = await _taken(vhost, queue, count)
    behind = queue.counts().ready + len(deliveries) - 1
    waiter = Waiter()
    vhost.settle(deliveries, VERDICTS[mode], waiter)
    await waiter.done
    now = call.manager.clock()
    return [
        written(
            each.message,
            now=now,
            count=behind - position,
            encoding=body.encoding,
            truncate=truncate,
            is_redelivered=each.redelivered,
        )
        for position, each in enumerate(deliveries)
    ]


def _mode(body: GetBody) -> str:
    mode = body.ackmode or body.ack_mode
    if mode is not None:
        return mode
    if body.requeue is None:
        raise bad_request("'ackmode' is missing: ack_requeue_true only looks at messages")
    return PEEK if flag("requeue", body.requeue) else "ack_requeue_false"


async def browsed(vhost: Vhost, queue: Queue, start: int, count: int) -> list[Entry]:
    """Reads messages from an offset on without any effect, few at a time and not too many bytes."""
    found: list[Entry] = []
    size = 0
    while len(found) < count and size < MOST_GOT_BYTES:
        some = await vhost.browse(queue.name, start, min(BROWSED_AT_ONCE, count - len(found)))
        if not some:
            break
        found += some
        size += sum(len(entry.message.body) for entry in some)
        start = some[-1].offset + 1
    return found


def rows_of(
    call: Call[Any, Any],
    queue: Queue,
    entries: list[Entry],
    encoding: Encoding,
    truncate: int | None,
) -> list[MessageRow]:
    now, ready = call.manager.clock(), queue.counts().ready
    return [
        written(
            entry.message,
            now=now,
            count=max(0, ready - position - 1),
            encoding=encoding,
            truncate=truncate,
            offset=entry.offset if queue.is_stream else UNSET,
        )
        for position, entry in enumerate(entries)
    ]


async def _taken(vhost: Vhost, queue: Queue, count: int) -> list[Delivery]:
    """Takes messages out of a queue. Whoever goes before the end gives them back."""
    taken: list[Delivery] = []
    size = 0
    try:
        while len(taken) < count and size < MOST_GOT_BYTES:
            delivery = await vhost.get(queue.name)
            if delivery is None:
                break
            taken.append(delivery)
            size += len(delivery.message.body)
    except BaseException:
        vhost.settle(taken, RELEASED)
        raise
    return taken


# --- publishing


async def publish(call: Call[NoQuery, PublishBody]) -> Routed:
    vhost, body = call.own_vhost(), call.body
    exchange = call.exchange()
    payload = read_payload(body.payload, body.payload_encoding)
    limit = call.services.config.broker.max_message_size
    if len(payload) > limit:
        raise MessageTooLarge(f"the message has {len(payload)} bytes, and {limit} are allowed")
    facts = read_properties(table("properties", body.properties))
    _require_write(call, vhost, exchange, (body.routing_key, *facts.extra_keys))
    _require_own_name(call, facts)
    now = call.manager.clock()
    message = message_of(facts, exchange, body.routing_key, payload, call.identity.name, now)
    return Routed(await _confirmed(vhost, message, facts.extra_keys))


def _require_write(
    call: Call[Any, Any], vhost: Vhost, exchange: str, keys: tuple[str, ...]
) -> None:
    is_topic = vhost.router.exchange(exchange).spec.is_topic
    for key in keys:
        kind = Resource("topic", vhost.name, exchange, key)
        call.require(Action.WRITE, kind if is_topic else Resource("exchange", vhost.name, exchange))


def _require_own_name(call: Call[Any, Any], facts: Facts) -> None:
    if facts.user_id is not None and not call.identity.may_speak_for(str(facts.user_id)):
        name = call.identity.name
        raise bad_request(f"property user_id is '{facts.user_id}', and the user is '{name}'")
    if facts.wants_direct_reply:
        raise bad_request("a direct reply needs a consumer, and HTTP has none that stays")


async def _confirmed(vhost: Vhost, message: Message, extra_keys: tuple[str, ...]) -> bool:
    """Publishes a message, and waits until it is stored. Returns whether a queue got it. Raises 400
    where a queue refused it."""
    waiter = Waiter()
    outcome = vhost.publish(message, waiter, extra_keys=extra_keys)
    if outcome is Published.REFUSED:
        raise ApiError(400, "rejected", f"{REJECTED_TEXT} {vhost.why_refused(message)}")
    if outcome in (Published.PENDING, Published.REMEMBERED):
        try:
            async with asyncio.timeout(CONFIRM_SECONDS):
                await waiter.done
        except TimeoutError:
            reason = "the database has not confirmed it in time; it may be stored later"
            raise ApiError(503, "unavailable", reason) from None
        except QueueFull as error:
            raise ApiError(400, "rejected", f"{REJECTED_TEXT} {error}") from None
    return outcome not in (Published.NOWHERE, Published.REMEMBERED)


# --- alive


async def alive(call: Call[NoQuery, None]) -> Alive:
    """Sends a message through a queue in memory, and asks whether durable ones can be stored."""
    vhost = call.vhost()
    if not call.manager.is_ready:
        reason = "durable messages cannot be stored now: see /health/ready"
        raise ApiError(503, "failed", reason)
    name = vhost.new_name(ALIVE_PREFIX)
    queue = await vhost.declare_queue(QueueSpec.parse(name, durable=False), inside=True)
    try:
        vhost.publish(Message(b"test_message", "", routing_key=name))
        delivery = await vhost.get(name, auto_settle=True)
    finally:
        vhost.end_ephemeral(queue, CoreError("the test is over"))
    if delivery is None:
        raise ApiError(503, "failed", "a message that was published did not arrive")
    return Alive("ok")


ROUTES: Final = (
    Route(
        method="POST",
        path=f"{QUEUE_PATH}/get",
        handler=get,
        summary="Get messages of a queue; ack_requeue_true looks at them without any effect",
        body=GetBody,
        answer=list[MessageRow],
    ),
    Route(
        method="POST",
        path="/api/exchanges/{vhost}/{exchange}/publish",
        handler=publish,
        summary="Publish a message; answered when it is stored",
        body=PublishBody,
        answer=Routed,
        most_body_bytes=MOST_PUBLISH_BYTES,
    ),
    Route(
        method="GET",
        path="/api/aliveness-test/{vhost}",
        handler=alive,
        summary="Send a message through a queue and get it",
        answer=Alive,
    ),
)
