"""Makes a Spark session with everything it needs: Java, the JDBC driver, time in UTC.

Answers for the session's settings. It must not read or write any data.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_etl.errors import EtlSetupError
from spark_etl.java import find_java_home
from spark_etl.jdbc_driver import find_jdbc_jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# spark-submit starts the JVM itself, and tells Python where it is.
SUBMITTED_VARIABLE: Final = "PYSPARK_GATEWAY_PORT"

_LOCAL: Final = "local[*]"
_JARS: Final = ("spark.jars", "spark.yarn.dist.jars")  # where spark-submit puts its --jars

SETTINGS: Final[Mapping[str, str]] = {
    # Parquet pages carry checksums of their own; Hadoop's would be a second one, in a second file.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.log.level": "ERROR",
    # What goes to a Python worker in one piece: so much stays in the processor's cache on its way.
    "spark.sql.execution.arrow.maxBytesPerBatch": "1m",
    # Else each task sorts its messages by day before it writes the first one.
    "spark.sql.maxConcurrentOutputFileWriters": "32",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

# Where nobody else takes part: nothing listens to the network, and the collector is the one that
# costs least in all, since nobody waits for a pause of it.
LOCAL_SETTINGS: Final[Mapping[str, str]] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
}


def local_session(
    name: str,
    *,
    cores: int = 2,
    jdbc_jar: Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Makes a session on this machine; the caller's settings have the last word."""
    chosen = {"spark.sql.shuffle.partitions": str(cores), **(settings or {})}
    return session(name, f"local[{cores}]", jdbc_jar=jdbc_jar, settings=chosen)


def session(
    name: str,
    master: str | None = None,
    *,
    jdbc_jar: Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Makes a session on any master; below spark-submit, which has chosen one, on that."""
    is_submitted = SUBMITTED_VARIABLE in os.environ
    is_local = not is_submitted and (master or _LOCAL).startswith("local")
    if not is_submitted:
        _set_environment(is_local=is_local)
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise EtlSetupError("PySpark is not installed: run 'make setup-spark'") from error
    builder = SparkSession.builder.appName(name)
    if master is not None or not is_submitted:
        builder = builder.master(master or _LOCAL)
    # The last word have the caller's settings, then those that spark-submit was given.
    given = {**(_submitted_settings() if is_submitted else {}), **(settings or {})}
    jar = _jar(jdbc_jar, given)
    if jar is not None:
        given["spark.jars"] = str(jar)
    for key, value in {**SETTINGS, **(LOCAL_SETTINGS if is_local else {}), **given}.items():
        builder = builder.config(key, value)
    return _started(builder)


def _started(builder: Any) -> SparkSession:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    try:
        found: SparkSession = builder.getOrCreate()
    except Py4JJavaError as error:
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        raise EtlSetupError(
            f"Spark does not start: {cause.getMessage() or cause.getClass().getName()}: check the "
            "master, and the settings that Spark was given"
        ) from error
    return found


def _submitted_settings() -> dict[str, str]:
    """Returns the settings that spark-submit was given, by its arguments and files; the name is the
    job's."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return {key: value for key, value in SparkConf().getAll() if key != "spark.app.name"}


def _jar(explicit: Path | None, given: Mapping[str, str]) -> Path | None:
    """Finds the driver's jar; None where Spark itself was told to bring it."""
    if explicit is None and any(given.get(name) for name in _JARS):
        return None
    try:
        return find_jdbc_jar(explicit)
    except EtlSetupError:
        if explicit is None and "spark.jars.packages" in given:
            return None
        raise


def _set_environment(*, is_local: bool) -> None:
    """Sets the environment that the JVM and its Python workers inherit; the workers must be this
    very Python."""
    os.environ["JAVA_HOME"] = str(find_java_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
