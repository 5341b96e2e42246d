"""The real `howdah serve` as a process of its own, on free ports, in a folder of its own.

Started when it has printed `ready`; ended by kill -9 or politely; started again on the same data
and the same ports. Everything it said is in `said()`, which a failing test shows.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from gateway.postgres.server import EmbeddedPostgres
from tests.support.ports import lasting_port
from tests.support.postgres import database_of, execute

SECONDS = 60
LISTENERS = ("mqtt", "mqtt_ws", "amqp", "management")
COMMAND = (sys.executable, "-m", "gateway.main")
ROOT = Path(__file__).parents[2]
_ANNOUNCEMENT = re.compile(r"(\w+) listening on (\S+):(\d+)")


class GatewayProcess:
    """One gateway. Settings are those of its YAML file, laid over small ones for tests;
    `environment` is laid over this process's own."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.config_path = folder / "howdah.yaml"
        self.data_dir = folder / "data"
        self._settings = _merged(self._defaults(settings or {}), settings or {})
        self._environment = dict(environment or {})
        self._output: list[str] = []
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self.ports: dict[str, int] = {}

    def _defaults(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        defaults: dict[str, Any] = {
            "data_dir": str(self.data_dir),
            "listeners": {name: {"port": lasting_port()} for name in LISTENERS},
        }
        if "url" not in settings.get("database", {}):
            # Production settings but for memory: several run beside each other.
            defaults["postgres"] = {"settings": {"shared_buffers": "32MB"}}
        return defaults

    # --- life

    def start(self, *, seconds: float = SECONDS) -> Self:
        """Returns when it is ready; fails with what it said when it ends before that."""
        self.spawn()
        assert self._process is not None
        self.wait_until_ready(seconds)
        return self

    def spawn(self) -> None:
        """Starts it and does not wait."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config_path.write_text(yaml.safe_dump(self._settings))
        self._output.clear()  # an earlier start's `ready` is not this one's
        is_ready = threading.Event()
        self._is_ready = is_ready
        with self._log_path.open("a") as log:
            self._process = subprocess.Popen(
                [*COMMAND, "serve", "--config", str(self.config_path)],
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                text=True,
                cwd=ROOT,
                env={**clean_environment(), **self._environment},
            )
        self._reader = threading.Thread(target=self._read, args=(self._process, is_ready))
        self._reader.start()

    def _read(self, process: subprocess.Popen[str], is_ready: threading.Event) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._output.append(line)
            found = _ANNOUNCEMENT.match(line)
            if found is not None:
                self.ports[found[1]] = int(found[3])
            if line == "ready\n":
                is_ready.set()
        is_ready.set()

    def wait_until_ready(self, seconds: float = SECONDS) -> None:
        assert self._process is not None
        if not self._is_ready.wait(seconds):
            self.kill()
            pytest.fail(f"not ready after {seconds} s:\n{self.said()}")
        if "ready\n" not in self._output[-1:]:
            self._process.wait(SECONDS)
            pytest.fail(f"ended with {self._process.returncode}:\n{self.said()}")

    def kill(self) -> None:
        """Ends the process as a crash does: at once, without a word."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        self._finish()

    def terminate(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Asks it to end, and returns its exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        return self.wait()

    def wait(self, seconds: float = SECONDS) -> int:
        assert self._process is not None
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            pytest.fail(f"still running after {seconds} s:\n{self.said()}")
        self._finish()
        return code

    def _finish(self) -> None:
        if self._process is not None:
            self._process.wait(SECONDS)
        if self._reader is not None:
            self._reader.join(SECONDS)
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()
        self._process = self._reader = None

    def restart(self) -> Self:
        """On the same data, and on the same ports: clients come back by themselves."""
        if self._process is not None:
            self.terminate()
        listeners = self._settings["listeners"]
        for name, port in self.ports.items():
            listeners[name] = {**(listeners[name] or {}), "port": port}
        return self.start()

    # --- facts

    @property
    def pid(self) -> int:
        assert self._process is not None, "it does not run"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def database_url(self) -> str:
        """Where its messages are, for looking at them in SQL."""
        url = self._settings.get("database", {}).get("url")
        if url is not None:
            return str(url)
        port = (self.data_dir / "postgres.port").read_text().strip()
        password = (self.data_dir / "postgres.password").read_text().strip()
        return f"postgresql://howdah:{password}@127.0.0.1:{port}/howdah"

    @property
    def postgres_pid(self) -> int:
        """The process id of the gateway's private PostgreSQL."""
        return int((self.data_dir / "postgres" / "postmaster.pid").read_text().split()[0])

    @property
    def chosen_ports(self) -> dict[str, int]:
        """Its ports by the configuration, whether it listens there or not."""
        return {name: each["port"] for name, each in self._settings["listeners"].items()}

    def http_url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.ports['management']}{path}"

    def metric(self, name: str) -> float:
        """The sum of its samples."""
        with urllib.request.urlopen(self.http_url("/metrics")) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))

    def amqp_url(self, user: str = "guest", password: str = "guest", vhost: str = "%2F") -> str:
        return f"amqp://{user}:{password}@127.0.0.1:{self.ports['amqp']}/{vhost}"

    @property
    def _log_path(self) -> Path:
        return self.folder / "gateway.log"

    def log(self) -> str:
        return self._log_path.read_text() if self._log_path.exists() else ""

    def said(self) -> str:
        """Standard output and the log, of all starts."""
        return "".join(self._output) + self.log()

    def run(
        self, *arguments: str, words: str = "", environ: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A command of `howdah` with this gateway's configuration."""
        config = ("--config", str(self.config_path))
        return howdah(*arguments, *config, words=words, environ=environ)


def howdah(
    *arguments: str, words: str = "", environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """One command, until its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        input=words,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        cwd=ROOT,
        env={**clean_environment(), **(environ or {})},
    )


def clean_environment() -> dict[str, str]:
    """Nobody's own settings have a part in a test."""
    return {name: value for name, value in os.environ.items() if not name.startswith("HOWDAH_")}


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for name, value in above.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = _merged(merged[name], value) if both else value
    return merged


@contextmanager
def running(folder: Path, settings: Mapping[str, Any] | None = None) -> Iterator[GatewayProcess]:
    process = GatewayProcess(folder, settings)
    try:
        yield process.start()
    finally:
        process.kill()


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway of the test's own, with its private PostgreSQL."""
    with running(tmp_path / "gateway") as process:
        yield process


# Some tests make users, and others come as guest: that takes a word in the configuration.
SHARED = {"auth": {"allow_anonymous": "loopback", "guest": "loopback"}}

# For a test that holds with a database on a server with PostgreSQL's own defaults, too.
on_stock_gateway_too = pytest.mark.parametrize(
    "shared_gateway", ["own", "stock"], indirect=True, scope="session"
)


@pytest.fixture(scope="session")
def own_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """With its private PostgreSQL."""
    with running(tmp_path_factory.mktemp("shared"), SHARED) as process:
        yield process


@pytest.fixture(scope="session")
def stock_gateway(
    tmp_path_factory: pytest.TempPathFactory, stock_server: EmbeddedPostgres
) -> Iterator[GatewayProcess]:
    """On a database of a server as a distribution ships it."""
    name = f"stock_gateway_{os.getpid()}"
    execute(stock_server.url, f"CREATE DATABASE {name} TEMPLATE template0")
    settings = {**SHARED, "database": {"url": database_of(stock_server, name)}}
    with running(tmp_path_factory.mktemp("stock"), settings) as process:
        yield process


@pytest.fixture(scope="session")
def shared_gateway(request: pytest.FixtureRequest) -> GatewayProcess:
    """One for all tests that keep to names of their own and never end it."""
    name = f"{getattr(request, 'param', 'own')}_gateway"
    process: GatewayProcess = request.getfixturevalue(name)
    return process
