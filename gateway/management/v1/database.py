"""The database: groups of streams with their lag, Spark jobs, segments, sizes, who holds back
vacuum, and what `howdah doctor` finds now."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from gateway.management.call import Call
from gateway.management.roles import Role
from gateway.management.routes import Query, Route
from queue_core.store.operator.status_lists import StatusLists

MOST_ROWS: Final = 1000
MOST_TABLES: Final = 50
MOST_HOLDERS: Final = 10


class LimitQuery(Query, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=MOST_ROWS)] = 200


class SegmentQuery(Query, frozen=True, forbid_unknown_fields=True):
    after: Annotated[int, Meta(ge=0, le=2**31 - 1, description="go on behind this segment")] = 0
    limit: Annotated[int, Meta(ge=1, le=MOST_ROWS)] = 200


class Group(Struct, frozen=True):
    """A consumer group of a stream, and how far it is behind."""

    vhost: str
    queue: str
    group_name: str
    floor: int
    tail: int
    lag: int
    oldest_age_seconds: float | None


class GroupList(Struct, frozen=True):
    items: list[Group]
    sql: str


class SparkJob(Struct, frozen=True):
    """How far a Spark job has come. The queue is null where it is gone."""

    job: str
    target: str
    vhost: str | None
    queue: str | None
    kind: str | None
    offset: int
    tail: int | None
    lag: int | None
    messages: int
    changed_at: datetime
    changed_by: str


class SparkJobList(Struct, frozen=True):
    items: list[SparkJob]
    sql: str


class Segment(Struct, frozen=True):
    segment_id: int
    vhost: str | None
    queue: str | None
    state: str
    created_at: datetime
    sealed_at: datetime | None
    retired_at: datetime | None
    newest_at: datetime | None
    messages: int
    bytes: int
    disk_bytes: int
    archive: str | None


class SegmentList(Struct, frozen=True):
    items: list[Segment]
    sql: str


class Table(Struct, frozen=True):
    table: str
    partitions: int
    bytes: int
    estimated_rows: int


class XminHolder(Struct, frozen=True):
    """A session that holds back vacuum."""

    pid: int
    application_name: str | None
    login: str | None
    state: str | None
    age_seconds: float | None
    transactions: int | None
    query: str | None


class DatabaseStatus(Struct, frozen=True):
    name: str
    server_version: str
    bytes: int
    is_standby: bool
    connections: int
    max_connections: int
    segments: int
    journal_generation: int
    tables: list[Table]
    xmin_holders: list[XminHolder]
    sql: list[str]


class FindingRow(Struct, frozen=True):
    level: str
    what: str
    way_out: str


class Findings(Struct, frozen=True):
    """What `howdah doctor` says of the database, as of some seconds ago at most."""

    items: list[FindingRow]
    command: str = "howdah doctor"


def _lists(call: Call[Any, Any]) -> StatusLists:
    return call.manager.inspection.lists


async def groups(call: Call[LimitQuery, None]) -> GroupList:
    return await _groups(call, None, None)


async def groups_of_vhost(call: Call[LimitQuery, None]) -> GroupList:
    return await _groups(call, call.vhost().name, None)


async def groups_of_stream(call: Call[LimitQuery, None]) -> GroupList:
    vhost = call.vhost()
    vhost.queue(call.path["name"])
    return await _groups(call, vhost.name, call.path["name"])


async def _groups(call: Call[LimitQuery, None], vhost: str | None, queue: str | None) -> GroupList:
    found = await _lists(call).groups(vhost, queue, call.query.limit)
    rows = [row for row in found.rows if call.sees(row["vhost"])]
    return GroupList(msgspec.convert(rows, list[Group]), found.sql)


async def spark_jobs(call: Call[LimitQuery, None]) -> SparkJobList:
    found = await _lists(call).spark_jobs(call.query.limit)
    return SparkJobList(msgspec.convert(found.rows, list[SparkJob]), found.sql)


async def segments(call: Call[SegmentQuery, None]) -> SegmentList:
    found = await _lists(call).segments(call.query.after, call.query.limit)
    return SegmentList(msgspec.convert(found.rows, list[Segment]), found.sql)


async def database(call: Call[Any, None]) -> DatabaseStatus:
    lists = _lists(call)
    status = await lists.database()
    tables = await lists.tables(MOST_TABLES)
    holders = await lists.xmin_holders(MOST_HOLDERS)
    return DatabaseStatus(
        **status.rows[0],
        tables=msgspec.convert(tables.rows, list[Table]),
        xmin_holders=msgspec.convert(holders.rows, list[XminHolder]),
        sql=[status.sql, tables.sql, holders.sql],
    )


async def findings(call: Call[Any, None]) -> Findings:
    found = await call.manager.inspection.findings()
    return Findings([FindingRow(each.level.value, each.what, each.way_out) for each in found])


V1: Final = "/api/howdah/v1"
ROUTES: Final = (
    Route(
        method="GET",
        path=V1 + "/groups",
        handler=groups,
        summary="Consumer groups of all streams, and how far each is behind",
        query=LimitQuery,
        answer=GroupList,
    ),
    Route(
        method="GET",
        path=V1 + "/groups/{vhost}",
        handler=groups_of_vhost,
        summary="Consumer groups of a virtual host's streams",
        query=LimitQuery,
        answer=GroupList,
    ),
    Route(
        method="GET",
        path=V1 + "/groups/{vhost}/{name}",
        handler=groups_of_stream,
        summary="Consumer groups of one stream",
        query=LimitQuery,
        answer=GroupList,
    ),
    Route(
        method="GET",
        path=V1 + "/spark-jobs",
        handler=spark_jobs,
        summary="How far each Spark job has come, and how far it is behind",
        role=Role.MONITORING,
        query=LimitQuery,
        answer=SparkJobList,
    ),
    Route(
        method="GET",
        path=V1 + "/segments",
        handler=segments,
        summary="Segments of the log, and their size on disk",
        role=Role.MONITORING,
        query=SegmentQuery,
        answer=SegmentList,
    ),
    Route(
        method="GET",
        path=V1 + "/database",
        handler=database,
        summary="The database: sizes, connections, who holds back vacuum",
        role=Role.MONITORING,
        answer=DatabaseStatus,
    ),
    Route(
        method="GET",
        path=V1 + "/findings",
        handler=findings,
        summary="What howdah doctor finds in the database now",
        role=Role.MONITORING,
        answer=Findings,
    ),
)
