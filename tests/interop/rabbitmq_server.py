"""Debian's RabbitMQ as a node of the test's own: free ports, a temporary folder, gone after it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.ports import is_listening, lasting_port
from tests.support.until import wait_until

SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


@contextmanager
def rabbitmq(
    folder: Path, plugins: Sequence[str] = (), management_port: int | None = None
) -> Iterator[int]:
    """Starts a node with those of its own plugins, and gives its AMQP port. Its HTTP API, where it
    has that plugin, is on the management port."""
    if not SERVER.exists() or shutil.which("erl") is None:
        pytest.skip("RabbitMQ is not installed (Debian's package rabbitmq-server)")
    port, distribution, names = (lasting_port() for _ in range(3))
    (folder / "plugins").write_text(f"[{','.join(plugins)}].\n")
    (folder / "environment").touch()
    environ = {
        **os.environ,
        "HOME": str(folder),
        "RABBITMQ_NODENAME": f"howdah{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(distribution),
        "ERL_EPMD_PORT": str(names),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_MNESIA_BASE": str(folder / "db"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "environment"),
        "RABBITMQ_CONFIG_FILE": str(folder / "none"),
    }
    if management_port is not None:
        listener = f'[{{port,{management_port}}},{{ip,"127.0.0.1"}}]'
        environ["RABBITMQ_SERVER_START_ARGS"] = f"-rabbitmq_management listener {listener}"
    with (folder / "output.log").open("wb") as log:
        process = subprocess.Popen(
            [SERVER], env=environ, stdout=log, stderr=log, start_new_session=True
        )
        try:
            _wait_for(port, process, folder)
            yield port
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)
            _stop_name_service(names)


def _wait_for(port: int, process: subprocess.Popen[bytes], folder: Path) -> None:
    def said() -> str:
        return "RabbitMQ starts:\n" + (folder / "output.log").read_text()[-3000:]

    def is_there() -> bool:
        assert process.poll() is None, said()
        return is_listening(port)

    wait_until(is_there, said)


def _stop_name_service(port: int) -> None:
    """Erlang's name service is a daemon that outlives the node; ours is on a port of its own."""
    epmd = shutil.which("epmd")
    if epmd is not None:
        subprocess.run([epmd, "-port", str(port), "-kill"], capture_output=True, check=False)
