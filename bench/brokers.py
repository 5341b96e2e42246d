"""Brokers to load, each started on free loopback ports in a folder of its own, and stopped again.

Peers run with their own defaults; where one is set, it is to the peer's advantage. What was set is
in `settings`, for the report.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from bench.peers import debian_program, debian_version, python_peer
from bench.processes import cpu_seconds, name_of, proportional_bytes, tree_of

START_SECONDS: Final = 60.0
ROOT: Final = Path(__file__).resolve().parent.parent
RABBITMQ: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
AMQTT: Final = """\
listeners:
  default: {{type: tcp, bind: "127.0.0.1:{port}"}}
plugins:
  amqtt.plugins.authentication.AnonymousAuthPlugin: {{allow_anonymous: true}}
"""


@dataclass(frozen=True, slots=True)
class Broker:
    name: str
    version: str
    settings: str
    pid: int
    mqtt_port: int | None = None
    amqp_port: int | None = None

    def cpu_seconds(self) -> float:
        """Returns the CPU time of the broker and its children, without PostgreSQL."""
        return cpu_seconds(self.pid, children=True) - self.postgres_cpu_seconds()

    def postgres_cpu_seconds(self) -> float:
        """Returns the CPU time of the PostgreSQL below the broker; 0 for one that has none."""
        return sum(cpu_seconds(pid, children=True) for pid in self._postgres())

    def resident_bytes(self) -> int:
        """Returns the memory of the broker and its children, without PostgreSQL."""
        theirs = {pid for top in self._postgres() for pid in tree_of(top)}
        return sum(proportional_bytes(pid) for pid in tree_of(self.pid) if pid not in theirs)

    def postgres_resident_bytes(self) -> int:
        return sum(proportional_bytes(pid) for top in self._postgres() for pid in tree_of(top))

    def _postgres(self) -> list[int]:
        """Finds the postmasters below the broker."""
        found = [pid for pid in tree_of(self.pid) if name_of(pid) == "postgres"]
        below = {pid for top in found for pid in tree_of(top) if pid != top}
        return [pid for pid in found if pid not in below]


@contextmanager
def howdah(folder: Path) -> Iterator[Broker]:
    mqtt, amqp = free_ports(2)
    with running_howdah(folder, {"mqtt": mqtt, "amqp": amqp}) as pid:
        yield Broker(
            "howdah",
            _own_version(),
            "defaults; its own PostgreSQL with fsync and synchronous_commit on",
            pid,
            mqtt,
            amqp,
        )


@contextmanager
def running_howdah(folder: Path, ports: Mapping[str, int]) -> Iterator[int]:
    """Runs a gateway with these listeners alone, and yields the process's number."""
    lines = [f"data_dir: {folder / 'data'}", "listeners:"]
    for name in ("mqtt", "mqtt_ws", "amqp", "management"):
        place = f"{{host: 127.0.0.1, port: {ports[name]}}}" if name in ports else "null"
        lines.append(f"  {name}: {place}")
    config = folder / "howdah.yaml"
    config.write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "gateway.main", "serve", "--config", str(config)]
    with _running(command, folder, lambda: all(map(_is_open, ports.values()))) as pid:
        yield pid


@contextmanager
def mosquitto(folder: Path) -> Iterator[Broker]:
    program = debian_program("mosquitto", "mosquitto")
    (port,) = free_ports(1)
    config = folder / "mosquitto.conf"
    # Without set_tcp_nodelay its QoS 2 waits for delayed ACKs: 750/s instead of 5,500/s. With its
    # bound on queued messages 2.0.11 drops QoS 1 of four publishers with 100 on their way.
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n"
        "max_queued_messages 0\n"
    )
    settings = (
        "set_tcp_nodelay true, max_queued_messages 0, else defaults; memory only, no persistence"
    )
    with _running([program, "-c", str(config)], folder, lambda: _is_open(port)) as pid:
        yield Broker("mosquitto", debian_version("mosquitto"), settings, pid, port)


@contextmanager
def amqtt(folder: Path) -> Iterator[Broker]:
    program = python_peer("amqtt").with_name("amqtt")
    (port,) = free_ports(1)
    config = folder / "amqtt.yaml"
    config.write_text(AMQTT.format(port=port))
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    settings = "defaults without its packet log; memory only"
    with _running([str(program), "-c", str(config)], folder, lambda: _is_open(port)) as pid:
        yield Broker("amqtt", told.stdout.strip() or "unknown", settings, pid, port)


@contextmanager
def bare(folder: Path) -> Iterator[Broker]:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "bench.bare", str(port)]
    with _running(command, folder, lambda: _is_open(port)) as pid:
        yield Broker("bare loop", "bench/bare.py", "asyncio.Protocol on uvloop", pid, port)


@contextmanager
def rabbitmq(folder: Path) -> Iterator[Broker]:
    program = debian_program("rabbitmq-server", "rabbitmq-server", RABBITMQ)
    amqp, mqtt, distribution, names = free_ports(4)
    (folder / "plugins").write_text("[rabbitmq_mqtt, rabbitmq_amqp1_0].\n")
    (folder / "environment").touch()
    (folder / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = 127.0.0.1:{amqp}\nmqtt.listeners.tcp.1 = 127.0.0.1:{mqtt}\n"
    )
    environ = {
        "HOME": str(folder),
        "RABBITMQ_NODENAME": f"bench{amqp}@localhost",
        "RABBITMQ_DIST_PORT": str(distribution),
        "ERL_EPMD_PORT": str(names),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_MNESIA_BASE": str(folder / "db"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "environment"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
    }
    try:
        ready = lambda: _is_open(amqp) and _is_open(mqtt)  # noqa: E731
        with _running([program], folder, ready, environ) as pid:
            settings = "defaults; plugins rabbitmq_mqtt, rabbitmq_amqp1_0"
            yield Broker("rabbitmq", debian_version("rabbitmq-server"), settings, pid, mqtt, amqp)
    finally:
        epmd = shutil.which("epmd")
        if epmd is not None:
            subprocess.run([epmd, "-port", str(names), "-kill"], capture_output=True, check=False)


BROKERS: Final = {
    "howdah": howdah,
    "mosquitto": mosquitto,
    "rabbitmq": rabbitmq,
    "amqtt": amqtt,
    "bare loop": bare,
}


def _own_version() -> str:
    """Returns the package's version and the commit it was run from, where that is known."""
    describe = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    commit = subprocess.run(describe, capture_output=True, text=True, check=False).stdout.strip()
    return f"{version('howdah')} ({commit})" if commit else version("howdah")


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


@contextmanager
def _running(
    command: list[str],
    folder: Path,
    is_ready: Callable[[], bool],
    environ: dict[str, str] | None = None,
) -> Iterator[int]:
    with (folder / "output.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env={**os.environ, **(environ or {})},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + START_SECONDS
            while not is_ready():
                if process.poll() is not None or time.monotonic() > deadline:
                    output = (folder / "output.log").read_text()[-2000:]
                    raise SystemExit(f"{command[0]} did not start:\n{output}")
                time.sleep(0.1)
            yield process.pid
        finally:
            _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Sends SIGTERM to the process, and ends its group if that is not enough."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
