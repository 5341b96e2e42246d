"""`howdah policy`, limits and descriptions on the command line, met by a real client, and still in
force after a restart."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pika
import pika.exceptions
import pytest

from tests.support.gateway_process import GatewayProcess, running
from tests.support.operator import answer, ready, refusal
from tests.support.until import wait_until


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with running(tmp_path_factory.mktemp("policies"), {}) as process:
        yield process


def publish(gateway: GatewayProcess, queue: str, count: int) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(gateway.amqp_url()))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare(queue, durable=True)
    for _ in range(count):
        channel.basic_publish("", queue, b"x", pika.BasicProperties(delivery_mode=2))
    connection.close()


def test_a_policy_acts_when_its_command_returns_and_after_a_restart(
    gateway: GatewayProcess,
) -> None:
    publish(gateway, "cli-orders", 10)
    said = answer(
        gateway.run("policy", "set", "short", "^cli-", '{"max-length": 4, "queue-mode": "lazy"}')
    )
    assert "policy 'short' made" in said
    assert "key 'queue-mode' is kept and has no effect here" in said
    wait_until(lambda: ready(gateway, "cli-orders") == 4)
    shown = json.loads(answer(gateway.run("queue", "show", "cli-orders", "--json")))
    assert (shown["policy"], shown["operator_policy"]) == ("short", None)
    assert shown["effective"]["max-length"] == 4
    gateway.restart()
    publish(gateway, "cli-orders", 3)
    wait_until(lambda: ready(gateway, "cli-orders") == 4)
    operator = ("policy", "set", "--operator", "least", "", '{"max-length": 2}')
    assert "operator policy 'least' made" in answer(gateway.run(*operator))
    wait_until(lambda: ready(gateway, "cli-orders") == 2)
    assert "in force:" in answer(gateway.run("queue", "show", "cli-orders"))
    listed = json.loads(answer(gateway.run("policy", "list", "--json")))
    assert [each["name"] for each in listed] == ["short"]
    assert "least" in answer(gateway.run("policy", "list", "--operator"))
    assert "cleared" in answer(gateway.run("policy", "clear", "short"))
    assert "cleared" in answer(gateway.run("policy", "clear", "least", "--operator"))
    publish(gateway, "cli-orders", 8)
    assert ready(gateway, "cli-orders") == 10


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("set", "p", "(", '{"max-length": 1}'), "not a regular expression"),
        (("set", "p", "", "max-length"), "is not JSON"),
        (("set", "p", "", '{"colour": 1}'), "key 'colour' is not known"),
        (("set", "p", "", '{"max-length": 1}', "--vhost", "nowhere"), "no virtual host 'nowhere'"),
        (("clear", "p"), "there is no policy 'p'"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(
    gateway: GatewayProcess, arguments: tuple[str, ...], word: str
) -> None:
    assert word in refusal(gateway.run("policy", *arguments))


def test_a_virtual_host_is_described_and_limited(gateway: GatewayProcess) -> None:
    answer(gateway.run("vhost", "add", "cli-house", "--description", "for tests", "--tag", "a"))
    answer(gateway.run("vhost", "set", "cli-house", "--default-queue-type", "stream"))
    answer(gateway.run("vhost", "limit", "cli-house", "--max-queues", "3"))
    answer(gateway.run("vhost", "limit", "cli-house", "--max-connections", "0"))
    listed = json.loads(answer(gateway.run("vhost", "list", "--json")))
    (found,) = [each for each in listed if each["name"] == "cli-house"]
    assert (found["description"], found["tags"]) == ("for tests", ["a"])
    assert (found["default_queue_type"], found["max_queues"]) == ("stream", 3)
    answer(gateway.run("vhost", "limit", "cli-house", "--max-connections", "none"))
    assert "nothing to change" in refusal(gateway.run("vhost", "limit", "cli-house"))
    assert "nothing to change" in refusal(gateway.run("vhost", "set", "cli-house"))
    unknown = ("vhost", "limit", "nowhere", "--max-queues", "3")
    assert "no virtual host 'nowhere'" in refusal(gateway.run(*unknown))
    answer(gateway.run("vhost", "remove", "cli-house"))


def test_a_vhost_that_lets_nobody_more_in_says_so(gateway: GatewayProcess) -> None:
    answer(gateway.run("vhost", "limit", "/", "--max-connections", "0"))
    with pytest.raises(pika.exceptions.AMQPConnectionError, match=r"limit \(0\) is reached"):
        pika.BlockingConnection(pika.URLParameters(gateway.amqp_url()))
    answer(gateway.run("vhost", "limit", "/", "--max-connections", "none"))
    pika.BlockingConnection(pika.URLParameters(gateway.amqp_url())).close()


def test_a_user_is_limited(gateway: GatewayProcess) -> None:
    unknown = ("user", "limit", "nobody", "--max-channels", "3")
    assert "there is no user 'nobody'" in refusal(gateway.run(*unknown))
