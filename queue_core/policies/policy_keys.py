"""The keys of policies: which act here, which are kept without effect, which are refused and why,
and which of them RabbitMQ's types of queues have no use for.

A policy that has a key which a type of queue does not support does not match queues of that type
at all, as in RabbitMQ: half of a policy is never applied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from queue_core.errors import InvalidArgument, UnsupportedArgument
from queue_core.queues.spec import INERT, RULES, is_storable

ALTERNATE_EXCHANGE: Final = "alternate-exchange"

# Keys that act on queues. Each is the argument x-KEY of a declaration.
QUEUE_KEYS: Final = (
    "message-ttl",
    "expires",
    "max-length",
    "max-length-bytes",
    "overflow",
    "dead-letter-exchange",
    "dead-letter-routing-key",
    "delivery-limit",
    "max-age",
    "stream-max-segment-size-bytes",
    "consumer-timeout",
)
ACTING_KEYS: Final = (*QUEUE_KEYS, ALTERNATE_EXCHANGE)

HA_KEYS: Final = (
    "ha-mode",
    "ha-params",
    "ha-sync-mode",
    "ha-sync-batch-size",
    "ha-promote-on-shutdown",
    "ha-promote-on-failure",
)
# Keys that RabbitMQ knows and that have no effect here: copies are PostgreSQL's matter.
INERT_KEYS: Final = (
    *HA_KEYS,
    "queue-mode",
    "queue-version",
    "queue-leader-locator",
    "queue-master-locator",
    "initial-cluster-size",
    "target-group-size",
    "max-in-memory-length",
    "max-in-memory-bytes",
    "dead-letter-strategy",
    "stream-filter-size-bytes",
)

_AT_DECLARATION: Final = "it is decided when a queue is declared; use the argument x-{key}"
_FEDERATION: Final = "there is no federation here"
_SHARDING: Final = "there are no sharded exchanges here"
REFUSED_KEYS: Final = {
    **dict.fromkeys(
        ("max-priority", "single-active-consumer", "message-deduplication", "deduplication-window"),
        _AT_DECLARATION,
    ),
    "queue-type": "it is decided when a queue is declared, or by the virtual host's default type",
    **dict.fromkeys(
        ("federation-upstream", "federation-upstream-set", "federation-upstream-pattern"),
        _FEDERATION,
    ),
    **dict.fromkeys(("shards-per-node", "routing-key"), _SHARDING),
}

# Keys that an operator policy may have.
OPERATOR_KEYS: Final = (
    "expires",
    "message-ttl",
    "max-length",
    "max-length-bytes",
    "max-in-memory-length",
    "max-in-memory-bytes",
    "delivery-limit",
    "overflow",
    "queue-version",
    "target-group-size",
)
# Of these the smaller value counts where a policy and an operator policy both have one; of the
# others the operator's does.
SMALLER_OF_BOTH: Final = frozenset(
    (
        "expires",
        "message-ttl",
        "max-length",
        "max-length-bytes",
        "max-in-memory-length",
        "max-in-memory-bytes",
        "delivery-limit",
    )
)

CLASSIC_QUEUES: Final = "classic_queues"
QUORUM_QUEUES: Final = "quorum_queues"
STREAMS: Final = "streams"

_OF_STREAMS: Final = ("max-age", "stream-max-segment-size-bytes", "initial-cluster-size")
_OF_OLD_CLASSIC: Final = (*HA_KEYS, "queue-mode", "queue-master-locator")
# As RabbitMQ's types of queues have it.
UNSUPPORTED: Final[dict[str, frozenset[str]]] = {
    CLASSIC_QUEUES: frozenset(
        (*_OF_STREAMS, "delivery-limit", "dead-letter-strategy", "target-group-size")
    ),
    QUORUM_QUEUES: frozenset((*_OF_STREAMS, *_OF_OLD_CLASSIC)),
    STREAMS: frozenset(
        (
            *_OF_OLD_CLASSIC,
            "expires",
            "message-ttl",
            "dead-letter-exchange",
            "dead-letter-routing-key",
            "max-length",
            "max-in-memory-length",
            "max-in-memory-bytes",
            "overflow",
            "delivery-limit",
            "dead-letter-strategy",
            "target-group-size",
        )
    ),
}
# Keys that a type of queue knows here and not in RabbitMQ: they count in policies that are for that
# type alone, which RabbitMQ would apply to nothing.
OWN_KEYS: Final[dict[str, frozenset[str]]] = {
    CLASSIC_QUEUES: frozenset(("delivery-limit",)),
    STREAMS: frozenset(("max-length",)),
}


def is_applicable(definition: Mapping[str, object], queue_type: str, apply_to: str) -> bool:
    """Tells whether queues of a type support all keys of a policy."""
    unsupported = UNSUPPORTED.get(queue_type, frozenset())
    if apply_to == queue_type:
        unsupported -= OWN_KEYS.get(queue_type, frozenset())
    return unsupported.isdisjoint(definition)


def check_definition(
    subject: str, definition: Mapping[str, object], *, is_operator: bool = False
) -> None:
    """Refuses a definition that is empty, or has a key or a value that cannot be; `subject` says
    whose it is. Raises InvalidArgument or UnsupportedArgument."""
    if not definition:
        raise InvalidArgument(f"{subject} has no keys; give it one of {', '.join(ACTING_KEYS)}")
    for key, value in definition.items():
        _check_known(subject, key)
        if is_operator and key not in OPERATOR_KEYS:
            raise UnsupportedArgument(
                f"{subject}: key '{key}' is for ordinary policies; an operator policy may have "
                f"{', '.join(OPERATOR_KEYS)}"
            )
        _check_value(subject, key, value)


def _check_known(subject: str, key: str) -> None:
    if key in REFUSED_KEYS:
        why = REFUSED_KEYS[key].format(key=key)
        raise UnsupportedArgument(f"{subject}: key '{key}' cannot be in a policy: {why}")
    if key not in ACTING_KEYS and key not in INERT_KEYS:
        raise UnsupportedArgument(
            f"{subject}: key '{key}' is not known; use one of {', '.join(ACTING_KEYS)}"
        )


def _check_value(subject: str, key: str, value: object) -> None:
    if key == ALTERNATE_EXCHANGE:
        if not isinstance(value, str) or not is_storable(value):
            raise InvalidArgument(f"{subject}: '{key}' must be the name of an exchange")
        return
    rule = RULES.get(f"x-{key}") or INERT.get(f"x-{key}")
    if rule is not None:
        rule.read(subject, key, value)


def inert_keys(definition: Mapping[str, object]) -> tuple[str, ...]:
    """Lists the keys of a definition that are kept and have no effect."""
    return tuple(key for key in definition if key in INERT_KEYS)


def merged(policy: Mapping[str, object], operator: Mapping[str, object]) -> dict[str, object]:
    """Merges the definitions of a policy and an operator policy."""
    both = {**policy, **operator}
    for key in SMALLER_OF_BOTH & policy.keys() & operator.keys():
        both[key] = _smaller(policy[key], operator[key])
    return both


def _smaller(mine: object, theirs: object) -> object:
    """Gives the smaller of two numbers; a negative one, of a delivery limit, is no limit."""
    numbers = [number for number in (mine, theirs) if isinstance(number, int) and number >= 0]
    return min(numbers, default=theirs)
