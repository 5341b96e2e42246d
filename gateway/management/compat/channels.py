"""Channels as RabbitMQ lists them: `/api/channels`.

A session of AMQP 1.0 is a channel with links, and each MQTT client has one channel.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType

from gateway.connections import OpenConnection
from gateway.management.api_errors import not_found
from gateway.management.call import Call
from gateway.management.compat.connections import visible_connection, visible_connections
from gateway.management.compat.consumers import ConsumerRow, channel_name
from gateway.management.compat.consumers import row as consumer_row
from gateway.management.compat.message_stats import Stats, channel_stats
from gateway.management.lists import ColumnsQuery, Listing, ListQuery
from gateway.management.node import node_name
from gateway.management.routes import Route
from gateway.statistics.figures import channel_figures
from protocols.connection_report import ChannelReport, ConnectionReport

Found = tuple[OpenConnection, ConnectionReport, ChannelReport]


class ConnectionDetails(Struct, frozen=True):
    """The connection that a channel belongs to."""

    name: str
    peer_host: str
    peer_port: int


class LinkRow(Struct, frozen=True):
    """One link of an AMQP 1.0 session."""

    name: str
    role: str  # the client's: sender or receiver
    address: str
    credit: int
    transfers: int


class ChannelRow(Struct, frozen=True, kw_only=True):
    """One channel of RabbitMQ's list."""

    name: str
    number: int
    node: str
    user: str
    user_who_performed_action: str
    vhost: str
    connection_details: ConnectionDetails
    state: str
    consumer_count: int
    confirm: bool
    transactional: bool
    prefetch_count: int
    global_prefetch_count: int
    messages_unacknowledged: int
    messages_unconfirmed: int
    messages_uncommitted: int
    acks_uncommitted: int
    message_stats: Stats
    protocol: str  # ours, as `links`
    links: list[LinkRow] | UnsetType = UNSET
    consumer_details: list[ConsumerRow] | UnsetType = UNSET


def _name(found: Found) -> str:
    opened, _, channel = found
    return channel_name(opened.name, channel.number)


def _described(found: Found) -> dict[str, Any]:
    opened, report, channel = found
    rates = opened.sampled.channel_rates(channel.number)
    return {
        "name": _name(found),
        "number": channel.number,
        "node": node_name(),
        "user": report.user,
        "user_who_performed_action": report.user,
        "vhost": report.vhost,
        "connection_details": ConnectionDetails(opened.name, opened.peer.host, opened.peer.port),
        "state": "running" if channel.is_flowing else "flow",
        "consumer_count": len(channel.consumers),
        "confirm": channel.is_confirming,
        "transactional": channel.is_transactional,
        "prefetch_count": channel.prefetch,
        "global_prefetch_count": channel.shared_prefetch,
        "messages_unacknowledged": channel.unacknowledged,
        "messages_unconfirmed": channel.unconfirmed,
        "messages_uncommitted": channel.uncommitted,
        "acks_uncommitted": channel.uncommitted_acks,
        "message_stats": channel_stats(channel_figures(channel.flow), rates),
        "protocol": report.protocol,
        "links": [_link(each) for each in channel.links] or UNSET,
    }


def _link(link: Any) -> LinkRow:
    role = "sender" if link.is_from_client else "receiver"
    return LinkRow(link.name, role, link.address, link.credit, link.count)


def row(found: Found) -> ChannelRow:
    """Describes a channel as of now."""
    return ChannelRow(**_described(found))


def _channels(opened: OpenConnection) -> list[Found]:
    report = opened.report()
    return [] if report is None else [(opened, report, each) for each in report.channels]


async def _listing(
    call: Call[ListQuery, None], connections: list[OpenConnection]
) -> Listing[Found]:
    parts = await call.services.loop_share.all(connections, _channels)
    items = [found for part in parts for found in part]
    return Listing(items, row, name=_name, sort_keys={"name": _name})


async def list_all(call: Call[ListQuery, None]) -> Listing[Found]:
    return await _listing(call, visible_connections(call))


async def list_of_vhost(call: Call[ListQuery, None]) -> Listing[Found]:
    return await _listing(call, visible_connections(call, call.vhost().name))


async def list_of_connection(call: Call[ListQuery, None]) -> Listing[Found]:
    return await _listing(call, [visible_connection(call, call.path["connection"])[0]])


async def show(call: Call[ColumnsQuery, None]) -> ChannelRow:
    name = call.path["channel"]
    connection, _, number = name.rpartition(" (")
    opened = visible_connection(call, connection)[0]
    for found in _channels(opened):
        if f"{found[2].number})" == number:
            consumers = [consumer_row((*found, each)) for each in found[2].consumers]
            return ChannelRow(**_described(found), consumer_details=consumers)
    raise not_found(f"there is no channel '{name}'")


ROUTES: Final = (
    Route(
        method="GET",
        path="/api/channels",
        handler=list_all,
        summary="All channels that the user may see",
        query=ListQuery,
        answer=ChannelRow,
        is_list=True,
    ),
    Route(
        method="GET",
        path="/api/vhosts/{vhost}/channels",
        handler=list_of_vhost,
        summary="The channels of a virtual host",
        query=ListQuery,
        answer=ChannelRow,
        is_list=True,
    ),
    Route(
        method="GET",
        path="/api/connections/{connection}/channels",
        handler=list_of_connection,
        summary="The channels of a connection",
        query=ListQuery,
        answer=ChannelRow,
        is_list=True,
    ),
    Route(
        method="GET",
        path="/api/channels/{channel}",
        handler=show,
        summary="One channel",
        query=ColumnsQuery,
        answer=ChannelRow,
    ),
)
