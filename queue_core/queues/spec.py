"""The declaration of a queue: its kind, its limits and its policies, read from its arguments.

An argument of the wrong type or value, or of another kind of queue, is refused here, by name. One
that has no meaning here, known or not, is kept with the rest: `inert` names it for whoever has to
say so, or to refuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from queue_core.errors import InvalidArgument, NotEquivalent, ResourceLocked, UnsupportedArgument
from queue_core.message.value_identity import identity_of
from queue_core.queues.applied_policy import NO_POLICY, AppliedPolicy
from queue_core.queues.reserved_names import is_own

QUORUM_DELIVERY_LIMIT: Final = 20
MAX_PRIORITY: Final = 255
LEAST_SEGMENT_BYTES: Final = 65_536  # a smaller segment is made as large as this
MOST_SEGMENT_BYTES: Final = 3_000_000_000  # as RabbitMQ has it
MOST_NAME_BYTES: Final = 2000  # PostgreSQL indexes no more than 2704, the virtual host's included


class QueueKind(StrEnum):
    CLASSIC = "classic"
    STREAM = "stream"
    EPHEMERAL = "ephemeral"


A_KIND: Final = {
    QueueKind.CLASSIC: "a classic",
    QueueKind.STREAM: "a stream",
    QueueKind.EPHEMERAL: "an ephemeral",
}


class Overflow(StrEnum):
    DROP_HEAD = "drop-head"
    REJECT_PUBLISH = "reject-publish"
    REJECT_PUBLISH_DLX = "reject-publish-dlx"


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """Everything that decides how a queue behaves. `arguments` is what was declared, word for word;
    the fields below it are what they mean, under the policies that `policy` names."""

    name: str
    kind: QueueKind
    durable: bool = True
    exclusive: bool = False
    auto_delete: bool = False
    arguments: Mapping[str, object] = field(default_factory=dict)
    message_ttl: float | None = None  # seconds
    expires: float | None = None  # seconds without consumers and use
    max_length: int | None = None
    max_bytes: int | None = None
    overflow: Overflow = Overflow.DROP_HEAD
    dead_letter_exchange: str | None = None
    dead_letter_key: str | None = None
    max_priority: int | None = None
    single_active_consumer: bool = False
    delivery_limit: int | None = None
    max_age: float | None = None  # seconds, streams
    segment_bytes: int | None = None  # streams
    dedup_window: float | None = None  # seconds
    deduplicates: bool = False  # by the header, while the message is in the queue
    ack_timeout: float | None = None  # seconds
    policy: AppliedPolicy = NO_POLICY

    @classmethod
    def parse(
        cls,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
    ) -> QueueSpec:
        """Reads a declaration. What must not survive its connection or its last consumer has no
        reason to be on disk: exclusive, auto-delete and non-durable queues are ephemeral."""
        if not is_storable(name):
            raise InvalidArgument(f"queue {name!r}: a name is text without NUL")
        given, subject = dict(arguments or {}), f"queue '{name}'"
        kind, limit = _kind(given, ephemeral=not durable or exclusive or auto_delete)
        values: dict[str, object] = {} if limit is None else {"delivery_limit": limit}
        for argument, value in given.items():
            if argument == "x-queue-type":
                continue
            rule = RULES.get(argument)
            if rule is None:
                if argument in INERT:
                    INERT[argument].read(subject, argument, value)
                continue
            if kind not in rule.kinds:
                raise InvalidArgument(
                    f"{subject}: argument '{argument}' has no meaning for {A_KIND[kind]} queue"
                )
            values[rule.field] = rule.read(subject, argument, value)
        spec = cls(
            name,
            kind,
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            arguments=given,
            **values,  # type: ignore[arg-type]
        )
        _check_together(spec)
        return spec

    def under(self, policy: AppliedPolicy) -> QueueSpec:
        """Gives the spec of the same queue under other policies, as RabbitMQ reads them: where an
        argument was declared as well, it wins, or the smaller of two numbers does. A key that the
        kind has no use for changes nothing."""
        plain = self if self.policy is NO_POLICY else self._declared()
        values: dict[str, object] = {}
        for key, value in policy.definition.items():
            argument = f"x-{key}"
            rule = RULES.get(argument)
            if rule is None or self.kind not in rule.kinds:
                continue
            if key == "expires" and is_own(self.name):
                continue  # its session or its link ends it
            mine, theirs = getattr(plain, rule.field), rule.read("a policy", argument, value)
            if argument not in plain.arguments:
                values[rule.field] = theirs
            elif argument in SMALLER_WINS:
                values[rule.field] = _smaller(mine, theirs)
        return replace(plain, policy=policy, **values)  # type: ignore[arg-type]

    def _declared(self) -> QueueSpec:
        """Gives the spec without any policy."""
        return QueueSpec.parse(
            self.name,
            self.arguments,
            durable=self.durable,
            exclusive=self.exclusive,
            auto_delete=self.auto_delete,
        )

    def with_type(self, queue_type: str) -> QueueSpec:
        """Gives the spec of a declaration that says no type, as if it had said this one. Queues
        that live in memory are classic, whatever the type of others."""
        if "x-queue-type" in self.arguments or self.kind is not QueueKind.CLASSIC:
            return self
        return QueueSpec.parse(self.name, {**self.arguments, "x-queue-type": queue_type})

    @property
    def queue_type(self) -> str:
        """Names the type of queue that was declared, as RabbitMQ knows it."""
        return str(self.arguments.get("x-queue-type") or "classic")

    @property
    def inert(self) -> tuple[str, ...]:
        """Lists the arguments that were declared and have no effect here."""
        return tuple(
            name for name in self.arguments if name not in RULES and name != "x-queue-type"
        )

    @property
    def unknown(self) -> tuple[str, ...]:
        """Lists the arguments without effect that no broker is known to give a meaning."""
        return tuple(name for name in self.inert if name not in INERT)

    def require_effect(self) -> None:
        """Refuses a declaration with an argument that has no effect, where strict is set."""
        if self.inert:
            known = ", ".join(sorted((*RULES, "x-queue-type")))
            raise UnsupportedArgument(
                f"queue '{self.name}': argument '{self.inert[0]}' has no effect here, and "
                f"amqp091.strict is set; those with one are {known}"
            )

    def check_equivalent(self, other: QueueSpec) -> None:
        """Declaring again is fine with the same words, and an error with any other. As in RabbitMQ,
        only arguments count that are known to do something somewhere."""
        if self.exclusive != other.exclusive:  # whose it is comes first, as in RabbitMQ
            raise ResourceLocked(
                f"queue '{self.name}' exists with exclusive={_said(self.exclusive)}, declared "
                f"again with {_said(other.exclusive)}; delete it first or declare it as it is"
            )
        for attribute in ("durable", "kind", "auto_delete", "queue_type"):
            mine, theirs = getattr(self, attribute), getattr(other, attribute)
            if mine != theirs:
                raise NotEquivalent(
                    f"queue '{self.name}' exists with {attribute}={_said(mine)}, "
                    f"declared again with {_said(theirs)}; delete it first or declare it as it is"
                )
        for argument in sorted(COMPARED & (self.arguments.keys() | other.arguments.keys())):
            mine, theirs = self.arguments.get(argument), other.arguments.get(argument)
            if identity_of(mine) != identity_of(theirs):
                raise NotEquivalent(
                    f"queue '{self.name}' exists with argument '{argument}'={_said(mine)}, "
                    f"declared again with {_said(theirs)}; delete it first or declare it as it is"
                )


def _said(value: object) -> str:
    return "none" if value is None else f"'{value}'"


def _kind(arguments: Mapping[str, object], *, ephemeral: bool) -> tuple[QueueKind, int | None]:
    asked = arguments.get("x-queue-type")
    match asked:
        case None | "classic":
            return (QueueKind.EPHEMERAL if ephemeral else QueueKind.CLASSIC), None
        case "quorum" | "stream" if ephemeral:
            raise InvalidArgument(
                f"x-queue-type '{asked}' needs a durable queue that is neither exclusive nor "
                "auto-delete; declare it durable, or leave the type out"
            )
        case "quorum":
            # PostgreSQL's own replication is the quorum; what remains is the delivery limit
            return QueueKind.CLASSIC, QUORUM_DELIVERY_LIMIT
        case "stream":
            return QueueKind.STREAM, None
        case _:
            raise InvalidArgument(
                f"x-queue-type {_said(asked)} is unknown; use classic, quorum or stream"
            )


def _check_together(spec: QueueSpec) -> None:
    if spec.dead_letter_key is not None and spec.dead_letter_exchange is None:
        raise InvalidArgument(
            f"queue '{spec.name}': x-dead-letter-routing-key needs x-dead-letter-exchange"
        )
    if spec.overflow is Overflow.REJECT_PUBLISH_DLX and spec.dead_letter_exchange is None:
        raise InvalidArgument(
            f"queue '{spec.name}': x-overflow reject-publish-dlx needs x-dead-letter-exchange"
        )
    if spec.deduplicates and spec.dedup_window is not None:
        raise InvalidArgument(
            f"queue '{spec.name}': use either x-message-deduplication, by a header while the "
            "message is in the queue, or x-deduplication-window, by message id for a time"
        )


def _smaller(*limits: object) -> float | None:
    """Gives the smallest of some limits; None is no limit."""
    return min((limit for limit in limits if isinstance(limit, int | float)), default=None)


@dataclass(frozen=True, slots=True)
class Rule:
    """One argument: how to read it, where it goes, and for which kinds it means something."""

    field: str
    read: Callable[[str, str, object], object]
    kinds: frozenset[QueueKind]


def _whole(least: int, most: int | None = None) -> Callable[[str, str, object], object]:
    def read(subject: str, argument: str, value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidArgument(f"{subject}: '{argument}' must be a whole number")
        if value < least or (most is not None and value > most):
            bound = f"at least {least}" if most is None else f"from {least} to {most}"
            raise InvalidArgument(f"{subject}: '{argument}' is {value}; it must be {bound}")
        return value

    return read


def _limit(subject: str, argument: str, value: object) -> object:
    """Reads how often a delivery may fail; -1 is for ever, as in newer versions of RabbitMQ."""
    return None if value == -1 else _whole(0)(subject, argument, value)


def _segment(subject: str, argument: str, value: object) -> object:
    return max(
        int(str(_whole(0, MOST_SEGMENT_BYTES)(subject, argument, value))), LEAST_SEGMENT_BYTES
    )


def _milliseconds(least: int) -> Callable[[str, str, object], object]:
    whole = _whole(least, 10 * 365 * 86_400_000)

    def read(subject: str, argument: str, value: object) -> object:
        return int(str(whole(subject, argument, value))) / 1000

    return read


def _text(subject: str, argument: str, value: object) -> object:
    if not isinstance(value, str) or not is_storable(value):
        raise InvalidArgument(f"{subject}: '{argument}' must be a string without NUL")
    return value


def require_short_name(name: str) -> None:
    """Refuses a name that is too long for a stored queue. Names that clients choose have 255 bytes
    in most protocols; a name that is put together from a session's, or a link's, may be longer."""
    if len(name.encode()) > MOST_NAME_BYTES:
        raise InvalidArgument(
            f"queue '{name[:60]}...': its name has {len(name.encode())} bytes, and may have "
            f"{MOST_NAME_BYTES}; choose a shorter name, client id or link name"
        )


def is_storable(text: str) -> bool:
    """Tells whether PostgreSQL can hold a text."""
    return "\0" not in text and not any("\ud800" <= c <= "\udfff" for c in text)


def _flag(subject: str, argument: str, value: object) -> object:
    if not isinstance(value, bool):
        raise InvalidArgument(f"{subject}: '{argument}' must be true or false")
    return value


def _overflow(subject: str, argument: str, value: object) -> object:
    try:
        return Overflow(str(value))
    except ValueError:
        raise InvalidArgument(
            f"{subject}: '{argument}' is '{value}'; use {', '.join(Overflow)}"
        ) from None


def _one_of(*allowed: object) -> Callable[[str, str, object], object]:
    def read(subject: str, argument: str, value: object) -> object:
        if isinstance(value, bool) or value not in allowed:
            words = ", ".join(map(str, allowed))
            raise InvalidArgument(f"{subject}: '{argument}' is '{value}'; use {words}")
        return value

    return read


def _anything(subject: str, argument: str, value: object) -> object:
    return value


AGE_DIGITS: Final = 300  # years of so many digits are still a float; of more there never were any
AGE_UNITS: Final = {"Y": 31_536_000, "M": 2_592_000, "D": 86_400, "h": 3600, "m": 60, "s": 1}


def _age(subject: str, argument: str, value: object) -> object:
    text = str(value)
    number = text[:-1]
    if (
        text[-1:] in AGE_UNITS
        and number.isascii()
        and number.isdigit()
        and len(number) <= AGE_DIGITS
    ):
        return float(int(number) * AGE_UNITS[text[-1]])
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    raise InvalidArgument(
        f"{subject}: '{argument}' is '{shown}'; write a number and one of "
        f"{', '.join(AGE_UNITS)}, for example 7D"
    )


COMPETING: Final = frozenset((QueueKind.CLASSIC, QueueKind.EPHEMERAL))
STORED: Final = frozenset((QueueKind.CLASSIC,))
STREAMS: Final = frozenset((QueueKind.STREAM,))
ALL: Final = frozenset(QueueKind)

RULES: Final[dict[str, Rule]] = {
    "x-message-ttl": Rule("message_ttl", _milliseconds(0), COMPETING),
    "x-expires": Rule("expires", _milliseconds(1), COMPETING),
    "x-max-length": Rule("max_length", _whole(0), ALL),
    "x-max-length-bytes": Rule("max_bytes", _whole(0), ALL),
    "x-overflow": Rule("overflow", _overflow, COMPETING),
    "x-dead-letter-exchange": Rule("dead_letter_exchange", _text, COMPETING),
    "x-dead-letter-routing-key": Rule("dead_letter_key", _text, COMPETING),
    "x-max-priority": Rule("max_priority", _whole(0, MAX_PRIORITY), COMPETING),
    "x-single-active-consumer": Rule("single_active_consumer", _flag, COMPETING),
    "x-delivery-limit": Rule("delivery_limit", _limit, COMPETING),
    "x-max-age": Rule("max_age", _age, STREAMS),
    "x-stream-max-segment-size-bytes": Rule("segment_bytes", _segment, STREAMS),
    "x-deduplication-window": Rule("dedup_window", _milliseconds(1), STORED),
    "x-message-deduplication": Rule("deduplicates", _flag, COMPETING),
    "x-consumer-timeout": Rule("ack_timeout", _milliseconds(1000), COMPETING),
}


# Numbers of which the smaller counts where both an argument and a policy set one.
SMALLER_WINS: Final = frozenset(
    f"x-{key}"
    for key in (
        "message-ttl",
        "expires",
        "max-length",
        "max-length-bytes",
        "delivery-limit",
        "max-age",
        "stream-max-segment-size-bytes",
        "consumer-timeout",
    )
)


@dataclass(frozen=True, slots=True)
class Inert:
    """An argument that means something in RabbitMQ, and nothing here: how to read it, and whether a
    declaration with another value is another queue."""

    read: Callable[[str, str, object], object]
    counts: bool = True


_LOCATORS: Final = ("client-local", "balanced", "random", "least-leaders")
_MASTERS: Final = ("client-local", "min-masters", "random")

INERT: Final[dict[str, Inert]] = {
    # 'lazy' asks that messages stay on disk until they are wanted, which is how every queue works
    "x-queue-mode": Inert(_one_of("default", "lazy")),
    "x-queue-version": Inert(_one_of(1, 2)),
    "x-queue-leader-locator": Inert(_one_of(*_LOCATORS)),
    "x-queue-master-locator": Inert(_one_of(*_MASTERS)),
    "x-quorum-initial-group-size": Inert(_whole(1)),
    "x-quorum-target-group-size": Inert(_anything, counts=False),
    "x-initial-cluster-size": Inert(_whole(1)),
    "x-max-in-memory-length": Inert(_whole(0)),
    "x-max-in-memory-bytes": Inert(_whole(0)),
    # a dead letter is stored where it goes before it leaves its queue, always
    "x-dead-letter-strategy": Inert(_one_of("at-most-once", "at-least-once")),
    "x-stream-filter-size-bytes": Inert(_anything, counts=False),
    "x-ha-policy": Inert(_anything, counts=False),
    "x-ha-nodes": Inert(_anything, counts=False),
}
COMPARED: Final = {*RULES, *(name for name, inert in INERT.items() if inert.counts)}
