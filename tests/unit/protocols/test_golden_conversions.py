"""Conversions of properties, cell by cell: each property of each protocol, in both others.

The tables are the promise; docs/interop.md tells it in words.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from gateway.message_files.protocols import PROTOCOLS, converted
from protocols.amqp091.conversion import properties as amqp091
from protocols.amqp10.conversion import properties as amqp10
from protocols.amqp10.conversion.to_canonical import VALUE_TYPE
from protocols.mqtt.deliver.frames import frame_0, property_octets
from queue_core.message.conversion import MEANING
from queue_core.message.message import Properties

UID = UUID("12345678-1234-5678-1234-567812345678")
URN = f"urn:uuid:{UID}"
WHOLE = datetime(2026, 1, 31, 12, tzinfo=UTC)
FINE = datetime(2026, 1, 31, 12, 0, 0, 123000, tzinfo=UTC)
LONG = "x" * 256
FITS = "x" * 255

EMPTY: dict[str, dict[str, Any]] = {
    "mqtt5": {"topic": "a/b", "qos": 1, "payload": b"body"},
    "amqp091": {
        "exchange": "amq.topic",
        "routing-key": "a.b",
        "properties": {"delivery-mode": 2},
        "body": b"body",
    },
    "amqp10": {
        "address": "/exchanges/amq.topic/a.b",
        "header": {"durable": True},
        "body": {"data": b"body"},
    },
}


def m5(*user: tuple[str, str], **properties: Any) -> dict[str, Any]:
    """Makes the document of an MQTT 5 publish that says these properties."""
    said = {name.replace("_", "-"): value for name, value in properties.items()}
    if user:
        said["user-properties"] = [list(pair) for pair in user]
    return {"properties": said}


def a9(headers: dict[str, Any] | None = None, **properties: Any) -> dict[str, Any]:
    said = {name.replace("_", "-"): value for name, value in properties.items()}
    return {"properties": {**said, **({"headers": headers} if headers else {})}}


def a1(
    notes: dict[str, Any] | None = None,
    application: dict[str, Any] | None = None,
    header: dict[str, Any] | None = None,
    body: Any = None,
    **properties: Any,
) -> dict[str, Any]:
    said = {name.replace("_", "-"): value for name, value in properties.items()}
    parts = {
        "message-annotations": notes,
        "application-properties": application,
        "header": header,
        "properties": said,
        "body": body,
    }
    return {name: value for name, value in parts.items() if value}


def typed(field: str, kind: str) -> str:
    return f'[{{"field":"{field}","type":"{kind}"}}]'


def named(name: str, kind: str) -> str:
    return f'[{{"name":"{name}","type":{kind}}}]'


REPEATED = [["n", "1"], ["x", ""], ["n", "2"]]

# A message in one protocol is this in the others. Where the way back is another, it has a line.
SAME_BOTH_WAYS: list[tuple[Any, ...]] = [
    # what                        MQTT 5, AMQP 0.9.1, AMQP 1.0
    ("content type", m5(content_type="a/b"), a9(content_type="a/b"), a1(content_type="a/b")),
    (
        "content encoding",
        m5(("content-encoding", "gzip")),
        a9(content_encoding="gzip"),
        a1(content_encoding="gzip"),
    ),
    ("subject", m5(("subject", "s")), a9(type="s"), a1(subject="s")),
    ("app id", m5(("app-id", "a")), a9(app_id="a"), a1({"x-app-id": "a"})),
    ("user id", m5(("user-id", "u")), a9(user_id="u"), a1(user_id=b"u")),
    ("group", m5(("group-id", "g")), a9({"x-group-id": "g"}), a1(group_id="g")),
    ("priority", m5(("priority", "7")), a9(priority=7), a1(header={"priority": 7})),
    ("priority 0", m5(("priority", "0")), a9(priority=0), a1(header={"priority": 0})),
    (
        "expiry",
        m5(message_expiry_interval=60),
        a9(expiration="60000"),
        a1(header={"ttl": 60_000}),
    ),
    ("message id", m5(("message-id", "m")), a9(message_id="m"), a1(message_id="m")),
    ("empty id", m5(("message-id", "")), a9(message_id=""), a1(message_id="")),
    ("uuid", m5(("message-id", URN)), a9(message_id=URN), a1(message_id=UID)),
    (
        "ulong",
        m5(("message-id", "42"), ("x-types", named("message-id", '"integer"'))),
        a9({"x-types": typed("message_id", "integer")}, message_id="42"),
        a1(message_id=42),
    ),
    (
        "binary id",
        m5(("message-id", "\\xff"), ("x-types", named("message-id", '"binary"'))),
        a9({"x-message-id": b"\xff"}),
        a1(message_id=b"\xff"),
    ),
    ("correlation", m5(correlation_data=b"c"), a9(correlation_id="c"), a1(correlation_id="c")),
    (
        "correlation that is no text",
        m5(correlation_data=b"\0\xff"),
        a9({"x-correlation-id": b"\0\xff"}),
        a1(correlation_id=b"\0\xff"),
    ),
    (
        "correlation by a counter",
        m5(correlation_data=b"\0\1"),
        a9({"x-types": typed("correlation_id", "binary")}, correlation_id="\0\1"),
        a1(correlation_id=b"\0\1"),
    ),
    (
        "correlation of 255 bytes",
        m5(correlation_data=FITS.encode()),
        a9(correlation_id=FITS),
        a1(correlation_id=FITS),
    ),
    (
        "correlation of 256 bytes",
        m5(correlation_data=LONG.encode()),
        a9({"x-correlation-id": LONG}),
        a1(correlation_id=LONG),
    ),
    (
        "correlation by uuid",
        m5(correlation_data=URN.encode()),
        a9(correlation_id=URN),
        a1(correlation_id=UID),
    ),
    (
        "correlation by ulong",
        m5(("x-types", typed("correlation_id", "integer")), correlation_data=b"42"),
        a9({"x-types": typed("correlation_id", "integer")}, correlation_id="42"),
        a1(correlation_id=42),
    ),
    ("reply topic", m5(response_topic="a/b"), a9(reply_to="a.b"), a1(reply_to="a.b")),
    (
        "reply queue",
        m5(response_topic="$queue/orders"),
        a9({"x-reply-address": "$queue/orders"}, reply_to="orders"),
        a1(reply_to="$queue/orders"),
    ),
    (
        "reply topic with a dot in a level",
        m5(response_topic="v1.2/answers"),
        a9({"x-reply-address": "topic://v1.2/answers"}, reply_to="v1/2.answers"),
        a1(reply_to="topic://v1.2/answers"),
    ),
    (
        "created in seconds",
        m5(("created", "2026-01-31T12:00:00+00:00")),
        a9(timestamp=WHOLE),
        a1(creation_time=WHOLE),
    ),
    (
        "created in milliseconds",
        m5(("created", "2026-01-31T12:00:00.123000+00:00")),
        a9({"x-created": "2026-01-31T12:00:00.123000+00:00"}, timestamp=WHOLE),
        a1(creation_time=FINE),
    ),
    ("header", m5(("n", "1")), a9({"n": "1"}), a1(application={"n": "1"})),
    ("x- header", m5(("x-n", "1")), a9({"x-n": "1"}), a1({"x-n": "1"})),
    ("empty header", m5(("n", "")), a9({"n": ""}), a1(application={"n": ""})),
    (
        "repeated header",
        m5(("n", "1"), ("x", ""), ("n", "2")),
        a9({"n": "1", "x": "", "x-repeated-headers": REPEATED}),
        a1({"x-repeated-headers": REPEATED}, {"n": "1", "x": ""}),
    ),
    (
        "header with a name of 256 bytes",
        m5((LONG, "1")),
        a9({"x-repeated-headers": [[LONG, "1"]]}),
        a1(application={LONG: "1"}),
    ),
    (
        "number",
        m5(("n", "5"), ("x-types", named("n", '"integer"'))),
        a9({"n": 5}),
        a1(application={"n": 5}),
    ),
    (
        "truth",
        m5(("n", "true"), ("x-types", named("n", '"boolean"'))),
        a9({"n": True}),
        a1(application={"n": True}),
    ),
    (
        "nothing",
        m5(("n", ""), ("x-types", named("n", '"null"'))),
        a9({"n": None}),
        a1(application={"n": None}),
    ),
    (
        "floating point",
        m5(("n", "1.5"), ("x-types", named("n", '"double"'))),
        a9({"n": 1.5}),
        a1(application={"n": 1.5}),
    ),
    (
        "bytes",
        m5(("n", "\\xff"), ("x-types", named("n", '"binary"'))),
        a9({"n": b"\xff"}),
        a1(application={"n": b"\xff"}),
    ),
    (
        "time",
        m5(("n", "2026-01-31T12:00:00+00:00"), ("x-types", named("n", '"timestamp"'))),
        a9({"n": WHOLE}),
        a1(application={"n": WHOLE}),
    ),
    (
        "decimal",
        m5(("n", "1.5"), ("x-types", named("n", '"decimal"'))),
        a9({"n": Decimal("1.5")}),
        a1({"x-types": named("n", '"decimal"')}, {"n": "1.5"}),
    ),
    (
        "uuid header",
        m5(("n", URN), ("x-types", named("n", '"uuid"'))),
        a9({"n": URN, "x-types": named("n", '"uuid"')}),
        a1(application={"n": UID}),
    ),
    (
        "list",
        m5(("n", '[1,["a"]]'), ("x-types", named("n", "[]"))),
        a9({"n": [1, ["a"]]}),
        a1(application={"n": [1, ["a"]]}),
    ),
    (
        "map",
        m5(("n", '{"a":{"b":null}}'), ("x-types", named("n", "{}"))),
        a9({"n": {"a": {"b": None}}}),
        a1(application={"n": {"a": {"b": None}}}),
    ),
    (
        "text of a type without a charset",
        m5(payload_format_indicator=1, content_type="a/b"),
        a9({"x-payload-format": 1}, content_type="a/b"),
        a1({"x-payload-format": 1}, content_type="a/b"),
    ),
    (
        "text of a type with one",
        m5(payload_format_indicator=1, content_type="a/b;charset=utf-8"),
        a9(content_type="a/b;charset=utf-8"),
        a1(content_type="a/b;charset=utf-8"),
    ),
    (
        "text of no type",
        m5(payload_format_indicator=1),
        a9({"x-payload-format": 1}),
        a1({"x-content-type-added": True}, content_type="text/plain;charset=utf-8"),
    ),
    (
        "text that was an amqp-value string",
        m5(("x-amqp10-body", "value"), payload_format_indicator=1),
        a9({"x-payload-format": 1, "x-amqp10-body": "value"}),
        a1(body={"value": "body"}),
    ),
]  # fmt: skip


def full(protocol: str, said: dict[str, Any]) -> dict[str, Any]:
    whole = {**EMPTY[protocol]}
    for name, part in said.items():
        both = isinstance(part, dict) and name != "body"
        whole[name] = {**whole.get(name, {}), **part} if both else part
    return whole


STAMPED = ("x-publisher-id", "x-exchange", "x-routing-key")


def bare(protocol: str, document: dict[str, Any]) -> dict[str, Any]:
    """Without what the gateway says of each delivery, and without what is empty."""
    left = {k: v for k, v in document.items() if k not in ("retain", "address")}
    if protocol == "amqp10":
        kept = ("durable", "priority", "ttl")
        left["header"] = {k: v for k, v in left["header"].items() if k in kept}
    said = dict(left.get("properties") or {})
    notes = dict(left.get("message-annotations") or {})
    headers = dict(said.get("headers") or {})
    said["headers"] = {k: v for k, v in headers.items() if k not in STAMPED}
    user = said.get("user-properties") or []
    said["user-properties"] = [pair for pair in user if pair[0] not in STAMPED]
    left["properties"] = {k: v for k, v in said.items() if v not in ({}, [])}
    left["message-annotations"] = {k: v for k, v in notes.items() if k not in STAMPED}
    return {name: value for name, value in left.items() if value != {}}


COLUMNS = ("mqtt5", "amqp091", "amqp10")
WAYS = [(a, b) for a in COLUMNS for b in COLUMNS]


@pytest.mark.parametrize(("source", "target"), WAYS, ids=" to ".join)
@pytest.mark.parametrize("row", SAME_BOTH_WAYS, ids=[row[0] for row in SAME_BOTH_WAYS])
def test_every_cell_each_way(row: tuple[Any, ...], source: str, target: str) -> None:
    sent = full(source, row[1 + COLUMNS.index(source)])
    expected = full(target, row[1 + COLUMNS.index(target)])
    assert bare(target, converted(sent, source, target)) == bare(target, expected)


ONE_WAY = [
    (
        "cluster id",
        "amqp091",
        a9(cluster_id="c"),
        "mqtt5",
        m5(("x-amqp091-cluster-id", "c")),
    ),
    (
        "an absolute expiry wins over a ttl",
        "amqp10",
        a1(header={"ttl": 5000}, absolute_expiry_time=datetime.fromtimestamp(60, UTC)),
        "amqp091",
        a9({"x-absolute-expiry-time": datetime.fromtimestamp(60, UTC)}, expiration="60000"),
    ),
    (
        "several data sections are one body",
        "amqp10",
        a1(body={"data": [b"bo", b"", b"dy"]}),
        "amqp091",
        a9({"x-amqp10-data": [2, 0, 2]}),
    ),
    (
        "to, sequence and group of 1.0",
        "amqp10",
        a1(to="/queues/q", group_sequence=3, reply_to_group_id="r"),
        "amqp091",
        a9({"x-to": "/queues/q", "x-group-sequence": 3, "x-reply-to-group-id": "r"}),
    ),
    (
        "a queue of 1.0 to answer to",
        "amqp10",
        a1(reply_to="/queues/a%2Fb"),
        "amqp091",
        a9(reply_to="a/b"),
    ),
    (
        "a user id that is no text",
        "amqp10",
        a1(user_id=b"\xff"),
        "amqp091",
        a9({"x-user-id": b"\xff"}),
    ),
    (
        "a content type of 256 bytes",
        "mqtt5",
        m5(content_type=LONG),
        "amqp091",
        a9({"x-content-type": LONG}),
    ),
    (
        "a content type that is not ASCII",
        "amqp091",
        a9(content_type="é"),
        "amqp10",
        a1({"x-content-type": "é"}),
    ),
    (
        "user properties that are not in our order",
        "mqtt5",
        m5(("n", "1"), ("subject", "s")),
        "amqp091",
        a9({"n": "1", "x-user-property-order": ["n", "subject"]}, type="s"),
    ),
    (
        "a timestamp that no calendar holds",
        "amqp091",
        a9(timestamp=1 << 60),
        "amqp10",
        a1({"x-amqp091-timestamp": 1 << 60}),
    ),
    (
        "a NUL in a header",
        "amqp091",
        a9({"n": "a\0b"}),
        "mqtt5",
        m5(("n", '"a\\u0000b"'), ("x-types", named("n", '"json"'))),
    ),
]


@pytest.mark.parametrize(
    ("source", "said", "target", "expected"),
    [row[1:] for row in ONE_WAY],
    ids=[row[0] for row in ONE_WAY],
)
def test_what_only_one_protocol_has(
    source: str, said: dict[str, Any], target: str, expected: dict[str, Any]
) -> None:
    got = converted(full(source, said), source, target)
    assert bare(target, got) == bare(target, full(target, expected))


@pytest.mark.parametrize(("source", "target"), [way for way in WAYS if way[0] != way[1]])
@pytest.mark.parametrize("is_durable", [True, False])
def test_durability(source: str, target: str, is_durable: bool) -> None:
    said = {
        "mqtt5": {"qos": 1 if is_durable else 0},
        "amqp091": a9(delivery_mode=2 if is_durable else 1),
        "amqp10": {"header": {"durable": is_durable}},
    }
    got = converted(full(source, said[source]), source, target)
    assert bare(target, got) == bare(target, full(target, said[target]))


@pytest.mark.parametrize(("source", "target"), [way for way in WAYS if way[0] != way[1]])
def test_who_published_is_stamped_and_cannot_be_forged(source: str, target: str) -> None:
    forged = {
        "mqtt5": m5(("x-publisher-id", "root")),
        "amqp091": a9({"x-publisher-id": "root"}),
        "amqp10": a1({"x-publisher-id": "root"}),
    }
    got = converted({**full(source, forged[source]), "publisher": "me"}, source, target)
    if target == "amqp10":
        said = got["message-annotations"]
    elif target == "amqp091":
        said = got["properties"]["headers"]
    else:
        said = dict(got["properties"]["user-properties"])
    assert said["x-publisher-id"] == "me"


@pytest.mark.parametrize("value", [{"a": [1, None]}, None, 5, [UID, 1.5], b"\xff"])
@pytest.mark.parametrize("other", ["mqtt5", "amqp091"])
def test_a_value_of_1_0_travels_encoded_under_a_type_of_its_own(value: Any, other: str) -> None:
    sent = full("amqp10", a1(body={"value": value}, content_type="app/own"))
    got = converted(sent, "amqp10", other)
    assert got["properties"]["content-type"] == VALUE_TYPE
    back = converted(got, other, "amqp10")
    assert back["body"] == {"value": value}
    assert back["properties"]["content-type"] == "app/own"


@pytest.mark.parametrize(
    ("topic", "key"),
    [
        ("a/b", "a.b"),
        ("v1.2/temp", "v1/2.temp"),
        ("a//b", "a..b"),
        ("a%2Bb", "a+b"),
        ("$SYS/x", "$SYS.x"),
    ],
)
def test_a_topic_has_two_forms(topic: str, key: str) -> None:
    got = converted({"topic": topic}, "mqtt5", "amqp091")
    assert (got["exchange"], got["routing-key"]) == ("amq.topic", key)
    assert (
        converted({"exchange": "amq.topic", "routing-key": key}, "amqp091", "mqtt5")["topic"]
        == topic
    )
    notes = converted({"topic": topic}, "mqtt5", "amqp10")["message-annotations"]
    assert (notes["x-exchange"], notes["x-routing-key"]) == ("amq.topic", key)


def test_a_consumer_of_mqtt_3_gets_what_3_can_say() -> None:
    got = converted(full("amqp091", a9({"n": 1}, content_type="a/b")), "amqp091", "mqtt311")
    assert got == {"topic": "a/b", "qos": 1, "retain": False, "payload": b"body"}


@pytest.mark.parametrize("source", COLUMNS)
def test_sql_reads_typed_columns(source: str) -> None:
    rows = {row[0]: row[1 + COLUMNS.index(source)] for row in SAME_BOTH_WAYS}
    got = converted(full(source, rows["uuid"]), source, "sql")
    assert got["message_id"] == URN
    got = converted(full(source, rows["number"]), source, "sql")
    assert got["headers"] == {"n": 5}
    got = converted(full(source, rows["created in milliseconds"]), source, "sql")
    assert got["created_at"] == FINE


@pytest.mark.parametrize("target", COLUMNS)
def test_what_sql_publishes_has_its_places(target: str) -> None:
    sent = {
        "routing_key": "a.b",
        "exchange": "amq.topic",
        "content_type": "a/b",
        "correlation_id": "c",
        "headers": {"n": 5},
        "priority": 7,
        "body": "body",
    }
    expected = {
        "mqtt5": m5(
            ("priority", "7"),
            ("n", "5"),
            ("x-types", named("n", '"integer"')),
            content_type="a/b",
            correlation_data=b"c",
        ),
        "amqp091": a9({"n": 5}, content_type="a/b", correlation_id="c", priority=7),
        "amqp10": a1(None, {"n": 5}, {"priority": 7}, content_type="a/b", correlation_id="c"),
    }
    got = converted(sent, "sql", target)
    assert bare(target, got) == bare(target, full(target, expected[target]))


def test_it_is_converted_once_and_kept() -> None:
    message = PROTOCOLS["amqp091"].read(EMPTY["amqp091"], 0.0)
    assert property_octets(message) is property_octets(message)
    assert amqp10.native_of(message) is amqp10.native_of(message)
    message = PROTOCOLS["mqtt5"].read(EMPTY["mqtt5"], 0.0)
    assert amqp091.native_of(message, 0.0) is amqp091.native_of(message, 0.0)


@pytest.mark.parametrize("protocol", COLUMNS)
def test_for_its_own_protocol_nothing_is_converted(protocol: str) -> None:
    message = PROTOCOLS[protocol].read(EMPTY[protocol], 0.0)
    PROTOCOLS[protocol].write(message, 0.0)
    assert message.encoded is None
    assert message._properties is None


def test_a_reply_address_that_names_a_queue_leads_an_mqtt_worker_there() -> None:
    sent = full("amqp091", a9(reply_to="amq.gen-1"))
    message = PROTOCOLS["amqp091"].read(sent, 0.0)
    assert b"$queue/amq.gen-1" in property_octets(message, {"amq.gen-1"})
    message = PROTOCOLS["amqp091"].read(sent, 0.0)
    assert b"$queue/amq.gen-1" in frame_0(message, True, {"amq.gen-1"})
    message = PROTOCOLS["amqp091"].read(sent, 0.0)
    assert b"amq/gen-1" in property_octets(message, {"another"})


def test_every_canonical_field_is_in_some_cell() -> None:
    """A new field has its row."""
    assert set(Properties.__struct_fields__) <= set(MEANING)
