"""Further scripts for RabbitMQ and Howdah: how messages flow through several exchanges and queues,
and what comes in one piece."""

from __future__ import annotations

import struct

from protocols.amqp091.wire.codec import method_frame
from protocols.amqp091.wire.frames import BODY, HEADER, frame
from protocols.amqp091.wire.methods import (
    BasicAck,
    BasicConsume,
    BasicGet,
    BasicNack,
    BasicPublish,
    BasicQos,
    ChannelClose,
    ChannelOpen,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeUnbind,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
    TxCommit,
    TxRollback,
    TxSelect,
)
from tests.interop.amqp091_script import Script, Step
from tests.interop.amqp091_scripts import publish, reopened

OVERFLOWS = ("drop-head", "reject-publish", "reject-publish-dlx")


def pieces(key: str, count: int, exchange: str = "", *, mandatory: bool = False) -> bytes:
    """Several publishes that arrive together."""
    found = b""
    for number in range(count):
        body = str(number).encode()
        found += method_frame(1, BasicPublish(0, exchange, key, mandatory=mandatory))
        found += frame(HEADER, 1, struct.pack(">HHQH", 60, 0, len(body), 0)) + frame(BODY, 1, body)
    return found


IN_ONE_PIECE = Script(
    "publishes in one piece",
    [
        Step(QueueDeclare(0, "b1", exclusive=True)),
        Step(QueueDeclare(0, "b2", exclusive=True)),
        Step(QueueBind(0, "b1", "amq.fanout")),
        Step(QueueBind(0, "b2", "amq.fanout")),
        Step(pieces("b1", 3)),
        Step(pieces("any", 3, exchange="amq.fanout")),
        Step(pieces("nowhere", 2, exchange="amq.direct", mandatory=True)),
        Step(QueueDeclare(0, "b2", passive=True)),
        *[Step(BasicGet(0, "b1", no_ack=True)) for _ in range(7)],
        Step(BasicConsume(0, "b2", "c")),
        Step(method_frame(1, BasicNack(8, multiple=True, requeue=True))),
        Step(method_frame(1, BasicNack(9)) + method_frame(1, BasicNack(10, requeue=False))),
        Step(pieces("k", 3, exchange="no-such")),
        Step(ChannelOpen(), 2),
        Step(QueueDeclare(0, "b2", passive=True), 2),
    ],
)

BETWEEN_EXCHANGES = Script(
    "bindings between exchanges",
    [
        *[Step(ExchangeDeclare(0, name, "topic", auto_delete=True)) for name in ("y1", "y2", "y3")],
        Step(QueueDeclare(0, "y", exclusive=True)),
        Step(ExchangeBind(0, "y2", "y1", "a.#")),
        Step(ExchangeBind(0, "y3", "y2", "*.b")),
        Step(ExchangeBind(0, "y1", "y3", "#")),  # round and round
        Step(QueueBind(0, "y", "y3", "#")),
        Step(QueueBind(0, "y", "y1", "a.b")),
        publish("a.b", b"once", "y1", mandatory=True),
        publish("a.c", b"nowhere", "y1", mandatory=True),
        publish("c.b", b"from the middle", "y2", mandatory=True),
        *[Step(BasicGet(0, "y", no_ack=True)) for _ in range(3)],
        Step(ExchangeUnbind(0, "y3", "y2", "*.b")),
        publish("a.b", b"directly", "y1", mandatory=True),
        Step(BasicGet(0, "y", no_ack=True)),
        Step(QueueUnbind(0, "y", "y1", "a.b")),
    ],
)

OVERFLOW = Script(
    "overflow",
    [
        Step(QueueDeclare(0, "over", exclusive=True)),
        *[
            Step(
                QueueDeclare(
                    0,
                    f"o-{how}",
                    exclusive=True,
                    arguments={
                        "x-max-length": 1,
                        "x-overflow": how,
                        "x-dead-letter-exchange": "",
                        "x-dead-letter-routing-key": "over",
                    },
                )
            )
            for how in OVERFLOWS
        ],
        *[publish(f"o-{how}", body) for how in OVERFLOWS for body in (b"first", b"second")],
        *[Step(BasicGet(0, f"o-{how}", no_ack=True), wait=0.1) for how in OVERFLOWS],
        *[Step(BasicGet(0, "over", no_ack=True)) for _ in range(3)],
    ],
)

UNACKNOWLEDGED = Script(
    "what a channel had",
    [
        Step(QueueDeclare(0, "w1", exclusive=True)),
        *[publish("w1", body) for body in (b"one", b"two", b"three")],
        Step(ChannelOpen(), 2),
        Step(BasicConsume(0, "w1", "c"), 2),
        Step(BasicAck(2), 2),
        Step(ChannelClose(200, "bye"), 2),
        Step(BasicGet(0, "w1")),
        Step(BasicGet(0, "w1")),
        Step(BasicGet(0, "w1")),
        Step(TxSelect()),
        Step(BasicAck(0, multiple=True)),
        Step(TxRollback()),
        Step(BasicNack(0, multiple=True, requeue=False)),
        Step(TxCommit()),
        Step(QueueDeclare(0, "w1", passive=True)),
    ],
)

STREAM = {"x-queue-type": "stream"}
STREAMS = Script(
    "streams",
    [
        Step(QueueDeclare(0, "st1", durable=True, arguments=STREAM)),
        Step(QueueDeclare(0, "st1", durable=True, arguments=STREAM)),
        *[publish("st1", body) for body in (b"one", b"two", b"three")],
        *reopened(
            Step(QueueDeclare(0, "st1", durable=True)),
            Step(QueueDeclare(0, "st2", arguments=STREAM)),
            Step(QueueDeclare(0, "st2", durable=True, exclusive=True, arguments=STREAM)),
            Step(QueueDeclare(0, "st2", durable=True, auto_delete=True, arguments=STREAM)),
            Step(BasicConsume(0, "st1", "c", no_ack=True), difference="stream-consumers"),
        ),
        Step(ChannelOpen(), 9),
        Step(BasicQos(0, 2), 9),
        Step(BasicConsume(0, "st1", "c", arguments={"x-stream-offset": "first"}), 9),
        Step(BasicAck(1), 9),
        Step(BasicNack(2), 9, difference="stream-nack"),
        Step(QueueDelete(0, "st1"), connection=1, difference="stream-delete"),
    ],
)
GET_FROM_STREAM = Script(
    "get from a stream",
    [
        Step(QueueDeclare(0, "st3", durable=True, arguments=STREAM)),
        Step(BasicGet(0, "st3")),
        Step(QueueDelete(0, "st3"), connection=1),
    ],
)
PURGE_OF_STREAM = Script(
    "purge of a stream",
    [
        Step(QueueDeclare(0, "st4", durable=True, arguments=STREAM)),
        Step(QueuePurge(0, "st4")),
        Step(QueueDelete(0, "st4"), connection=1),
    ],
)

FLOW_SCRIPTS = [
    IN_ONE_PIECE, BETWEEN_EXCHANGES, OVERFLOW, UNACKNOWLEDGED, STREAMS, GET_FROM_STREAM,
    PURGE_OF_STREAM,
]  # fmt: skip
