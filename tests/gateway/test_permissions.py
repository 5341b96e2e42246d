"""Users and permissions from end to end: made on the command line, felt by a client."""

from __future__ import annotations

import base64
import json
import os
import signal

from tests.support.gateway_process import GatewayProcess
from tests.support.operator import answer, get, refusal
from tests.support.until import wait_until


def publish(gateway: GatewayProcess, user: str, password: str, topic: str) -> tuple[int, str]:
    arguments = ("--via", "mqtt", "--port", str(gateway.ports["mqtt"]), "--username", user)
    environ = {"HOWDAH_PASSWORD": password}
    done = gateway.run("publish", topic, "x", *arguments, environ=environ)
    return done.returncode, done.stderr


def is_known(gateway: GatewayProcess, login: str) -> bool:
    """Tells whether a login is right; a user without tags has nothing to see by it."""
    status, text, _ = get(gateway, "/api/queues", login)
    return status == 200 or json.loads(text)["error"] == "not_authorised"


def test_a_device_publishes_below_its_own_name_and_nowhere_else(
    shared_gateway: GatewayProcess,
) -> None:
    run = shared_gateway.run
    said = answer(run("user", "add", "pump-7", "--no-permissions", words="secret word\n"))
    assert "it may do nothing yet" in said
    code, words = publish(shared_gateway, "pump-7", "secret word", "plant/pump-7/flow")
    assert code == 1
    assert "refused the login" in words
    names = ("--write", r"^amq\.topic$", "--configure", "")
    answer(run("user", "grant", "pump-7", *names, "--topic-write", r"^plant\.{username}\."))
    assert publish(shared_gateway, "pump-7", "secret word", "plant/pump-7/flow")[0] == 0
    code, words = publish(shared_gateway, "pump-7", "secret word", "plant/pump-8/flow")
    assert code == 1
    assert "refused the message to 'plant/pump-8/flow' (0x87)" in words
    code, words = publish(shared_gateway, "pump-7", "wrong", "plant/pump-7/flow")
    assert code == 1
    assert "refused the login" in words


def test_a_change_is_in_force_when_its_command_returns(shared_gateway: GatewayProcess) -> None:
    run = shared_gateway.run
    for _ in range(2):
        assert "may do everything" in answer(run("user", "add", "leaver", words="secret word\n"))
        assert is_known(shared_gateway, "leaver:secret word")
        answer(run("user", "remove", "leaver"))
        assert not is_known(shared_gateway, "leaver:secret word")
    assert "there is no user" in refusal(run("user", "remove", "leaver"))


def test_a_gateway_that_does_not_answer_leaves_the_command_with_one(
    gateway: GatewayProcess,
) -> None:
    os.kill(gateway.pid, signal.SIGSTOP)
    try:
        words = refusal(gateway.run("user", "add", "ada", words="secret word\n"))
    finally:
        os.kill(gateway.pid, signal.SIGCONT)
    assert "the change is made, but the running gateway has not confirmed it" in words
    wait_until(lambda: is_known(gateway, "ada:secret word"))


def test_the_first_user_ends_what_a_fresh_gateway_allows(gateway: GatewayProcess) -> None:
    assert get(gateway, "/api/queues")[0] == 200
    assert is_known(gateway, "guest:guest")
    said = answer(gateway.run("user", "add", "ada", words="secret word\n"))
    assert "clients without credentials and the built-in user guest are refused" in said
    assert get(gateway, "/api/queues")[0] == 401
    assert not is_known(gateway, "guest:guest")
    assert is_known(gateway, "ada:secret word")
    assert "come in again from loopback" in answer(gateway.run("user", "remove", "ada"))
    assert is_known(gateway, "guest:guest")


def test_a_weak_password_is_refused_with_the_key_that_says_so(
    shared_gateway: GatewayProcess,
) -> None:
    run = shared_gateway.run
    said = refusal(run("user", "add", "weak", words="x\n"))
    assert "fewer than 8 characters" in said
    assert "auth.min_password_length" in said
    assert "the user's name" in refusal(run("user", "add", "weak-name", words="weak-name\n"))
    environ = {"HOWDAH_AUTH__MIN_PASSWORD_LENGTH": "1"}
    answer(run("user", "add", "weak", words="x\n", environ=environ))
    answer(run("user", "remove", "weak"))


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
