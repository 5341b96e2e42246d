"""RabbitMQ answers the same requests beside us: statuses, places and JSON types are compared. The
wanted differences are those of the table in docs/conformance/management.md."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pika
import pytest

from tests.interop.management.json_shape import differences, shape
from tests.interop.rabbitmq_server import rabbitmq
from tests.support.gateway_process import GatewayProcess
from tests.support.http_api import HttpAnswer, ask_port
from tests.support.ports import lasting_port
from tests.support.until import wait_until

DOCUMENT: Final = Path(__file__).parents[3] / "docs/conformance/management.md"
ROW: Final = re.compile(r"^\| `(GET|PUT|POST|DELETE) (\S+)` \| `([^`]+)` \|")
FREE: Final = frozenset(
    ["arguments", "client_properties", "cluster_state", "definition", "headers"]
)

# What there is on both sides before the questions: method, path, body.
TOPOLOGY: Final[list[tuple[str, str, Any]]] = [
    ("PUT", "/vhosts/golden", {"description": "for comparison", "tags": "one,two"}),
    ("PUT", "/users/reader", {"password": "reader-secret", "tags": "monitoring"}),
    ("PUT", "/permissions/golden/guest", {"configure": ".*", "write": ".*", "read": ".*"}),
    ("PUT", "/permissions/golden/reader", {"configure": "", "write": "", "read": ".*"}),
    (
        "PUT",
        "/topic-permissions/golden/reader",
        {"exchange": "amq.topic", "write": "^a", "read": ".*"},
    ),
    ("PUT", "/exchanges/golden/ex", {"type": "topic", "durable": True, "arguments": {}}),
    ("PUT", "/exchanges/golden/other", {"type": "fanout", "durable": True, "arguments": {}}),
    ("PUT", "/queues/golden/q", {"durable": True, "arguments": {"x-max-length": 100}}),
    ("PUT", "/queues/golden/idle", {"durable": True}),
    ("POST", "/bindings/golden/e/ex/q/q", {"routing_key": "a.#", "arguments": {}}),
    ("POST", "/bindings/golden/e/ex/q/q", {"routing_key": "b", "arguments": {"x": "y"}}),
    ("POST", "/bindings/golden/e/ex/e/other", {"routing_key": "c"}),
    (
        "PUT",
        "/policies/golden/p",
        {"pattern": "^q$", "definition": {"message-ttl": 600000}, "priority": 1},
    ),
    (
        "PUT",
        "/operator-policies/golden/o",
        {"pattern": "^q$", "definition": {"expires": 6000000}, "priority": 1, "apply-to": "queues"},
    ),
    ("PUT", "/vhost-limits/golden/max-queues", {"value": 50}),
    ("PUT", "/user-limits/reader/max-connections", {"value": 50}),
    ("PUT", "/global-parameters/note", {"name": "note", "value": {"a": 1}}),
]

QUESTIONS: Final = [
    "/overview",
    "/cluster-name",
    "/whoami",
    "/extensions",
    "/nodes",
    "/vhosts",
    "/vhosts/golden",
    "/vhosts/golden/permissions",
    "/vhosts/golden/topic-permissions",
    "/vhosts/golden/connections",
    "/vhosts/golden/channels",
    "/users",
    "/users/reader",
    "/users/reader/permissions",
    "/users/reader/topic-permissions",
    "/users/without-permissions",
    "/permissions",
    "/permissions/golden/reader",
    "/topic-permissions",
    "/topic-permissions/golden/reader",
    "/exchanges",
    "/exchanges/golden",
    "/exchanges/golden/ex",
    "/exchanges/golden/ex/bindings/source",
    "/exchanges/golden/other/bindings/destination",
    "/queues",
    "/queues/golden",
    "/queues/golden/q",
    "/queues/golden/idle",
    "/queues/golden/q/bindings",
    "/queues/golden?page=1&page_size=1",
    "/bindings",
    "/bindings/golden",
    "/bindings/golden/e/ex/q/q",
    "/bindings/golden/e/ex/e/other",
    "/bindings/golden/e/ex/q/q/a.%23",
    "/connections",
    "/channels",
    "/consumers",
    "/consumers/golden",
    "/policies",
    "/policies/golden",
    "/policies/golden/p",
    "/operator-policies",
    "/operator-policies/golden/o",
    "/parameters",
    "/global-parameters",
    "/global-parameters/note",
    "/vhost-limits",
    "/vhost-limits/golden",
    "/user-limits",
    "/user-limits/reader",
    "/definitions",
    "/definitions/golden",
    "/feature-flags",
    "/health/checks/alarms",
    "/health/checks/local-alarms",
    "/health/checks/virtual-hosts",
    "/health/checks/node-is-quorum-critical",
    "/health/checks/protocol-listener/amqp091",
    "/aliveness-test/golden",
    "/healthchecks/node",
]

# Changes and mistakes: method, path, body; asked in this order on both sides.
CHANGES: Final[list[tuple[str, str, Any]]] = [
    ("PUT", "/queues/golden/new", {"durable": True}),
    ("PUT", "/queues/golden/new", {"durable": True}),
    ("PUT", "/queues/golden/new", {"durable": True, "arguments": {"x-max-length": 7}}),
    ("PUT", "/queues/golden/bad", {"durable": "maybe"}),
    ("PUT", "/queues/golden/bad", {"durable": True, "arguments": {"x-message-ttl": "soon"}}),
    ("PUT", "/queues/nowhere/new", {"durable": True}),
    ("PUT", "/queues/golden/amq.new", {"durable": True}),
    ("PUT", "/exchanges/golden/newx", {"type": "direct"}),
    ("PUT", "/exchanges/golden/newx", {"type": "direct"}),
    ("PUT", "/exchanges/golden/newx", {"type": "topic"}),
    ("PUT", "/exchanges/golden/badx", {"type": "no-such-type"}),
    ("PUT", "/exchanges/golden/badx", {}),
    ("POST", "/bindings/golden/e/newx/q/new", {"routing_key": "k"}),
    ("POST", "/bindings/golden/e/newx/q/new", {"routing_key": "k"}),
    ("POST", "/bindings/golden/e/none/q/new", {"routing_key": "k"}),
    ("POST", "/bindings/golden/e/newx/q/none", {"routing_key": "k"}),
    ("DELETE", "/bindings/golden/e/newx/q/new/k", None),
    ("DELETE", "/bindings/golden/e/newx/q/new/k", None),
    (
        "POST",
        "/exchanges/golden/amq.default/publish",
        {"routing_key": "new", "payload": "x", "payload_encoding": "string", "properties": {}},
    ),
    (
        "POST",
        "/exchanges/golden/amq.default/publish",
        {"routing_key": "none", "payload": "x", "payload_encoding": "string", "properties": {}},
    ),
    ("POST", "/exchanges/golden/amq.default/publish", {"routing_key": "new"}),
    (
        "POST",
        "/exchanges/golden/none/publish",
        {"routing_key": "new", "payload": "x", "payload_encoding": "string", "properties": {}},
    ),
    (
        "POST",
        "/queues/golden/new/get",
        {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"},
    ),
    (
        "POST",
        "/queues/golden/new/get",
        {"count": 1, "ackmode": "ack_requeue_false", "encoding": "base64"},
    ),
    (
        "POST",
        "/queues/golden/new/get",
        {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"},
    ),
    ("POST", "/queues/golden/new/get", {"count": 1, "encoding": "auto"}),
    (
        "POST",
        "/queues/golden/none/get",
        {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"},
    ),
    ("DELETE", "/queues/golden/new/contents", None),
    ("DELETE", "/queues/golden/none/contents", None),
    ("DELETE", "/queues/golden/q?if-unused=true", None),
    ("DELETE", "/queues/golden/new?if-empty=true", None),
    ("DELETE", "/queues/golden/new", None),
    ("DELETE", "/exchanges/golden/newx", None),
    ("DELETE", "/exchanges/golden/newx", None),
    ("DELETE", "/exchanges/golden/amq.topic", None),
    ("PUT", "/users/made", {"password": "made-secret", "tags": ""}),
    ("PUT", "/users/made", {"password": "made-secret-2", "tags": "management"}),
    ("PUT", "/users/made", {}),
    ("PUT", "/users/half", {"tags": "management"}),
    ("PUT", "/permissions/golden/made", {"configure": "[", "write": ".*", "read": ".*"}),
    ("PUT", "/permissions/golden/made", {"configure": ".*"}),
    ("PUT", "/permissions/golden/made", {"configure": ".*", "write": ".*", "read": ".*"}),
    ("PUT", "/permissions/nowhere/made", {"configure": ".*", "write": ".*", "read": ".*"}),
    ("PUT", "/permissions/golden/nobody", {"configure": ".*", "write": ".*", "read": ".*"}),
    ("DELETE", "/permissions/golden/made", None),
    ("DELETE", "/permissions/golden/made", None),
    ("POST", "/users/bulk-delete", {"users": ["made"]}),
    ("DELETE", "/users/made", None),
    ("PUT", "/policies/golden/bad", {"pattern": "[", "definition": {"max-length": 1}}),
    ("PUT", "/policies/golden/bad", {"pattern": "x", "definition": {"no-such-key": 1}}),
    ("PUT", "/policies/golden/bad", {"pattern": "x", "definition": {"max-length": "many"}}),
    ("PUT", "/policies/golden/bad", {"pattern": "x"}),
    ("PUT", "/policies/nowhere/p", {"pattern": "x", "definition": {"max-length": 1}}),
    ("DELETE", "/policies/golden/none", None),
    ("PUT", "/vhost-limits/golden/no-such", {"value": 50}),
    ("PUT", "/vhost-limits/golden/max-queues", {"value": "many"}),
    ("DELETE", "/vhost-limits/golden/max-queues", None),
    ("PUT", "/vhosts/another", {}),
    ("PUT", "/vhosts/another", {}),
    ("DELETE", "/vhosts/another", None),
    ("DELETE", "/vhosts/another", None),
    ("PUT", "/queues/golden/new", b"{"),
    ("PUT", "/queues/golden/new", b"[]"),
    ("GET", "/queues/golden/none", None),
    ("GET", "/queues/nowhere", None),
    ("GET", "/exchanges/golden/none", None),
    ("GET", "/users/nobody", None),
    ("GET", "/vhosts/nowhere", None),
    ("GET", "/connections/nobody", None),
    ("GET", "/policies/golden/none", None),
    ("GET", "/nothing/of/the/kind", None),
    ("GET", "/queues?page=x&page_size=10", None),
    ("GET", "/queues?page=9&page_size=10", None),
    ("GET", "/queues?page=1&page_size=10000", None),
    ("GET", "/queues?sort=no-such-column", None),
    ("GET", "/health/checks/port-listener/1", None),
    ("GET", "/health/checks/protocol-listener/stomp", None),
    ("DELETE", "/connections/nobody", None),
]


@dataclass(frozen=True)
class Side:
    """One of the two that are asked: where its HTTP API and its AMQP listener are."""

    management: int
    amqp: int

    def ask(self, method: str, path: str, body: Any = None, login: str | None = None) -> HttpAnswer:
        return ask_port(
            self.management,
            method,
            f"/api{path}",
            body,
            login=login or "guest:guest",
            headers={"Content-Type": "application/json"},
        )


@pytest.fixture(scope="module")
def sides(
    tmp_path_factory: pytest.TempPathFactory, managed_gateway: GatewayProcess
) -> Iterator[tuple[Side, Side]]:
    """RabbitMQ and the gateway, each with the topology, and a client that has a message."""
    port = lasting_port()
    folder = tmp_path_factory.mktemp("rabbitmq")
    with rabbitmq(folder, ["rabbitmq_management"], management_port=port) as amqp, ExitStack() as to:
        theirs = Side(port, amqp)
        ours = Side(managed_gateway.ports["management"], managed_gateway.ports["amqp"])
        for side in (theirs, ours):
            wait_until(lambda side=side: _answers(side), "the HTTP API answers")  # type: ignore[misc]
            for method, path, body in TOPOLOGY:
                answer = side.ask(method, path, body)
                assert answer.status in (201, 204), (side, path, answer.raw)
            to.enter_context(closing(_busy_client(side)))
        for side in (theirs, ours):
            wait_until(lambda side=side: _has_figures(side), "figures")  # type: ignore[misc]
        yield theirs, ours


def _answers(side: Side) -> bool:
    try:
        return side.ask("GET", "/whoami").status == 200
    except OSError:
        return False


def _busy_client(side: Side) -> pika.BlockingConnection:
    """Publishes, consumes, and keeps one message."""
    connection = pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", side.amqp, "golden")
    )
    channel = connection.channel()
    channel.basic_qos(prefetch_count=1)
    channel.confirm_delivery()
    for key in ("a.b", "a.c"):
        channel.basic_publish("ex", key, b"hello", pika.BasicProperties(delivery_mode=2))
    kept: list[object] = []
    channel.basic_consume("q", lambda *found: kept.append(found), consumer_tag="tag")
    wait_until(lambda: connection.process_data_events(0.01) is None and bool(kept), "a message")
    return connection


def _has_figures(side: Side) -> bool:
    """RabbitMQ gathers its figures every five seconds."""
    connections, channels = (
        side.ask("GET", "/connections").value,
        side.ask("GET", "/channels").value,
    )
    queue = side.ask("GET", "/queues/golden/q").value
    return (
        len(connections) == 1
        and "recv_oct_details" in connections[0]
        and len(channels) == 1
        and channels[0].get("consumer_count") == 1
        and channels[0].get("messages_unacknowledged") == 1
        and "publish" in channels[0].get("message_stats", {})
        and queue.get("messages_unacknowledged") == 1
        and "publish" in queue.get("message_stats", {})
        and bool(queue.get("consumer_details"))
        and "idle_since" in queue
        and "publish" in side.ask("GET", "/vhosts/golden").value.get("message_stats", {})
    )


def wanted() -> dict[tuple[str, str], set[str]]:
    """Reads the differences that the document lists: places by method and path. A `*` stands
    for anything, and `{name}` in a path for one part of it."""
    found: dict[tuple[str, str], set[str]] = {}
    for line in DOCUMENT.read_text().splitlines():
        if row := ROW.match(line):
            found.setdefault((row[1], row[2]), set()).add(row[3])
    return found


def unexpected(method: str, path: str, found: dict[str, str]) -> dict[str, str]:
    kept = dict(found)
    for (its_method, its_path), places in wanted().items():
        if its_method == method and _is_of(its_path, path):
            for place in places:
                for each in list(kept):
                    if _is_of(place, each):
                        del kept[each]
    return kept


def _is_of(pattern: str, text: str) -> bool:
    """Tells if a path or a place is one that a row of the table names."""
    words = [
        ".*".join(re.escape(word) for word in part.split("*"))
        for part in re.split(r"\{\w+\}", pattern)
    ]
    return re.fullmatch("[^/?]+".join(words), text) is not None


@pytest.mark.parametrize("path", QUESTIONS)
def test_an_answer_has_the_places_and_types_of_rabbitmqs(
    path: str, sides: tuple[Side, Side]
) -> None:
    theirs, ours = (side.ask("GET", path) for side in sides)
    assert ours.status == theirs.status, ours.raw[:300]
    assert ours.headers.get_content_type() == theirs.headers.get_content_type()
    found = differences(shape(theirs.value, FREE), shape(ours.value, FREE))
    assert unexpected("GET", path, found) == {}


def test_changes_and_mistakes_are_answered_as_by_rabbitmq(sides: tuple[Side, Side]) -> None:
    found: dict[str, Any] = {}
    for number, (method, path, body) in enumerate(CHANGES):
        theirs, ours = (side.ask(method, path, body) for side in sides)
        shown = f"{number} {method} {path} {body!r}"
        if "status" not in _listed(method, path) and ours.status != theirs.status:
            found[shown] = (theirs.status, ours.status, _text(theirs), _text(ours))
            continue
        if ours.status != theirs.status or not theirs.raw or not ours.raw:
            continue
        places = differences(shape(_value(theirs), FREE), shape(_value(ours), FREE))
        if rest := unexpected(method, path, places):
            found[shown] = rest, _text(theirs), _text(ours)
    assert found == {}, json.dumps(found, indent=1)


def _listed(method: str, path: str) -> set[str]:
    return set().union(
        *(
            places
            for (its_method, its_path), places in wanted().items()
            if its_method == method and _is_of(its_path, path)
        )
    )


def _value(answer: HttpAnswer) -> Any:
    try:
        return answer.value
    except ValueError:
        return answer.raw.decode()


def _text(answer: HttpAnswer) -> str:
    return answer.raw.decode()[:200]


@pytest.mark.parametrize("login", ["nobody:wrong", "reader:reader-secret"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/users"),
        ("GET", "/overview"),
        ("GET", "/nodes"),
        ("GET", "/queues"),
        ("GET", "/connections"),
        ("GET", "/definitions"),
        ("PUT", "/users/made"),
        ("PUT", "/vhosts/made"),
        ("PUT", "/policies/golden/made"),
        ("PUT", "/queues/golden/made"),
        ("DELETE", "/queues/golden/q"),
    ],
)
def test_who_may_ask_is_as_with_rabbitmq(
    method: str, path: str, login: str, sides: tuple[Side, Side]
) -> None:
    theirs, ours = (side.ask(method, path, {}, login) for side in sides)
    assert ours.status == theirs.status, (ours.raw, theirs.raw)
    if ours.status >= 400:
        assert ours.value["error"] == theirs.value["error"]


def test_every_wanted_difference_is_one(sides: tuple[Side, Side]) -> None:
    """A row of the table that nothing needs any more is taken out."""
    used: set[tuple[str, str, str]] = set()
    for path in QUESTIONS:
        theirs, ours = (side.ask("GET", path) for side in sides)
        found = differences(shape(theirs.value, FREE), shape(ours.value, FREE))
        for (method, its_path), places in wanted().items():
            if method == "GET" and _is_of(its_path, path):
                used |= {
                    (method, its_path, place)
                    for place in places
                    if any(_is_of(place, each) for each in found)
                }
    listed = {
        (method, path, place)
        for (method, path), places in wanted().items()
        for place in places
        if method == "GET" and any(_is_of(path, asked) for asked in QUESTIONS)
    }
    assert listed - used == set()
