"""COPY or arrays: which of the two takes messages into their table.

Arrays are arguments of one statement, which is one round trip with the settlements beside them.
COPY takes more round trips, and less work for each row.
"""

from __future__ import annotations

from typing import Any, Final

import asyncpg

from queue_core.store.write.rows import BODY

# Rows from which COPY is worth its round trips: with 500, it takes 2.2 + 3.3 us a row (here and in
# the server), arrays 5.0 + 5.3. With 100 they are equal, and arrays need one round trip, not five.
COPY_ROWS: Final = 100
COPY_BYTES: Final = 256 * 1024  # and bytes of body: 256 KiB cost 2.0 ms of CPU instead of 4.2


def is_for_copy(rows: list[tuple[Any, ...]]) -> bool:
    """Tells if rows go by COPY: they are many or large. An array is built in memory on both sides,
    COPY streams."""
    if len(rows) >= COPY_ROWS:
        return True
    return sum(len(row[BODY]) for row in rows if row[BODY] is not None) >= COPY_BYTES


async def copy_rows(
    connection: asyncpg.Connection,
    table: str,
    columns: tuple[str, ...],
    rows: list[tuple[Any, ...]],
) -> None:
    await connection.copy_records_to_table(
        table, schema_name="howdah", columns=columns, records=rows
    )
