"""The files of the private PostgreSQL: the cluster, its settings, its password, its port.

Answers for what lies in the data directory. It must not start the server for clients.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Final

from gateway.postgres.binaries import Binaries
from gateway.postgres.errors import EmbeddedPostgresError, explain, tail
from gateway.postgres.os_account import Account

HOST: Final = "127.0.0.1"
ROLE: Final = "howdah"
DATABASE: Final = "howdah"
STATEMENTS_LIBRARY: Final = "pg_stat_statements"

# A queue writes much, reads what it has just written, and never wants a plan compiled.
SETTINGS: Final[Mapping[str, str]] = {
    "listen_addresses": HOST,
    "password_encryption": "scram-sha-256",
    "max_connections": "100",
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    "min_wal_size": "256MB",
    "wal_compression": "on",
    # Ten thousand pages a second at most, so that the connection that commits finds clean buffers
    # and need not write out others' pages first.
    "bgwriter_delay": "50ms",
    "bgwriter_lru_maxpages": "500",
    "synchronous_commit": "on",
    "autovacuum_naptime": "15s",
    "jit": "off",
    # Not "$user": the login is named as the gateway's schema, and a CREATE TABLE in psql would put
    # a table into it that is none of ours.
    "search_path": "public",
    "log_min_messages": "warning",
    "log_checkpoints": "off",
    "log_timezone": "UTC",
    "timezone": "UTC",
}
_SETTINGS_FILE: Final = "howdah.conf"
_COMMAND_SECONDS: Final = 600.0
_LONGEST_LOG_BYTES: Final = 16 * 1024 * 1024
_LONGEST_SOCKET_FOLDER: Final = 80  # a socket's path may have 107 bytes, file name included
_FIRST_BUILTIN_LOCALE: Final = 17


class Cluster:
    """One cluster below a data directory, with the binaries and the account that serve it."""

    def __init__(self, data_dir: Path, binaries: Binaries, account: Account) -> None:
        self.data_dir = data_dir
        self.path = data_dir / "postgres"
        self.log = data_dir / "postgres.log"
        self.binaries = binaries
        self.account = account
        self._password_file = data_dir / "postgres.password"
        self._port_file = data_dir / "postgres.port"

    @property
    def password(self) -> str:
        return self._password_file.read_text().strip()

    # --- creating

    def create(self) -> None:
        """Makes the cluster with its empty database, unless it exists; or nothing at all."""
        if (self.path / "PG_VERSION").exists():
            self._renew_lost_password()
            return
        fresh = self.data_dir / "postgres.new"
        if fresh.exists():
            shutil.rmtree(fresh)  # an earlier attempt was cut short
        fresh.mkdir()
        self.account.give(fresh, 0o700)
        self._write_password(secrets.token_urlsafe(24))
        self._run(self.binaries.initdb, *self._initdb_options(fresh))
        self._run_sql(fresh, "postgres", f"CREATE DATABASE {DATABASE}")
        if self.binaries.has_library(STATEMENTS_LIBRARY):
            self._run_sql(fresh, DATABASE, f"CREATE EXTENSION {STATEMENTS_LIBRARY}")
        with (fresh / "postgresql.conf").open("a") as conf:
            conf.write(f"\ninclude_if_exists = '{_SETTINGS_FILE}'\n")
        fresh.rename(self.path)
        _sync_folder(self.data_dir)

    def _initdb_options(self, folder: Path) -> list[str]:
        locale = ["--locale=C"]
        if self.binaries.major >= _FIRST_BUILTIN_LOCALE:
            # Unicode without the C library, whose upgrades would change the order of indexes.
            locale += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        return [
            f"--pgdata={folder}",
            f"--username={ROLE}",
            "--auth=scram-sha-256",
            f"--pwfile={self._password_file}",
            "--encoding=UTF8",
            "--data-checksums",
            *locale,
        ]

    def _renew_lost_password(self) -> None:
        if self._password_file.exists():
            return
        password = secrets.token_urlsafe(24)
        self._run_sql(self.path, "postgres", f"ALTER ROLE {ROLE} PASSWORD '{password}'")
        self._write_password(password)

    def _write_password(self, password: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with open(os.open(self._password_file, flags, 0o600), "w") as file:
            file.write(f"{password}\n")
        self.account.give(self._password_file, 0o600)

    def _run_sql(self, folder: Path, database: str, statement: str) -> None:
        """Runs one statement without a server: a newline ends it in the single-user mode."""
        arguments = ("--single", "-D", folder, database)
        self._run(self.binaries.postgres, *arguments, words=f"{statement}\n")

    def _run(self, program: Path, *arguments: str | Path, words: str = "") -> None:
        done = subprocess.run(
            self.account.command(program, *arguments),
            input=words,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd="/",
            env=environment(),
            preexec_fn=self.account.preexec,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
        # The single-user mode ends with 0 even when its statement failed.
        if done.returncode != 0 or "ERROR:" in done.stdout or "FATAL:" in done.stdout:
            what = f"{program.name} failed (exit code {done.returncode})"
            raise explain(what, tail(done.stdout), self.data_dir, self.log)

    # --- before each start

    def write_settings(self, port: int, extra: Mapping[str, str]) -> None:
        """Writes our settings, then the caller's; ALTER SYSTEM still has the last word."""
        settings = {**SETTINGS, "unix_socket_directories": self._socket_folder()}
        if self.binaries.has_library(STATEMENTS_LIBRARY):
            settings["shared_preload_libraries"] = STATEMENTS_LIBRARY
        settings |= {**extra, "port": str(port)}
        lines = [f"{name} = {_quoted(value)}\n" for name, value in settings.items()]
        path = self.path / _SETTINGS_FILE
        path.write_text("".join(lines))
        self.account.give(path, 0o600)

    def _socket_folder(self) -> str:
        folder = str(self.path)
        return folder if len(folder) < _LONGEST_SOCKET_FOLDER else ""

    def choose_port(self, fixed: int = 0) -> int:
        """Chooses the given port, else the last one while it is free, else any."""
        if fixed:
            if not is_free(fixed):
                raise EmbeddedPostgresError(
                    f"port {fixed} for PostgreSQL is taken: free it, or choose another"
                )
            return fixed
        port = self._last_port()
        if not port or not is_free(port):
            port = _any_free_port()
            # Written only when it changes, so that a full disk cannot truncate it.
            self._port_file.write_text(f"{port}\n")
        return port

    def open_log(self) -> BinaryIO:
        """Opens the server's log file; one that has grown long is put aside, once."""
        if self.log.exists() and self.log.stat().st_size > _LONGEST_LOG_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))
        # 0600: a server's log may quote statements, and so messages.
        return open(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")

    def _last_port(self) -> int:
        try:
            return int(self._port_file.read_text())
        except (FileNotFoundError, ValueError):
            return 0


def environment() -> dict[str, str]:
    """Returns the server's environment: without PG* variables of the person who starts the
    gateway."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return {**kept, "LC_ALL": "C"}


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As PostgreSQL binds: connections of the last server may still be in TIME_WAIT.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _any_free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
