"""The same policies on Debian's RabbitMQ and here: the same ones act on the same queues, with the
same definitions, and the queues come to hold as many messages."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pika
import pika.exceptions
import pytest

from tests.interop.rabbitmq_server import rabbitmq
from tests.support.gateway_process import GatewayProcess, running
from tests.support.ports import is_listening, lasting_port
from tests.support.postgres import fetch_value
from tests.support.until import wait_until

QUEUES: dict[str, dict[str, Any]] = {
    "plain": {},
    "declared": {"x-max-length": 6, "x-overflow": "drop-head"},
    "declared.short": {"x-max-length": 2},
    "strict": {"x-max-length": 4, "x-overflow": "reject-publish"},
    "timed": {"x-message-ttl": 60_000, "x-expires": 3_600_000},
    "quorum": {"x-queue-type": "quorum"},
    "quorum.limited": {"x-queue-type": "quorum", "x-delivery-limit": 3},
    "stream": {"x-queue-type": "stream"},
    "stream.aged": {"x-queue-type": "stream", "x-max-age": "7D"},
}
Set = list[tuple[str, str, dict[str, Any], str, int, bool]]
SETS: dict[str, Set] = {
    "none": [],
    "one for all": [("all", ".*", {"max-length": 5}, "all", 0, False)],
    "the highest priority alone": [
        ("low", ".*", {"max-length": 3, "message-ttl": 90_000}, "queues", 1, False),
        ("high", "^declared", {"max-length": 7}, "queues", 2, False),
    ],
    "patterns are searched for": [
        ("middle", "lare", {"max-length": 3}, "queues", 0, False),
        ("end", "ed$", {"message-ttl": 5_000_000}, "queues", -1, False),
    ],
    "keys that a type does not support": [
        ("ages", ".*", {"max-age": "1D"}, "queues", 9, False),
        ("limit", ".*", {"delivery-limit": 2}, "queues", 5, False),
        ("length", ".*", {"max-length": 3}, "queues", 1, False),
    ],
    "an operator is stricter": [
        ("mine", ".*", {"max-length": 8, "message-ttl": 70_000}, "queues", 0, False),
        (
            "theirs",
            "^(plain|declared|quorum)",
            {"max-length": 4, "expires": 900_000},
            "all",
            0,
            True,
        ),
    ],
    "an operator alone": [("theirs", "^strict$", {"max-length": 3}, "queues", 0, True)],
    "an argument wins": [
        (
            "mine",
            "^(declared|plain)",
            {"max-length": 9, "overflow": "reject-publish"},
            "all",
            0,
            False,
        )
    ],
    "exchanges are others": [
        ("exchanges", ".*", {"alternate-exchange": "amq.fanout"}, "exchanges", 9, False),
        ("queues", ".*", {"max-length": 5}, "queues", 1, False),
    ],
}


@dataclass(frozen=True)
class Broker:
    """One of the two, as its HTTP API and its AMQP port show it."""

    http: int
    amqp: int

    def call(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.http}/api{path}",
            None if body is None else json.dumps(body).encode(),
            {
                "Authorization": f"Basic {base64.b64encode(b'guest:guest').decode()}",
                "Content-Type": "application/json",
            },
            method=method,
        )
        with urllib.request.urlopen(request) as found:
            text = found.read()
        return json.loads(text) if text else None

    def apply(self, policies: Set) -> None:
        for kind in ("policies", "operator-policies"):
            for old in self.call("GET", f"/{kind}/%2F"):
                self.call("DELETE", f"/{kind}/%2F/{old['name']}")
        for name, pattern, definition, apply_to, priority, is_operator in policies:
            body = {"pattern": pattern, "definition": definition}
            kind = "operator-policies" if is_operator else "policies"
            self.call(
                "PUT", f"/{kind}/%2F/{name}", {**body, "apply-to": apply_to, "priority": priority}
            )

    def channel(self) -> Any:
        credentials = pika.PlainCredentials("guest", "guest")
        parameters = pika.ConnectionParameters("127.0.0.1", self.amqp, "/", credentials)
        return pika.BlockingConnection(parameters).channel()

    def counts(self) -> dict[str, int]:
        """How many of ten messages each queue with a limit keeps."""
        channel = self.channel()
        channel.confirm_delivery()
        for name, arguments in QUEUES.items():
            if arguments.get("x-queue-type") == "stream":
                continue
            channel.queue_purge(name)
            for _ in range(10):
                with suppress(pika.exceptions.NackError):
                    channel.basic_publish("", name, b"x", pika.BasicProperties(delivery_mode=2))
        found = {
            name: channel.queue_declare(name, passive=True).method.message_count
            for name, arguments in QUEUES.items()
            if arguments.get("x-queue-type") != "stream"
        }
        channel.connection.close()
        return found


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    http = lasting_port()
    folder = tmp_path_factory.mktemp("rabbitmq")
    with rabbitmq(folder, ["rabbitmq_management"], http) as amqp:
        wait_until(lambda: is_listening(http), "its HTTP API")
        yield _filled(Broker(http, amqp))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with running(tmp_path_factory.mktemp("gateway"), {}) as process:
        yield process


@pytest.fixture(scope="module")
def howdah(gateway: GatewayProcess) -> Broker:
    return _filled(Broker(gateway.ports["management"], gateway.ports["amqp"]))


def _filled(broker: Broker) -> Broker:
    channel = broker.channel()
    for name, arguments in QUEUES.items():
        channel.queue_declare(name, durable=True, arguments=arguments)
    channel.connection.close()
    return broker


def in_rabbitmq(rabbit: Broker) -> dict[str, Any]:
    return {
        each["name"]: (
            each.get("policy"),
            each.get("operator_policy"),
            each.get("effective_policy_definition") or {},
        )
        for each in rabbit.call("GET", "/queues/%2F")
    }


def in_view(gateway: GatewayProcess) -> dict[str, Any]:
    """What the view says, which another test holds against the gateway's memory."""
    rows = "jsonb_build_array(queue, policy, operator_policy, definition)"
    found = fetch_value(
        gateway.database_url, f"SELECT jsonb_agg({rows})::text FROM howdah.queue_policy"
    )
    return {
        name: (policy, operator, definition)
        for name, policy, operator, definition in json.loads(str(found))
    }


@pytest.mark.parametrize("name", list(SETS))
def test_the_same_policies_act_on_the_same_queues(
    rabbit: Broker, howdah: Broker, gateway: GatewayProcess, name: str
) -> None:
    for broker in (rabbit, howdah):
        broker.apply(SETS[name])
    ours = in_view(gateway)
    assert ours.keys() == QUEUES.keys()
    # RabbitMQ tells of queues what they last said, some seconds later.
    wait_until(
        lambda: in_rabbitmq(rabbit) == ours,
        lambda: f"RabbitMQ says {in_rabbitmq(rabbit)}, and we say {ours}",
    )


@pytest.mark.parametrize("name", list(SETS))
def test_queues_keep_as_many_messages_under_the_same_policies(
    rabbit: Broker, howdah: Broker, name: str
) -> None:
    for broker in (rabbit, howdah):
        broker.apply(SETS[name])
    assert howdah.counts() == rabbit.counts()
