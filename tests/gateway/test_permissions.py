"""Users and permissions from end to end: made on the command line, felt by a client."""

from __future__ import annotations

import base64
import json

from tests.gateway.operator import answer, get, refusal, wait_until
from tests.gateway_process import GatewayProcess


def publish(gateway: GatewayProcess, user: str, password: str, topic: str) -> tuple[int, str]:
    arguments = ("--via", "mqtt", "--port", str(gateway.ports["mqtt"]), "--username", user)
    environ = {"HOWDAH_PASSWORD": password}
    done = gateway.run("publish", topic, "x", *arguments, environ=environ)
    return done.returncode, done.stderr


def knows(gateway: GatewayProcess, login: str) -> bool:
    """A change counts within a second; this is how one sees that it does."""
    return get(gateway, "/api/queues", login)[0] == 200


def test_a_device_publishes_below_its_own_name_and_nowhere_else(
    shared_gateway: GatewayProcess,
) -> None:
    run = shared_gateway.run
    answer(run("user", "add", "pump-7", "--no-permissions", words="secret\n"))
    wait_until(lambda: knows(shared_gateway, "pump-7:secret"))
    code, words = publish(shared_gateway, "pump-7", "secret", "plant/pump-7/flow")
    assert code == 1
    assert "refused the login" in words
    answer(run("user", "grant", "pump-7", "--write", r"^amq\.topic$", "--configure", ""))
    rule = ("--topic-exchange", "amq.topic", "--write", r"^plant\.{username}\.")
    answer(run("user", "grant", "pump-7", *rule))
    wait_until(lambda: publish(shared_gateway, "pump-7", "secret", "plant/pump-7/flow")[0] == 0)
    code, words = publish(shared_gateway, "pump-7", "secret", "plant/pump-8/flow")
    assert code == 1
    assert "refused the message to 'plant/pump-8/flow' (0x87)" in words
    code, words = publish(shared_gateway, "pump-7", "wrong", "plant/pump-7/flow")
    assert code == 1
    assert "refused the login" in words


def test_a_removed_user_does_not_come_in_again(shared_gateway: GatewayProcess) -> None:
    run = shared_gateway.run
    answer(run("user", "add", "leaver", words="secret\n"))
    wait_until(lambda: knows(shared_gateway, "leaver:secret"))
    answer(run("user", "remove", "leaver"))
    wait_until(lambda: not knows(shared_gateway, "leaver:secret"))
    assert "there is no user" in refusal(run("user", "remove", "leaver"))


def test_failed_logins_are_counted(shared_gateway: GatewayProcess) -> None:
    def refused() -> float:
        lines = get(shared_gateway, "/metrics")[1].splitlines()
        (line,) = [line for line in lines if 'logins_total{result="refused"}' in line]
        return float(line.split()[-1])

    before = refused()
    assert get(shared_gateway, "/api/queues", "nobody:nothing")[0] == 401
    assert refused() == before + 1


def test_no_answer_shows_a_password(shared_gateway: GatewayProcess) -> None:
    secret = "unspeakable"
    answer(shared_gateway.run("user", "add", "discreet", words=f"{secret}\n"))
    get(shared_gateway, "/api/queues", f"discreet:{secret}")
    get(shared_gateway, "/api/queues", f"nobody:{secret}")
    seen = shared_gateway.said() + json.dumps(answer(shared_gateway.run("user", "list", "--json")))
    assert secret not in seen
    assert base64.b64encode(secret.encode()).decode() not in seen
