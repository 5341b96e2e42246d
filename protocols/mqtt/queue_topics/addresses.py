"""`$queue/...` topics, read: which queue, which key, and what a settle topic asks for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from protocols.mqtt.conversion.properties import QUEUE_PREFIX
from queue_core.delivery.consumer import Position
from queue_core.errors import InvalidArgument, InvalidTopic
from queue_core.message.topic_forms import dotted, slashed
from queue_core.outcomes import Outcome
from queue_core.queues.reserved_names import is_own
from queue_core.routing.topics import Tokens, filter_tokens

SETTLES: Final = {
    "$ack": Outcome.ACCEPTED,
    "$nack": Outcome.RELEASED,
    "$reject": Outcome.REJECTED,
}
COMMIT: Final = "$commit"
MOST_DIGITS: Final = 19


@dataclass(frozen=True, slots=True)
class QueueAddress:
    name: str
    rest: str = ""  # key or filter, with slashes

    @property
    def is_command(self) -> bool:
        return self.rest in SETTLES or self.rest == COMMIT

    @property
    def routing_key(self) -> str:
        """The name, and behind a dot the key: the default exchange's key where there is none."""
        return f"{self.name}.{dotted(self.rest)}" if self.rest else self.name


def parse_queue_address(topic: str) -> QueueAddress:
    """Reads the topic of a queue. Raises InvalidTopic."""
    name, _, rest = topic.removeprefix(QUEUE_PREFIX).partition("/")
    if not name or "+" in name or "#" in name:
        raise InvalidTopic(f"'{topic[:80]}' names no queue; write $queue/<name>")
    if is_own(name):
        raise InvalidTopic(f"queue '{name}' is the gateway's own; choose another name")
    return QueueAddress(name, rest)


def key_of(name: str, exchange: str, routing_key: str) -> str:
    """Returns the key of a message in a queue, with slashes: the part behind the queue's name where
    the message came through a queue topic, the whole topic where it came another way."""
    if exchange:
        return slashed(routing_key)
    if routing_key.startswith(name + "."):
        return slashed(routing_key[len(name) + 1 :])
    return "" if routing_key == name else slashed(routing_key)


def source_topic(name: str, exchange: str, routing_key: str) -> str:
    """Returns the topic to which a message was published, as MQTT would write it."""
    key = key_of(name, exchange, routing_key)
    if exchange:
        return key
    return f"{QUEUE_PREFIX}{name}/{key}" if key else QUEUE_PREFIX + name


def key_matches(topic_filter: str, key: str) -> bool:
    """Tells whether a key is among those that a subscription's filter asks for."""
    return tokens_match(filter_tokens(topic_filter), key)


def tokens_match(wanted: Tokens, key: str) -> bool:
    """Tells whether a key is among those that a filter asks for which was read before."""
    levels = key.split("/") if key else []
    for i, token in enumerate(wanted):
        if token == "#":
            return True
        if i >= len(levels) or token not in ("+", levels[i]):
            return False
    return len(levels) == len(wanted)


def is_number(text: str) -> bool:
    """Tells whether a text is an offset, which has 19 digits at most: Python reads no numbers of
    thousands of them."""
    return text.isdecimal() and len(text) <= MOST_DIGITS


def parse_position(text: str) -> Position:
    """Reads first, last, next, an offset, or a time. Raises InvalidArgument."""
    if text in ("first", "last", "next"):
        return Position(name=text)
    if is_number(text):
        return Position(offset=int(text))
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(
            f"offset '{text[:40]}' is no place in a stream; use first, last, next, a number, or a "
            "time such as 2026-01-31T12:00:00Z"
        ) from None
    return Position(time=(time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())


def parse_message_id(text: str, name: str) -> int:
    """Reads the offset in `queue:offset`. Raises InvalidArgument."""
    queue, _, offset = text.rpartition(":")
    if queue != name or not is_number(offset):
        raise InvalidArgument(
            f"message-id '{text[:80]}' is none of queue '{name}'; send back the one that came with "
            "the message"
        )
    return int(offset)
