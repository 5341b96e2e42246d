"""PgBouncer in front of the tests' PostgreSQL, where Debian's package is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from gateway.postgres.binaries import find_binaries
from gateway.postgres.os_account import choose_account
from tests.support.ports import is_listening, lasting_port
from tests.support.postgres import chosen_bin_dir
from tests.support.until import PATIENCE_SECONDS, wait_until

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


@contextmanager
def running_pooler(url: str, mode: str, folder: Path, *, sessions: int = 5) -> Iterator[str]:
    """The URL of the same database through a pool of that mode; the folder must be passable."""
    assert PROGRAM is not None
    parts = urlsplit(url)
    data = folder / f"pooler-{mode}-{sessions}"
    data.mkdir()
    account = choose_account(find_binaries(data, chosen_bin_dir()), data)
    port = lasting_port()
    (data / "users.txt").write_text(f'"{parts.username}" "{parts.password}"\n')
    (data / "pgbouncer.ini").write_text(f"""
[databases]
* = host={parts.hostname} port={parts.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {data / "users.txt"}
pool_mode = {mode}
default_pool_size = {sessions}
ignore_startup_parameters = extra_float_digits, jit
""")
    for path in (data, *data.iterdir()):
        account.give(path, 0o700 if path.is_dir() else 0o600)
    with (folder / f"pooler-{mode}.log").open("wb") as log:
        process = subprocess.Popen(
            account.command(Path(PROGRAM), data / "pgbouncer.ini"),
            stdout=log,
            stderr=log,
            cwd="/",
            preexec_fn=account.preexec,
        )
    try:
        _wait(process, port, Path(log.name))
        yield parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{port}").geturl()
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    def is_there() -> bool:
        assert process.poll() is None, log.read_text()
        return is_listening(port)

    wait_until(is_there, log.read_text)
