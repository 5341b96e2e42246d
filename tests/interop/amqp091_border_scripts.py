"""Further scripts for RabbitMQ and Howdah: what lies at the borders of a rule, and who answers what
to frames that break one."""

from __future__ import annotations

import struct

from protocols.amqp091.wire.codec import encode_method, method_frame
from protocols.amqp091.wire.frames import BODY, HEADER, HEARTBEAT, METHOD, frame
from protocols.amqp091.wire.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicGet,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicRecover,
    BasicReject,
    ChannelClose,
    ChannelOpen,
    ConfirmSelect,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    TxCommit,
    TxRollback,
    TxSelect,
)
from tests.interop.amqp091_script import Script, Step
from tests.interop.amqp091_scripts import publish, reopened

FRAME_MAX = 131_072  # as every script negotiates it
NUMBERS = {  # ten, as each type of number writes it
    "byte": b"b\x0a",
    "unsigned byte": b"B\x0a",
    "short": b"s\x00\x0a",
    "unsigned short": b"u\x00\x0a",
    "int": b"I\x00\x00\x00\x0a",
    "unsigned int": b"i\x00\x00\x00\x0a",
    "long": b"l" + bytes(7) + b"\x0a",
}
NO_NUMBERS = {
    "double": b"d" + struct.pack(">d", 10.0),
    "text": b"S\x00\x00\x00\x0210",
    "truth": b"t\x01",
    "time": b"T" + bytes(7) + b"\x0a",
    "nothing": b"V",
}


def content(length: int, *, class_id: int = 60, weight: int = 0) -> bytes:
    return frame(HEADER, 1, struct.pack(">HHQH", class_id, weight, length, 0))


def began(key: str, exchange: str = "") -> bytes:
    return method_frame(1, BasicPublish(0, exchange, key))


def written(queue: str, value: bytes) -> Step:
    """A declaration whose x-max-length is written by hand."""
    method = encode_method(QueueDeclare(0, queue, exclusive=True))
    field = b"\x0cx-max-length" + value
    return Step(frame(METHOD, 1, method[:-4] + len(field).to_bytes(4) + field))


def taken(queue: str, **options: float) -> Step:
    return Step(BasicGet(0, queue, no_ack=True), **options)  # type: ignore[arg-type]


KEYS: tuple[object, ...] = ([1], None, {})  # of the header CC
ONE_TO_THREE = (b"one", b"two", b"three")

MANY_AT_ONCE = Script(
    "multiple over get and consume",
    [
        Step(QueueDeclare(0, "bm", exclusive=True)),
        *[publish("bm", str(number).encode()) for number in range(1, 8)],
        Step(BasicQos(0, 2)),
        Step(BasicConsume(0, "bm", "c")),
        Step(BasicGet(0, "bm")),
        Step(BasicGet(0, "bm")),
        Step(BasicAck(3, multiple=True)),
        Step(BasicNack(5, multiple=True, requeue=True)),
        Step(BasicRecover(requeue=True)),
        Step(BasicCancel("c")),
        Step(BasicAck(0, multiple=True)),
        Step(QueueDeclare(0, "bm", passive=True)),
    ],
)
SETTLED_BEFORE = [
    Script(
        f"{type(again).__name__} up to what was settled before",
        [
            Step(QueueDeclare(0, "bs", exclusive=True)),
            *[publish("bs", body) for body in ONE_TO_THREE],
            *[Step(BasicGet(0, "bs")) for _ in range(3)],
            Step(BasicAck(2)),
            Step(again),
            Step(ChannelOpen(), 2),
            Step(QueueDeclare(0, "bs", passive=True), 2),
        ],
    )
    for again in (BasicAck(2, multiple=True), BasicNack(2, multiple=True))
]
SINGLE_ACTIVE = Script(
    "get beside a single active consumer",
    [
        Step(QueueDeclare(0, "ba", exclusive=True, arguments={"x-single-active-consumer": True})),
        Step(BasicQos(0, 1)),
        Step(BasicConsume(0, "ba", "active")),
        *[publish("ba", body) for body in ONE_TO_THREE],
        Step(BasicGet(0, "ba")),
        Step(BasicConsume(0, "ba", "next")),
        taken("ba"),
        taken("ba"),
        Step(BasicNack(2, requeue=True)),
        Step(BasicAck(1)),
        Step(BasicConsume(0, "ba", "alone", exclusive=True)),
    ],
)
EXCLUSIVE_CONSUMER = Script(
    "get beside an exclusive consumer",
    [
        Step(QueueDeclare(0, "be", durable=True)),
        Step(BasicQos(0, 1)),
        Step(BasicConsume(0, "be", "c", exclusive=True)),
        *[publish("be", body) for body in ONE_TO_THREE],
        Step(BasicGet(0, "be"), connection=1),
        Step(QueuePurge(0, "be"), connection=1),
        Step(BasicCancel("c")),
        Step(QueueDelete(0, "be")),
    ],
)
WHOLE_FRAMES = [
    Script(
        f"a body of {size} bytes in a frame",
        [
            Step(QueueDeclare(0, "bf", exclusive=True)),
            Step(began("bf") + content(size) + frame(BODY, 1, bytes(size)), breaks=not is_taken),
            *([taken("bf"), Step(BasicConsume(0, "bf", "c", no_ack=True))] if is_taken else []),
            *([Step(began("bf") + content(size) + frame(BODY, 1, bytes(size)))] * is_taken),
        ],
    )
    for size, is_taken in ((FRAME_MAX - 8, 1), (FRAME_MAX, 1), (FRAME_MAX + 1, 0))
]
EMPTY = Script(
    "empty bodies",
    [
        Step(QueueDeclare(0, "bz", exclusive=True)),
        Step(ConfirmSelect()),
        publish("bz", b""),
        publish("nowhere", b"", "amq.direct", mandatory=True),
        Step(BasicGet(0, "bz")),
        Step(BasicConsume(0, "bz", "c")),
        publish("bz", b""),
        Step(began("bz") + content(3) + frame(BODY, 1, b"") + frame(BODY, 1, b"abc")),
        Step(began("bz") + content(0) + frame(BODY, 1, b""), breaks=True),
    ],
)
NO_TIME = [
    Script(
        f"no time to live, {'durable' if durable else 'in memory'}",
        [
            Step(QueueDeclare(0, "bt", durable=durable, exclusive=not durable)),
            Step(
                QueueDeclare(
                    0,
                    "bq",
                    durable=durable,
                    exclusive=not durable,
                    arguments={"x-message-ttl": 0},
                )
            ),
            publish("bt", b"nobody", expiration="0", delivery_mode=2, wait=0.2),
            taken("bt"),
            Step(BasicQos(0, 1)),
            *[Step(BasicConsume(0, queue, queue)) for queue in ("bt", "bq")],
            publish("bt", b"in time", expiration="0", delivery_mode=2, wait=0.3),
            publish("bt", b"no credit", expiration="0", delivery_mode=2),
            publish("bq", b"in time", wait=0.3),
            Step(BasicAck(1)),
            Step(BasicNack(2, requeue=True)),
            *[Step(BasicCancel(queue)) for queue in ("bt", "bq")],
            *[Step(QueueDelete(0, queue)) for queue in ("bt", "bq")],
        ],
    )
    for durable in (False, True)
]
COPIES_OF_LETTERS = Script(
    "dead letters with copies",
    [
        Step(ExchangeDeclare(0, "bdx", "direct", auto_delete=True)),
        *[Step(QueueDeclare(0, name, exclusive=True)) for name in ("bd1", "bd2", "bd3")],
        Step(QueueBind(0, "bd1", "bdx", "bl")),
        Step(QueueBind(0, "bd2", "bdx", "copy")),
        Step(QueueDeclare(0, "bl", exclusive=True, arguments={"x-dead-letter-exchange": "bdx"})),
        Step(
            QueueDeclare(
                0,
                "bk",
                exclusive=True,
                arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "bd3"},
            )
        ),
        publish("bl", b"first", headers={"CC": ["copy", "bk"], "k": 1}),
        Step(BasicGet(0, "bl")),
        Step(BasicReject(1, requeue=False)),
        taken("bd1", wait=0.2),
        taken("bd2"),
        Step(BasicGet(0, "bk")),
        Step(BasicReject(4, requeue=False)),
        taken("bd3", wait=0.2),
    ],
)
TRANSACTED = Script(
    "consuming in a transaction",
    [
        Step(QueueDeclare(0, "bx", durable=True)),
        Step(QueueDeclare(0, "gone", durable=True)),
        *[publish("bx", body) for body in ONE_TO_THREE],
        Step(TxSelect()),
        Step(BasicQos(0, 2)),
        Step(BasicConsume(0, "bx", "c")),
        Step(BasicAck(1)),
        Step(BasicNack(2, requeue=True)),
        Step(TxRollback()),
        Step(BasicNack(0, multiple=True, requeue=False)),
        Step(TxRollback()),
        Step(BasicCancel("c")),
        Step(BasicAck(1, multiple=True)),
        Step(TxCommit()),
        publish("gone", b"stranded", mandatory=True),
        publish("bx", b"four", mandatory=True),
        Step(QueueDelete(0, "gone"), connection=1),
        Step(TxCommit()),
        Step(QueueDeclare(0, "bx", passive=True)),
        publish("bx", b"never"),
        Step(ChannelClose(200, "bye")),
        Step(QueueDelete(0, "bx"), connection=1),
    ],
)
EQUIVALENCE = Script(
    "numbers of every type",
    [
        *[written("bn", value) for value in NUMBERS.values()],
        *[
            step
            for name, value in NO_NUMBERS.items()
            for step in (written(f"bn {name}", value), Step(ChannelOpen()))
        ],
        Step(QueueDeclare(0, "bn")),
        Step(ChannelOpen()),
        Step(QueueDeclare(0, "bn", passive=True)),
        Step(QueueDeclare(0, "amq.rabbitmq.reply-to", passive=True)),
        *reopened(
            publish("bn", delivery_mode=3),
            *[publish("bn", expiration=each) for each in ("4294967296", "-1", "1.5", "")],
            *[publish("bn", headers={"CC": keys}) for keys in KEYS],
        ),
    ],
)
NOT_EMPTY = Script(
    "if-empty beside what is not acknowledged",
    [
        Step(QueueDeclare(0, "bu", exclusive=True)),
        publish("bu"),
        Step(BasicGet(0, "bu")),
        Step(QueueDelete(0, "bu", if_empty=True)),
    ],
)
BROKEN = [
    Script(
        f"broken: {name}", [Step(QueueDeclare(0, "bb", exclusive=True)), Step(data, breaks=True)]
    )
    for name, data in {
        "an unknown frame type": frame(7, 1, b""),
        "a heartbeat on a channel": frame(HEARTBEAT, 1, b""),
        "a heartbeat with a payload": frame(HEARTBEAT, 0, b"x"),
        "content on channel 0": frame(BODY, 0, b"x"),
        "content on a channel that is not open": frame(BODY, 9, b"x"),
        "a header of another class": began("bb") + content(1, class_id=50),
        "a header with a weight": began("bb") + content(1, weight=3),
        "a header twice": began("bb") + content(2) + content(2),
        "a body without a header": began("bb") + frame(BODY, 1, b"x"),
        "no method": frame(METHOD, 1, b""),
        "half a method": frame(METHOD, 1, encode_method(QueueDeclare(0, "half"))[:-6]),
        "more than a method": frame(METHOD, 1, encode_method(QueueDeclare(0, "more")) + b"zz"),
    }.items()
]

BORDER_SCRIPTS = [
    MANY_AT_ONCE, *SETTLED_BEFORE, SINGLE_ACTIVE, EXCLUSIVE_CONSUMER, *WHOLE_FRAMES, EMPTY,
    *NO_TIME, COPIES_OF_LETTERS, TRANSACTED, EQUIVALENCE, NOT_EMPTY, *BROKEN,
]  # fmt: skip
