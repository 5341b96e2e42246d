"""An AMQP 1.0 connection, its sessions and links, as people are told of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocols.amqp10.engine import proton
from protocols.amqp10.links.browsing import BrowsingLink
from protocols.amqp10.links.from_client import IncomingLink
from protocols.amqp10.links.to_client import OutgoingLink
from protocols.connection_report import (
    ChannelReport,
    ConnectionReport,
    ConnectionState,
    Flow,
    LinkReport,
)

if TYPE_CHECKING:
    from protocols.amqp10.client import Client
    from protocols.amqp10.engine.proton import Engine, Handle
    from protocols.amqp10.links.detaching import Link

PROTOCOL: Final = "AMQP 1.0"


def flow_of(link: Link) -> Flow:
    """Counts a link's messages."""
    if isinstance(link, IncomingLink):
        return Flow(published=link.published, confirmed=link.accepted, returned=link.released)
    if isinstance(link, BrowsingLink):
        return Flow(delivered_settled=link.sent_count)
    if isinstance(link, OutgoingLink):
        sent = link.sent_count
        if link.settles:
            return Flow(delivered_settled=sent)
        return Flow(delivered=sent, acknowledged=max(0, sent - len(link.consumer.unsettled)))
    return Flow()


def _link(link: Link) -> LinkReport:
    is_from_client = not isinstance(link, OutgoingLink | BrowsingLink)
    flow = flow_of(link)
    return LinkReport(
        name=proton.name_of(link.handle),
        is_from_client=is_from_client,
        address=_address(link),
        credit=proton.credit_of(link.handle),
        count=flow.published if is_from_client else link.sent_count,
    )


def _address(link: Link) -> str:
    if isinstance(link, OutgoingLink | BrowsingLink):
        return link.supply.address
    if isinstance(link, IncomingLink) and link.place is not None:
        place = link.place
        return f"/exchanges/{place.exchange}/{place.key}" if place.exchange else place.key
    return ""


def _session(client: Client, session: Handle, number: int) -> ChannelReport:
    links = [each for each in client.links.values() if proton.session_of(each.handle) == session]
    flow = Flow()
    for link in links:
        flow.add(flow_of(link))
    consumers = [link.consumer for link in links if isinstance(link, OutgoingLink)]
    senders = [link for link in links if isinstance(link, IncomingLink)]
    return ChannelReport(
        number=number,
        flow=flow,
        consumers=consumers,
        is_confirming=bool(senders),
        unacknowledged=sum(len(each.unsettled) for each in consumers),
        unconfirmed=sum(each.unanswered for each in senders),
        links=[_link(each) for each in links if each.is_open],
    )


def report_on(client: Client, engine: Engine, state: ConnectionState) -> ConnectionReport:
    """Describes an open connection."""
    terms = client.terms
    return ConnectionReport(
        protocol=PROTOCOL,
        user=terms.identity.name,
        vhost=terms.vhost.name,
        mechanism=terms.mechanism,
        client_name=terms.container,
        client_properties=terms.properties,
        state=state,
        frame_max=engine.peers_max_frame,
        channel_max=terms.settings.channel_max,
        timeout=int(terms.settings.idle_seconds),
        channels=[_session(client, session, number) for session, number in client.sessions.items()],
        ended_flow=client.ended_flow,
    )
