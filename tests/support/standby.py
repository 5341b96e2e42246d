"""A hot standby of the tests' PostgreSQL: a copy by pg_basebackup that follows by streaming."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
from asyncpg import CannotConnectNowError

from gateway.postgres.binaries import find_binaries
from gateway.postgres.cluster import DATABASE, environment
from gateway.postgres.os_account import choose_account
from gateway.postgres.server import EmbeddedPostgres
from tests.support.ports import lasting_port
from tests.support.postgres import chosen_bin_dir, fetch_value
from tests.support.until import PATIENCE_SECONDS, until_true, wait_until

_CAUGHT_UP = "SELECT pg_last_wal_replay_lsn() >= '{}'::pg_lsn"


class Standby:
    """A running standby; each database of the primary is there under the same name."""

    def __init__(self, port: int) -> None:
        self._port = port

    def url(self, primary: str) -> str:
        """Returns the URL of that database, with that login, on the standby."""
        parts = urlsplit(primary)
        login = parts.netloc.rpartition("@")[0]
        return parts._replace(netloc=f"{login}@127.0.0.1:{self._port}").geturl()

    async def has_caught_up(self, primary: str) -> None:
        """Returns when it has replayed all that the primary has written by now."""
        written = fetch_value(primary, "SELECT pg_current_wal_lsn()::text")
        # Not to the same database, which may be younger than what it has replayed.
        steady = urlsplit(self.url(primary))._replace(path=f"/{DATABASE}")
        connection = await asyncpg.connect(steady.geturl())
        try:
            await until_true(connection, _CAUGHT_UP.format(written))
        finally:
            await connection.close()


@contextmanager
def running_standby(primary: EmbeddedPostgres, folder: Path) -> Iterator[Standby]:
    """The folder must be passable for the account that PostgreSQL runs as."""
    data = folder / "standby"
    binaries = find_binaries(data, chosen_bin_dir())
    account = choose_account(binaries, data)
    data.mkdir()
    account.give(data, 0o700)
    parts = urlsplit(primary.url)
    subprocess.run(
        account.command(
            binaries.bin_dir / "pg_basebackup",
            *("-D", data, "-R", "-X", "stream", "--checkpoint=fast", "--no-sync"),
            *("-h", "127.0.0.1", "-p", str(parts.port), "-U", parts.username or ""),
        ),
        env={**environment(), "PGPASSWORD": parts.password or ""},
        cwd="/",
        check=True,
        capture_output=True,
    )
    port = lasting_port()
    settings = {"port": port, "unix_socket_directories": "", "shared_buffers": "32MB"}
    with (folder / "standby.log").open("wb") as log:
        server = subprocess.Popen(
            account.command(
                *(binaries.postgres, "-D", data),
                *(word for name, value in settings.items() for word in ("-c", f"{name}={value}")),
            ),
            stdout=log,
            stderr=log,
            cwd="/",
            env=environment(),
            preexec_fn=account.preexec,
        )
    try:
        standby = Standby(port)
        _wait(server, standby.url(primary.url), folder / "standby.log")
        yield standby
    finally:
        server.terminate()
        server.wait(PATIENCE_SECONDS)


def _wait(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    def is_there() -> bool:
        try:
            assert fetch_value(url, "SELECT pg_is_in_recovery()") is True
        except (OSError, CannotConnectNowError):
            assert server.poll() is None, log.read_text()
            return False
        return True

    wait_until(is_there, log.read_text)
