"""The history of a database: which gateways owned it, on which server and timeline, and whether it
has everything that they committed.

A gateway that has just started remembers nothing. It compares the record that its predecessor left
beside the database (`commit_mark_file`) with what the tables know. Absence of a record is no proof
that nothing is missing: where the server or its timeline is another one, that nobody can tell is
said. Nothing here refuses to start: whoever restores an old backup means it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import asyncpg
import msgspec

from queue_core.store.lost_commits.commit_marks import Extent
from queue_core.store.lost_commits.losses import SETBACK, UNPROVEN, moment

KEPT_OWNERSHIPS: Final = 1000

DATABASE: Final = "SELECT oid::int8 FROM pg_database WHERE datname = current_database()"
SERVER: Final = "SELECT system_identifier::text FROM pg_control_system()"
# The first eight digits of a WAL file's name are its timeline.
TIMELINE: Final = "SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)"
OWNERSHIPS: Final = """
    SELECT epoch, started_at, node, server, database, timeline, last_commit, messages,
           last_commit_at
    FROM howdah.ownership ORDER BY epoch
"""
ADD_OWNERSHIP: Final = """
    INSERT INTO howdah.ownership
        (epoch, started_at, node, server, database, timeline, last_commit, messages, last_commit_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
"""
# Those of a higher epoch, too: somebody made the row of the owner anew, and counted from 0.
FORGET_OWNERSHIPS: Final = "DELETE FROM howdah.ownership WHERE epoch <= $1 OR epoch >= $2"


@dataclass(frozen=True, slots=True)
class Place:
    """Names one database of one server. A standby that becomes the primary differs by its timeline
    alone; a restored dump differs by its database, or by its server, too."""

    server: str = ""  # system identifier; empty: unknown
    database: int = 0
    timeline: int = 0  # 0: unknown

    def __str__(self) -> str:
        timeline = f", timeline {self.timeline}" if self.timeline else ""
        return f"server {self.server or 'unknown'}, database {self.database}{timeline}"

    def differs(self, other: Place) -> bool:
        """Tells if something that is known of both places is not the same."""
        pairs = (
            (self.server, other.server),
            (self.database, other.database),
            (self.timeline, other.timeline),
        )
        return any(here and there and here != there for here, there in pairs)


@dataclass(frozen=True, slots=True)
class Tenure:
    """One gateway's ownership of the database, as howdah.ownership has it."""

    epoch: int
    started_at: datetime
    node: str
    place: Place
    found: Extent  # commits of those before it


@dataclass(frozen=True, slots=True)
class Past:
    """A database as a gateway finds it when it takes it. `tenures` are those before its own, the
    oldest first."""

    lineage: str
    place: Place
    tenures: Sequence[Tenure]
    extent: Extent


class Record(msgspec.Struct, frozen=True):
    """One gateway's record beside the database: how far its commits had come."""

    lineage: str
    server: str
    database: int
    timeline: int
    epoch: int
    started_at: str
    number: int  # of the newest commit
    numbers: list[int]  # marks that must be in the database: see Marks
    messages: int
    at: float
    boot: str  # the machine's start in which it was written
    is_over: bool = False  # the gateway stopped in order
    is_told: bool = False  # it went on without what was lost, and has said so

    @property
    def place(self) -> Place:
        return Place(self.server, self.database, self.timeline)


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Commits that are missing, or that nobody can prove to be there."""

    cause: str
    detail: str
    messages: int = 0  # that may be missing from one queue, at most


async def read_place(connection: asyncpg.Connection) -> Place:
    """Asks the server which it is. A service that hides these facts leaves them unknown."""
    server, timeline = "", "0"
    with suppress(asyncpg.PostgresError):
        server = await connection.fetchval(SERVER)
    with suppress(asyncpg.PostgresError):
        timeline = await connection.fetchval(TIMELINE)
    return Place(server, await connection.fetchval(DATABASE), int(timeline, 16))


async def read_tenures(connection: asyncpg.Connection) -> list[Tenure]:
    return [
        Tenure(
            row["epoch"],
            row["started_at"],
            row["node"],
            Place(row["server"], row["database"], row["timeline"]),
            Extent(row["last_commit"], row["messages"], row["last_commit_at"]),
        )
        for row in await connection.fetch(OWNERSHIPS)
    ]


async def add_tenure(connection: asyncpg.Connection, tenure: Tenure) -> None:
    place, found = tenure.place, tenure.found
    await connection.execute(FORGET_OWNERSHIPS, tenure.epoch - KEPT_OWNERSHIPS, tenure.epoch)
    await connection.execute(
        ADD_OWNERSHIP,
        *(tenure.epoch, tenure.started_at, tenure.node),
        *(place.server, place.database, place.timeline),
        *(found.number, found.messages, found.at),
    )


def judge(
    record: Record | None, past: Past, missing: Collection[int], boot: str
) -> Shortfall | None:
    """Says whether the database lacks commits, as far as the record of an earlier gateway tells.
    None: there is no reason to think so. `missing` are the record's marks that the tables do not
    have; `boot` names the machine's start, over which a file that was not synced does not come."""
    if record is None:
        return _unproven(past, "this gateway has no record of what was committed, in its data_dir")
    if record.is_told:
        return None
    following = _tenure_after(record, past)
    found = past.extent if following is None else following.found
    if _is_short(record, past, found, following, missing):
        return _missing(record, past, found, following, missing)
    if past.tenures and not _is_of(record, past.tenures[-1]):
        return _unproven(past, "this gateway's record is of an earlier ownership")
    if record.is_over or (boot and record.boot == boot):
        return None
    return _unproven(
        past, f"this gateway's record ends at {moment(record.at)}, before its machine's restart"
    )


def _is_of(record: Record, tenure: Tenure) -> bool:
    return (record.epoch, record.started_at) == (tenure.epoch, tenure.started_at.isoformat())


def _tenure_after(record: Record, past: Past) -> Tenure | None:
    """Finds the gateway that took the database after the record's own; None if there was none
    before this one. After the database went back in time, it may have the same epoch."""
    later = (t for t in past.tenures if t.epoch >= record.epoch and not _is_of(record, t))
    return next(later, None)


def _is_short(
    record: Record, past: Past, found: Extent, following: Tenure | None, missing: Collection[int]
) -> bool:
    is_known = any(_is_of(record, tenure) for tenure in past.tenures)
    is_forgotten = bool(past.tenures) and record.epoch < past.tenures[0].epoch
    if not is_known and not is_forgotten:
        return True
    if following is None:
        return bool(missing)
    return record.number > found.number


def _missing(
    record: Record,
    past: Past,
    found: Extent,
    following: Tenure | None,
    missing: Collection[int],
) -> Shortfall:
    count = max(record.number - found.number, len(missing))
    messages = max(0, record.messages - found.messages)
    since = "the beginning" if found.at is None else moment(found.at.timestamp())
    taker = ""
    if following is not None:
        taker = (
            f"; gateway {following.node} took it without them at "
            f"{moment(following.started_at.timestamp())}, and their offsets may have been given "
            "to other messages since"
        )
    return Shortfall(
        SETBACK,
        f"up to {count} commits with {messages} messages, made from {since} to "
        f"{moment(record.at)} (numbers {found.number + 1} to {record.number}) on {record.place}: "
        f"this database ({past.place}) does not have them{taker}. A standby that was behind has "
        "become the primary, or a backup was restored",
        messages,
    )


def _unproven(past: Past, reason: str) -> Shortfall | None:
    """Makes the shortfall for a server, database or timeline other than the last gateway wrote to;
    None if all three are the same."""
    if not past.tenures or not past.place.differs(past.tenures[-1].place):
        return None
    last, extent = past.tenures[-1], past.extent
    newest = "" if extent.at is None else f" of {moment(extent.at.timestamp())}"
    return Shortfall(
        UNPROVEN,
        f"whether commits are missing cannot be proven: the last gateway ({last.node}) wrote to "
        f"{last.place}, this is {past.place}, and {reason}. The newest commit here is number "
        f"{extent.number}{newest}; compare with publishers' own records",
    )
