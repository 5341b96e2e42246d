"""Consuming: qos, consume, cancel, get, and the ways to settle what was delivered."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from secrets import token_urlsafe
from typing import Final

from protocols.amqp091.channel import Channel
from protocols.amqp091.consume.deliveries import native_for, whole_message
from protocols.amqp091.consume.subscription import Subscription
from protocols.amqp091.conversion.properties import fitting
from protocols.amqp091.errors import Amqp091Error, ReplyCode
from protocols.amqp091.negotiated_terms import Terms
from protocols.amqp091.states import ChannelState
from protocols.amqp091.wire.content import DIRECT_REPLY_TO
from protocols.amqp091.wire.methods import (
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicRecoverAsync,
    BasicRecoverOk,
    BasicReject,
    ChannelFlow,
    ChannelFlowOk,
)
from queue_core.access.auth import Action, Resource
from queue_core.delivery.consumer import (
    UNLIMITED_CREDIT,
    Consumer,
    ConsumerSpec,
    Delivery,
    Position,
    SharedCredit,
)
from queue_core.errors import (
    CoreError,
    InvalidArgument,
    QueueNotFound,
    ResourceLocked,
    UnsupportedArgument,
)
from queue_core.message.message import TOPIC_EXCHANGE
from queue_core.outcomes import ACCEPTED, FAILED, REJECTED, RELEASED, Verdict
from queue_core.queues.spec import AGE_DIGITS, AGE_UNITS, QueueSpec
from queue_core.vhost import Vhost

PRIORITY_ARGUMENT: Final = "x-priority"
OFFSET_ARGUMENT: Final = "x-stream-offset"
GROUP_ARGUMENT: Final = "x-consumer-group"
CONSUMER_ARGUMENTS: Final = frozenset((PRIORITY_ARGUMENT, OFFSET_ARGUMENT, GROUP_ARGUMENT))
FAILOVER_ARGUMENT: Final = "x-cancel-on-ha-failover"  # there is no mirror that could take over
# the time to acknowledge is the queue's: a consumer that asks for one gets what the queue has
INERT_CONSUMER_ARGUMENTS: Final = frozenset((FAILOVER_ARGUMENT, "x-consumer-timeout"))
PRIORITY_RANGE: Final = range(-(1 << 31) + 1, 1 << 31)  # the lowest is basic.get's

MOST_UNACKED: Final = UNLIMITED_CREDIT  # that a channel may take by basic.get
CATCH_UP_SECONDS: Final = 2.0  # for what was published before a consumer was cancelled


# --- how much


def set_prefetch(channel: Channel, method: BasicQos) -> None:
    """Sets the prefetch as RabbitMQ reads it: for each consumer to come, or, if global, for the
    whole channel."""
    if method.prefetch_size:
        raise Amqp091Error(
            ReplyCode.NOT_IMPLEMENTED,
            f"prefetch_size={method.prefetch_size}: limit the number of messages instead",
        )
    channel.send(BasicQosOk())
    if method.is_global:
        _share(channel, method.prefetch_count)
    else:
        channel.prefetch = method.prefetch_count or UNLIMITED_CREDIT


def _share(channel: Channel, limit: int) -> None:
    shared, window = channel.shared, limit or UNLIMITED_CREDIT
    if shared is None:
        channel.shared = shared = SharedCredit(window)
        for consumer in channel.consumers.values():
            shared.free -= len(consumer.unsettled)
            consumer.shared = shared
    else:
        shared.grant(window - (channel.shared_limit or UNLIMITED_CREDIT))
    channel.shared_limit = limit


def set_flow(channel: Channel, method: ChannelFlow) -> None:
    """Stops deliveries, or goes on with them, as the client asks."""
    channel.is_flowing = method.active
    if method.active:
        channel.send(ChannelFlowOk(True))
        channel.resume()
    else:
        channel.pause()
        channel.send(ChannelFlowOk(False))


# --- consuming


async def consume(channel: Channel, method: BasicConsume) -> None:
    if method.no_local:
        raise Amqp091Error(
            ReplyCode.NOT_IMPLEMENTED,
            "no_local=true: compare the header or user-id of what you publish instead",
        )
    tag = method.consumer_tag or f"amq.ctag-{token_urlsafe(16)}"
    if tag in channel.consumers:
        raise Amqp091Error(ReplyCode.NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
    name, right = await _consumed_queue(channel, method)
    sink = Subscription(channel, tag, name, right, no_ack=method.no_ack)
    spec = ConsumerSpec(
        tag=tag,
        credit=channel.prefetch,
        auto_settle=method.no_ack,
        exclusive=method.exclusive,
        priority=_priority(method.arguments),
        group=_group(method.arguments),
        start=position(method.arguments.get(OFFSET_ARGUMENT), channel.clock()),
        shared=channel.shared,
        origin=channel.terms.origin,
        arguments=method.arguments,
    )
    terms = channel.terms
    queue = terms.vhost.queue(name, terms.owner)
    if method.exclusive and queue.spec.single_active_consumer:
        raise Amqp091Error(
            ReplyCode.ACCESS_REFUSED,
            f"queue '{name}' has a single active consumer: consume without exclusive",
        )
    try:
        consumer = await terms.vhost.consume(name, sink, spec, terms.owner)
    except ResourceLocked as error:  # another consumer has the queue for itself
        raise Amqp091Error(ReplyCode.ACCESS_REFUSED, str(error)) from None
    if channel.state is not ChannelState.OPEN:  # the connection was closed meanwhile
        terms.vhost.end_consumer(consumer, RELEASED)
        return
    if consumer.is_closed:
        raise QueueNotFound(f"queue '{name}' was deleted meanwhile; declare it first")
    consumer.on_overdue = channel.time_out
    channel.consumers[tag] = consumer
    if not method.nowait:
        channel.send(BasicConsumeOk(tag))
    if channel.is_flowing and not channel.output.is_blocked:
        consumer.wake()
    else:
        consumer.pause()


def force_off(channel: Channel, tag: str, reason: CoreError) -> bool:
    """Ends a consumer because an operator wants it; False: there is no such consumer. A client that
    did not ask to be told of a consumer's end loses its channel, so that it notices."""
    consumer = channel.consumers.get(tag)
    if consumer is None:
        return False
    _end_from_outside(channel, consumer, reason)
    return True


def _end_from_outside(channel: Channel, consumer: Consumer, reason: CoreError) -> bool:
    """Ends a consumer that its client has not cancelled; False: the whole channel has ended."""
    terms = channel.terms
    if not terms.wants_cancel:
        terms.fail_channel(channel.number, Amqp091Error(ReplyCode.ACCESS_REFUSED, str(reason)))
        return False
    terms.vhost.end_consumer(consumer, None)
    consumer.sink.on_cancel(consumer, reason)
    return True


def review(channel: Channel) -> None:
    """Ends consumers that may not read any more after permissions have changed. Clients that asked
    to be told of a consumer's end are told; channels of others end."""
    terms = channel.terms
    for tag, consumer in list(channel.consumers.items()):
        sink = consumer.sink
        if tag not in channel.consumers or not isinstance(sink, Subscription) or not sink.right:
            continue
        loss = terms.auth.loss(terms.identity, sink.right)
        if loss is None:
            continue
        if not _end_from_outside(channel, consumer, loss):
            return


async def _consumed_queue(channel: Channel, method: BasicConsume) -> tuple[str, Resource | None]:
    """Finds the queue to consume from, or makes it, for direct replies and for patterns. Returns
    its name, and the resource that must be readable."""
    terms = channel.terms
    _check_arguments(channel, method)
    if method.queue == DIRECT_REPLY_TO:
        return await _reply_queue(channel, method), None
    name = queue_name(channel, method.queue)
    is_pattern = "*" in name or "#" in name
    if is_pattern and not terms.settings.strict and name not in terms.vhost.queues:
        return await _pattern_queue(channel, name)
    return name, terms.require(Action.READ, "queue", name)


async def _reply_queue(channel: Channel, method: BasicConsume) -> str:
    if not method.no_ack:
        raise Amqp091Error(
            ReplyCode.PRECONDITION_FAILED,
            "reply consumer cannot acknowledge: consume with no_ack=true",
        )
    if channel.reply_queue:
        raise Amqp091Error(ReplyCode.PRECONDITION_FAILED, "reply consumer already set")
    name = channel.vhost.new_name(f"{DIRECT_REPLY_TO}.")
    await _declare_private(channel, name)
    channel.reply_queue = name
    return name


async def _pattern_queue(channel: Channel, pattern: str) -> tuple[str, Resource]:
    """Makes a queue for pub/sub: ephemeral, this connection's own, and gone with its consumer."""
    terms = channel.terms
    right = terms.require(Action.READ, "topic", TOPIC_EXCHANGE, pattern)
    name = terms.vhost.new_name()
    await _declare_private(channel, name)
    await terms.vhost.bind(TOPIC_EXCHANGE, terms.vhost.queue(name, terms.owner), pattern)
    return name, right


async def _declare_private(channel: Channel, name: str) -> None:
    spec = QueueSpec.parse(name, durable=False, exclusive=True, auto_delete=True)
    terms = channel.terms
    await terms.vhost.declare_queue(spec, terms.owner, terms.identity.name, inside=True)


def queue_name(channel: Channel, name: str) -> str:
    """Resolves a queue's name: an empty one is that of the queue declared last on this channel."""
    if name:
        channel.vhost.check_usable(name)
        return name
    if not channel.last_queue:
        raise QueueNotFound("no previously declared queue on this channel; name one")
    return channel.last_queue


def _check_arguments(channel: Channel, method: BasicConsume) -> None:
    """Checks a consumer's arguments. Unknown ones, which have no effect, are named in the log, and
    refused by amqp091.strict."""
    arguments, terms = method.arguments, channel.terms
    if not isinstance(arguments.get(FAILOVER_ARGUMENT, False), bool):
        raise InvalidArgument(f"'{FAILOVER_ARGUMENT}' must be true or false")
    inert = [name for name in arguments if name not in CONSUMER_ARGUMENTS]
    if inert and terms.settings.strict:
        raise UnsupportedArgument(
            f"consumer argument '{inert[0]}' has no effect here, and amqp091.strict is set; "
            f"those with one are {', '.join(sorted(CONSUMER_ARGUMENTS))}"
        )
    unknown = [name for name in inert if name not in INERT_CONSUMER_ARGUMENTS]
    terms.vhost.report_inert("consumer of queue", method.queue, unknown)


def _priority(arguments: Mapping[str, object]) -> int:
    value = arguments.get(PRIORITY_ARGUMENT, 0)
    if isinstance(value, bool) or not isinstance(value, int) or value not in PRIORITY_RANGE:
        raise InvalidArgument(f"'{PRIORITY_ARGUMENT}' must be a whole number of 32 bits")
    return value


def _group(arguments: Mapping[str, object]) -> str | None:
    value = arguments.get(GROUP_ARGUMENT)
    if value is not None and not (isinstance(value, str) and value):
        raise InvalidArgument(f"'{GROUP_ARGUMENT}' must be a name")
    return value


def position(value: object, now: float) -> Position | None:
    """Reads where a consumer of a stream wants to begin. An interval such as 1h is so long ago."""
    match value:
        case None:
            return None
        case "first" | "last" | "next":
            return Position(name=str(value))
        case bool():
            pass
        case int() if value >= 0:
            return Position(offset=value)
        case datetime():
            return Position(time=value.timestamp())
        case str() if _is_interval(value):
            return Position(time=now - int(value[:-1]) * AGE_UNITS[value[-1]])
    raise InvalidArgument(
        f"'{OFFSET_ARGUMENT}' must be first, last, next, an offset, a timestamp or an interval "
        "such as 1h"
    )


def _is_interval(value: str) -> bool:
    number, unit = value[:-1], value[-1:]
    is_number = number.isascii() and number.isdigit() and len(number) <= AGE_DIGITS
    return is_number and unit in AGE_UNITS


async def cancel(channel: Channel, method: BasicCancel) -> None:
    """Cancels a consumer. Its deliveries may still be settled; messages that were published before,
    and may be on their way to the disk, it still gets, as far as it has room."""
    consumer = channel.consumers.get(method.consumer_tag)
    if consumer is not None:
        with suppress(TimeoutError):  # the database is away: nobody is to wait for that
            async with asyncio.timeout(CATCH_UP_SECONDS):
                await has_caught_up(channel.vhost, consumer.queue_name)
        if channel.state is not ChannelState.OPEN:
            return
    consumer = channel.forget(method.consumer_tag)
    if consumer is not None:
        if consumer.queue_name == channel.reply_queue:
            channel.reply_queue = ""
        channel.vhost.end_consumer(consumer, None)
    if not method.nowait:
        channel.send(BasicCancelOk(method.consumer_tag))


async def get(channel: Channel, method: BasicGet) -> None:
    terms = channel.terms
    name = queue_name(channel, method.queue)
    terms.require(Action.READ, "queue", name)
    if len(channel.unacked) >= MOST_UNACKED:
        raise Amqp091Error(
            ReplyCode.PRECONDITION_FAILED,
            f"{MOST_UNACKED} messages are unacknowledged on this channel; acknowledge them first",
        )
    delivery = await _get_one(terms, name, method)
    if delivery is None and await has_caught_up(terms.vhost, name):
        delivery = await _get_one(terms, name, method)
    if delivery is None:
        channel.empty_gets += 1
        channel.send(BasicGetEmpty())
        return
    if channel.state is not ChannelState.OPEN:  # the connection was closed meanwhile
        if delivery.is_open:
            terms.vhost.settle([delivery], RELEASED)
        return
    channel.delivery_tag += 1
    if method.no_ack:
        channel.got_settled += 1
    else:
        channel.got += 1
        channel.unacked[channel.delivery_tag] = delivery
        delivery.consumer.on_overdue = channel.time_out
    queue = terms.vhost.queues.get(name)
    message = delivery.message
    answer = BasicGetOk(
        channel.delivery_tag,
        delivery.redelivered,
        fitting(message.exchange),
        fitting(message.routing_key),
        0 if queue is None else queue.counts().ready,
    )
    native = native_for(delivery, channel.clock())
    channel.output.write(
        whole_message(channel.number, answer, native, message.body, terms.tuning.frame_max)
    )


async def _get_one(terms: Terms, name: str, method: BasicGet) -> Delivery | None:
    return await terms.vhost.get(
        name, auto_settle=method.no_ack, owner=terms.owner, origin=terms.origin
    )


async def has_caught_up(vhost: Vhost, name: str) -> bool:
    """Waits until what was published to a queue before now is in it, so that whoever asks for a
    message or a count sees it. False: nothing was on its way."""
    queue = vhost.queues.get(name)
    if queue is None or not queue.pending:
        return False
    await vhost.writer.flushed()
    return True


# --- settling, other than by basic.ack


def settle(channel: Channel, tag: int, verdict: Verdict, *, multiple: bool) -> None:
    """Settles a delivery, or all up to its tag; in a transaction, at its commit."""
    work, unacked = channel.work, channel.unacked
    if work is not None:
        tags = [each for each in unacked if each <= tag or not tag] if multiple else [tag]
        work.acked += [(each, unacked[each]) for each in tags if each in unacked]
    deliveries = channel.take_unacked(tag, multiple=multiple)
    if verdict is not ACCEPTED:
        channel.rejected += len(deliveries)
    if work is None:
        channel.vhost.settle(deliveries, verdict)
    else:
        work.transaction.settle(deliveries, verdict)


def nack(channel: Channel, method: BasicNack) -> None:
    verdict = RELEASED if method.requeue else REJECTED
    settle(channel, method.delivery_tag, verdict, multiple=method.multiple)


def reject(channel: Channel, method: BasicReject) -> None:
    """Rejects a delivery. With requeue it counts as failed: see the queue's delivery limit."""
    settle(channel, method.delivery_tag, FAILED if method.requeue else REJECTED, multiple=False)


def recover(channel: Channel, method: BasicRecover) -> None:
    deliveries = _take_all(channel, method.requeue)
    channel.send(BasicRecoverOk())  # before what is recovered comes again, as RabbitMQ has it
    channel.vhost.settle(deliveries, RELEASED)


def recover_async(channel: Channel, method: BasicRecoverAsync) -> None:
    channel.vhost.settle(_take_all(channel, method.requeue), RELEASED)


def _take_all(channel: Channel, requeue: bool) -> list[Delivery]:
    if not requeue:
        raise Amqp091Error(
            ReplyCode.NOT_IMPLEMENTED, "requeue=false: recover with requeue=true instead"
        )
    deliveries: list[Delivery] = list(channel.unacked.values())
    channel.unacked.clear()
    channel.rejected += len(deliveries)
    return deliveries
