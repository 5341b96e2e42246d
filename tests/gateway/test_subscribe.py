"""`howdah subscribe` and `howdah publish --via mqtt`, against a real gateway."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.gateway_process import COMMAND, ROOT, GatewayProcess, clean_environment
from tests.support.operator import answer, ready, refusal
from tests.support.until import PATIENCE_SECONDS, wait_until


def mqtt(gateway: GatewayProcess) -> list[str]:
    return ["--port", str(gateway.ports["mqtt"])]


@contextmanager
def subscriber(gateway: GatewayProcess, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A `howdah subscribe` that goes on beside the test, once the gateway knows it."""
    config = ["--config", str(gateway.config_path)]
    with subprocess.Popen(
        [*COMMAND, "subscribe", *arguments, *mqtt(gateway), *config],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=clean_environment(),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def published_until_heard(
    gateway: GatewayProcess, process: subprocess.Popen[str], *arguments: str
) -> tuple[str, str]:
    """Publishes again until the subscriber, whose start nobody announces, has ended."""
    place = mqtt(gateway) if "mqtt" in arguments else ()
    while process.poll() is None:
        answer(gateway.run("publish", *arguments, *place))
    return process.communicate(timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize("via", ["sql", "mqtt"])
def test_a_subscriber_sees_what_is_published_to_its_topics(
    shared_gateway: GatewayProcess, via: str
) -> None:
    topic = f"seen/{via}/temperature"
    with subscriber(shared_gateway, f"seen/{via}/+", "--count", "1") as process:
        out, err = published_until_heard(shared_gateway, process, topic, "21.5", "--via", via)
    assert out == f"{topic} 21.5\n", err
    assert process.returncode == 0


def test_a_machine_gets_json_with_properties(shared_gateway: GatewayProcess) -> None:
    extra = ("--header", "unit=C", "--content-type", "text/plain", "--via", "mqtt")
    with subscriber(shared_gateway, "json/#", "--count", "1", "--json") as process:
        out, _ = published_until_heard(shared_gateway, process, "json/t", "21.5", *extra)
    message = json.loads(out)
    assert (message["topic"], message["payload"], message["qos"]) == ("json/t", "21.5", 1)
    assert ["unit", "C"] in message["user_properties"]
    assert message["properties"]["content_type"] == "text/plain"


def test_verbose_shows_properties_to_people(shared_gateway: GatewayProcess) -> None:
    with subscriber(shared_gateway, "verbose/#", "-n", "1", "-v") as process:
        out, _ = published_until_heard(
            shared_gateway, process, "verbose/t", "x", "--via", "mqtt", "--header", "unit=C"
        )
    assert out.startswith("verbose/t x\n    qos: 1\n")
    assert "    [unit]: C\n" in out


def test_a_subscriber_of_a_queue_takes_as_many_as_it_asked_for_and_no_more(
    shared_gateway: GatewayProcess,
) -> None:
    queue = "taken"
    answer(shared_gateway.run("queue", "declare", queue))
    answer(shared_gateway.run("publish", "--queue", queue, "--lines", words="a\nb\nc\n"))
    wait_until(lambda: ready(shared_gateway, queue) == 3)
    done = shared_gateway.run("subscribe", "--queue", queue, "-n", "2", *mqtt(shared_gateway))
    bodies = [line.split()[-1] for line in answer(done).splitlines()]
    assert bodies == ["a", "b"]
    wait_until(lambda: ready(shared_gateway, queue) == 1)
    found = json.loads(answer(shared_gateway.run("queue", "peek", queue, "--json")))
    assert [message["body"] for message in found] == ["c"]


def test_a_filter_that_is_refused_is_named(shared_gateway: GatewayProcess) -> None:
    # A message of a queue is settled by its acknowledgement, and QoS 0 has none.
    answer(shared_gateway.run("queue", "declare", "certain"))
    arguments = ("subscribe", "--queue", "certain", "--qos", "0", *mqtt(shared_gateway))
    words = refusal(shared_gateway.run(*arguments))
    assert "refused to subscribe to '$queue/certain'" in words


def test_a_place_in_a_stream_needs_a_stream(shared_gateway: GatewayProcess) -> None:
    done = shared_gateway.run("subscribe", "t", "--offset", "first", *mqtt(shared_gateway))
    assert "name one with --queue" in refusal(done)


def test_a_wrong_password_is_told_as_such(shared_gateway: GatewayProcess) -> None:
    done = shared_gateway.run("subscribe", "t", "--username", "guest", *mqtt(shared_gateway))
    words = refusal(done)
    assert "refused the login" in words
    assert "$HOWDAH_PASSWORD" in words


def test_no_listener_there_is_told_with_the_way_out(shared_gateway: GatewayProcess) -> None:
    words = refusal(shared_gateway.run("subscribe", "t", "--port", "1"))
    assert "no MQTT listener answers at 127.0.0.1:1" in words
    assert "howdah serve" in words


def test_a_filter_is_needed(shared_gateway: GatewayProcess) -> None:
    assert "to what?" in refusal(shared_gateway.run("subscribe"))
    any_port = {"HOWDAH_LISTENERS__MQTT__PORT": "0"}
    assert "give --port" in refusal(shared_gateway.run("subscribe", "t", environ=any_port))
