"""Whatever way a message takes through the protocols, it comes back as it was sent.

A trip is what clients make of it: each consumes the message and publishes it again, with all that
it got. What comes back is compared with what a consumer gets who was there from the beginning.
"""

from __future__ import annotations

import json
from datetime import datetime
from itertools import permutations
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.message_files.protocols import PROTOCOLS
from queue_core.message.message import Message
from queue_core.message.values_as_text import READERS
from tests.unit.protocols.conversion_strategies import MESSAGES, TEXTS, Document

TRIPS = [
    (first, *others, first)
    for count in (1, 2)
    for first, *others in permutations(MESSAGES, count + 1)
]


def republished(document: Document, protocol: str) -> Document:
    """Returns what a client publishes again: to where it was, without what a delivery adds."""
    if protocol != "amqp10":
        return document
    annotations = dict(document["message-annotations"])
    exchange, key = annotations["x-exchange"], annotations["x-routing-key"]
    if exchange:
        address = f"/exchanges/{quote(exchange, safe='')}/{quote(key, safe='')}"
    else:
        address = f"/queues/{quote(key or 'nameless', safe='')}"
    header = {k: v for k, v in document["header"].items() if k in ("durable", "priority", "ttl")}
    return {**document, "address": address, "header": header}


def consumed(message: Message, protocol: str) -> Document:
    return PROTOCOLS[protocol].write(message, 0.0)


def trip(document: Document, *protocols: str) -> tuple[Document, Document]:
    """Converts through the protocols; returns what a consumer gets at both ends."""
    message = PROTOCOLS[protocols[0]].read(document, 0.0)
    first = consumed(message, protocols[0])
    for protocol in protocols[1:-1]:
        got = consumed(message, protocol)
        message = PROTOCOLS[protocol].read(republished(got, protocol), 0.0)
    return first, consumed(message, protocols[-1])


def typed(value: Any) -> Any:
    """Tells 1 from true and 1.0."""
    if isinstance(value, dict):
        return {name: typed(item) for name, item in value.items()}
    if isinstance(value, list):
        return [typed(item) for item in value]
    if isinstance(value, datetime):
        return value
    return type(value).__name__, repr(value)


STAMPED = ("x-publisher-id", "x-exchange", "x-routing-key")


def content(document: Document) -> Any:
    """Keeps the publisher's words: without where it went (an exchange is no part of a topic), and
    without what the gateway stamps on it."""
    left = {k: v for k, v in document.items() if k not in ("exchange", "routing-key", "topic")}
    notes = left.pop("message-annotations", {})
    if "ttl" in left.get("header", {}):  # MQTT counts in whole seconds, also one that has begun
        left["header"] = {**left["header"], "ttl": -(-left["header"]["ttl"] // 1000)}
    said = dict(left.pop("properties", {}))
    headers = said.pop("headers", None) or {}
    user = said.pop("user-properties", [])
    return typed(
        [
            left,
            said,
            {name: value for name, value in headers.items() if name not in STAMPED},
            {name: value for name, value in notes.items() if name not in STAMPED},
            [pair for pair in user if pair[0] not in STAMPED],
        ]
    )


@pytest.mark.parametrize("way", TRIPS, ids=" > ".join)
@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,  # a run of CI tells of the change that it runs for, and of nothing else
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_a_message_comes_back_as_it_was(way: tuple[str, ...], data: st.DataObject) -> None:
    document = data.draw(MESSAGES[way[0]])
    first, last = trip(document, *way)
    assert content(last) == content(first)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
kinds = (
    st.sampled_from([*READERS, "string", [], {}, [None, "uuid"], {"a": "integer"}]) | json_values
)
notes = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["n", "message-id", "priority", "x-types"])},
        optional={
            "type": kinds,
            "nth": st.integers(-1, 3) | json_values,
            "parts": st.integers(-1, 1 << 40) | json_values,
            "was": st.sampled_from(["w", "\ud800", "x" * 300]) | json_values,
            "header": json_values,
            "field": st.sampled_from(["message_id", "correlation_id", "reply_to", "content_type"]),
        },
    ),
    max_size=4,
).map(json.dumps)
# Five of the largest fit into the sections of one AMQP 1.0 message: they are bounded to 128 KiB.
HOSTILE = ['"\\ud800"', "[" * 20_000, '{"a":' * 500 + "1" + "}" * 500, "9" * 5000, "sNaN", "1e999"]


@pytest.mark.parametrize("source", MESSAGES)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    types=notes | json_values.map(json.dumps) | st.sampled_from(HOSTILE),
    texts=st.lists(st.sampled_from([*HOSTILE, *TEXTS]), max_size=3),
)
def test_whatever_a_client_says_of_types_a_message_can_be_written(
    source: str, types: str, texts: list[str]
) -> None:
    texts = [text for text in texts if source != "mqtt5" or len(text) < 65_536]
    table = {"x-types": types, **{"n" * (place + 1): text for place, text in enumerate(texts)}}
    said: dict[str, Document] = {
        "mqtt5": {
            "properties": {
                "correlation-data": b"1",
                "response-topic": "a.b",
                "content-type": "a/b",
                "user-properties": [["message-id", "1"], *([n, t] for n, t in table.items())],
            }
        },
        "amqp091": {"properties": {"message-id": "1", "headers": table}},
        "amqp10": {"message-annotations": {"x-types": types}, "application-properties": table},
    }
    message = PROTOCOLS[source].read(said[source], 0.0)
    for protocol in PROTOCOLS:
        consumed(message, protocol)


SAYS_TOO_MUCH = [
    ('[{"name":"n","type":"json"}]', '"\\ud800"'),
    ('[{"name":"n","type":{}}]', '{"a":"\\ud800"}'),
    ('[{"name":"n","was":"\\ud800"}]', "1"),
    ('[{"name":"n","type":[]}]', "[" * 50_000),
    ('[{"name":"n","type":[]}]', "[" * 500 + "]" * 500),
    ('[{"name":"n","type":"integer"}]', "9" * 5000),
    ('[{"name":"n","type":"decimal"}]', "sNaN"),
    ('[{"name":"n","type":[]}]', "[1e999]"),
    ('[{"name":"n","type":"timestamp"}]', "0001-01-01T00:00:00+23:59"),
    ('[{"name":"n","parts":1099511627776}]', "1"),
    ('[{"name":"n","nth":99}]', "1"),
]


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("source", MESSAGES)
@pytest.mark.parametrize(("types", "text"), SAYS_TOO_MUCH)
def test_what_cannot_be_written_again_stays_the_text_that_it_is(
    source: str, target: str, types: str, text: str
) -> None:
    said: dict[str, Document] = {
        "mqtt5": {"properties": {"user-properties": [["n", text], ["x-types", types]]}},
        "amqp091": {"properties": {"headers": {"n": text, "x-types": types}}},
        "amqp10": {
            "message-annotations": {"x-types": types},
            "application-properties": {"n": text},
        },
    }
    message = PROTOCOLS[source].read(said[source], 0.0)
    assert message.properties.headers[0] == ("n", text)
    consumed(message, target)
