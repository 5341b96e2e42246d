"""Shards: which of the 64 a durable thing belongs to, and who owns them.

A queue belongs to a shard with its messages, settlements and all else that the journal says of it;
so do sessions, wills and retained messages. A shard has one owner, and only that node writes what
belongs to it. A node that is alone owns all of them.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import asyncpg

from queue_core.errors import StoreUnavailable
from queue_core.queues.reserved_names import SHARE_PREFIX, STORED_PREFIX

SHARDS: Final = 64
ALL_SHARDS: Final = tuple(range(SHARDS))
TAKE: Final = "UPDATE howdah.shard SET node_id = $1, epoch = epoch + 1"
OPEN_GENERATION: Final = "SELECT howdah.open_generation($1)"

# A session's queue is in the shard of the session, so that both always have one owner.
_KINDS: Final = ((STORED_PREFIX, "session"), (SHARE_PREFIX, "group"))


def shard_of(vhost: str, kind: str, name: str) -> int:
    """Returns the shard that a name hashes to. howdah.shard_of() says the same in SQL."""
    text = f"{vhost}\n{kind}\n{name}"
    # PostgreSQL refuses half characters; that is said where the name is written.
    return sha256(text.encode("utf-8", "surrogatepass")).digest()[0] % SHARDS


def shard_of_queue(vhost: str, name: str) -> int:
    """Returns the shard of a queue by its name; queues of sessions and of shared groups are where
    these are."""
    for prefix, kind in _KINDS:
        if name.startswith(prefix):
            return shard_of(vhost, kind, name[len(prefix) :])
    return shard_of(vhost, "queue", name)


def shard_of_session(vhost: str, client_id: str) -> int:
    """Returns the shard of a client's session and will."""
    return shard_of(vhost, "session", client_id)


async def take_all(connection: asyncpg.Connection, node: int) -> int:
    """Makes the node the owner of every shard, inside the transaction that makes it the only one,
    and opens the node's generation of the journal, whose number it returns. Which generation counts
    for a shard is left as it is: that of the owner before, until `adoption` has copied it."""
    tag = await connection.execute(TAKE, node)
    if tag != f"UPDATE {SHARDS}":
        raise StoreUnavailable(
            f"howdah.shard has not {SHARDS} rows: somebody deleted some; INSERT INTO howdah.shard "
            f"(id, generation) SELECT n, (SELECT max(generation) FROM howdah.shard) FROM "
            f"generate_series(0, {SHARDS - 1}) n ON CONFLICT DO NOTHING makes them again"
        )
    generation: int = await connection.fetchval(OPEN_GENERATION, node)
    return generation
