"""SQL files of the migrations: read, cut into statements, run or printed.

The database driver takes one statement at a time; psql takes the file as it is. Knows SQL's quoting
and comments, and nothing of what the statements say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from alembic import context

FOLDER: Final = Path(__file__).parent / "sql"

# Tokens that may hold a semicolon which ends no statement. Our files have no nested comments and no
# E'' strings.
_TOKEN: Final = re.compile(
    r"""
    --[^\n]*                                # comment to the end of the line
    | /\*.*?\*/                             # comment
    | '(?:[^']|'')*'                        # string
    | "(?:[^"]|"")*"                        # name
    | (?P<tag>\$[A-Za-z_]*\$).*?(?P=tag)    # body of a function
    | ;
    """,
    re.VERBOSE | re.DOTALL,
)


def split(sql: str) -> Iterator[str]:
    """Yields each statement of a script, with the comments before it, without its semicolon."""
    start = 0
    for token in _TOKEN.finditer(sql):
        if token[0] == ";":
            yield sql[start : token.start()].strip()
            start = token.end()
    rest = sql[start:].strip()
    if _TOKEN.sub("", rest).strip():
        raise ValueError(f"the last statement lacks its semicolon: {rest[-80:]}")


def run(file_name: str) -> None:
    """Runs a file below sql/ as part of a migration; offline, prints it as it is."""
    sql = (FOLDER / file_name).read_text(encoding="utf-8")
    statements = list(split(sql))
    if context.is_offline_mode():
        context.get_context().impl.static_output(sql)
        return
    connection = context.get_bind()
    for statement in statements:
        connection.exec_driver_sql(statement)
