"""Attaching a link: what the peer asks for is found or made, answered, and then begins to flow."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from protocols.amqp10.addressing.addresses import queue_address
from protocols.amqp10.addressing.filters import ORIGINS, read_filters
from protocols.amqp10.addressing.nodes import (
    GLOBAL,
    POLICIES,
    SHARED,
    Place,
    group_name,
    place_of,
    publishable,
    supply_of,
)
from protocols.amqp10.engine import proton as engine
from protocols.amqp10.engine.proton import FIRST, SENDER_SETTLES, Answer, Attach, Handle
from protocols.amqp10.engine.unreported_fields import Asked
from protocols.amqp10.errors import INVALID_FIELD, NOT_IMPLEMENTED, Amqp10Error
from protocols.amqp10.links.browsing import BrowsingLink
from protocols.amqp10.links.dynamic_nodes import Lifetime, answered, asked_lifetime, nodes_of
from protocols.amqp10.links.from_client import IncomingLink
from protocols.amqp10.links.outcomes import outcome_of
from protocols.amqp10.links.to_client import NO_SINK, OutgoingLink
from protocols.amqp10.links.transactions import MAX_COMMAND_BYTES, CoordinatorLink
from queue_core.access.auth import Action
from queue_core.delivery.consumer import ConsumerSpec
from queue_core.errors import QueueNotFound
from queue_core.outcomes import Verdict

if TYPE_CHECKING:
    from protocols.amqp10.addressing.filters import Filters
    from protocols.amqp10.addressing.nodes import Supply
    from protocols.amqp10.client import Client

TRANSACTION_CAPABILITIES: Final = (
    "amqp:local-transactions",
    "amqp:multi-txns-per-ssn",
    "amqp:multi-ssns-per-txn",
)


async def attach(client: Client, handle: Handle, said: Asked) -> None:
    """Raises Amqp10Error or CoreError: then nothing was answered."""
    asked = engine.attach_of(handle)
    if not asked.is_from_peer:
        await _attach_out(client, asked, outcome_of(said.default_outcome))
    elif asked.target.is_coordinator:
        _attach_coordinator(client, asked)
    else:
        await _attach_in(client, asked)


def _attach_coordinator(client: Client, asked: Attach) -> None:
    link = CoordinatorLink(client, asked.handle)
    client.links[asked.handle] = link
    engine.accept_link(
        asked.handle,
        Answer(capabilities=TRANSACTION_CAPABILITIES, max_message_size=MAX_COMMAND_BYTES),
    )
    link.replenish()


async def _attach_in(client: Client, asked: Attach) -> None:
    terms, target = client.terms, asked.target
    place: Place | None = None
    made: tuple[str, Lifetime] | None = None
    # receiver-settle-mode is ours to choose here: first. A message is committed when its outcome
    # leaves, so nothing is won by waiting for the sender, and some senders never settle.
    answer = Answer(receiver_mode=FIRST, max_message_size=terms.settings.max_message_size)
    if target.is_dynamic:
        lifetime = asked_lifetime(target.properties)
        default = publishable(terms, Place("", ""))  # a link that is refused leaves no node
        name = await nodes_of(terms.vhost).make(terms, lifetime)
        made = name, lifetime
        place = replace(default, key=name)
        answer = Answer(
            address=queue_address(name),
            is_dynamic=True,
            properties=answered(lifetime),
            receiver_mode=FIRST,
            max_message_size=terms.settings.max_message_size,
        )
    elif target.address is not None:
        place = await place_of(terms, target.address, target.capabilities)
    elif not target.is_there:
        raise Amqp10Error(INVALID_FIELD, "a sender needs a target; an empty one is the relay")
    link = IncomingLink(client, asked.handle, place)
    link.made = made
    if place is not None and made is None and not place.exchange:
        nodes_of(terms.vhost).join(place.key)
    client.links[asked.handle] = link
    engine.accept_link(asked.handle, answer)
    link.replenish()


async def _attach_out(client: Client, asked: Attach, default: Verdict | None) -> None:
    terms, source = client.terms, asked.source
    if source.copies and source.is_dynamic:
        raise Amqp10Error(NOT_IMPLEMENTED, "a dynamic source has nothing to browse")
    if source.is_dynamic:  # a filter that is refused leaves no node; a node is never a stream
        read_filters(source.filters, is_stream=False)
    supply = await client.releasing.recall(asked) or await supply_of(terms, asked)
    queue = terms.vhost.queue(supply.queue, terms.owner)
    is_stream = queue.is_stream
    copies = source.copies and not is_stream and not supply.is_subscription
    filters = read_filters(source.filters, is_stream=is_stream)
    answer = _answer_out(asked, supply, filters)
    test = filters.test(client.origin)
    if copies:
        terms.require(Action.READ, "queue", supply.queue)
        browsing = BrowsingLink(client, asked, supply, test)
        client.links[asked.handle] = browsing
        engine.accept_link(asked.handle, answer)
        browsing.on_flow()
        return
    # What a subscription or a stream's reader does not want is for nobody else; in a queue it is.
    competes = not is_stream and not supply.is_subscription
    spec = ConsumerSpec(
        tag=asked.name,
        credit=0,
        replenish=False,
        auto_settle=asked.sender_mode == SENDER_SETTLES,
        exclusive=supply.is_exclusive,
        group=_group(client, asked) if is_stream else None,
        start=filters.start if is_stream else None,
        accepts=test if competes else None,
        origin=terms.origin,
        arguments=filters.shown,
    )
    consumer = await terms.vhost.consume(supply.queue, NO_SINK, spec, terms.owner)
    if consumer.is_closed:
        raise QueueNotFound(f"queue '{supply.queue}' was deleted meanwhile; declare it first")
    link = OutgoingLink(
        client,
        asked,
        supply,
        consumer,
        None if competes else test,
        is_stream=is_stream,
        default=default,
    )
    if filters.no_local:
        link.no_local = True
        ORIGINS.askers += 1
    client.links[asked.handle] = link
    engine.accept_link(asked.handle, answer)
    if client.is_blocked:
        consumer.pause()
    link.on_flow()


def _answer_out(asked: Attach, supply: Supply, filters: Filters) -> Answer:
    """Makes the source that the gateway answers with: what was asked for and is granted."""
    return Answer(
        address=supply.address,
        is_dynamic=asked.source.is_dynamic,
        is_transient=supply.is_subscription and not supply.is_durable,
        expiry=POLICIES.get(supply.ends_with) if supply.is_subscription else None,
        timeout=supply.timeout,
        filters=dict(filters.answered or {}),
        properties=None if supply.lifetime is None else answered(supply.lifetime),
        capabilities=_granted_capabilities(asked),
    )


def _group(client: Client, asked: Attach) -> str | None:
    """A durable source on a stream has a cursor that is kept."""
    return group_name(client.terms, asked) if asked.source.is_durable else None


def _granted_capabilities(asked: Attach) -> tuple[str, ...] | None:
    known = {"queue", "topic", "temporary-queue", SHARED, GLOBAL}
    granted = tuple(sorted(asked.source.capabilities & known))
    return granted or None
