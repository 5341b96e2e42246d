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


def jdbc_options(url: str) -> dict[str, str]:
    """Returns the options for `spark.read.format("jdbc")`, the table or query left to the
    caller."""
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres"):
        raise ValueError("expected postgresql://user:password@host:port/database")
    host = parts.hostname or "localhost"
    address = (f"[{host}]" if ":" in host else host) + f":{parts.port or _DEFAULT_PORT}"
    parameters = urlencode({**dict(parse_qsl(parts.query)), **_TRANSFER})
    options = {
        "url": f"jdbc:postgresql://{address}{parts.path}?{parameters}",
        "driver": DRIVER,
        "fetchsize": str(FETCH_ROWS),
    }
    if parts.username is not None:
        options["user"] = unquote(parts.username)
    if parts.password is not None:
        options["password"] = unquote(parts.password)
    return options
