"""Addresses of sources and targets: what each form means, and how a topic is written.

Pure text: whether a queue is there, and may be used, is for `nodes` to find out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from protocols.amqp10.errors import INVALID_FIELD, Amqp10Error
from queue_core.errors import InvalidTopic
from queue_core.message.message import TOPIC_EXCHANGE
from queue_core.message.topic_forms import dotted
from queue_core.routing.topics import MAX_BYTES, filter_tokens, levels_of

QUEUES: Final = "/queues/"
EXCHANGES: Final = "/exchanges/"
QUEUE_TOPIC: Final = "$queue/"
QUEUE_SCHEME: Final = "queue://"
TOPIC_SCHEME: Final = "topic://"
QUEUE_CAPABILITIES: Final = frozenset(("queue", "temporary-queue"))
TOPIC_CAPABILITIES: Final = frozenset(("topic", "temporary-topic"))


@dataclass(frozen=True, slots=True)
class QueueAddress:
    name: str
    may_make: bool = False  # the address asks for a queue, whether it is there already or not


@dataclass(frozen=True, slots=True)
class ExchangeAddress:
    """An exchange and a key: the key to publish with, or the pattern to bind by, in dot form."""

    exchange: str
    key: str


@dataclass(frozen=True, slots=True)
class NameAddress:
    """A bare name: the queue of that name if there is one, else a topic."""

    name: str


Address = QueueAddress | ExchangeAddress | NameAddress


def parse(address: str, capabilities: Collection[str] = ()) -> Address:
    """Reads what an address means, with the capabilities of its terminus. Raises Amqp10Error."""
    if not address:
        raise Amqp10Error(INVALID_FIELD, "the address is empty; name a queue or a topic")
    found = _read(address, capabilities)
    if isinstance(found, ExchangeAddress) and len(found.key) > MAX_BYTES // 4:
        size = len(found.key.encode(errors="surrogatepass"))
        if size > MAX_BYTES:
            raise Amqp10Error(
                INVALID_FIELD,
                f"a key of {size} bytes is longer than {MAX_BYTES}; choose a shorter one",
            )
    return found


def _read(address: str, capabilities: Collection[str]) -> Address:
    if address.startswith(QUEUES):
        return QueueAddress(_named(unquote(address[len(QUEUES) :]), address))
    if address.startswith(EXCHANGES):
        return _exchange(address)
    if address.startswith(QUEUE_TOPIC):
        return QueueAddress(_named(address[len(QUEUE_TOPIC) :], address), may_make=True)
    if address.startswith(QUEUE_SCHEME):
        return QueueAddress(_named(address[len(QUEUE_SCHEME) :], address), may_make=True)
    if address.startswith(TOPIC_SCHEME):
        return topic(_named(address[len(TOPIC_SCHEME) :], address))
    if not QUEUE_CAPABILITIES.isdisjoint(capabilities):
        return QueueAddress(address, may_make=True)
    if not TOPIC_CAPABILITIES.isdisjoint(capabilities):
        return topic(address)
    return NameAddress(address)


def _named(name: str, address: str) -> str:
    if not name:
        raise Amqp10Error(INVALID_FIELD, f"address '{address}' has no name; write one at its end")
    return name


def _exchange(address: str) -> ExchangeAddress:
    parts = address[len(EXCHANGES) :].split("/")
    if len(parts) > 2 or not parts[0]:
        raise Amqp10Error(
            INVALID_FIELD,
            f"address '{address}' is not /exchanges/:exchange or /exchanges/:exchange/:key; "
            "write a slash in a name as %2F",
        )
    return ExchangeAddress(unquote(parts[0]), unquote(parts[1]) if len(parts) == 2 else "")


def topic(text: str) -> ExchangeAddress:
    """A topic of the shared space. With a slash in it, it is written as MQTT writes it; without
    one, as AMQP does."""
    return ExchangeAddress(TOPIC_EXCHANGE, pattern_of(text))


def pattern_of(text: str) -> str:
    """A topic or filter in dot form. Raises InvalidTopic."""
    if "/" not in text:
        return text
    return ".".join(_WILDCARDS.get(level) or dotted(level) for level in filter_tokens(text))


_WILDCARDS: Final = {"+": "*", "#": "#"}


def check_publishable(address: ExchangeAddress, text: str) -> None:
    """A topic that is published to is one topic. Raises InvalidTopic."""
    if "/" in text and address.exchange == TOPIC_EXCHANGE and not text.startswith(EXCHANGES):
        levels_of(text.removeprefix(TOPIC_SCHEME))


def queue_address(name: str) -> str:
    return QUEUES + quote(name, safe="")


def topic_address(key: str) -> str:
    """The address of the topic that a key of `amq.topic` names, whatever is in its words."""
    return exchange_address(TOPIC_EXCHANGE, key)


def exchange_address(exchange: str, key: str) -> str:
    return f"{EXCHANGES}{quote(exchange, safe='')}/{quote(key, safe='')}"


def reply_key(address: str) -> str:
    """A reply address in the core's terms: the key that leads there from the default exchange, or
    the address itself where none does."""
    try:
        found = parse(address)
    except (Amqp10Error, InvalidTopic):
        return address
    match found:
        case QueueAddress():
            return found.name
        case ExchangeAddress(exchange="amq.topic"):
            return found.key
        case ExchangeAddress():
            return address
        case NameAddress():
            return found.name if "/" not in found.name else pattern_of_name(found.name)


def reply_address_of(key: str) -> str:
    """The other way: the bare name, which is the queue of that name or else a topic. One that would
    be read as something else is a queue's, written out."""
    return key if reply_key(key) == key else queue_address(key)


def pattern_of_name(name: str) -> str:
    return ".".join(dotted(level) for level in name.split("/"))
