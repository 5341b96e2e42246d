"""Errors that need no Spark are said before it starts; a queue that fails stops no others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import asyncpg
import pytest

import spark_etl.__main__ as command
from spark_etl.errors import SomeFailedError
from spark_etl.export import ExportSettings, export, read_export
from tests.support.logins import a_login
from tests.support.seed import append, make_queue, make_segment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def no_spark(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting Spark fails the test."""

    def session(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(command, "session", session)


def _said(
    capsys: pytest.CaptureFixture[str], url: str, folder: Path, *arguments: str, job: str = "export"
) -> str:
    where = ["--to", str(folder)] if job in ("export", "archive", "stats") else []
    assert command.main([job, *arguments, *where, "--url", url]) == 1
    return capsys.readouterr().err


async def _in_thread(work: object, *arguments: object) -> object:
    """Beside the test's own loop: the command runs one of its own."""
    import asyncio

    return await asyncio.to_thread(work, *arguments)  # type: ignore[arg-type]


async def test_a_wrong_password_is_said_without_spark(
    migrated_url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    parts = urlsplit(migrated_url)
    wrong = parts._replace(netloc=f"{parts.username}:wrong@{parts.hostname}:{parts.port}").geturl()
    said = await _in_thread(_said, capsys, wrong, tmp_path)
    assert "password authentication failed" in str(said)
    assert "check user and password" in str(said)


def test_a_server_that_is_not_there_is_said_without_spark(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said = _said(capsys, "postgresql://a:b@127.0.0.1:1/x", tmp_path)
    assert "127.0.0.1:1/x" in said
    assert "check host and port" in said


async def test_an_unknown_queue_is_said_without_spark(
    db: asyncpg.Connection,
    migrated_url: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    await make_queue(db, "orders")
    said = await _in_thread(_said, capsys, migrated_url, tmp_path, "ordres")
    assert "no durable queue 'ordres' in virtual host '/': known there: orders" in str(said)


async def test_a_missing_schema_or_grant_is_said_without_spark(
    db: asyncpg.Connection,
    database_url: str,
    migrated_url: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    assert "howdah migrate" in str(await _in_thread(_said, capsys, database_url, tmp_path))
    async with a_login(db, migrated_url) as url:
        assert "GRANT howdah_reader" in str(await _in_thread(_said, capsys, url, tmp_path))
    async with a_login(db, migrated_url, "howdah_reader") as url:

        def archive() -> str:
            return _said(capsys, url, tmp_path, job="archive")

        assert "GRANT howdah_operator" in str(await _in_thread(archive))


async def test_a_queue_that_fails_does_not_stop_the_others(
    spark: SparkSession, db: asyncpg.Connection, migrated_url: str, tmp_path: Path
) -> None:
    """The last words name the queue that failed, and the exit code is not 0."""
    segment = await make_segment(db)
    for name in ("a", "b", "c"):
        await append(db, segment, await make_queue(db, name), range(3))
    await db.execute(
        "UPDATE howdah.message SET created_at = 'infinity' "
        "WHERE queue_id = (SELECT id FROM howdah.queue WHERE name = 'b') AND \"offset\" = 1"
    )
    with pytest.raises(SomeFailedError, match="1 of 3 queues failed, 6 messages") as failure:
        export(spark, migrated_url, None, ExportSettings(tmp_path / "out"))
    assert list(failure.value.failed) == ["b"]
    done = {row.queue for row in read_export(spark, tmp_path / "out").collect()}
    assert done == {"a", "c"}
