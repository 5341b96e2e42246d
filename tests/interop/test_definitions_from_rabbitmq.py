"""Moving from RabbitMQ: a real one is given users, exchanges, queues and bindings of every kind.
Its export is imported here, its users log in with their old passwords by every protocol, its
messages take the same ways, and our export is its own again."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import paho.mqtt.client as paho
import paho.mqtt.enums as paho_enums
import pika
import pytest
from proton import ConnectionException
from proton.utils import BlockingConnection

from queue_core.access.rabbitmq_passwords import MD5, SHA256, SHA512, rabbitmq_hash
from tests.interop.node_clients import run_script
from tests.interop.rabbitmq_server import rabbitmq
from tests.support.gateway_process import GatewayProcess, running
from tests.support.http_api import ask
from tests.support.operator import answer
from tests.support.ports import is_listening, lasting_port
from tests.support.postgres import fetch_value
from tests.support.until import wait_until

PASSWORDS = {
    "by-password": "open sesame 0",
    "sha256": "open sesame 1",
    "sha512": "ouvre-toi, sésame",
    "md5": "open sesame 3",
}
HASHED = {"sha256": SHA256, "sha512": SHA512, "md5": MD5}
VHOST = "plant 1/ü"
EXCHANGES = {
    "direct": ("direct", {}),
    "topic": ("topic", {"alternate-exchange": "lost"}),
    "fanout": ("fanout", {}),
    "headers": ("headers", {}),
    "lost": ("fanout", {}),
    "inner": ("topic", {}),
}
QUEUES: dict[str, dict[str, Any]] = {
    "classic": {"x-message-ttl": 3_600_000, "x-dead-letter-exchange": "lost"},
    "quorum": {"x-queue-type": "quorum", "x-delivery-limit": 3},
    "stream": {"x-queue-type": "stream", "x-max-age": "7D"},
    "priorities ü/~": {"x-max-priority": 5},
    "unrouted": {},
}
BINDINGS: list[tuple[str, str, str, str, dict[str, Any]]] = [
    ("direct", "queue", "classic", "a.b~c d/e", {}),
    ("direct", "queue", "quorum", "", {}),
    ("topic", "queue", "stream", "a.*.#", {}),
    ("topic", "exchange", "inner", "#.z", {}),
    ("inner", "queue", "priorities ü/~", "#", {}),
    ("fanout", "queue", "classic", "ignored", {}),
    ("fanout", "exchange", "direct", "", {}),
    ("headers", "queue", "quorum", "", {"x-match": "any", "a": 1, "b": "x"}),
    ("headers", "queue", "classic", "k", {"x-match": "all", "a": 1, "b": "x"}),
    ("lost", "queue", "unrouted", "", {}),
    ("amq.topic", "queue", "classic", "plant.#", {}),
]
MESSAGES: list[tuple[str, str, dict[str, Any]]] = [
    ("direct", "a.b~c d/e", {}),
    ("direct", "", {}),
    ("topic", "a.b.c", {}),
    ("topic", "a.b.z", {}),
    *[("topic", "nowhere", {})] * 5,  # more than the policy allows
    ("fanout", "", {}),
    ("headers", "", {"a": 1}),
    ("headers", "", {"a": 1, "b": "x"}),
    ("headers", "", {"c": 1}),
    ("amq.topic", "plant.1.temperature", {}),
    ("", "quorum", {}),
]


@dataclass(frozen=True)
class Rabbit:
    """RabbitMQ with its two ports."""

    amqp: int
    http: int

    def call(self, method: str, path: str, body: Any = None, login: str = "guest:guest") -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.http}/api{path}",
            None if body is None else json.dumps(body).encode(),
            {
                "Authorization": f"Basic {base64.b64encode(login.encode()).decode()}",
                "Content-Type": "application/json",
            },
            method=method,
        )
        with urllib.request.urlopen(request) as found:
            text = found.read()
        return json.loads(text) if text else None


def channel_of(port: int, login: tuple[str, str], vhost: str) -> Any:
    credentials = pika.PlainCredentials(*login)
    parameters = pika.ConnectionParameters("127.0.0.1", port, vhost, credentials)
    return pika.BlockingConnection(parameters).channel()


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rabbit]:
    http = lasting_port()
    folder = tmp_path_factory.mktemp("rabbitmq")
    with rabbitmq(folder, ["rabbitmq_management"], http) as amqp:
        wait_until(lambda: is_listening(http), "its HTTP API")
        found = Rabbit(amqp, http)
        fill(found)
        yield found


def fill(rabbit: Rabbit) -> None:
    rabbit.call("PUT", f"/vhosts/{quote(VHOST, safe='')}")
    for name, password in PASSWORDS.items():
        secret: dict[str, Any] = {"password": password}
        if name in HASHED:
            secret = {
                "password_hash": rabbitmq_hash(password.encode(), HASHED[name]),
                "hashing_algorithm": HASHED[name],
            }
        rabbit.call("PUT", f"/users/{name}", {**secret, "tags": "management,monitoring"})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        quoted = quote(VHOST, safe="")
        rabbit.call("PUT", f"/permissions/{quoted}/{name}", everything)
        rabbit.call("PUT", f"/permissions/%2F/{name}", {**everything, "configure": "^x-"})
        topics = {"exchange": "amq.topic", "write": "^plant", "read": ".*"}
        rabbit.call("PUT", f"/topic-permissions/{quoted}/{name}", topics)
    rabbit.call("PUT", "/users/certificate", {"password_hash": "", "tags": ""})
    rabbit.call("PUT", "/user-limits/md5/max-channels", {"value": 100})
    rabbit.call("PUT", f"/vhost-limits/{quoted}/max-queues", {"value": 50})
    policy = {"pattern": "^unrouted$", "definition": {"max-length": 3}, "apply-to": "queues"}
    rabbit.call("PUT", f"/policies/{quoted}/short", {**policy, "priority": 7})
    rabbit.call("PUT", f"/operator-policies/{quoted}/shorter", {**policy, "priority": 1})
    rabbit.call("PUT", "/global-parameters/of-a-tool", {"value": {"a": [1, None]}})
    channel = channel_of(rabbit.amqp, ("guest", "guest"), VHOST)
    for name, (kind, arguments) in EXCHANGES.items():
        channel.exchange_declare(
            name, kind, durable=True, internal=name == "inner", arguments=arguments
        )
    channel.exchange_declare("passing", "fanout", durable=False)
    for name, arguments in QUEUES.items():
        channel.queue_declare(name, durable=True, arguments=arguments)
    channel.queue_declare("passing", durable=False)
    for source, kind, name, key, arguments in BINDINGS:
        bind = channel.queue_bind if kind == "queue" else channel.exchange_bind
        bind(name, source, key, arguments)
    channel.connection.close()


@pytest.fixture(scope="module")
def moved(
    rabbit: Rabbit, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[GatewayProcess, dict[str, Any]]]:
    """A gateway of our own, with what RabbitMQ exported."""
    definitions = rabbit.call("GET", "/definitions")
    folder = tmp_path_factory.mktemp("moved")
    path = folder / "definitions.json"
    path.write_text(json.dumps(definitions))
    with running(folder / "gateway") as gateway:
        done = gateway.run("definitions", "import", str(path))
        answer(done)
        lines = [line.strip() for line in done.stderr.splitlines()[1:]]
        left_out = {line.partition(": ")[0] for line in lines}
        assert left_out == {
            "user 'guest'",
            "permission of user 'guest' in '/'",
            f"permission of user 'guest' in '{VHOST}'",
            f"exchange 'passing' in '{VHOST}'",
            f"queue 'passing' in '{VHOST}'",
        }
        yield gateway, definitions


def comparable(definitions: dict[str, Any]) -> dict[str, Any]:
    """What both must have, in one order."""
    kept: dict[str, Any] = {}
    for section in (
        "users",
        "vhosts",
        "permissions",
        "topic_permissions",
        "policies",
        "parameters",
        "global_parameters",
        "exchanges",
        "queues",
        "bindings",
    ):
        rows = [
            each
            for each in definitions[section]
            if each.get("durable", True) and "guest" not in (each.get("user"), each.get("name"))
        ]
        kept[section] = sorted(rows, key=lambda each: json.dumps(each, sort_keys=True))
    kept["vhosts"] = [{"name": each["name"]} for each in kept["vhosts"]]
    return kept


def test_our_export_is_rabbitmqs_own(
    moved: tuple[GatewayProcess, dict[str, Any]], tmp_path: Path
) -> None:
    gateway, definitions = moved
    path = tmp_path / "exported.json"
    answer(gateway.run("definitions", "export", str(path)))
    assert comparable(json.loads(path.read_text())) == comparable(definitions)


def test_messages_take_the_same_ways_as_in_rabbitmq(
    rabbit: Rabbit, moved: tuple[GatewayProcess, dict[str, Any]]
) -> None:
    gateway, _ = moved
    login = ("by-password", PASSWORDS["by-password"])
    ours = channel_of(gateway.ports["amqp"], login, VHOST)
    theirs = channel_of(rabbit.amqp, login, VHOST)
    for channel in (ours, theirs):
        channel.confirm_delivery()
        for exchange, key, headers in MESSAGES:
            properties = pika.BasicProperties(headers=headers, delivery_mode=2)
            channel.basic_publish(exchange, key, b"x", properties)
    found = [
        {
            name: channel.queue_declare(name, passive=True).method.message_count
            for name in QUEUES
            if name != "stream"  # RabbitMQ counts those late
        }
        for channel in (ours, theirs)
    ]
    assert found[0] == found[1]
    assert set(found[0].values()) != {0}
    for channel in (ours, theirs):
        channel.connection.close()


@pytest.mark.parametrize("user", PASSWORDS)
def test_a_user_logs_in_with_its_old_password_by_every_protocol(
    rabbit: Rabbit, moved: tuple[GatewayProcess, dict[str, Any]], user: str
) -> None:
    gateway, _ = moved
    password = PASSWORDS[user]
    assert rabbit.call("GET", "/whoami", login=f"{user}:{password}")["name"] == user
    for right, secret in ((False, f"{password}x"), (True, password)):
        assert by_amqp(gateway, user, secret) is right
        assert by_mqtt(gateway, user, secret) is right
        assert by_amqp10(gateway, user, secret) is right
        status = ask(gateway, "GET", "/api/queues", login=f"{user}:{secret}").status
        assert (status == 200) is right
    statement = f"""SELECT password_hash FROM howdah."user" WHERE name = '{user}'"""
    wait_until(
        lambda: str(fetch_value(gateway.database_url, statement)).startswith("$argon2id$"),
        "a hash of our own",
    )
    assert by_amqp(gateway, user, password)
    ran = run_script("scram.js", "amqp", str(gateway.ports["amqp"]), user, password)
    assert ran.stdout.strip() == "connected", ran.stderr


def test_a_user_without_a_password_does_not_log_in_by_one(
    moved: tuple[GatewayProcess, dict[str, Any]],
) -> None:
    assert not by_amqp(moved[0], "certificate", "")
    assert not by_amqp(moved[0], "certificate", "certificate")


def by_amqp(gateway: GatewayProcess, user: str, password: str) -> bool:
    try:
        channel_of(gateway.ports["amqp"], (user, password), VHOST).connection.close()
    except pika.exceptions.AMQPConnectionError:
        return False
    return True


def by_mqtt(gateway: GatewayProcess, user: str, password: str) -> bool:
    client = paho.Client(paho_enums.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv311)
    client.username_pw_set(user, password)
    client.connect("127.0.0.1", gateway.ports["mqtt"])
    answers: list[int] = []
    client.on_connect = lambda _c, _u, _f, reason, _p: answers.append(reason.value)
    while not answers:
        client.loop(0.1)
    client.disconnect()
    return answers == [0]


def by_amqp10(gateway: GatewayProcess, user: str, password: str) -> bool:
    try:
        connection = BlockingConnection(
            f"amqp://127.0.0.1:{gateway.ports['amqp']}",
            user=user,
            password=password,
            allowed_mechs="PLAIN",
            allow_insecure_mechs=True,
            virtual_host=f"vhost:{VHOST}",
        )
    except ConnectionException:
        return False
    connection.close()
    return True


# Fields of RabbitMQ's that we do not have: figures of an exchange.
NOT_OURS = frozenset(("incoming", "outgoing", "message_stats", "policy"))


def shape(value: Any) -> Any:
    """The fields of an answer with their JSON types, of all rows of a list together."""
    if isinstance(value, list):
        rows = [shape(each) for each in value]
        return [{name: kind for row in rows if isinstance(row, dict) for name, kind in row.items()}]
    if isinstance(value, dict):
        return {name: type(each).__name__ for name, each in value.items() if name not in NOT_OURS}
    return type(value).__name__


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        pytest.param("GET", "/exchanges/{vhost}", None, id="exchanges"),
        pytest.param("GET", "/exchanges/{vhost}/topic", None, id="an exchange"),
        pytest.param("GET", "/exchanges/{vhost}/topic/bindings/source", None, id="from it"),
        pytest.param("GET", "/exchanges/{vhost}/inner/bindings/destination", None, id="to it"),
        pytest.param("GET", "/bindings/{vhost}", None, id="bindings"),
        pytest.param("GET", "/queues/{vhost}/classic/bindings", None, id="of a queue"),
        pytest.param("GET", "/bindings/{vhost}/e/topic/q/stream/a.%252A.%2523", None, id="one"),
        pytest.param("GET", "/aliveness-test/{vhost}", None, id="alive"),
        pytest.param(
            "POST",
            "/exchanges/{vhost}/amq.default/publish",
            {
                "routing_key": "classic",
                "payload": "x",
                "payload_encoding": "string",
                "properties": {"delivery_mode": 2, "headers": {"n": 1}},
            },
            id="publish",
        ),
        pytest.param(
            "POST",
            "/queues/{vhost}/classic/get",
            {"count": 100, "ackmode": "ack_requeue_true", "encoding": "auto"},
            id="get",
        ),
    ],
)
def test_answers_have_the_fields_and_types_of_rabbitmqs(
    rabbit: Rabbit,
    moved: tuple[GatewayProcess, dict[str, Any]],
    method: str,
    path: str,
    body: Any,
) -> None:
    found = path.format(vhost=quote(VHOST, safe=""))
    login = f"sha256:{PASSWORDS['sha256']}"
    theirs = rabbit.call(method, found, body, login=login)
    ours = ask(moved[0], method, f"/api{found}", body, login=login).value
    assert shape(ours) == shape(theirs)
