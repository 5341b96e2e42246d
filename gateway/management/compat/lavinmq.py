"""What LavinMQ adds to RabbitMQ's API of a queue: pause and resume, messages in flight, and a
stream that is read from a place on."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from gateway.management.answers import NO_CONTENT, Reply
from gateway.management.api_errors import bad_request
from gateway.management.call import Call
from gateway.management.compat.flexible_fields import Number, number
from gateway.management.compat.message_rows import Encoding, MessageRow
from gateway.management.compat.messages import MOST_GOT, browsed, rows_of
from gateway.management.compat.queue_changes import PATH, queue_of
from gateway.management.lists import Listing, ListQuery
from gateway.management.routes import Body, NoQuery, Route
from queue_core.access.auth import Action, Resource
from queue_core.delivery.consumer import ConsumerSpec, Delivery, Position

PLACES: Final = ("first", "last", "next")


class UnackedRow(Struct, frozen=True):
    """A message that a consumer has and has not settled."""

    offset: int  # its place in the queue
    consumer_tag: str
    channel_name: str  # of the client, as far as it has one
    user: str
    protocol: str
    redelivered: bool
    failures: int
    unacked_for_seconds: float | None  # to about a second; null: not known yet, or in memory


class StreamBody(Body, frozen=True):
    """Where to read a stream: `first`, `last`, `next`, an offset, or a time in seconds since
    1970."""

    offset: Annotated[int | str, Meta(description="first, last, next, or an offset")] = "first"
    timestamp: float | None = None
    count: Number = 10
    encoding: Encoding = "auto"
    truncate: Number | None = None


async def pause(call: Call[NoQuery, None]) -> Reply:
    return await _pause(call, is_paused=True)


async def resume(call: Call[NoQuery, None]) -> Reply:
    return await _pause(call, is_paused=False)


async def _pause(call: Call[Any, Any], *, is_paused: bool) -> Reply:
    vhost = call.own_vhost()
    queue = queue_of(call, vhost)
    call.require(Action.CONFIGURE, Resource("queue", vhost.name, queue.name))
    await vhost.pause_queue(queue.name, is_paused=is_paused)
    return NO_CONTENT


async def unacked(call: Call[ListQuery, None]) -> Listing[Delivery]:
    vhost = call.vhost()
    queue = queue_of(call, vhost)
    now = call.manager.clock()
    found = [
        delivery
        for cursor in queue.cursors()
        for consumer in cursor.consumer_set.holders()
        for delivery in list(consumer.unsettled.values())
    ]

    def row(delivery: Delivery) -> UnackedRow:
        consumer = delivery.consumer
        since = call.manager.held_since(consumer.number).get(delivery.offset)
        origin = consumer.spec.origin
        return UnackedRow(
            offset=delivery.offset,
            consumer_tag=consumer.tag,
            channel_name=origin.client or origin.address,
            user=origin.user,
            protocol=origin.protocol,
            redelivered=delivery.redelivered,
            failures=delivery.failures,
            unacked_for_seconds=None if since is None else max(0.0, now - since),
        )

    return Listing(found, row, name=lambda delivery: delivery.consumer.tag)


async def read_stream(call: Call[NoQuery, StreamBody]) -> list[MessageRow]:
    vhost, body = call.own_vhost(), call.body
    queue = queue_of(call, vhost)
    call.require(Action.READ, Resource("queue", vhost.name, queue.name))
    vhost.check_usable(queue.name)
    if not queue.is_stream:
        raise bad_request(f"queue '{queue.name}' is no stream; get its messages with .../get")
    await vhost.writer.flushed()
    start = await queue.find_start(ConsumerSpec(start=_position(body)))
    count = min(number("count", body.count), MOST_GOT)
    truncate = None if body.truncate is None else number("truncate", body.truncate)
    found = await browsed(vhost, queue, start, count)
    return rows_of(call, queue, found, body.encoding, truncate)


def _position(body: StreamBody) -> Position:
    if body.timestamp is not None:
        return Position(time=body.timestamp)
    if body.offset in PLACES:
        return Position(name=str(body.offset))
    return Position(offset=number("offset", body.offset))


ROUTES: Final = (
    Route(
        method="PUT",
        path=f"{PATH}/pause",
        handler=pause,
        summary="Stop deliveries from a queue; a durable one stays paused over a restart",
        statuses=(204,),
    ),
    Route(
        method="PUT",
        path=f"{PATH}/resume",
        handler=resume,
        summary="Let deliveries from a paused queue go on",
        statuses=(204,),
    ),
    Route(
        method="GET",
        path=f"{PATH}/unacked",
        handler=unacked,
        summary="The messages of a queue that consumers have and have not settled",
        query=ListQuery,
        answer=UnackedRow,
        is_list=True,
    ),
    Route(
        method="POST",
        path=f"{PATH}/stream",
        handler=read_stream,
        summary="Read a stream from a place on, without a consumer and without any effect",
        body=StreamBody,
        answer=list[MessageRow],
    ),
)
