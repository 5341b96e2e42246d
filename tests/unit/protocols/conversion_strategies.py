"""Any message that a client of each protocol can send, as documents, for hypothesis."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from tests.unit.protocols.amqp091.strategies import values as table_values
from tools.interop import NAMES as OWN_NAMES

Document = dict[str, Any]

STAMPED = ("x-publisher-id", "x-exchange", "x-routing-key")
# Names that mean something to one of the protocols, and those that only look like it.
NAMES = [
    "a", "b", "x-a", "x-b", "subject", "message-id", "created", "priority", "user-id", "group-id",
    "x-correlation-id", "x-message-id", "x-group-id", "x-app-id", "x-content-type", "x-created",
    "x-types", "x-repeated-headers", "x-timestamp", "x-cluster-id", "",
    "é", "x-é", "n" * 255, "n" * 256, "é" * 128, "x-" + "n" * 300,
]  # fmt: skip
TEXTS = [
    "", "0", "7", "255", "256", "007", "true", "\\xff", "\\x", "[]", "[1,2]", "null",
    "urn:uuid:12345678-1234-5678-1234-567812345678", "urn:uuid:1234", "x" * 255, "x" * 256,
    "é" * 127, "é" * 128, "2026-01-31T12:00:00Z", "2026-01-31T12:00:00+00:00",
    "2026-01-31T12:00:00.123456+00:00", "2026-01-31T14:00:00.25+02:00", "2026-01-31",
]  # fmt: skip
TOPICS = [
    "a/b", "a.b/c", "/", "a//b", "$queue/orders", "$queue/a.b", "$queue/a/b", "a%2Bb", "ü/ü",
    "$empty", "x" * 300,
]  # fmt: skip
KEYS = ["a.b", "a/b.c", "a+b", "orders", "", "#", "a\0b", "x" * 255]
TYPES = [
    "text/plain", "text/plain;charset=utf-8", 'text/plain; charset="UTF-8"', "application/json",
    "application/vnd.howdah.amqp-value", "", "x" * 255, "x" * 256, "é/é",
]  # fmt: skip

# What the gateway acts on or says itself: not for a publisher to choose.
RESERVED = frozenset(
    ("CC", "BCC", "x-delay", "x-opt-delivery-delay", "x-opt-delivery-time", "x-death", *STAMPED)
) | (OWN_NAMES.keys() - set(NAMES))

any_text = st.sampled_from(TEXTS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
mqtt_text = any_text.filter(lambda text: "\0" not in text)
short_text = any_text.filter(lambda text: len(text.encode()) <= 255)
names = st.sampled_from(NAMES) | any_text.filter(lambda name: name not in RESERVED)
mqtt_names = st.sampled_from(NAMES) | mqtt_text.filter(lambda name: name not in RESERVED)
table_names = names.filter(lambda name: len(name.encode()) <= 255)
types = st.sampled_from(TYPES)
short_types = types.filter(lambda text: len(text.encode()) <= 255)
octets = st.binary(max_size=12) | any_text.map(str.encode) | st.just(b"\xff" * 256)
bodies = st.binary(max_size=12) | st.just(b"") | any_text.map(str.encode)
uuids = st.uuids()
seconds = st.integers(0, 4_102_444_800).map(lambda s: datetime.fromtimestamp(s, UTC))
milliseconds = st.integers(0, 4_102_444_800_000).map(
    lambda ms: datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)
)


def is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _fits_its_flag(document: Document) -> bool:
    said = document["properties"].get("payload-format-indicator")
    return said != 1 or is_text(document["payload"])


mqtt5 = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(TOPICS).filter(lambda topic: not topic.startswith("$queue")),
        "qos": st.integers(0, 1),
        "payload": bodies,
        "properties": st.fixed_dictionaries(
            {},
            optional={
                "payload-format-indicator": st.integers(0, 1),
                "message-expiry-interval": st.integers(0, 4_000_000),
                "content-type": types | mqtt_text,
                "response-topic": st.sampled_from(TOPICS),
                "correlation-data": octets,
                "user-properties": st.lists(
                    st.tuples(mqtt_names, mqtt_text).map(list), min_size=1, max_size=6
                ),
            },
        ),
    }
).filter(_fits_its_flag)

amqp091 = st.fixed_dictionaries(
    {
        "exchange": st.sampled_from(["", "amq.topic", "orders"]),
        "routing-key": st.sampled_from(KEYS),
        "body": bodies,
        "properties": st.fixed_dictionaries(
            {"delivery-mode": st.integers(1, 2)},
            optional={
                "content-type": short_types | short_text,
                "content-encoding": short_text,
                "headers": st.dictionaries(
                    table_names, table_values | any_text, min_size=1, max_size=6
                ),
                "priority": st.integers(0, 255),
                "correlation-id": short_text,
                "reply-to": st.sampled_from(KEYS) | short_text,
                "expiration": st.integers(0, 4_000_000).map(lambda s: str(s * 1000)),
                "message-id": short_text,
                "timestamp": seconds | st.just(1 << 60),
                "type": short_text,
                "user-id": short_text,
                "app-id": short_text,
                "cluster-id": short_text,
            },
        ),
    }
)

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | any_text
    | octets
    | milliseconds
    | uuids
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
ids = any_text | octets | st.integers(0, (1 << 64) - 1) | uuids
# A sender of 1.0 has no need of the type that its values travel under.
ascii_types = types.filter(lambda text: text.isascii() and "howdah" not in text)
annotation_names = names.filter(lambda name: name.isascii() and name not in STAMPED)
addresses = st.sampled_from(
    ["reply", "a.b", "/queues/reply", "/queues/a%2Fb", "queue://q", "topic://a/b", "$queue/q",
     "/exchanges/amq.topic/a.b", "/exchanges/logs/a.b", "a/b"]
)  # fmt: skip

amqp10 = st.fixed_dictionaries(
    {
        "address": st.sampled_from(["/queues/orders", "/exchanges/amq.topic/a.b", "a/b.c"]),
        "header": st.fixed_dictionaries(
            {"durable": st.booleans()},
            optional={
                "priority": st.integers(0, 255),
                "ttl": st.integers(0, 4_000_000).map(lambda s: s * 1000),
            },
        ),
        "body": st.builds(lambda data: {"data": data}, bodies)
        | st.builds(lambda data: {"data": data}, st.lists(bodies, min_size=2, max_size=3))
        | st.builds(lambda value: {"value": value}, values)
        | st.builds(lambda items: {"sequence": items}, st.lists(values, max_size=3)),
    },
    optional={
        "message-annotations": st.dictionaries(annotation_names, values, max_size=4),
        "application-properties": st.dictionaries(names, values, max_size=4),
        "footer": st.dictionaries(annotation_names, scalars, max_size=2),
        "properties": st.fixed_dictionaries(
            {},
            optional={
                "message-id": ids,
                "user-id": octets,
                "to": any_text,
                "subject": any_text,
                "reply-to": addresses | any_text,
                "correlation-id": ids,
                "content-type": ascii_types,
                "content-encoding": st.sampled_from(["gzip", ""]),
                "absolute-expiry-time": milliseconds,
                "creation-time": milliseconds,
                "group-id": any_text,
                "group-sequence": st.integers(0, (1 << 32) - 1),
                "reply-to-group-id": any_text,
            },
        ),
    },
)

MESSAGES: dict[str, st.SearchStrategy[Document]] = {
    "mqtt5": mqtt5,
    "amqp091": amqp091,
    "amqp10": amqp10,
}
