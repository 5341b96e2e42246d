"""The private PostgreSQL of a gateway without `database.url`: start, watch, stop.

Answers for the life of one server in `data_dir`, and for there being only one. It must not know
what the database is used for.

    data_dir/gateway.lock        who holds the folder
    data_dir/postgres/           the cluster; appears only when it is complete
    data_dir/postgres.log        what the server says
    data_dir/postgres.port       kept over restarts, so that JDBC URLs stay valid
    data_dir/postgres.password   0600
"""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from gateway.postgres.binaries import find_binaries
from gateway.postgres.cluster import DATABASE, HOST, ROLE, Cluster, environment
from gateway.postgres.data_dir import DataDirLock, create_data_dir, unusable
from gateway.postgres.errors import EmbeddedPostgresError, PassingTrouble, explain, last_words
from gateway.postgres.os_account import choose_account
from gateway.postgres.postmaster import clear_away, read_postmaster

logger = logging.getLogger(__name__)

_STOP_STEPS: Final = ((signal.SIGINT, 60.0), (signal.SIGQUIT, 20.0), (signal.SIGKILL, 10.0))
_READY_SECONDS: Final = 600.0
_REPORT_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.02
_WATCH_SECONDS: Final = 0.25
_ATTEMPTS: Final = 10
_FIRST_BACKOFF_SECONDS: Final = 0.5
_LONGEST_BACKOFF_SECONDS: Final = 30.0


class EmbeddedPostgres:
    """One PostgreSQL server below a folder, as a child of this process."""

    def __init__(
        self,
        data_dir: Path,
        *,
        settings: Mapping[str, str] | None = None,
        bin_dir: Path | None = None,
    ) -> None:
        self.data_dir = data_dir.absolute()
        self._settings = dict(settings or {})
        self._fixed_port = int(self._settings.pop("port", "0"))
        self._bin_dir = bin_dir
        self._lock = DataDirLock(self.data_dir)
        self._cluster: Cluster | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self._port = 0

    # --- facts, once it is started

    @property
    def url(self) -> str:
        """The URL for asyncpg and psql; JDBC takes the same parts."""
        cluster = self._prepared()
        return f"postgresql://{ROLE}:{cluster.password}@{HOST}:{self._port}/{DATABASE}"

    @property
    def port(self) -> int:
        return self._port

    @property
    def pid(self) -> int:
        return self._launched().pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    # --- life

    def start(self) -> None:
        """Creates what is missing, starts the server and waits until it takes connections."""
        self.prepare()
        try:
            for attempt in range(1, _ATTEMPTS + 1):
                self.launch()
                try:
                    return self.wait_until_ready()
                except PassingTrouble as error:
                    time.sleep(_pause_after(attempt, error))
        except BaseException:
            self.stop()
            raise

    async def start_beside(self) -> None:
        """Starts the server as `start` does, while an event loop on the main thread goes on."""
        await asyncio.to_thread(self.prepare)
        try:
            for attempt in range(1, _ATTEMPTS + 1):
                self.launch()
                try:
                    return await asyncio.to_thread(self.wait_until_ready)
                except PassingTrouble as error:
                    await asyncio.sleep(_pause_after(attempt, error))
        except BaseException:
            self.stop()
            raise

    def prepare(self) -> None:
        """Takes the folder and makes the cluster in it; nothing runs yet."""
        create_data_dir(self.data_dir)
        try:
            self._lock.acquire()
            path = self.data_dir / "postgres"
            binaries = find_binaries(path, self._bin_dir)
            cluster = Cluster(self.data_dir, binaries, choose_account(binaries, path))
            clear_away(cluster.path)
            cluster.create()
        except OSError as error:
            self._lock.release()
            raise unusable(self.data_dir, error) from error
        except BaseException:
            self._lock.release()
            raise
        self._cluster = cluster

    def launch(self) -> None:
        """Starts the server process, without waiting for it. On the main thread: the parent-death
        signal fires when the thread that started the child ends, not when the process does."""
        cluster = self._prepared()
        clear_away(cluster.path)
        try:
            self._port = cluster.choose_port(self._fixed_port)
            cluster.write_settings(self._port, self._settings)
            self._process = self._spawn(cluster)
        except OSError as error:
            raise unusable(self.data_dir, error) from error

    def wait_until_ready(self, timeout_seconds: float = _READY_SECONDS) -> None:
        """Waits until the server takes connections; recovery after a crash takes its time."""
        process, cluster = self._launched(), self._prepared()
        started = time.monotonic()
        next_report = started + _REPORT_SECONDS
        while not _is_ready(cluster, process.pid):
            now = time.monotonic()
            if process.poll() is not None:
                raise self._failure(f"PostgreSQL did not start (exit code {process.returncode})")
            if now - started > timeout_seconds:
                raise self._failure(f"PostgreSQL was not ready after {timeout_seconds:.0f} s")
            if now > next_report:
                logger.info("PostgreSQL is still starting, see %s", cluster.log)
                next_report = now + _REPORT_SECONDS
            time.sleep(_POLL_SECONDS)
        self._report(cluster)

    def stop(self) -> None:
        """Stops the server by a fast shutdown; a harder one if that takes too long. Safe to call
        twice."""
        process, self._process = self._process, None
        if process is not None:
            _end(process)
        self._lock.release()

    async def keep_running(self) -> None:
        """Starts the server again whenever it ends by itself, until cancelled."""
        backoff = _FIRST_BACKOFF_SECONDS
        while True:
            while self.is_running:
                backoff = _FIRST_BACKOFF_SECONDS
                await asyncio.sleep(_WATCH_SECONDS)
            logger.error("PostgreSQL ended by itself, starting it again\n%s", self._last_words())
            try:
                self.launch()
                await asyncio.to_thread(self.wait_until_ready)
            except EmbeddedPostgresError as error:
                logger.error("%s\nnext attempt in %.1f s", error, backoff)
                await asyncio.sleep(backoff)
                backoff = min(backoff * 2, _LONGEST_BACKOFF_SECONDS)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # --- inside

    def _spawn(self, cluster: Cluster) -> subprocess.Popen[bytes]:
        with cluster.open_log() as log:
            self._log_start = log.tell()
            return subprocess.Popen(
                cluster.account.command(cluster.binaries.postgres, "-D", cluster.path),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=environment(),
                start_new_session=True,  # a Ctrl-C is the gateway's: it drains first
                preexec_fn=cluster.account.preexec,
            )

    def _prepared(self) -> Cluster:
        if self._cluster is None:
            raise EmbeddedPostgresError(f"the PostgreSQL in {self.data_dir} is not started")
        return self._cluster

    def _launched(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise EmbeddedPostgresError(f"the PostgreSQL in {self.data_dir} is not started")
        return self._process

    def _failure(self, what: str) -> EmbeddedPostgresError:
        return explain(what, self._last_words(), self.data_dir, self._prepared().log)

    def _last_words(self) -> str:
        return last_words(self._prepared().log, self._log_start)

    def _report(self, cluster: Cluster) -> None:
        logger.info(
            "PostgreSQL %d (%s) runs on %s:%d as %s",
            cluster.binaries.major,
            cluster.binaries.origin,
            HOST,
            self._port,
            cluster.account.description,
        )


def _is_ready(cluster: Cluster, pid: int) -> bool:
    postmaster = read_postmaster(cluster.path)
    return postmaster is not None and postmaster.pid == pid and postmaster.is_ready


def _pause_after(attempt: int, error: PassingTrouble) -> float:
    """Returns the seconds to wait after a start that failed: for a port lost in a race, or memory
    that a killed server's children still hold."""
    if attempt == _ATTEMPTS:
        raise error
    logger.warning("%s\ntrying again", error)
    return _FIRST_BACKOFF_SECONDS


def _end(process: subprocess.Popen[bytes]) -> None:
    for number, seconds in _STOP_STEPS:
        if process.poll() is None:
            process.send_signal(number)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            logger.warning("PostgreSQL (pid %d) ignores %s", process.pid, number.name)
        else:
            return
