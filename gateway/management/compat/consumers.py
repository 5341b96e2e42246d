"""Consumers as RabbitMQ lists them: `/api/consumers`.

Consumers of AMQP 1.0 are receiving links, and those of MQTT what a session reads by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType

from gateway.connections import OpenConnection
from gateway.management.answers import NO_CONTENT, Reply
from gateway.management.api_errors import bad_request, not_found
from gateway.management.call import Call, whole_number
from gateway.management.compat.connections import presence_of, reason_of, require_owner
from gateway.management.lists import Listing, ListQuery
from gateway.management.node import node_name
from gateway.management.routes import NoQuery, Route
from gateway.management.services import Services
from protocols.connection_report import ChannelReport, ConnectionReport
from queue_core.delivery.consumer import UNLIMITED_CREDIT, Consumer
from queue_core.queues.queue import Queue

CANCELLED: Final = "the consumer was cancelled by an operator"
MOST_CHANNELS: Final = 65_535  # of a connection, in every protocol


class QueueName(Struct, frozen=True):
    """The queue that something belongs to."""

    name: str
    vhost: str


class ChannelDetails(Struct, frozen=True):
    """The channel that something belongs to, and its connection."""

    name: str
    number: int
    connection_name: str
    peer_host: str
    peer_port: int
    user: str
    node: str


class ConsumerRow(Struct, frozen=True, kw_only=True):
    """One consumer of RabbitMQ's list."""

    consumer_tag: str
    active: bool
    activity_status: str
    ack_required: bool
    prefetch_count: int
    exclusive: bool
    arguments: Mapping[str, Any]
    consumer_timeout: int | None  # milliseconds
    queue: QueueName
    channel_details: ChannelDetails | UnsetType = UNSET
    messages_unacknowledged: int  # ours, as all that follows
    credit: int
    protocol: str


Found = tuple[OpenConnection, ConnectionReport, ChannelReport, Consumer]


def channel_name(connection: str, number: int) -> str:
    return f"{connection} ({number})"


def channel_details(
    opened: OpenConnection, report: ConnectionReport, channel: ChannelReport
) -> ChannelDetails:
    """Names the channel of a consumer."""
    return ChannelDetails(
        name=channel_name(opened.name, channel.number),
        number=channel.number,
        connection_name=opened.name,
        peer_host=opened.peer.host,
        peer_port=opened.peer.port,
        user=report.user,
        node=node_name(),
    )


def _described(
    consumer: Consumer, vhost: str, channel: ChannelDetails | UnsetType, protocol: str
) -> ConsumerRow:
    spec, cursor = consumer.spec, consumer.cursor
    is_active = cursor.consumer_set.may_take(consumer)
    timeout = cursor.spec.ack_timeout_seconds
    status = "waiting" if not is_active else "up"
    if is_active and cursor.spec.single_active:
        status = "single_active"
    return ConsumerRow(
        consumer_tag=consumer.tag,
        active=is_active,
        activity_status=status,
        ack_required=not consumer.auto_settle,
        prefetch_count=0 if spec.credit >= UNLIMITED_CREDIT else spec.credit,
        exclusive=spec.exclusive,
        arguments=spec.arguments,
        consumer_timeout=None if timeout is None else int(timeout * 1000),
        queue=QueueName(consumer.queue_name, vhost),
        channel_details=channel,
        messages_unacknowledged=len(consumer.unsettled),
        credit=max(0, consumer.credit),
        protocol=protocol,
    )


def row(found: Found) -> ConsumerRow:
    """Describes a consumer as of now."""
    opened, report, channel, consumer = found
    details = channel_details(opened, report, channel)
    return _described(consumer, report.vhost, details, report.protocol)


def consumers_of_queue(services: Services, vhost: str, queue: Queue) -> list[ConsumerRow]:
    """Describes the consumers of one queue, each with its channel, as far as it is known."""
    return [_row_of(services, vhost, consumer) for consumer in queue.consumers()]


def _row_of(services: Services, vhost: str, consumer: Consumer) -> ConsumerRow:
    origin = consumer.spec.origin
    opened = services.connections.find_peer(origin.address)
    report = None if opened is None else opened.report()
    if opened is not None and report is not None:
        for channel in report.channels:
            if consumer in channel.consumers:
                return row((opened, report, channel, consumer))
    return _described(consumer, vhost, UNSET, origin.protocol)


def _found(connections: Iterable[OpenConnection], vhosts: set[str]) -> Iterable[Found]:
    for opened in connections:
        report = opened.report()
        if report is not None and report.vhost in vhosts:
            for channel in report.channels:
                for consumer in channel.consumers:
                    yield opened, report, channel, consumer


async def _listing(call: Call[ListQuery, None], vhosts: set[str]) -> Listing[Found]:
    share = call.services.loop_share
    connections = call.services.connections.all()
    parts = await share.all(connections, lambda each: list(_found((each,), vhosts)))
    items = [found for part in parts for found in part]
    return Listing(items, row, name=lambda found: found[3].tag)


async def list_all(call: Call[ListQuery, None]) -> Listing[Found]:
    return await _listing(call, {vhost.name for vhost in call.visible_vhosts()})


async def list_of_vhost(call: Call[ListQuery, None]) -> Listing[Found]:
    return await _listing(call, {call.vhost().name})


async def cancel(call: Call[NoQuery, None]) -> Reply:
    """Ends a consumer, and tells its client so in its protocol's words."""
    vhost, path = call.vhost(), call.path
    number = whole_number(path["channel"], MOST_CHANNELS)
    if number is None:
        raise bad_request(f"'{path['channel'][:40]}' is no number of a channel")
    opened = call.services.connections.find(path["connection"])
    presence = None if opened is None else presence_of(call, opened)
    if opened is None or presence is None or presence[1] != vhost.name:
        raise not_found(f"there is no connection '{path['connection']}' in vhost '{vhost.name}'")
    require_owner(call, presence[0].name)
    reason = reason_of(call, CANCELLED)
    guest = opened.guest
    if guest is None or not guest.cancel_consumer(number, path["tag"], reason):
        raise not_found(f"channel {number} has no consumer '{path['tag']}'")
    return NO_CONTENT


ROUTES: Final = (
    Route(
        method="GET",
        path="/api/consumers",
        handler=list_all,
        summary="All consumers that the user may see",
        query=ListQuery,
        answer=ConsumerRow,
        is_list=True,
    ),
    Route(
        method="GET",
        path="/api/consumers/{vhost}",
        handler=list_of_vhost,
        summary="The consumers of a virtual host",
        query=ListQuery,
        answer=ConsumerRow,
        is_list=True,
    ),
    Route(
        method="DELETE",
        path="/api/consumers/{vhost}/{connection}/{channel}/{tag}",
        handler=cancel,
        summary="End a consumer",
    ),
)
