"""The scripts that RabbitMQ and Howdah are both asked to follow.

A step with a `difference` is one where they are meant to differ, and says why; the same reasons are
in docs/conformance/amqp091.md.
"""

from __future__ import annotations

from dataclasses import replace

from protocols.amqp091.wire.frames import frame
from protocols.amqp091.wire.methods import (
    AccessRequest,
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
    ChannelFlow,
    ChannelOpen,
    ConfirmSelect,
    ConnectionClose,
    ConnectionOpen,
    ConnectionUpdateSecret,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
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


def publish(
    key: str,
    body: bytes = b"body",
    exchange: str = "",
    *,
    mandatory: bool = False,
    connection: int = 0,
    wait: float = 0.0,
    difference: str = "",
    **properties: object,
) -> Step:
    return Step(
        BasicPublish(0, exchange, key, mandatory=mandatory),
        connection=connection,
        body=body,
        properties=properties,
        wait=wait,
        difference=difference,
    )


def reopened(*steps: Step) -> list[Step]:
    """Each step on a channel that is open, though the one before may have closed it."""
    found = []
    for number, step in enumerate(steps, 2):
        found += [
            Step(ChannelOpen(), channel=number),
            replace(step, channel=number),
        ]
    return found


MATCHES = ("all", "any", "all-with-x", "any-with-x")
KEYS = ("a", "a.*", "a.#", "#", "*", "a.#.c", "#.c", "*.*", "")

QUEUES = Script(
    "queues",
    [
        Step(QueueDeclare(0, "q1", durable=True)),
        Step(QueueDeclare(0, "q1", durable=True)),
        Step(QueueDeclare(0, "q1", passive=True)),
        Step(QueueDeclare(0, "", exclusive=True)),
        Step(QueueDeclare(0, "q2", nowait=True)),
        publish("q1"),
        publish("q1"),
        Step(QueueDeclare(0, "q1", passive=True)),
        Step(QueuePurge(0, "q1")),
        Step(QueueDelete(0, "q2", if_unused=True, if_empty=True)),
        Step(QueueDelete(0, "no-such")),
        Step(QueueDelete(0, "q1")),
        *reopened(
            Step(QueueDeclare(0, "", passive=True)),
            Step(QueueDeclare(0, "no-such", passive=True)),
            Step(QueueDeclare(0, "amq.mine")),
            Step(QueuePurge(0, "no-such")),
            Step(QueuePurge(0, "")),
            Step(QueueDeclare(0, "q3", durable=True, arguments={"x-message-ttl": -1})),
            Step(QueueDeclare(0, "q3", durable=True, arguments={"x-message-ttl": "soon"})),
            Step(QueueDeclare(0, "q3", durable=True, arguments={"x-expires": 0})),
            Step(QueueDeclare(0, "q3", durable=True, arguments={"x-max-priority": 256})),
            Step(QueueDeclare(0, "q3", durable=True, arguments={"x-queue-type": "odd"})),
            Step(QueueDeclare(0, "q3", durable=True, arguments={"x-overflow": "odd"})),
            Step(QueueDeclare(0, "q3", durable=True, arguments={"x-dead-letter-routing-key": "k"})),
            Step(QueueDeclare(0, "q3", durable=True, arguments={"x-no-such": 1})),
        ),
    ],
)

EQUIVALENCE = Script(
    "equivalence",
    [
        Step(QueueDeclare(0, "e1", durable=True, arguments={"x-max-length": 10})),
        *reopened(
            Step(QueueDeclare(0, "e1", durable=False, arguments={"x-max-length": 10})),
            Step(QueueDeclare(0, "e1", durable=True, arguments={"x-max-length": 11})),
            Step(QueueDeclare(0, "e1", durable=True)),
            Step(QueueDeclare(0, "e1", durable=True, auto_delete=True)),
            Step(QueueDeclare(0, "e1", durable=True, arguments={"x-max-length": 10})),
        ),
        Step(QueueDelete(0, "e1")),
    ],
)

EXCLUSIVE = Script(
    "exclusive",
    [
        Step(QueueDeclare(0, "x1", exclusive=True)),
        Step(QueueDeclare(0, "x1", passive=True), connection=1),
        Step(ChannelOpen(), 2, connection=1),
        Step(BasicConsume(0, "x1", "c"), 2, connection=1),
        Step(ChannelOpen(), 3, connection=1),
        Step(QueueDelete(0, "x1"), 3, connection=1),
        Step(ConnectionClose(200, "bye"), 0),
        Step(ChannelOpen(), 4, connection=1),
        Step(QueueDeclare(0, "x1", passive=True), 4, connection=1, wait=0.3),
    ],
)

EXCHANGES = Script(
    "exchanges",
    [
        Step(ExchangeDeclare(0, "ex1", "topic", durable=True)),
        Step(ExchangeDeclare(0, "ex1", "topic", durable=True)),
        Step(ExchangeDeclare(0, "ex1", passive=True)),
        Step(ExchangeDeclare(0, "amq.topic", "topic", durable=True)),
        Step(ExchangeDelete(0, "no-such")),
        Step(QueueDeclare(0, "bound", exclusive=True)),
        Step(QueueBind(0, "bound", "ex1", "a.*")),
        Step(QueueBind(0, "bound", "ex1", "a.*")),
        Step(QueueUnbind(0, "bound", "ex1", "never.bound")),
        Step(ExchangeDeclare(0, "ex2", "fanout")),
        Step(ExchangeBind(0, "ex2", "ex1", "b.#")),
        Step(ExchangeUnbind(0, "ex2", "ex1", "b.#")),
        Step(ExchangeDelete(0, "ex2", if_unused=True)),
        *reopened(
            Step(ExchangeDelete(0, "ex1", if_unused=True)),
            Step(ExchangeDeclare(0, "", passive=True)),
            Step(ExchangeDeclare(0, "no-such", passive=True)),
            Step(ExchangeDeclare(0, "ex1", "direct", durable=True)),
            Step(ExchangeDeclare(0, "ex1", "topic")),
            Step(ExchangeDeclare(0, "amq.mine", "direct")),
            Step(ExchangeDelete(0, "amq.topic")),
            Step(ExchangeDelete(0, "")),
            Step(ExchangeDeclare(0, "", "direct", durable=True)),
            Step(QueueBind(0, "bound", "", "k")),
            Step(QueueUnbind(0, "bound", "", "bound")),
            Step(QueueBind(0, "bound", "no-such", "k")),
            Step(QueueBind(0, "no-such", "ex1", "k")),
            Step(QueueUnbind(0, "bound", "no-such", "k")),
            Step(QueueUnbind(0, "no-such", "ex1", "k")),
            Step(ExchangeBind(0, "no-such", "ex1", "k")),
            Step(ExchangeUnbind(0, "no-such", "ex1", "k")),
            Step(ExchangeUnbind(0, "ex1", "no-such", "k")),
        ),
        Step(ExchangeDelete(0, "ex1")),
        Step(ExchangeDeclare(0, "bad", "odd")),
    ],
)

ROUTING = Script(
    "routing",
    [
        Step(QueueDeclare(0, "r1", exclusive=True)),
        publish("r1", mandatory=True),
        publish("nowhere", exchange="amq.direct", mandatory=True, message_id="7"),
        publish("nowhere", exchange="amq.direct"),
        Step(BasicGet(0, "r1", no_ack=True)),
        Step(BasicGet(0, "r1", no_ack=True)),
        publish("r1", headers={"CC": ["r1", "r2"], "BCC": ["r3"], "k": 1}),
        Step(BasicGet(0, "r1", no_ack=True)),
        Step(BasicGet(0, "r1", no_ack=True)),
        Step(ExchangeDeclare(0, "inner", "fanout", internal=True)),
        Step(ExchangeDeclare(0, "outer", "fanout", arguments={"alternate-exchange": "inner"})),
        Step(QueueBind(0, "r1", "inner")),
        publish("any", b"through", exchange="outer", mandatory=True),
        Step(BasicGet(0, "r1", no_ack=True)),
        Step(ExchangeDelete(0, "outer")),
        *reopened(
            publish("k", exchange="inner"),
            publish("k", exchange="no-such"),
            publish("r1", user_id="somebody"),
            publish("r1", expiration="soon"),
            publish("r1", headers={"CC": "r1"}),
            publish("r1", reply_to="amq.rabbitmq.reply-to"),
        ),
        Step(ChannelOpen(), 20),
        Step(ExchangeDelete(0, "inner"), 20),
        Step(BasicPublish(0, "", "r1", immediate=True), 20, body=b""),
    ],
)

SETTLING = Script(
    "settling",
    [
        Step(QueueDeclare(0, "s1", exclusive=True)),
        *[publish("s1", body) for body in (b"one", b"two", b"three")],
        Step(BasicGet(0, "s1")),
        Step(BasicGet(0, "s1")),
        Step(BasicNack(2, multiple=True, requeue=True)),
        Step(BasicGet(0, "s1")),
        Step(BasicReject(3, requeue=True)),
        Step(BasicGet(0, "s1"), difference="delivery-count"),
        Step(BasicAck(0, multiple=True)),
        Step(BasicGet(0, "s1")),
        Step(BasicRecover(requeue=True)),
        Step(BasicGet(0, "s1")),
        Step(BasicReject(6, requeue=False)),
        Step(BasicGet(0, "s1")),
        Step(BasicAck(7)),
        Step(BasicGet(0, "s1")),
        Step(BasicAck(7)),
        *reopened(
            Step(BasicAck(99, multiple=True)),
            Step(BasicAck(0, multiple=True)),
            Step(BasicNack(1)),
            Step(BasicReject(1)),
            Step(BasicGet(0, "no-such")),
        ),
    ],
)

CONSUMING = Script(
    "consuming",
    [
        Step(QueueDeclare(0, "c1", durable=True)),
        *[publish("c1", body) for body in (b"one", b"two", b"three")],
        Step(BasicQos(0, 2)),
        Step(BasicConsume(0, "c1", "tag")),
        Step(BasicAck(1)),
        Step(BasicCancel("tag")),
        Step(BasicCancel("no-such")),
        Step(BasicAck(0, multiple=True)),
        Step(QueueDeclare(0, "c1", passive=True)),
        Step(BasicConsume(0, "c1", "only", exclusive=True)),
        Step(BasicConsume(0, "c1", "second"), connection=1),
        Step(ChannelOpen(), 2, connection=1),
        Step(QueueDelete(0, "c1", if_unused=True), 2, connection=1),
        Step(ChannelOpen(), 3, connection=1),
        Step(QueueDelete(0, "c1"), 3, connection=1),
        Step(BasicConsume(0, "no-such", "tag")),
        Step(ChannelOpen(), 4),
        Step(BasicQos(1024, 0), 4),
    ],
)

REUSED_TAG = Script(
    "reused tag",
    [
        Step(QueueDeclare(0, "c2", exclusive=True)),
        Step(BasicConsume(0, "c2", "tag")),
        Step(BasicConsume(0, "c2", "tag")),
    ],
)

NOT_EMPTY = Script(
    "not empty",
    [
        Step(QueueDeclare(0, "n1", durable=True)),
        publish("n1"),
        Step(QueueDelete(0, "n1", if_empty=True)),
        Step(ChannelOpen(), 2),
        Step(QueueDelete(0, "n1"), 2),
    ],
)

CONFIRMS = Script(
    "confirms",
    [
        Step(QueueDeclare(0, "f1", durable=True)),
        Step(ConfirmSelect()),
        Step(ConfirmSelect()),
        publish("f1", delivery_mode=2),
        publish("nowhere", exchange="amq.direct", mandatory=True),
        Step(
            QueueDeclare(
                0, "f2", durable=True, arguments={"x-max-length": 0, "x-overflow": "reject-publish"}
            )
        ),
        publish("f2", difference="nack-flags"),
        Step(TxSelect()),
        Step(ChannelOpen(), 2),
        Step(QueueDelete(0, "f1"), 2),
        Step(QueueDelete(0, "f2"), 2),
    ],
)

TRANSACTIONS = Script(
    "transactions",
    [
        Step(QueueDeclare(0, "t1", durable=True)),
        Step(TxSelect()),
        publish("t1"),
        publish("nowhere", exchange="amq.direct", mandatory=True),
        Step(QueueDeclare(0, "t1", passive=True), connection=1),
        Step(TxCommit()),
        Step(QueueDeclare(0, "t1", passive=True), connection=1),
        Step(BasicGet(0, "t1")),
        Step(BasicAck(1)),
        Step(TxRollback()),
        Step(BasicAck(1)),
        Step(TxCommit()),
        Step(QueueDelete(0, "t1")),
        Step(ConfirmSelect()),
        *reopened(Step(TxCommit()), Step(TxRollback())),
    ],
)

DEAD_LETTERS = Script(
    "dead letters",
    [
        Step(QueueDeclare(0, "dead", exclusive=True)),
        Step(
            QueueDeclare(
                0,
                "d1",
                exclusive=True,
                arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
            )
        ),
        publish("d1", b"rejected", headers={"k": "v"}),
        Step(BasicGet(0, "d1")),
        Step(BasicReject(1, requeue=False)),
        Step(BasicGet(0, "dead", no_ack=True), wait=0.2),
        publish("d1", b"expired", expiration="50", wait=0.3),
        Step(BasicGet(0, "dead", no_ack=True), wait=0.2),
        Step(
            QueueDeclare(
                0,
                "d2",
                exclusive=True,
                arguments={
                    "x-dead-letter-exchange": "",
                    "x-dead-letter-routing-key": "dead",
                    "x-max-length": 1,
                },
            )
        ),
        publish("d2", b"first"),
        publish("d2", b"second", wait=0.2),
        Step(BasicGet(0, "dead", no_ack=True), wait=0.2),
        Step(BasicGet(0, "d2", no_ack=True)),
    ],
)

PRIORITIES = Script(
    "priorities",
    [
        Step(QueueDeclare(0, "p1", exclusive=True, arguments={"x-max-priority": 5})),
        *[publish("p1", str(number).encode(), priority=number) for number in (1, 9, 3)],
        *[Step(BasicGet(0, "p1", no_ack=True)) for _ in range(4)],
    ],
)

REPLIES = Script(
    "direct replies",
    [
        Step(QueueDeclare(0, "rpc", exclusive=True)),
        Step(BasicConsume(0, "amq.rabbitmq.reply-to", "replies", no_ack=True)),
        publish("rpc", b"ask", reply_to="amq.rabbitmq.reply-to"),
        Step(BasicGet(0, "rpc", no_ack=True)),
        Step(BasicConsume(0, "amq.rabbitmq.reply-to", "again", no_ack=True)),
        *reopened(Step(BasicConsume(0, "amq.rabbitmq.reply-to", "acking"))),
    ],
)

AUTO_DELETE = Script(
    "auto-delete",
    [
        Step(QueueDeclare(0, "a1", auto_delete=True)),
        Step(ExchangeDeclare(0, "ax1", "fanout", auto_delete=True)),
        Step(QueueBind(0, "a1", "ax1")),
        Step(QueueDeclare(0, "a1", passive=True)),
        Step(BasicConsume(0, "a1", "c")),
        Step(BasicCancel("c")),
        *reopened(
            Step(QueueDeclare(0, "a1", passive=True), wait=0.2),
            Step(ExchangeDeclare(0, "ax1", passive=True)),
        ),
        Step(ExchangeDeclare(0, "ax2", "direct", auto_delete=True)),
        Step(QueueDeclare(0, "a2", exclusive=True)),
        Step(QueueBind(0, "a2", "ax2", "k")),
        Step(QueueUnbind(0, "a2", "ax2", "k")),
        Step(ExchangeDeclare(0, "ax2", passive=True), wait=0.1),
    ],
)

HEADERS = Script(
    "headers exchange",
    [
        *[Step(QueueDeclare(0, f"h-{match}", exclusive=True)) for match in MATCHES],
        *[
            Step(
                QueueBind(
                    0,
                    f"h-{match}",
                    "amq.headers",
                    arguments={"x-match": match, "a": 1, "b": "two", "x-c": True},
                )
            )
            for match in MATCHES
        ],
        publish("", b"all", "amq.headers", headers={"a": 1, "b": "two", "x-c": True}),
        publish("", b"no x", "amq.headers", headers={"a": 1, "b": "two"}),
        publish("", b"a", "amq.headers", headers={"a": 1}),
        publish("", b"x", "amq.headers", headers={"x-c": True}),
        publish("", b"other", "amq.headers", headers={"a": 2, "b": "2"}, mandatory=True),
        *[Step(BasicGet(0, f"h-{match}", no_ack=True)) for match in MATCHES for _ in range(4)],
        Step(QueueBind(0, "h-all", "amq.headers", arguments={"x-match": "odd"})),
    ],
)

TOPICS = Script(
    "topic exchange",
    [
        Step(ExchangeDeclare(0, "tx1", "topic", auto_delete=True)),
        *[Step(QueueDeclare(0, f"t-{key}", exclusive=True)) for key in KEYS],
        *[Step(QueueBind(0, f"t-{key}", "tx1", key)) for key in KEYS],
        *[
            publish(key, key.encode(), "tx1", mandatory=True)
            for key in ("a", "a.b", "a.b.c", "", "a..c", "b", "a.b.c.d", ".", "a.", "$x.b")
        ],
        *[Step(QueueDeclare(0, f"t-{key}", passive=True)) for key in KEYS],
        Step(BasicConsume(0, "t-a.#.c", "c", no_ack=True)),
    ],
)

SINGLE_ACTIVE = Script(
    "single active consumer",
    [
        Step(QueueDeclare(0, "sac", exclusive=True, arguments={"x-single-active-consumer": True})),
        Step(BasicConsume(0, "sac", "first", no_ack=True)),
        Step(BasicConsume(0, "sac", "second", no_ack=True)),
        publish("sac"),
        publish("sac"),
        Step(BasicCancel("first")),
        publish("sac"),
    ],
)

PRIORITY_CONSUMERS = Script(
    "consumer priorities",
    [
        Step(QueueDeclare(0, "cp", exclusive=True)),
        Step(BasicQos(0, 1)),
        Step(BasicConsume(0, "cp", "low")),
        Step(BasicConsume(0, "cp", "high", arguments={"x-priority": 10})),
        publish("cp", b"one"),
        publish("cp", b"two"),
        publish("cp", b"three"),
        Step(BasicAck(1)),
    ],
)

GLOBAL_PREFETCH = Script(
    "global prefetch",
    [
        Step(QueueDeclare(0, "g1", exclusive=True)),
        *[publish("g1", str(number).encode()) for number in range(5)],
        Step(BasicQos(0, 2, True)),
        Step(BasicConsume(0, "g1", "c")),
        Step(BasicAck(1)),
        Step(BasicQos(0, 4, True)),
        Step(BasicAck(0, multiple=True)),
    ],
)

LIMITS = Script(
    "limits",
    [
        Step(QueueDeclare(0, "l1", exclusive=True, arguments={"x-max-length": 2})),
        *[publish("l1", str(number).encode()) for number in range(4)],
        Step(QueueDeclare(0, "l1", passive=True)),
        Step(BasicGet(0, "l1", no_ack=True)),
        Step(QueueDeclare(0, "l2", exclusive=True, arguments={"x-max-length-bytes": 10})),
        publish("l2", b"12345678"),
        publish("l2", b"abcdefgh"),
        Step(BasicGet(0, "l2", no_ack=True)),
        Step(BasicGet(0, "l2", no_ack=True)),
        Step(QueueDeclare(0, "l3", exclusive=True, arguments={"x-message-ttl": 50})),
        publish("l3", wait=0.3),
        Step(QueueDeclare(0, "l3", passive=True)),
        Step(QueueDeclare(0, "l4", durable=True, arguments={"x-expires": 1500})),
        Step(QueueDeclare(0, "l4", passive=True)),
        Step(BasicQos(0, 1), wait=3),
        Step(QueueDeclare(0, "l4", passive=True)),
    ],
)

RETURNED = Script(
    "a connection that closes",
    [
        Step(QueueDeclare(0, "rt", durable=True)),
        publish("rt", b"one"),
        publish("rt", b"two"),
        Step(BasicConsume(0, "rt", "c")),
        Step(BasicConsume(0, "rt", "d"), connection=1),
        Step(ConnectionClose(200, "bye"), 0),
        Step(BasicAck(2, multiple=True), connection=1),
        Step(BasicCancel("d"), connection=1),
        Step(QueueDelete(0, "rt"), connection=1),
    ],
)

CHANNELS = Script(
    "channels",
    [
        Step(ChannelFlow(True)),
        Step(AccessRequest("/data")),
        Step(ConnectionUpdateSecret(b"guest", "renewed"), 0),
        Step(ChannelClose(200, "bye")),
        Step(ChannelOpen()),
        Step(ChannelOpen()),
    ],
)

UNOPENED = Script("unopened channel", [Step(QueueDeclare(0, "u1"), 9)])
TOO_HIGH = Script(
    "channel beyond channel_max", [Step(ChannelOpen(), 101, difference="channel-numbers")]
)
TWICE = Script("second connection.open", [Step(ConnectionOpen("/"), 0)])
SERVERS_OWN = Script(
    "a method that is the server's", [Step(frame(1, 1, bytes.fromhex("00320033")), breaks=True)]
)
UNKNOWN = Script(
    "an unknown method",
    [Step(frame(1, 1, bytes.fromhex("003c03e7")), breaks=True, difference="unknown-methods")],
)
NO_CONTENT = Script(
    "a method where content was expected",
    [Step(BasicPublish(0, "", "k"), breaks=True), Step(QueueDeclare(0, "u2"))],
)
UNASKED = Script("content that nobody announced", [Step(frame(3, 1, b"body"), breaks=True)])
NO_REQUEUE = Script("recover without requeue", [Step(BasicRecover(requeue=False))])
BAD_END = Script(
    "a frame with a wrong end",
    [Step(frame(1, 1, bytes.fromhex("0014000a00"))[:-1] + b"\0", breaks=True)],
)

SCRIPTS = [
    QUEUES, EQUIVALENCE, EXCLUSIVE, EXCHANGES, ROUTING, SETTLING, CONSUMING, REUSED_TAG, NOT_EMPTY,
    AUTO_DELETE, HEADERS, TOPICS, SINGLE_ACTIVE, PRIORITY_CONSUMERS, GLOBAL_PREFETCH, LIMITS,
    RETURNED, CONFIRMS, TRANSACTIONS, DEAD_LETTERS, PRIORITIES, REPLIES, CHANNELS, UNOPENED,
    TOO_HIGH, TWICE, SERVERS_OWN, UNKNOWN, NO_CONTENT, UNASKED, NO_REQUEUE, BAD_END,
]  # fmt: skip
