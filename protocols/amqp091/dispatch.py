"""Which method of a channel does what: the legal moves of an open channel, as two tables.

Methods of `IMMEDIATE` are done in place; those of `WAITING` need the core's definitions or a
commit. Opening, closing and publishing are `machine`'s own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from protocols.amqp091 import definitions
from protocols.amqp091.channel import Channel
from protocols.amqp091.consume import consuming
from protocols.amqp091.errors import Amqp091Error, ReplyCode
from protocols.amqp091.publish import publishing
from protocols.amqp091.wire.methods import (
    AccessRequest,
    AccessRequestOk,
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicGet,
    BasicNack,
    BasicQos,
    BasicRecover,
    BasicRecoverAsync,
    BasicReject,
    ChannelFlow,
    ChannelFlowOk,
    ConfirmSelect,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    Method,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
    TxCommit,
    TxRollback,
    TxSelect,
)
from queue_core.outcomes import ACCEPTED


def _ack(channel: Channel, method: BasicAck) -> None:
    consuming.settle(channel, method.delivery_tag, ACCEPTED, multiple=method.multiple)


def _nothing(channel: Channel, method: Method) -> None:
    """Does nothing: the client answers something that needs no answer."""


def _request_access(channel: Channel, method: AccessRequest) -> None:
    """Answers access.request of AMQP 0.8: some clients still ask, and every ticket is as good as
    another."""
    channel.send(AccessRequestOk(1))


IMMEDIATE: Final[dict[type[Method], Callable[[Channel, Any], None]]] = {
    AccessRequest: _request_access,
    BasicAck: _ack,
    BasicNack: consuming.nack,
    BasicReject: consuming.reject,
    BasicRecover: consuming.recover,
    BasicRecoverAsync: consuming.recover_async,
    BasicQos: consuming.set_prefetch,
    BasicCancelOk: _nothing,
    ChannelFlow: consuming.set_flow,
    ChannelFlowOk: _nothing,
    ConfirmSelect: publishing.select_confirms,
    TxSelect: publishing.select_transactions,
    TxRollback: publishing.rollback,
}

WAITING: Final[dict[type[Method], Callable[[Channel, Any], Awaitable[None]]]] = {
    BasicCancel: consuming.cancel,
    BasicConsume: consuming.consume,
    BasicGet: consuming.get,
    ExchangeDeclare: definitions.declare_exchange,
    ExchangeDelete: definitions.delete_exchange,
    ExchangeBind: definitions.bind_exchange,
    ExchangeUnbind: definitions.unbind_exchange,
    QueueDeclare: definitions.declare_queue,
    QueueDelete: definitions.delete_queue,
    QueuePurge: definitions.purge_queue,
    QueueBind: definitions.bind_queue,
    QueueUnbind: definitions.unbind_queue,
    TxCommit: publishing.commit,
}


@dataclass(frozen=True, slots=True)
class Perform:
    """The command to carry out a method of `WAITING`."""

    channel: Channel
    method: Method


def refuse(method: Method) -> NoReturn:
    """Refuses a method that is a server's to send, or a connection's."""
    raise Amqp091Error(
        ReplyCode.COMMAND_INVALID, f"{type(method).__name__} is not for a client to send here"
    )
