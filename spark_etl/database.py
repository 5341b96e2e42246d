"""A JDBC connection of the driver's own: for what is asked once, not once a message.

Answers for connecting, asking and saying what went wrong. It goes through the JVM that Spark runs
in, so that a job needs no second way to PostgreSQL. It must not know what a job is about.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from spark_etl.errors import EtlError, EtlSetupError, InterruptedReadError
from spark_etl.jdbc_options import DRIVER, addresses, jdbc_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Parameter = str | int | bool | None

_INTERRUPTED: Final = "40001"
# By SQLSTATE or its class: what a person can do about it.
_ADVICE: Final = {
    "08": "check host and port, and that PostgreSQL runs there",
    "28": "check user and password of the URL",
    "3D": "check the database name of the URL",
    "3F": "run `howdah migrate` first",
    "42501": "ask a DBA for GRANT howdah_reader TO this login (and howdah_publisher for a replay, "
    "howdah_operator for an archive)",
    "42P01": "run `howdah migrate` first: the schema is missing or older than this job",
    "42883": "run `howdah migrate` first: the schema is missing or older than this job",
    "57P01": "the server ended the connection: run the job again",
    "25006": "this is a standby: name the primary with --checkpoint-url",
    _INTERRUPTED: "the standby had to catch up with the primary: run the job again, with a smaller "
    "--batch-messages, or raise max_standby_streaming_delay there",
}
# What a job itself raises inside a query, as Spark hands it on.
_REFUSED: Final = re.compile(r"\[USER_RAISED_EXCEPTION\] (.*?)(?: SQLSTATE|\n|$)")
# A plan over many segments takes longer to compile than to run.
_SESSION: Final = "SET lock_timeout = '10s'; SET jit = off"


class Database:
    """One JDBC connection. Statements take `?` for each parameter."""

    def __init__(self, connection: Any, where: str) -> None:
        self._connection = connection
        self._where = where

    def fetch(self, query: str, *parameters: Parameter) -> list[dict[str, Any]]:
        """Fetches all rows, by column name. They travel as one JSON text: one call into the JVM."""
        text = self.value(f"SELECT coalesce(json_agg(t), '[]')::text FROM ({query}) t", *parameters)
        rows: list[dict[str, Any]] = json.loads(text)
        return rows

    def value(self, query: str, *parameters: Parameter) -> Any:
        """Fetches the first column of the first row."""
        with self._prepared(query, parameters) as statement:
            results = statement.executeQuery()
            return results.getObject(1) if results.next() else None

    def execute(self, command: str, *parameters: Parameter) -> None:
        with self._prepared(command, parameters) as statement:
            statement.execute()

    @contextmanager
    def transaction(self, *, is_frozen: bool = False) -> Iterator[None]:
        """Runs the block in a transaction. With `is_frozen` it reads one moment, and writes
        nothing."""
        kind = " ISOLATION LEVEL REPEATABLE READ, READ ONLY" if is_frozen else ""
        self.execute(f"BEGIN{kind}")
        try:
            yield
        except BaseException:
            self._roll_back()
            raise
        self.execute("COMMIT")

    def check(self) -> None:
        """Raises if a standby has ended this session, or its transaction; else does nothing."""
        try:
            self.value("SELECT 1")
        except InterruptedReadError:
            raise
        except EtlError:
            pass  # whatever it is, it was said before

    def close(self) -> None:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        try:
            self._connection.close()
        except Py4JError:
            pass  # gone already, as it should be

    def _roll_back(self) -> None:
        try:
            self.execute("ROLLBACK")
        except EtlError:
            pass  # the connection is lost, and the transaction with it

    @contextmanager
    def _prepared(self, text: str, parameters: tuple[Parameter, ...]) -> Iterator[Any]:
        with explained(self._where):
            statement = self._connection.prepareStatement(text)
            try:
                for number, value in enumerate(parameters, 1):
                    match value:
                        case None:
                            statement.setNull(number, 0)
                        case bool():
                            statement.setBoolean(number, value)
                        case int():
                            statement.setLong(number, value)
                        case _:
                            statement.setString(number, value)
                yield statement
            finally:
                statement.close()


@contextmanager
def connected(spark: SparkSession, url: str) -> Iterator[Database]:
    """Yields a connection for the block."""
    options, where = jdbc_options(url), place(url)
    jvm: Any = spark._jvm
    properties = jvm.java.util.Properties()
    for name in ("user", "password"):
        if name in options:
            properties.setProperty(name, options[name])
    driver = _driver(jvm)
    with explained(where):
        connection = driver.connect(options["url"], properties)
    database = Database(connection, where)
    try:
        database.execute(_SESSION)
        yield database
    finally:
        database.close()


def _driver(jvm: Any) -> Any:
    """Makes an instance of the JDBC driver, by the loader that knows Spark's jars."""
    from py4j.protocol import Py4JJavaError

    reflection = jvm.java.lang.reflect.Array
    no_types = reflection.newInstance(jvm.java.lang.Class.forName("java.lang.Class"), 0)
    nothing = reflection.newInstance(jvm.java.lang.Class.forName("java.lang.Object"), 0)
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        found = loader.loadClass(DRIVER)
    except Py4JJavaError as error:
        raise EtlSetupError(
            "PostgreSQL's JDBC driver is not among Spark's jars: give --jdbc-jar, or to "
            "spark-submit --jars postgresql.jar or --packages org.postgresql:postgresql:42.7.13"
        ) from error
    return found.getDeclaredConstructor(no_types).newInstance(nothing)


def refuse_standby(database: Database, url: str) -> None:
    """Raises EtlError if the database is a standby: a job notes its checkpoints on the primary."""
    if database.value("SELECT pg_is_in_recovery()"):
        raise EtlError(
            f"{place(url)} is a standby, where nothing can be noted: name the primary with "
            "--checkpoint-url"
        )


def place(url: str) -> str:
    """Names the hosts, ports and database of a URL, without the password."""
    return addresses(url) + urlsplit(url).path


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Raises errors of the database inside the block as EtlError, with the way out."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        refused = _REFUSED.search(str(error))
        if refused is not None:
            raise EtlError(f"{where}: {refused[1]}") from error
        found = _sql_error(error.java_exception) if isinstance(error, Py4JJavaError) else None
        if found is None:
            raise
        state, text = found
        advice = advice_for(state)
        if state == _INTERRUPTED:
            raise InterruptedReadError(f"{where}: {text}", advice) from error
        raise EtlError(f"{where}: {text}: {advice}") from error


def advice_for(state: str) -> str:
    """Says what a person can do about an SQLSTATE."""
    return _ADVICE.get(state) or _ADVICE.get(state[:2], "see the server's log")


def _sql_error(error: Any) -> tuple[str, str] | None:
    """Finds SQLSTATE and first line of the SQLException below an exception."""
    while error is not None:
        state = getattr(error, "getSQLState", None)
        name = error.getClass().getName()
        if "SQLException" in name or name.startswith("org.postgresql"):
            code = state() if state is not None else ""
            text = (error.getMessage() or name).splitlines()[0].removeprefix("ERROR: ")
            return code or "", text.removeprefix("FATAL: ").rstrip(".")
        error = error.getCause()
    return None
