"""AMQP 1.0 with a program in C on Debian's libqpid-proton: compiled here, where it can be."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.interop.relay import Relay, run_over
from tests.support.gateway_process import GatewayProcess
from tests.support.names import fresh

SOURCE = Path(__file__).with_name("c") / "client.c"
HEADER = Path("/usr/include/proton/connection_driver.h")
SECONDS = 90


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler (apt-get install gcc)")
    if not HEADER.exists():
        pytest.skip("Proton's C library is not installed (apt-get install libqpid-proton11-dev)")
    made = tmp_path_factory.mktemp("c") / "client"
    subprocess.run(
        [compiler, "-std=gnu11", "-Wall", "-O1", "-o", made, SOURCE, "-lqpid-proton"],
        check=True,
        timeout=SECONDS,
    )
    return made


def run(program: Path, gateway: GatewayProcess, what: str, *more: str) -> list[str]:
    address = fresh("queue://c")
    done = subprocess.run(
        [program, what, str(gateway.ports["amqp"]), address, *more],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_c_sends_and_receives(program: Path, shared_gateway: GatewayProcess) -> None:
    assert run(program, shared_gateway, "exchange") == ["hello 1 0"]


def test_c_gets_what_its_credit_allows_and_the_rest_by_draining(
    program: Path, shared_gateway: GatewayProcess
) -> None:
    assert run(program, shared_gateway, "credit") == ["starved 1", "drained 6 credit 0"]


def test_c_settles_in_every_way(program: Path, shared_gateway: GatewayProcess) -> None:
    assert run(program, shared_gateway, "outcomes") == [
        "accepted: next 1 0",
        "rejected: next 1 0",
        "released: released 0 0",
        "modified: modified 0 0",
        "failed: failed 0 1",
    ]


def test_c_sends_and_receives_a_mebibyte(program: Path, shared_gateway: GatewayProcess) -> None:
    assert run(program, shared_gateway, "large", str(1 << 20)) == ["large 1"]


def test_c_has_a_thousand_links_on_one_connection(
    program: Path, shared_gateway: GatewayProcess
) -> None:
    assert run(program, shared_gateway, "links") == ["links 1000"]


def test_c_comes_back_after_a_cut_and_finds_what_it_had(
    program: Path, shared_gateway: GatewayProcess
) -> None:
    with Relay(shared_gateway.ports["amqp"]) as relay:
        address = fresh("queue://c")
        command = [str(program), "reconnect", str(relay.port), address]
        lines = run_over(relay, command)
    assert lines == ["again: kept 0 1", "after: after"]
