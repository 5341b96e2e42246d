"""Scripts about arguments: which are taken, which values are refused, which count when something is
declared again. Each value stands alone, so that one that is refused does not hide the next."""

from __future__ import annotations

from protocols.amqp091.wire.methods import (
    BasicConsume,
    ChannelOpen,
    ExchangeDeclare,
    ExchangeDelete,
    QueueBind,
    QueueDeclare,
    QueueDelete,
)
from tests.interop.amqp091_script import Script, Step
from tests.interop.amqp091_scripts import reopened

Arguments = dict[str, object]

VALUES: dict[str, list[Arguments]] = {
    "classic": [
        {"x-queue-mode": "lazy"},
        {"x-queue-mode": "odd"},
        {"x-queue-version": 2},
        {"x-queue-version": 3},
        {"x-queue-master-locator": "client-local"},
        {"x-ha-policy": "all"},
        {"x-quorum-target-group-size": 3},
        {"x-my": 1},
        {"x-max-age": "1D"},
    ],
    "quorum": [
        {"x-quorum-initial-group-size": 3},
        {"x-quorum-initial-group-size": 0},
        {"x-queue-leader-locator": "balanced"},
        {"x-queue-leader-locator": "odd"},
        {"x-max-in-memory-length": 10},
        {"x-max-in-memory-bytes": -1},
        {"x-dead-letter-strategy": "at-least-once"},
        {"x-dead-letter-strategy": "odd"},
        {"x-delivery-limit": -1},
        {"x-max-length": -1},
        {"x-overflow": "odd"},
    ],
    "stream": [
        {"x-initial-cluster-size": 1},
        {"x-initial-cluster-size": 0},
        {"x-stream-filter-size-bytes": 32},
        {"x-stream-max-segment-size-bytes": 1000},
        {"x-stream-max-segment-size-bytes": 5_000_000_000},
        {"x-queue-leader-locator": "client-local"},
        {"x-message-ttl": 1000},
    ],
}


def declared(kind: str, number: int, arguments: Arguments) -> QueueDeclare:
    whole = {"x-queue-type": kind, **arguments}
    return QueueDeclare(0, f"ar-{kind}-{number}", durable=True, arguments=whole)


TAKEN = [
    Script(
        f"arguments of a {kind} queue",
        [
            *reopened(
                *(
                    Step(declared(kind, number, given))
                    for number, arguments in enumerate(values)
                    for given in (arguments, {})  # again, without it
                )
            ),
            Step(ChannelOpen(), 90),
            *(Step(QueueDelete(0, f"ar-{kind}-{number}"), 90) for number in range(len(values))),
        ],
    )
    for kind, values in VALUES.items()
]
WRONG_KIND = Script(
    "arguments of another kind that do nothing here",
    reopened(
        *(
            Step(
                QueueDeclare(0, "arw", exclusive=True, arguments={name: value}),
                difference="idle-arguments",
            )
            for name, value in (("x-queue-leader-locator", "balanced"),)
        )
    ),
)
OTHERS = Script(
    "arguments of exchanges, bindings and consumers",
    [
        Step(QueueDeclare(0, "aro", exclusive=True)),
        *reopened(
            Step(ExchangeDeclare(0, "arx", "direct", arguments={"x-my": 1})),
            Step(ExchangeDeclare(0, "arx", "direct", arguments={"x-my": 2})),
            Step(ExchangeDeclare(0, "arx", "direct")),
            Step(ExchangeDeclare(0, "arx", "direct", arguments={"alternate-exchange": "y"})),
            Step(ExchangeDeclare(0, "ary", "direct", arguments={"alternate-exchange": 1})),
            Step(QueueBind(0, "aro", "arx", "k", arguments={"x-owner": "svc"})),
            Step(QueueBind(0, "aro", "arx", "k", arguments={"x-match": "odd"})),
            Step(BasicConsume(0, "aro", "a", arguments={"x-my": 1})),
            Step(BasicConsume(0, "aro", "b", arguments={"x-cancel-on-ha-failover": True})),
            Step(BasicConsume(0, "aro", "c", arguments={"x-cancel-on-ha-failover": 1})),
            Step(BasicConsume(0, "aro", "d", arguments={"x-consumer-timeout": 3_600_000})),
            Step(BasicConsume(0, "aro", "e", arguments={"x-priority": "high"})),
            Step(ExchangeDelete(0, "arx")),
        ),
    ],
)

ARGUMENT_SCRIPTS = [*TAKEN, WRONG_KIND, OTHERS]
