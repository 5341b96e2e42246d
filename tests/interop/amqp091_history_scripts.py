"""Scripts about exchanges that remember their last messages, which RabbitMQ has by a plugin of its
own."""

from __future__ import annotations

from protocols.amqp091.wire.methods import (
    BasicGet,
    ConfirmSelect,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    QueueBind,
    QueueDeclare,
    QueueUnbind,
    TxCommit,
    TxRollback,
    TxSelect,
)
from tests.interop.amqp091_script import Script, Step
from tests.interop.amqp091_scripts import publish, reopened

KIND = "x-recent-history"
LENGTH = "x-recent-history-length"
NO_STORE = "x-recent-history-no-store"


def declared(name: str, **arguments: object) -> Step:
    words = {key.replace("_", "-"): value for key, value in arguments.items()}
    return Step(ExchangeDeclare(0, name, KIND, arguments=words))


def taken(queue: str, count: int) -> list[Step]:
    """So many messages, and that there are no more."""
    return [Step(BasicGet(0, queue, no_ack=True)) for _ in range(count + 1)]


REPLAYED = Script(
    "a history for those who come late",
    [
        declared("rh1", x_recent_history_length=3),
        *[publish(f"k{number}", b"%d" % number, "rh1", mandatory=True) for number in range(5)],
        publish("k", b"secret", "rh1", headers={NO_STORE: True}),
        publish("k", b"known", "rh1", headers={NO_STORE: False}),
        Step(QueueDeclare(0, "rhq", exclusive=True)),
        Step(QueueBind(0, "rhq", "rh1", "ignored")),
        *taken("rhq", 3),
        Step(QueueBind(0, "rhq", "rh1", "ignored")),
        *taken("rhq", 0),
        Step(QueueBind(0, "rhq", "rh1", "another")),
        *taken("rhq", 3),
        publish("any", b"live", "rh1", mandatory=True),
        *taken("rhq", 1),
        Step(QueueUnbind(0, "rhq", "rh1", "another")),
        Step(QueueUnbind(0, "rhq", "rh1", "ignored")),
        Step(ConfirmSelect()),
        publish("any", b"returned", "rh1", mandatory=True),
        publish("any", b"not returned", "rh1"),
        Step(ExchangeDelete(0, "rh1")),
        declared("rh1"),
        Step(QueueBind(0, "rhq", "rh1")),
        *taken("rhq", 0),
        Step(ExchangeDelete(0, "rh1")),
    ],
)
BETWEEN = Script(
    "a history between exchanges",
    [
        declared("rh2"),
        Step(ExchangeDeclare(0, "rhx", "topic")),
        Step(ExchangeDeclare(0, "rhy", "topic")),
        Step(QueueDeclare(0, "rhr", exclusive=True)),
        Step(ExchangeBind(0, "rh2", "rhx", "a.#")),
        publish("a.b", b"1", "rhx", mandatory=True),
        publish("b", b"2", "rhx", mandatory=True),
        Step(QueueBind(0, "rhr", "rhy", "#")),
        Step(ExchangeBind(0, "rhy", "rh2")),
        *taken("rhr", 1),
        *[Step(ExchangeDelete(0, name)) for name in ("rh2", "rhx", "rhy")],
    ],
)
ALTERNATE = Script(
    "a history with an alternate exchange",
    [
        Step(QueueDeclare(0, "rhs", exclusive=True)),
        Step(QueueBind(0, "rhs", "amq.fanout")),
        declared("rh3", alternate_exchange="amq.fanout"),
        publish("k", b"1", "rh3", mandatory=True),
        *taken("rhs", 1),
        Step(QueueDeclare(0, "rht", exclusive=True)),
        Step(QueueBind(0, "rht", "rh3")),
        publish("k", b"2", "rh3"),
        *taken("rhs", 0),
        *taken("rht", 2),
        Step(ExchangeDelete(0, "rh3")),
    ],
)
TRANSACTED = Script(
    "a history of transactions",
    [
        declared("rh4"),
        Step(QueueDeclare(0, "rhu", exclusive=True)),
        Step(TxSelect()),
        publish("k", b"undone", "rh4"),
        Step(TxRollback()),
        publish("k", b"done", "rh4", mandatory=True),
        Step(TxCommit()),
        Step(QueueBind(0, "rhu", "rh4")),
        Step(BasicGet(0, "rhu", no_ack=True), difference="history-rollback"),
        Step(BasicGet(0, "rhu", no_ack=True), difference="history-rollback"),
        Step(BasicGet(0, "rhu", no_ack=True)),
        Step(ExchangeDelete(0, "rh4")),
    ],
)
WRONG_AND_RIGHT: list[object] = [0, -1, "3", True, 1]
LENGTHS = Script(
    "lengths of histories",
    reopened(
        *[
            Step(ExchangeDeclare(0, f"rh-{n}", KIND, auto_delete=True, arguments={LENGTH: length}))
            for n, length in enumerate(WRONG_AND_RIGHT)
        ],
    ),
)

HISTORY_SCRIPTS = [REPLAYED, BETWEEN, ALTERNATE, TRANSACTED, LENGTHS]
