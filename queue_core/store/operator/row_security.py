"""Row-level security on tables of the schema: where it is on, and whom it hits.

Howdah does not use it. The views and functions run as the owner of the schema and so go around it;
the gateway writes by COPY, which a table with policies refuses, and must miss no row. It is refused
where it hits the gateway or the owner, and warned of where it hits anybody else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import asyncpg

from queue_core.store.schema import SCHEMA

# Tables that a message names; hundreds of partitions would hide its sense.
MAX_NAMED_TABLES: Final = 3

_TABLES: Final = """
SELECT format('%I.%I', n.nspname, c.relname) AS name, row_security_active(c.oid) AS hits_login,
       c.relforcerowsecurity AND NOT (o.rolsuper OR o.rolbypassrls) AS hits_owner
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_roles o ON o.oid = c.relowner
WHERE n.nspname = $1 AND c.relrowsecurity ORDER BY c.relname
"""


@dataclass(frozen=True, slots=True)
class Policies:
    """Tables on which row-level security is on."""

    tables: tuple[str, ...]
    hit_login: tuple[str, ...]
    hit_owner: tuple[str, ...]


async def read_policies(connection: asyncpg.Connection) -> Policies:
    rows = await connection.fetch(_TABLES, SCHEMA)
    return Policies(
        tuple(row["name"] for row in rows),
        tuple(row["name"] for row in rows if row["hits_login"]),
        tuple(row["name"] for row in rows if row["hits_owner"]),
    )


def listed(tables: tuple[str, ...]) -> str:
    more = f" and {len(tables) - MAX_NAMED_TABLES} more" if len(tables) > MAX_NAMED_TABLES else ""
    return ", ".join(tables[:MAX_NAMED_TABLES]) + more
