"""Scripts about what real applications do between declaring and closing: windows that consumers
share, leases, cancelling, transactions, new secrets."""

from __future__ import annotations

from protocols.amqp091.wire.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicGet,
    BasicPublish,
    BasicQos,
    BasicReject,
    ChannelOpen,
    ConnectionUpdateSecret,
    QueueDeclare,
    QueueDelete,
    TxCommit,
    TxSelect,
)
from tests.interop.amqp091_script import Script, Step
from tests.interop.amqp091_scripts import publish

LEASE = Script(
    "passive declarations renew a lease",
    [
        Step(QueueDeclare(0, "us1", arguments={"x-expires": 1500})),
        Step(QueueDeclare(0, "us1", passive=True), wait=1.0),
        Step(QueueDeclare(0, "us1", passive=True), wait=1.0),
        Step(QueueDeclare(0, "us1", passive=True), wait=2.5),
        Step(ChannelOpen(), 2),
        Step(QueueDeclare(0, "us1", passive=True), 2),
    ],
)
SHARED_BY_TWO = Script(
    "a window that two consumers share",
    [
        Step(QueueDeclare(0, "us2", exclusive=True)),
        Step(BasicQos(0, 1, is_global=True)),
        Step(BasicConsume(0, "us2", "a")),
        Step(BasicConsume(0, "us2", "b")),
        publish("us2", b"1"),
        publish("us2", b"2"),
        publish("us2", b"3"),
        Step(BasicAck(1)),
        Step(BasicAck(2)),
        Step(BasicAck(3)),
    ],
)
FULL_WINDOW = Script(
    "a full window holds back those that need no acknowledgements, too",
    [
        Step(QueueDeclare(0, "us3", exclusive=True)),
        Step(QueueDeclare(0, "us4", exclusive=True)),
        Step(BasicQos(0, 1, is_global=True)),
        Step(BasicConsume(0, "us3", "acks")),
        Step(BasicConsume(0, "us4", "does not", no_ack=True)),
        publish("us4", b"free"),
        publish("us3", b"held"),
        publish("us4", b"waits"),
        Step(BasicAck(2)),
    ],
)
CANCELLED = [
    Script(
        f"cancelled after publishes, {'durable' if durable else 'in memory'}",
        [
            Step(QueueDeclare(0, name, durable=durable)),
            Step(BasicConsume(0, name, "c", no_ack=True)),
            publish(name, b"1", delivery_mode=2),
            publish(name, b"2", delivery_mode=2),
            Step(BasicCancel("c")),
            Step(QueueDelete(0, name)),
        ],
    )
    for name, durable in (("us5", True), ("us6", False))
]
TIMES_IN_WORK = Script(
    "a time to live begins with the commit",
    [
        Step(QueueDeclare(0, "us7", durable=True)),
        Step(TxSelect()),
        publish("us7", b"500 ms", expiration="500", delivery_mode=2),
        Step(TxCommit(), wait=0.0),
        publish("us7", b"60 s", expiration="60000", delivery_mode=2, wait=0.7),
        Step(TxCommit()),
        Step(BasicGet(0, "us7", no_ack=True)),
        Step(QueueDelete(0, "us7")),
    ],
)
LATE_COMMIT = Script(
    "committed when its time to live would be over",
    [
        Step(QueueDeclare(0, "us8", durable=True)),
        Step(TxSelect()),
        publish("us8", b"late", expiration="2000", delivery_mode=2, wait=2.5),
        Step(TxCommit()),
        Step(BasicGet(0, "us8", no_ack=True)),
        Step(QueueDelete(0, "us8")),
    ],
)
SECRETS = Script(
    "any new secret",
    [
        Step(ConnectionUpdateSecret(b"guest", "renewed"), 0),
        Step(ConnectionUpdateSecret(b"another", "renewed"), 0),
        Step(QueueDeclare(0, "us9", exclusive=True)),
    ],
)
MODES = [
    Script(
        f"delivery mode {mode}",
        [
            Step(QueueDeclare(0, "us10", exclusive=True)),
            publish("us10", delivery_mode=mode, difference=difference),
            Step(QueueDeclare(0, "us10", passive=True), difference=difference),
        ],
    )
    for mode, difference in ((0, "delivery-mode-0"), (1, ""), (3, ""))
]
IMMEDIATE = Script(
    "immediate", [Step(BasicPublish(0, "", "none", immediate=True), body=b"body", properties={})]
)
TYPES = Script(
    "types of headers after a death",
    [
        Step(QueueDeclare(0, "us11", exclusive=True)),
        Step(
            QueueDeclare(
                0,
                "us12",
                exclusive=True,
                arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "us11"},
            )
        ),
        publish("us12", headers={"small": 1, "large": 1 << 40, "text": "x", "flag": True}),
        Step(BasicGet(0, "us12")),
        Step(BasicReject(1, requeue=False)),
        Step(BasicGet(0, "us11")),
    ],
)

USE_SCRIPTS = [
    LEASE, SHARED_BY_TWO, FULL_WINDOW, *CANCELLED, TIMES_IN_WORK, LATE_COMMIT, SECRETS, *MODES,
    IMMEDIATE, TYPES,
]  # fmt: skip
