"""Nodes: addresses resolved to the core, as a place to publish to or a queue to consume from.

Queues that a link needs are made here: those that an address asks for, temporary ones, and the
queues behind subscriptions. Rights are checked here, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final
from urllib.parse import quote

from protocols.amqp10.addressing.addresses import (
    Address,
    ExchangeAddress,
    NameAddress,
    QueueAddress,
    check_publishable,
    exchange_address,
    parse,
    queue_address,
    topic,
)
from protocols.amqp10.engine.proton import (
    EXPIRES_WITH_CONNECTION,
    EXPIRES_WITH_LINK,
    EXPIRES_WITH_SESSION,
    NEVER_EXPIRES,
    Attach,
    Terminus,
)
from protocols.amqp10.errors import INVALID_FIELD, NOT_FOUND, RESOURCE_LOCKED, Amqp10Error
from protocols.amqp10.links.dynamic_nodes import Lifetime, asked_lifetime, nodes_of
from protocols.amqp10.negotiated_terms import Terms
from queue_core.access.auth import Action, Resource
from queue_core.errors import QueueNotFound
from queue_core.message.message import TOPIC_EXCHANGE
from queue_core.queues.queue import Queue
from queue_core.queues.reserved_names import SUBSCRIPTION_PREFIX
from queue_core.queues.spec import QueueSpec
from queue_core.routing.bindings import Binding

SUBSCRIPTIONS: Final = SUBSCRIPTION_PREFIX
SHARED: Final = "shared"
GLOBAL: Final = "global"
LIVE: Final = "/live"  # behind the name: shared, and gone with the last of its links
KEPT: Final = "/kept"  # not durable, and kept until its link is closed
TIMED: Final = "/timed"  # kept for a while
# A subscriber that does not keep up loses its own oldest messages, and refuses nobody's.
LIVE_LIMITS: Final = {"x-max-length-bytes": 64 * 1024 * 1024}


@dataclass(frozen=True, slots=True)
class Place:
    """The place that a sender's messages go to: exchange and key."""

    exchange: str
    key: str


class End(Enum):
    """The end of a link's queue: with its link, its session or its connection, as the expiry-policy
    of its source has it. A link that is
    closed, not detached, ends it whatever the policy is, but for NOTHING."""

    NOTHING = auto()  # a queue of its own right
    LINK = auto()
    SESSION = auto()
    CONNECTION = auto()
    TIMEOUT = auto()  # so long after the link was detached
    CLOSE = auto()  # never by itself


POLICIES: Final = {
    End.LINK: EXPIRES_WITH_LINK,
    End.SESSION: EXPIRES_WITH_SESSION,
    End.CONNECTION: EXPIRES_WITH_CONNECTION,
    End.TIMEOUT: EXPIRES_WITH_LINK,
    End.CLOSE: NEVER_EXPIRES,
}
ENDS: Final = {
    EXPIRES_WITH_LINK: End.LINK,
    EXPIRES_WITH_SESSION: End.SESSION,
    EXPIRES_WITH_CONNECTION: End.CONNECTION,
    NEVER_EXPIRES: End.CLOSE,
}


@dataclass(frozen=True, slots=True)
class Supply:
    """The queue that serves a receiver."""

    queue: str
    address: str  # as the receiver is told
    ends_with: End = End.NOTHING
    timeout: int = 0  # seconds
    is_subscription: bool = False  # all that is in it is for this subscription alone
    is_durable: bool = False
    is_exclusive: bool = False  # one link at a time
    lifetime: Lifetime | None = None  # of a dynamic node
    right: Resource | None = None  # what its user must be allowed to read


# --- targets


async def place_of(terms: Terms, address: str, capabilities: frozenset[str]) -> Place:
    """Finds where messages to that address go. Raises Amqp10Error or CoreError."""
    found = parse(address, capabilities)
    match found:
        case QueueAddress():
            await _find_queue(terms, found)
            return publishable(terms, Place("", found.name))
        case ExchangeAddress():
            check_publishable(found, address)
            return publishable(terms, Place(found.exchange, found.key))
        case NameAddress():
            return publishable(terms, _named(terms, found.name))


def relayed_place(terms: Terms, address: str) -> Place:
    """Finds where one message of an anonymous relay goes; no node is made for it."""
    found = parse(address)
    if isinstance(found, QueueAddress):
        if found.name not in terms.vhost.queues:
            raise Amqp10Error(NOT_FOUND, f"no queue '{found.name}' to relay to; declare it first")
        return publishable(terms, Place("", found.name))
    if isinstance(found, ExchangeAddress):
        check_publishable(found, address)
        return publishable(terms, Place(found.exchange, found.key))
    return publishable(terms, _named(terms, found.name))


def _named(terms: Terms, name: str) -> Place:
    if name in terms.vhost.queues:
        return Place("", name)
    address = topic(name)
    check_publishable(address, name)
    return Place(address.exchange, address.key)


def publishable(terms: Terms, place: Place) -> Place:
    """Raises ExchangeNotFound or AccessRefused."""
    exchange = terms.vhost.router.exchange(place.exchange)
    if exchange.spec.is_topic:
        terms.require(Action.WRITE, "topic", place.exchange, place.key)
    else:
        terms.require(Action.WRITE, "exchange", place.exchange)
    return place


async def _find_queue(terms: Terms, address: QueueAddress) -> None:
    """Makes it, where the address asks for one that may be made."""
    if address.name in terms.vhost.queues:
        return
    if not address.may_make:
        raise QueueNotFound(
            f"no queue '{address.name}' in vhost '{terms.vhost.name}'; declare it first, or attach "
            "with the capability 'queue'"
        )
    check_name(address.name)
    terms.require(Action.CONFIGURE, "queue", address.name)
    await terms.vhost.declare_queue(QueueSpec.parse(address.name), None, terms.identity.name)


def check_name(name: str) -> None:
    """Names that this protocol keeps for itself; those of the whole gateway, the core refuses."""
    if name.startswith(SUBSCRIPTIONS):
        raise Amqp10Error(
            INVALID_FIELD, f"queue '{name}': such names are the gateway's own; choose another"
        )


# --- sources


async def supply_of(terms: Terms, attach: Attach) -> Supply:
    """The queue to consume from, made where that is asked for. Raises Amqp10Error, CoreError."""
    source = attach.source
    if source.is_dynamic:
        lifetime = asked_lifetime(source.properties)
        name = await nodes_of(terms.vhost).make(terms, lifetime)
        return Supply(name, queue_address(name), End.LINK, lifetime=lifetime)
    if source.address is None:
        return _recovered(terms, attach)
    found = _source_address(terms, source)
    if isinstance(found, QueueAddress):
        terms.vhost.check_usable(found.name)
        right = terms.require(Action.READ, "queue", found.name)
        await _find_queue(terms, found)
        terms.vhost.queue(found.name, terms.owner)
        return Supply(found.name, source.address, right=right)
    return await _subscribe(terms, attach, found)


def _source_address(terms: Terms, source: Terminus) -> QueueAddress | ExchangeAddress:
    assert source.address is not None
    found: Address = parse(source.address, source.capabilities)
    if not isinstance(found, NameAddress):
        return found
    return QueueAddress(found.name) if found.name in terms.vhost.queues else topic(found.name)


def subscription_name(terms: Terms, attach: Attach) -> str:
    """Names a subscription's queue by user, container and link: whatever container a client claims,
    it finds no other user's subscription. Shared ones that are global, as JMS has it, belong to
    nobody: their members may be of several users, each of whom must be allowed to read what they
    are bound to."""
    name = quote(_link_name(attach), safe="")
    if {SHARED, GLOBAL} <= attach.source.capabilities:
        return f"{SUBSCRIPTIONS}/{name}"
    scope = f"{quote(terms.identity.name, safe='')}/{quote(terms.container, safe='')}"
    return f"{SUBSCRIPTIONS}{scope}/{name}"


def group_name(terms: Terms, attach: Attach) -> str:
    """Names the cursor of a durable source on a stream. Every user with the right to read the
    stream may have it."""
    scope = "" if GLOBAL in attach.source.capabilities else terms.container
    return f"{SUBSCRIPTIONS}{quote(scope, safe='')}/{quote(_link_name(attach), safe='')}"


def _link_name(attach: Attach) -> str:
    """Strips what members of a shared subscription append to tell themselves apart, as JMS clients
    do."""
    return attach.name.partition("|")[0] if SHARED in attach.source.capabilities else attach.name


def _base_name(terms: Terms, attach: Attach) -> str:
    """The name of the subscription that is there, or is to be made. One from before users were
    part of the name is its maker's."""
    name, queues = subscription_name(terms, attach), terms.vhost.queues
    earlier = queues.get(group_name(terms, attach))  # which is how they were named
    if name in queues or earlier is None or earlier.created_by != terms.identity.name:
        return name
    return earlier.name


def _recovered(terms: Terms, attach: Attach) -> Supply:
    """A null source: the subscription that was made under these names before."""
    base, queues = _base_name(terms, attach), terms.vhost.queues
    name = next((base + each for each in ("", KEPT, TIMED) if base + each in queues), base)
    queue = queues.get(name)
    if queue is None:
        raise Amqp10Error(
            NOT_FOUND,
            f"no subscription '{attach.name}' of container '{terms.container}' and user "
            f"'{terms.identity.name}'; attach with a source to make one",
        )
    bindings = _sources(terms, queue)
    right = _readable(terms, queue, bindings)
    return Supply(
        name,
        _address_of(bindings[0]) if bindings else queue_address(name),
        End.CLOSE if queue.spec.expires is None else End.TIMEOUT,
        int(queue.spec.expires or 0),
        is_subscription=True,
        is_durable=queue.spec.durable,
        is_exclusive=SHARED not in attach.source.capabilities,
        right=right,
    )


def _sources(terms: Terms, queue: Queue) -> list[Binding[Queue]]:
    """Lists what a subscription is bound to; the default exchange, which leads to every queue, is
    no source of it."""
    return [each for each in terms.vhost.router.bindings_of(queue) if each.source]


def _address_of(binding: Binding[Queue]) -> str:
    if binding.source == TOPIC_EXCHANGE:
        return f"topic://{binding.key}"
    return exchange_address(binding.source, binding.key)


def _readable(terms: Terms, queue: Queue, bindings: list[Binding[Queue]]) -> Resource:
    """Checks that a user may take a subscription that is there: all that it is bound to must be
    readable. One that is bound to nothing any more may hold anything: it is its maker's, or
    readable by the right to its queue. Raises AccessRefused."""
    rights = [_read(terms, each.source, each.key) for each in bindings]
    if rights:
        return rights[0]
    if queue.created_by == terms.identity.name:
        return Resource("vhost", terms.vhost.name)
    return terms.require(Action.READ, "queue", queue.name)


def _read(terms: Terms, exchange: str, key: str) -> Resource:
    """Raises ExchangeNotFound, AccessRefused."""
    if terms.vhost.router.exchange(exchange).spec.is_topic:
        return terms.require(Action.READ, "topic", exchange, key)
    return terms.require(Action.READ, "exchange", exchange)


async def _subscribe(terms: Terms, attach: Attach, address: ExchangeAddress) -> Supply:
    vhost, source = terms.vhost, attach.source
    right = _read(terms, address.exchange, address.key)
    assert source.address is not None
    spec, supply = _subscription(terms, attach, source.address)
    existing = vhost.queues.get(spec.name)
    if existing is not None:
        await _change(terms, existing, address)
    queue = await vhost.declare_queue(spec, terms.owner, terms.identity.name, inside=True)
    await vhost.bind(address.exchange, queue, address.key)
    return replace(supply, right=right)


async def _change(terms: Terms, queue: Queue, address: ExchangeAddress) -> None:
    """Binds a subscription to something else, as JMS has it: only while nobody receives from it,
    and for a user with the right to read what is in it. Raises CoreError, Amqp10Error."""
    bindings = _sources(terms, queue)
    _readable(terms, queue, bindings)
    others = [
        each for each in bindings if (each.source, each.key) != (address.exchange, address.key)
    ]
    if others and queue.counts().consumers:
        raise Amqp10Error(
            RESOURCE_LOCKED,
            f"subscription '{queue.name}' is for something else, and in use; end its receivers "
            "first, or choose another link name",
        )
    for each in others:
        await terms.vhost.unbind(each.source, queue, each.key, each.arguments)


def _subscription(terms: Terms, attach: Attach, told: str) -> tuple[QueueSpec, Supply]:
    """The queue behind a subscription, by what its source says of durability and expiry."""
    source = attach.source
    base = _base_name(terms, attach)
    is_shared = SHARED in source.capabilities
    if source.is_durable:
        spec = QueueSpec.parse(base)
        return spec, Supply(
            base,
            told,
            End.CLOSE,
            is_subscription=True,
            is_durable=True,
            is_exclusive=not is_shared,
        )
    if is_shared:  # not to be mistaken for a durable one of the same name
        spec = QueueSpec.parse(base + LIVE, LIVE_LIMITS, durable=False, auto_delete=True)
        return spec, Supply(spec.name, told, End.LINK, is_subscription=True)
    end = ENDS[source.expiry]
    if end is End.CLOSE:
        spec = QueueSpec.parse(base + KEPT, LIVE_LIMITS, durable=False)
        supply = Supply(spec.name, told, end, is_subscription=True, is_exclusive=True)
        return spec, supply
    if source.timeout:
        limits = {**LIVE_LIMITS, "x-expires": source.timeout * 1000}
        spec = QueueSpec.parse(base + TIMED, limits, durable=False)
        return spec, Supply(
            spec.name, told, End.TIMEOUT, source.timeout, is_subscription=True, is_exclusive=True
        )
    spec = QueueSpec.parse(terms.vhost.new_name(), LIVE_LIMITS, durable=False, exclusive=True)
    return spec, Supply(spec.name, told, end, is_subscription=True)
