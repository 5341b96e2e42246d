"""Peers that want something of the log, or of the descriptors, of a real gateway."""

from __future__ import annotations

import os
import resource
import socket
from pathlib import Path

from protocols.amqp10.wire.sasl import HEADER
from protocols.amqp10.wire.sasl import frame as sasl_frame
from protocols.amqp10.wire.types import Symbol
from tests.support.gateway_process import GatewayProcess, running
from tests.support.operator import answer, get
from tests.support.until import wait_until

SECRET = "correct-horse-battery"
MQTT_CONNECT = bytes.fromhex("100c00044d5154540402003c0000")  # 3.1.1, clean, without a name
MQTT_CONNACK = bytes.fromhex("20020000")


def heard(port: int, data: bytes) -> bytes:
    """All that the gateway says to those bytes, until it hangs up."""
    with socket.create_connection(("127.0.0.1", port), 30) as peer:
        peer.sendall(data)
        found = b""
        try:
            while part := peer.recv(65_536):
                found += part
        except ConnectionResetError:
            pass
        return found


def test_a_password_that_comes_where_none_is_expected_is_not_logged(
    shared_gateway: GatewayProcess,
) -> None:
    """The engine quotes the bytes that it cannot read, of a client that says too much."""
    amqp = shared_gateway.ports["amqp"]
    login = sasl_frame(0x41, [Symbol("PLAIN"), b"\0guest\0guest"])
    again = sasl_frame(0x41, [Symbol("PLAIN"), f"\0guest\0{SECRET}".encode()])
    heard(amqp, HEADER + login + HEADER + again)
    heard(amqp, HEADER + login + again)
    heard(amqp, HEADER + login + f"\0guest\0{SECRET}".encode())
    heard(amqp, f"\0guest\0{SECRET}".encode())
    heard(amqp, f"AMQP {SECRET}".encode())
    wait_until(lambda: "it broke the protocol" in shared_gateway.log())
    assert SECRET not in shared_gateway.log()
    assert SECRET[:6] not in shared_gateway.log()


def test_malformed_requests_by_the_thousand_are_few_lines(shared_gateway: GatewayProcess) -> None:
    before = len(shared_gateway.log())
    request = f"GET / HTTP/1.1\r\nAuthor ization: {SECRET}\r\n\r\n".encode()
    for _ in range(1000):
        assert b" 400 " in heard(shared_gateway.ports["management"], request)
    added = shared_gateway.log()[before:]
    assert SECRET not in added
    assert added.count("cannot be read") <= 200
    assert len(added) < 64 * 1024
    assert get(shared_gateway, "/health/live")[0] == 200


def test_a_user_name_cannot_write_a_line_of_the_log(shared_gateway: GatewayProcess) -> None:
    forged = "eve\n2026-01-01 00:00:00.000 INFO    gateway: all is well\x1b[2J"
    login = sasl_frame(0x41, [Symbol("PLAIN"), f"\0{forged}\0wrong".encode()])
    heard(shared_gateway.ports["amqp"], HEADER + login)
    wait_until(lambda: r"eve\n2026-01-01" in shared_gateway.log())
    assert "\n2026-01-01 00:00:00.000" not in shared_gateway.log()
    assert "\x1b" not in shared_gateway.log()


def test_metrics_are_behind_a_login_where_the_operator_wants_one(tmp_path: Path) -> None:
    settings = {"listeners": {"management": {"metrics_login": True}}}
    with running(tmp_path / "gateway", settings) as gateway:
        answer(gateway.run("user", "add", "prometheus", "--no-permissions", words=f"{SECRET}\n"))
        status, text, headers = get(gateway, "/metrics")
        assert (status, headers["WWW-Authenticate"]) == (
            401,
            'Basic realm="Howdah Management", charset="UTF-8"',
        )
        assert "metrics are for users with a name" in text
        assert "howdah_" not in text
        assert get(gateway, "/metrics", "prometheus:wrong")[0] == 401
        status, text, _ = get(gateway, "/metrics", f"prometheus:{SECRET}")
        assert status == 200
        assert "howdah_logins_total" in text
        assert get(gateway, "/health/ready")[0] == 200  # orchestrators have no names


def test_a_gateway_without_descriptors_says_so_and_goes_on(shared_gateway: GatewayProcess) -> None:
    pid = shared_gateway.pid
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    numbers = {int(each) for each in os.listdir(f"/proc/{pid}/fd")}
    lowest_free = min(set(range(len(numbers) + 1)) - numbers)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        with socket.create_connection(("127.0.0.1", shared_gateway.ports["mqtt"]), 30) as client:
            client.sendall(MQTT_CONNECT)
            wait_until(lambda: "listener mqtt cannot accept" in shared_gateway.log())
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
            assert client.recv(4) == MQTT_CONNACK  # who waited is served
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
    _, text, _ = get(shared_gateway, "/metrics")
    assert "howdah_listener_accept_failures_total 0.0" not in text
