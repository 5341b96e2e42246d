"""SQL files of the revisions: read, cut into statements, run or printed.

The database driver takes one statement at a time; psql takes the file as it is. Knows SQL's quoting
and comments, and nothing of what the statements say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from alembic import context, op

FOLDER: Final = Path(__file__).parent / "sql"

# What may hold a semicolon that ends nothing. Nested comments and E'' strings: our files have none.
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
    """Each statement of a script, with the comments before it and without its semicolon."""
    start = 0
    for token in _TOKEN.finditer(sql):
        if token[0] == ";":
            yield sql[start : token.start()].strip()
            start = token.end()
    rest = sql[start:].strip()
    if _TOKEN.sub("", rest).strip():
        raise ValueError(f"the last statement lacks its semicolon: {rest[-80:]}")


def run(file_name: str) -> None:
    """Runs a file of this folder as part of a revision; offline, prints it as it is."""
    sql = (FOLDER / file_name).read_text(encoding="utf-8")
    statements = list(split(sql))
    if context.is_offline_mode():
        context.get_context().impl.static_output(sql)
        return
    connection = op.get_bind()
    for statement in statements:
        connection.exec_driver_sql(statement)
