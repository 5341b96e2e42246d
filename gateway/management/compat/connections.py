"""Connections as RabbitMQ lists them: `/api/connections`, of all protocols.

A user sees its own; one with the tag monitoring sees all. A user may end its own, an administrator
any; the header X-Reason goes to the client in its protocol's own words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType

from gateway.connections import OpenConnection
from gateway.management.answers import NO_CONTENT, Reply
from gateway.management.api_errors import not_authorised, not_found
from gateway.management.call import Call
from gateway.management.compat.message_stats import Stats, channel_stats
from gateway.management.lists import ColumnsQuery, Listing, ListQuery
from gateway.management.node import node_name
from gateway.management.roles import Role
from gateway.management.routes import NoQuery, Route
from gateway.statistics.connection_samples import flow_of
from protocols.connection_report import ConnectionReport, ConnectionState
from queue_core.access.auth import Identity

REASON_HEADER: Final = "X-Reason"
MOST_REASON_CHARACTERS: Final = 200  # AMQP 0.9.1 has room for 255 bytes, with its own words
CLOSED: Final = "closed by an operator"


class ConnectionRow(Struct, frozen=True, kw_only=True):
    """One connection of RabbitMQ's list."""

    name: str
    node: str
    protocol: str
    user: str
    user_who_performed_action: str
    vhost: str
    state: str
    type: str
    host: str
    port: int
    peer_host: str
    peer_port: int
    connected_at: int  # milliseconds
    client_properties: Mapping[str, Any]
    user_provided_name: str | UnsetType = UNSET
    channels: int
    channel_max: int
    frame_max: int
    timeout: int  # seconds
    auth_mechanism: str
    ssl: bool
    ssl_protocol: str | None
    ssl_cipher: str | None
    ssl_key_exchange: str | None
    ssl_hash: str | None
    peer_cert_subject: str | None
    peer_cert_issuer: str | None
    peer_cert_validity: str | None
    recv_oct: int
    recv_oct_details: Stats
    send_oct: int
    send_oct_details: Stats
    send_pend: int
    message_stats: Stats


# --- who may see and end what


def presence_of(call: Call[Any, Any], opened: OpenConnection) -> tuple[Identity, str] | None:
    """Returns the user and the virtual host of a connection whose client is let in."""
    return call.manager.auth.presence(opened.guest)


def visible_connections(call: Call[Any, Any], vhost: str | None = None) -> list[OpenConnection]:
    """Lists the connections that the caller may see, of one virtual host or of all."""
    sees_all, own = call.caller.has(Role.MONITORING), call.identity.name
    found = []
    for opened in call.services.connections.all():
        presence = presence_of(call, opened)
        if presence is None or (vhost is not None and presence[1] != vhost):
            continue
        if sees_all or presence[0].name == own:
            found.append(opened)
    return found


def visible_connection(call: Call[Any, Any], name: str) -> tuple[OpenConnection, Identity]:
    """Finds a connection that the caller may see. Raises 404, or 401 where it is another's."""
    opened = call.services.connections.find(name)
    presence = None if opened is None else presence_of(call, opened)
    if opened is None or presence is None:
        raise not_found(f"there is no connection '{name}'")
    identity = presence[0]
    if not call.caller.has(Role.MONITORING) and identity.name != call.identity.name:
        raise not_authorised(f"connection '{name}' is another user's; that needs monitoring")
    return opened, identity


def require_owner(call: Call[Any, Any], user: str) -> None:
    """Requires that the caller ends what is its own, or is an administrator. Raises 401."""
    if user != call.identity.name:
        call.require_role(Role.ADMINISTRATOR)


def reason_of(call: Call[Any, Any], otherwise: str) -> str:
    """Returns the reason that the caller gives, in one line of bounded length."""
    given = " ".join(call.request.headers.get(REASON_HEADER, "").split())
    return given[:MOST_REASON_CHARACTERS] or otherwise


# --- one connection


def row(opened: OpenConnection) -> ConnectionRow:
    """Describes a connection as of now."""
    report, volume, sampled = report_of(opened), opened.volume(), opened.sampled
    return ConnectionRow(
        name=opened.name,
        node=node_name(),
        protocol=report.protocol,
        user=report.user,
        user_who_performed_action=report.user,
        vhost=report.vhost,
        state=report.state.value,
        type="network",
        host=opened.local[0],
        port=opened.local[1],
        peer_host=opened.peer.host,
        peer_port=opened.peer.port,
        connected_at=int(opened.since * 1000),
        client_properties=report.client_properties,
        user_provided_name=report.client_name or UNSET,
        channels=len(report.channels),
        channel_max=report.channel_max,
        frame_max=report.frame_max,
        timeout=report.timeout,
        auth_mechanism=report.mechanism,
        recv_oct=volume.received,
        recv_oct_details={"rate": sampled.received_rate},
        send_oct=volume.sent,
        send_oct_details={"rate": sampled.sent_rate},
        send_pend=volume.unsent,
        message_stats=channel_stats(flow_of(report), sampled.flow_rates()),
        **_tls(opened),
    )


def report_of(opened: OpenConnection) -> ConnectionReport:
    """Returns what a connection says of itself; one that has ended since says nothing more."""
    return opened.report() or ConnectionReport(
        protocol=opened.adapter,
        user="",
        vhost="",
        mechanism="",
        client_name="",
        client_properties={},
        state=ConnectionState.CLOSING,
    )


def _tls(opened: OpenConnection) -> dict[str, Any]:
    """Describes the TLS of a connection, as far as its transport knows it."""
    fact: Callable[[str], Any] = opened.transport.get_extra_info
    cipher = fact("cipher") if opened.peer.tls else None
    certificate = (fact("peercert") or {}) if opened.peer.tls else {}
    name, protocol = (cipher[0], cipher[1]) if cipher else (None, None)
    until = certificate.get("notAfter")
    return {
        "ssl": opened.peer.tls,
        "ssl_protocol": protocol,
        "ssl_cipher": name,
        "ssl_key_exchange": None,
        "ssl_hash": None,
        "peer_cert_subject": _names(certificate.get("subject")),
        "peer_cert_issuer": _names(certificate.get("issuer")),
        "peer_cert_validity": None
        if until is None
        else f"{certificate.get('notBefore')} - {until}",
    }


def _names(parts: Any) -> str | None:
    if not parts:
        return None
    return ",".join(f"{kind}={value}" for part in parts for kind, value in part)


# --- routes


SORT_KEYS: Final[dict[str, Callable[[OpenConnection], Any]]] = {
    "name": lambda opened: opened.name,
    "connected_at": lambda opened: opened.since,
    "peer_host": lambda opened: opened.peer.host,
    "peer_port": lambda opened: opened.peer.port,
    "recv_oct": lambda opened: opened.volume().received,
    "send_oct": lambda opened: opened.volume().sent,
    "recv_oct_details.rate": lambda opened: opened.sampled.received_rate,
    "send_oct_details.rate": lambda opened: opened.sampled.sent_rate,
}


async def list_all(call: Call[ListQuery, None]) -> Listing[OpenConnection]:
    return Listing(visible_connections(call), row, sort_keys=SORT_KEYS)


async def list_of_vhost(call: Call[ListQuery, None]) -> Listing[OpenConnection]:
    return Listing(visible_connections(call, call.vhost().name), row, sort_keys=SORT_KEYS)


async def list_of_user(call: Call[ListQuery, None]) -> Listing[OpenConnection]:
    return Listing(_of_user(call), row, sort_keys=SORT_KEYS)


def _of_user(call: Call[Any, Any]) -> list[OpenConnection]:
    user = call.path["user"]
    if user != call.identity.name and not call.caller.has(Role.MONITORING):
        raise not_authorised(f"connections of user '{user}' are another's; that needs monitoring")
    found = []
    for opened in call.services.connections.all():
        presence = presence_of(call, opened)
        if presence is not None and presence[0].name == user:
            found.append(opened)
    return found


async def show(call: Call[ColumnsQuery, None]) -> ConnectionRow:
    return row(visible_connection(call, call.path["connection"])[0])


async def end(call: Call[NoQuery, None]) -> Reply:
    """Ends a connection. Returns when its client is told; the client may take its time to go."""
    opened, identity = visible_connection(call, call.path["connection"])
    require_owner(call, identity.name)
    opened.force_out(reason_of(call, CLOSED))
    return NO_CONTENT


async def end_of_user(call: Call[NoQuery, None]) -> Reply:
    require_owner(call, call.path["user"])
    reason = reason_of(call, CLOSED)
    for opened in _of_user(call):
        opened.force_out(reason)
    return NO_CONTENT


ROUTES: Final = (
    Route(
        method="GET",
        path="/api/connections",
        handler=list_all,
        summary="All connections that the user may see",
        query=ListQuery,
        answer=ConnectionRow,
        is_list=True,
    ),
    Route(
        method="GET",
        path="/api/vhosts/{vhost}/connections",
        handler=list_of_vhost,
        summary="The connections to a virtual host",
        query=ListQuery,
        answer=ConnectionRow,
        is_list=True,
    ),
    Route(
        method="GET",
        path="/api/connections/username/{user}",
        handler=list_of_user,
        summary="The connections of a user",
        query=ListQuery,
        answer=ConnectionRow,
        is_list=True,
    ),
    Route(
        method="DELETE",
        path="/api/connections/username/{user}",
        handler=end_of_user,
        summary="End all connections of a user",
    ),
    Route(
        method="GET",
        path="/api/connections/{connection}",
        handler=show,
        summary="One connection",
        query=ColumnsQuery,
        answer=ConnectionRow,
    ),
    Route(
        method="DELETE",
        path="/api/connections/{connection}",
        handler=end,
        summary="End a connection; the header X-Reason tells its client why",
    ),
)
