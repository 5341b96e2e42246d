"""A Spark session with everything it needs: Java, the JDBC driver, time in UTC.

Answers for the session's settings. It must not read or write any data.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_etl.errors import EtlSetupError
from spark_etl.java import find_java_home
from spark_etl.jdbc_driver import find_jdbc_jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# spark-submit starts the JVM itself, and tells Python where it is.
SUBMITTED_VARIABLE: Final = "PYSPARK_GATEWAY_PORT"

SETTINGS: Final[Mapping[str, str]] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
    # Else each task sorts its messages by day before it writes the first one.
    "spark.sql.maxConcurrentOutputFileWriters": "32",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def local_session(
    name: str,
    *,
    cores: int = 2,
    jdbc_jar: Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session inside this process's own machine; the caller's settings have the last word."""
    chosen = {"spark.sql.shuffle.partitions": str(cores), **(settings or {})}
    return session(name, f"local[{cores}]", jdbc_jar=jdbc_jar, settings=chosen)


def session(
    name: str,
    master: str | None = None,
    *,
    jdbc_jar: Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session on any master; below spark-submit, which has chosen one, on that."""
    is_submitted = SUBMITTED_VARIABLE in os.environ
    jar = _jar(jdbc_jar, settings or {}, is_submitted=is_submitted)
    if not is_submitted:
        _set_environment()
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise EtlSetupError("PySpark is not installed: run 'make setup-dev'") from error
    builder = SparkSession.builder.appName(name)
    if master is not None or not is_submitted:
        builder = builder.master(master or "local[*]")
    for key, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    if jar is not None:
        builder = builder.config("spark.jars", str(jar))
    return builder.getOrCreate()


def _jar(explicit: Path | None, settings: Mapping[str, str], *, is_submitted: bool) -> Path | None:
    """The driver's jar; None where Spark itself was told to bring it."""
    try:
        return find_jdbc_jar(explicit)
    except EtlSetupError:
        if explicit is None and (is_submitted or "spark.jars.packages" in settings):
            return None
        raise


def _set_environment() -> None:
    """What the JVM and its Python workers inherit; the workers must be this very Python."""
    os.environ["JAVA_HOME"] = str(find_java_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
