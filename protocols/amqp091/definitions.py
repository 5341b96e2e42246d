"""Exchanges, queues and bindings, as AMQP 0.9.1 declares them on the core's primitives.

Permissions are asked for as RabbitMQ asks: configure to declare and delete, write to lead messages
somewhere, read to take them from there.
"""

from __future__ import annotations

from collections.abc import Mapping

from protocols.amqp091.channel import Channel
from protocols.amqp091.consume.consuming import has_caught_up, queue_name
from protocols.amqp091.errors import Amqp091Error, ReplyCode
from protocols.amqp091.negotiated_terms import Terms
from protocols.amqp091.wire.content import DIRECT_REPLY_TO
from protocols.amqp091.wire.methods import (
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    QueueUnbind,
    QueueUnbindOk,
)
from queue_core.access.auth import Action
from queue_core.declaration_rights import DeclarationRights
from queue_core.errors import (
    ExchangeNotFound,
    NameReserved,
    QueueNotFound,
    UnsupportedArgument,
)
from queue_core.queues.spec import QueueSpec
from queue_core.routing.bindings import ExchangeRef
from queue_core.routing.exchanges import ExchangeKind, ExchangeSpec

# --- exchanges


async def declare_exchange(channel: Channel, method: ExchangeDeclare) -> None:
    terms, name = channel.terms, method.exchange
    if method.passive:
        if not name:
            raise NameReserved("the default exchange is always there; there is nothing to declare")
        terms.vhost.router.exchange(name)
    else:
        if method.type not in set(ExchangeKind):
            raise Amqp091Error(
                ReplyCode.COMMAND_INVALID,
                f"invalid exchange type '{method.type}'; use {', '.join(ExchangeKind)}",
            )
        terms.require(Action.CONFIGURE, "exchange", name)  # before its words are read
        spec = ExchangeSpec.parse(
            name,
            method.type,
            method.arguments,
            durable=method.durable,
            auto_delete=method.auto_delete,
            internal=method.internal,
        )
        _rights(terms).declare_exchange(spec)
        if terms.settings.strict:
            spec.require_effect()
        await terms.vhost.declare_exchange(spec)
    if not method.nowait:
        channel.send(ExchangeDeclareOk())


async def delete_exchange(channel: Channel, method: ExchangeDelete) -> None:
    """One that is not there is deleted already."""
    terms = channel.terms
    terms.require(Action.CONFIGURE, "exchange", method.exchange)
    try:
        await terms.vhost.delete_exchange(method.exchange, if_unused=method.if_unused)
    except ExchangeNotFound:
        pass
    if not method.nowait:
        channel.send(ExchangeDeleteOk())


async def bind_exchange(channel: Channel, method: ExchangeBind) -> None:
    target = _exchange_ends(channel.terms, method)
    _require_effect(channel.terms, method.source, method.arguments)
    _rights(channel.terms).lead_to(method.destination, None)
    await channel.vhost.bind(method.source, target, method.routing_key, method.arguments)
    if not method.nowait:
        channel.send(ExchangeBindOk())


async def unbind_exchange(channel: Channel, method: ExchangeUnbind) -> None:
    """A binding whose ends are not there is gone already."""
    try:
        target = _exchange_ends(channel.terms, method)
        await channel.vhost.unbind(method.source, target, method.routing_key, method.arguments)
    except ExchangeNotFound:
        pass
    if not method.nowait:
        channel.send(ExchangeUnbindOk())


def _exchange_ends(terms: Terms, method: ExchangeBind | ExchangeUnbind) -> ExchangeRef:
    rights = _rights(terms)
    rights.bind_exchange(method.destination)
    rights.take_from(method.source, method.routing_key)
    return ExchangeRef(method.destination)


def _rights(terms: Terms) -> DeclarationRights:
    return DeclarationRights(terms.require, terms.vhost.router)


def _require_effect(terms: Terms, exchange: str, arguments: Mapping[str, object]) -> None:
    """Strict: a binding's argument that looks like an order is one."""
    inert = terms.vhost.router.exchange(exchange).inert(arguments)
    if inert and terms.settings.strict:
        raise UnsupportedArgument(
            f"binding of exchange '{exchange}': argument '{inert[0]}' has no effect on an exchange "
            "of this kind, and amqp091.strict is set; leave it out"
        )


# --- queues


async def declare_queue(channel: Channel, method: QueueDeclare) -> None:
    terms, vhost = channel.terms, channel.vhost
    name = method.queue
    if method.passive and name == DIRECT_REPLY_TO:  # is there for everybody
        channel.send(QueueDeclareOk(name, 0, 1))
        return
    if method.passive:  # an empty name is that of no queue here, as RabbitMQ reads it
        if not (name.startswith(f"{DIRECT_REPLY_TO}.") and name in vhost.queues):
            vhost.queue(name, terms.owner).touch()
    else:
        is_ours = not name
        if is_ours:
            name = vhost.new_name()
        else:
            vhost.check_declarable(name)  # before permissions and arguments, as in RabbitMQ
        _rights(terms).declare_queue(name, method.arguments)
        spec = QueueSpec.parse(
            name,
            method.arguments,
            durable=method.durable,
            exclusive=method.exclusive,
            auto_delete=method.auto_delete,
        )
        if terms.settings.strict:
            spec.require_effect()
        await vhost.declare_queue(spec, terms.owner, terms.identity.name, inside=is_ours)
    channel.last_queue = name
    if not method.nowait:
        await has_caught_up(vhost, name)
        queue = vhost.queues.get(name)
        if queue is None:
            raise QueueNotFound(f"queue '{name}' was deleted meanwhile; declare it again")
        counts = queue.counts()
        channel.send(QueueDeclareOk(name, counts.ready, counts.consumers))


async def delete_queue(channel: Channel, method: QueueDelete) -> None:
    """One that is not there is deleted already."""
    terms = channel.terms
    name = queue_name(channel, method.queue)
    terms.require(Action.CONFIGURE, "queue", name)
    await has_caught_up(terms.vhost, name)
    try:
        count = await terms.vhost.delete_queue(
            name, if_unused=method.if_unused, if_empty=method.if_empty, owner=terms.owner
        )
    except QueueNotFound:
        count = 0
    if not method.nowait:
        channel.send(QueueDeleteOk(count))


async def purge_queue(channel: Channel, method: QueuePurge) -> None:
    terms = channel.terms
    name = queue_name(channel, method.queue)
    terms.require(Action.READ, "queue", name)
    await has_caught_up(terms.vhost, name)
    count = await terms.vhost.purge_queue(name, terms.owner)
    if not method.nowait:
        channel.send(QueuePurgeOk(count))


async def bind_queue(channel: Channel, method: QueueBind) -> None:
    terms = channel.terms
    name, key = _bound(channel, method.queue, method.routing_key)
    _rights(terms).bind_queue(name)
    queue = terms.vhost.queue(name, terms.owner)
    _rights(terms).take_from(method.exchange, key)
    _require_effect(terms, method.exchange, method.arguments)
    await terms.vhost.bind(method.exchange, queue, key, method.arguments)
    if not method.nowait:
        channel.send(QueueBindOk())


async def unbind_queue(channel: Channel, method: QueueUnbind) -> None:
    """A binding whose ends are not there is gone already."""
    terms = channel.terms
    name, key = _bound(channel, method.queue, method.routing_key)
    _rights(terms).bind_queue(name)
    try:
        queue = terms.vhost.queue(name, terms.owner)
        _rights(terms).take_from(method.exchange, key)
        await terms.vhost.unbind(method.exchange, queue, key, method.arguments)
    except (QueueNotFound, ExchangeNotFound):
        pass
    channel.send(QueueUnbindOk())


def _bound(channel: Channel, queue: str, key: str) -> tuple[str, str]:
    """Names the queue and the key to bind: without a queue's name, an empty key stands for that
    name, too."""
    name = queue_name(channel, queue)
    return name, key or ("" if queue else name)
