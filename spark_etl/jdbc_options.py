"""The JDBC options by which Spark reaches PostgreSQL, from a postgresql:// URL.

Answers for the address and for the settings of the transfer. It must not know any table.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

DRIVER: Final = "org.postgresql.Driver"

# Never 0: it would also leave autocommit on, and a shared snapshot would be void without a word.
FETCH_ROWS: Final = 2000

# The driver turns to the binary format only after five executions, and Spark executes once; -1
# asks for it at once. 1M rows of 256 B on one partition: 298k -> 565k rows/s.
_TRANSFER: Final = {"prepareThreshold": "-1", "ApplicationName": "howdah spark_etl"}
_DEFAULT_PORT: Final = 5432
_SERVER_TYPES: Final = {
    "any": "any",
    "primary": "primary",
    "read-write": "primary",
    "standby": "secondary",
    "read-only": "secondary",
    "prefer-standby": "preferSecondary",
}


def jdbc_options(url: str) -> dict[str, str]:
    """Returns the options for `spark.read.format("jdbc")`, the table or query left to the
    caller."""
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres"):
        raise ValueError("expected postgresql://user:password@host:port/database")
    parameters = urlencode({**_parameters(parts.query), **_TRANSFER})
    options = {
        "url": f"jdbc:postgresql://{addresses(url)}{parts.path}?{parameters}",
        "driver": DRIVER,
        "fetchsize": str(FETCH_ROWS),
    }
    if parts.username is not None:
        options["user"] = unquote(parts.username)
    if parts.password is not None:
        options["password"] = unquote(parts.password)
    return options


def addresses(url: str) -> str:
    """Lists the hosts of a URL, each with its port."""
    hosts = urlsplit(url).netloc.rpartition("@")[2] or "localhost"
    return ",".join(map(_with_port, hosts.split(",")))


def _with_port(host: str) -> str:
    has_port = ":" in host.rpartition("]")[2]
    return host if has_port else f"{host}:{_DEFAULT_PORT}"


def _parameters(query: str) -> dict[str, str]:
    """Renames the one parameter of libpq's that JDBC has another word for."""
    given = dict(parse_qsl(query))
    wanted = given.pop("target_session_attrs", None)
    if wanted is None:
        return given
    if wanted not in _SERVER_TYPES:
        raise ValueError(f"target_session_attrs: expected one of {', '.join(_SERVER_TYPES)}")
    return {**given, "targetServerType": _SERVER_TYPES[wanted]}
