"""An MQTT connection, as people are told of it: one channel, with the session's consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocols.connection_report import ChannelReport, ConnectionReport, ConnectionState, Flow
from protocols.mqtt.negotiated_terms import MAX_PACKET_BYTES
from queue_core.access.auth import Identity, Peer
from queue_core.access.mechanisms import ANONYMOUS, EXTERNAL, PLAIN
from queue_core.sessions.session import given_id

if TYPE_CHECKING:
    from protocols.mqtt.client import Client

ONLY_CHANNEL = 1


def mechanism_of(
    method: str | None, identity: Identity, peer: Peer, *, by_certificate: bool
) -> str:
    """Names the SASL mechanism that a login amounts to."""
    if method is not None:
        return method
    if identity.is_anonymous:
        return ANONYMOUS
    return EXTERNAL if by_certificate and peer.has_certificate else PLAIN


def flow_of(client: Client, published: int) -> Flow:
    """Counts a client's messages. What its live queue passes on goes straight to the socket."""
    consumers = client.consumers
    settled = sum(each.delivered for each in consumers if each.auto_settle)
    delivered = sum(each.delivered for each in consumers if not each.auto_settle)
    held = sum(len(each.unsettled) for each in consumers)
    return Flow(
        published=published,
        confirmed=client.publishing.confirmed,
        delivered=delivered,
        delivered_settled=settled + client.passed_on,
        acknowledged=max(0, delivered - held),
    )


def report_on(
    client: Client, state: ConnectionState, published: int, mechanism: str, keep_alive: int
) -> ConnectionReport:
    """Describes a connected client. `published` is the number of its messages so far."""
    session, terms = client.session, client.terms
    agreement = terms.agreement
    name = given_id(session.client_id)
    in_flight = client.deliverer.outbound.in_flight
    channel = ChannelReport(
        number=ONLY_CHANNEL,
        flow=flow_of(client, published),
        consumers=client.consumers,
        is_confirming=True,
        prefetch=agreement.receive_maximum,
        unacknowledged=len(in_flight),
        unconfirmed=len(client.publishing.inbound.answers),
    )
    most = agreement.max_packet
    return ConnectionReport(
        protocol=session.protocol,
        user=terms.identity.name,
        vhost=session.vhost.name,
        mechanism=mechanism,
        client_name=name,
        client_properties={"client_id": name, "is_persistent": session.is_persistent},
        state=state,
        frame_max=0 if most == MAX_PACKET_BYTES else most,
        channel_max=ONLY_CHANNEL,
        timeout=keep_alive,
        channels=[channel],
    )
