"""`howdah serve` as a process: ready, drained, refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.postgres import fetch_value

QUIET = {f"HOWDAH_LISTENERS__{name}": "null" for name in ("MQTT", "MQTT_WS", "AMQP", "MANAGEMENT")}
COMMAND = [sys.executable, "-m", "gateway.main", "serve"]
SECONDS = 60


def environment(data_dir: Path, **extra: str) -> dict[str, str]:
    small = {"HOWDAH_POSTGRES__SETTINGS": "{shared_buffers: 16MB}"}
    return {**os.environ, **QUIET, **small, "HOWDAH_DATA_DIR": str(data_dir), **extra}


@contextmanager
def gateway(environ: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A gateway that has said `ready`."""
    pipe = subprocess.PIPE
    with subprocess.Popen(COMMAND, env=environ, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "")
            assert any(line == "ready\n" for line in lines), "it ended before it was ready"
            yield process
        finally:
            process.kill()


def refused(environ: dict[str, str], *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [*COMMAND, *arguments],
        env=environ,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_gateway_without_database_url_runs_its_own_and_stops_when_asked(
    tmp_path: Path, number: signal.Signals
) -> None:
    with gateway(environment(tmp_path / "data")) as process:
        process.send_signal(number)
        assert process.wait(SECONDS) == 0
    assert not (tmp_path / "data" / "postgres" / "postmaster.pid").exists()


def test_a_gateway_brings_the_schema_along(tmp_path: Path, database_url: str) -> None:
    environ = environment(tmp_path / "data", HOWDAH_DATABASE__URL=database_url)
    del environ["HOWDAH_POSTGRES__SETTINGS"]
    with gateway(environ):
        query = "SELECT count(*) FROM pg_namespace WHERE nspname = 'howdah'"
        assert fetch_value(database_url, query) == 1
    assert not (tmp_path / "data").exists()


def test_a_second_gateway_in_the_same_data_dir_says_who_is_there(tmp_path: Path) -> None:
    environ = environment(tmp_path / "data")
    with gateway(environ) as process:
        code, words = refused(environ)
        assert code == 1
        assert f"in use by another gateway (pid {process.pid})" in words


def test_a_wrong_configuration_stops_the_start_with_every_problem(tmp_path: Path) -> None:
    path = tmp_path / "howdah.yaml"
    path.write_text("brokr: {}\nlog: {level: loud}\n")
    code, words = refused(environment(tmp_path / "data"), "--config", str(path))
    assert code == 2
    assert [line.split(": ")[2] for line in words.splitlines()] == ["brokr", "log.level"]
    assert not (tmp_path / "data").exists()


def test_a_database_that_does_not_answer_is_named_without_its_password(tmp_path: Path) -> None:
    url = "postgresql://user:secret@127.0.0.1:1/db"
    environ = environment(tmp_path / "data", HOWDAH_DATABASE__URL=url)
    del environ["HOWDAH_POSTGRES__SETTINGS"]
    code, words = refused(environ)
    assert code == 1
    assert words.startswith("howdah: database.url: 127.0.0.1:1/db cannot be used: ")
    assert "secret" not in words
