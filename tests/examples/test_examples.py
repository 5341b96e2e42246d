"""Each example does what its page says, and may be run again."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.gateway_process import ROOT, SECONDS, GatewayProcess, clean_environment

FOLDER = ROOT / "examples"
PROGRAMS = sorted(path for path in FOLDER.glob("*.py") if path.name != "addresses.py")
MOST_LINES = 60

SAYS = {  # program -> what it prints, in this order
    "sensor_to_worker.py": [
        r"^plant\.7\.temperature: 21\.5 celsius$",
        r"^plant\.7\.temperature: 21\.7 celsius$",
        r"^plant\.7\.temperature: 22\.4 celsius$",
    ],
    "rpc_across_protocols.py": [
        r"^MQTT 5 was told: IS ANYBODY THERE\? \(question 1\)$",
        r"^AMQP 1\.0 was told: AND ON THE OTHER LINE\? \(question 2\)$",
    ],
    "outbox.py": [
        r"^1000 pieces of elephant\? The transaction is rolled back$",
        r'^sale-\d+ .*"article": "saddle"',
        r'^sale-\d+ .*"article": "howdah"',
    ],
    "replay_from_yesterday.py": [
        r"^AMQP 0\.9\.1, offset 0: door opened$",
        r"^AMQP 0\.9\.1, offset \d+: written at ",
        r"^MQTT 5, offset 0: door opened$",
        r"^MQTT 5, offset \d+: written at ",
    ],
    "dead_letters.py": [
        r'^done: {"id": 2, "currency": "USD"}$',
        r"orders +\| rejected +\| \w+ +\| .*EUR",
        r"howdah\.redrive\('orders\.dead'",
        r'^done: {"id": 0, "currency": "EUR"}$',
        r"orders +\| rejected +\| \w+ +\| .*XXX",
    ],
}


def run(program: Path, gateway: GatewayProcess) -> str:
    where = {
        "MQTT_PORT": str(gateway.ports["mqtt"]),
        "AMQP_PORT": str(gateway.ports["amqp"]),
        "DATABASE_URL": gateway.database_url,
    }
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={**clean_environment(), **where},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_an_example_says_what_it_shows_each_time_that_it_is_run(
    program: Path, shared_gateway: GatewayProcess
) -> None:
    for _ in range(2):
        said, at = run(program, shared_gateway), 0
        for wanted in SAYS[program.name]:
            found = re.compile(wanted, re.MULTILINE).search(said, at)
            assert found is not None, f"no {wanted} behind character {at} of\n{said}"
            at = found.end()


def test_the_transaction_that_was_rolled_back_published_nothing(
    shared_gateway: GatewayProcess,
) -> None:
    assert "elephant" not in re.sub("1000 pieces.*", "", run(FOLDER / "outbox.py", shared_gateway))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_an_example_is_short_and_on_the_page(program: Path) -> None:
    assert len(program.read_text().splitlines()) < MOST_LINES
    assert f"[{program.name}]({program.name})" in (FOLDER / "README.md").read_text()
