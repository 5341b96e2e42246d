"""Lists for the management API that the tables answer: sessions, subscriptions and retained values,
groups of streams, Spark jobs, segments and the database itself. Each has an end, and says by which
SQL a DBA gets the same."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from queue_core.store.operator.inspection_pool import InspectionPool
from queue_core.store.operator.shown_sql import Typed, integer, parameterised, shown, text

Row = dict[str, Any]

_SESSIONS: Final = """
SELECT vhost, client_id, user_name, protocol, state, connected_at, disconnected_at, expiry_seconds,
    ends_at, subscriptions, queue, messages
FROM howdah.session_status
WHERE ({vhost} IS NULL OR vhost = {vhost}) AND ({name} IS NULL OR strpos(client_id, {name}) > 0)
    AND ({user} IS NULL OR user_name = {user})
    AND (vhost, client_id) > (coalesce({after_vhost}, ''), coalesce({after}, ''))
ORDER BY vhost, client_id LIMIT {limit}
"""
_SESSION: Final = """
SELECT vhost, client_id, user_name, protocol, state, connected_at, disconnected_at, expiry_seconds,
    ends_at, subscriptions, queue, messages
FROM howdah.session_status WHERE vhost = {vhost} AND client_id = {client_id}
"""
_SUBSCRIPTIONS: Final = """
SELECT filter, qos, no_local, retain_as_published, retain_handling, identifier, created_at
FROM howdah.session_subscriptions
WHERE vhost = {vhost} AND client_id = {client_id} AND filter > coalesce({after}, '')
ORDER BY filter LIMIT {limit}
"""
_RETAINED: Final = """
SELECT topic, qos, retained_at, expires_at, content_type, content_encoding, correlation_id,
    reply_to, headers, publisher, protocol, body_bytes, substring(body, 1, {truncate}) AS body
FROM howdah.retained_messages
WHERE vhost = {vhost} AND topic >= {prefix} AND topic > coalesce({after}, '')
    AND howdah.topic_matches(topic, {filter})
ORDER BY topic LIMIT {limit}
"""
_RETAINED_VALUE: Final = """
SELECT topic, qos, retained_at, expires_at, content_type, content_encoding, correlation_id,
    reply_to, headers, publisher, protocol, body_bytes, substring(body, 1, {truncate}) AS body
FROM howdah.retained_messages WHERE vhost = {vhost} AND topic = {topic}
"""
_GROUPS: Final = """
SELECT vhost, queue, group_name, floor, tail, lag,
    extract(epoch FROM oldest_unsettled_age)::float8 AS oldest_age_seconds
FROM howdah.consumer_lag
WHERE kind = 'stream' AND ({vhost} IS NULL OR vhost = {vhost})
    AND ({queue} IS NULL OR queue = {queue})
ORDER BY vhost, queue, group_name LIMIT {limit}
"""
_JOBS: Final = """
SELECT job, target, vhost, queue, kind, "offset", tail, lag, messages, changed_at, changed_by
FROM howdah.etl_status ORDER BY job, target, vhost, queue LIMIT {limit}
"""
_SEGMENTS: Final = """
SELECT segment_id, vhost, queue, state, created_at, sealed_at, retired_at, newest_at, messages,
    bytes, disk_bytes, archive
FROM howdah.segment_status WHERE segment_id > {after} ORDER BY segment_id LIMIT {limit}
"""
_DATABASE: Final = """
SELECT current_database()::text AS name, current_setting('server_version') AS server_version,
    pg_database_size(current_database()) AS bytes,
    pg_is_in_recovery() AS is_standby,
    (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()) AS connections,
    current_setting('max_connections')::int AS max_connections,
    (SELECT count(*) FROM howdah.segment) AS segments,
    (SELECT max(generation) FROM howdah.shard) AS journal_generation
"""
_TABLES: Final = """
SELECT coalesce(p.relname, c.relname)::text AS table, count(*) AS partitions,
    sum(pg_total_relation_size(c.oid))::bigint AS bytes,
    sum(greatest(c.reltuples, 0))::bigint AS estimated_rows
FROM pg_class c
LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
LEFT JOIN pg_class p ON p.oid = i.inhparent
WHERE c.relnamespace = 'howdah'::regnamespace AND c.relkind = 'r'
GROUP BY 1 ORDER BY bytes DESC LIMIT {limit}
"""
_XMIN_HOLDERS: Final = """
SELECT pid, application_name, usename::text AS login, state,
    extract(epoch FROM now() - coalesce(xact_start, backend_start))::float8 AS age_seconds,
    age(backend_xmin) AS transactions, left(query, 200) AS query
FROM pg_stat_activity
WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
ORDER BY age(backend_xmin) DESC, xact_start LIMIT {limit}
"""


class Listed(NamedTuple):
    """Rows, and the SQL that gives them."""

    rows: list[Row]
    sql: str


class StatusLists:
    """Reads lists over the connections for people's questions. Raises StoreUnavailable and
    LookTooLong."""

    def __init__(self, pool: InspectionPool) -> None:
        self._pool = pool

    async def sessions(
        self,
        vhost: str | None,
        name: str | None,
        user: str | None,
        after: tuple[str, str] | None,
        limit: int,
    ) -> Listed:
        """Sessions in order of virtual host and client id, from behind `after` on. `name` is a part
        of the client id; `user` has the sessions."""
        after_vhost, after_id = after or (None, None)
        return await self._listed(
            _SESSIONS,
            vhost=text(vhost),
            name=text(name),
            user=text(user),
            after_vhost=text(after_vhost),
            after=text(after_id),
            limit=integer(limit),
        )

    async def session(self, vhost: str, client_id: str) -> Listed:
        return await self._listed(_SESSION, vhost=text(vhost), client_id=text(client_id))

    async def subscriptions(
        self, vhost: str, client_id: str, after: str | None, limit: int
    ) -> Listed:
        return await self._listed(
            _SUBSCRIPTIONS,
            vhost=text(vhost),
            client_id=text(client_id),
            after=text(after),
            limit=integer(limit),
        )

    async def retained(
        self, vhost: str, topic_filter: str, after: str | None, limit: int, truncate: int
    ) -> Listed:
        """Retained values whose topics match a filter. Its beginning without wildcards is looked up
        by index."""
        return await self._listed(
            _RETAINED,
            vhost=text(vhost),
            prefix=text(_literal_beginning(topic_filter)),
            filter=text(topic_filter),
            after=text(after),
            limit=integer(limit),
            truncate=integer(truncate),
        )

    async def retained_value(self, vhost: str, topic: str, truncate: int) -> Listed:
        return await self._listed(
            _RETAINED_VALUE, vhost=text(vhost), topic=text(topic), truncate=integer(truncate)
        )

    async def groups(self, vhost: str | None, queue: str | None, limit: int) -> Listed:
        return await self._listed(
            _GROUPS, vhost=text(vhost), queue=text(queue), limit=integer(limit)
        )

    async def spark_jobs(self, limit: int) -> Listed:
        return await self._listed(_JOBS, limit=integer(limit))

    async def segments(self, after: int, limit: int) -> Listed:
        return await self._listed(_SEGMENTS, after=integer(after), limit=integer(limit))

    async def database(self) -> Listed:
        return await self._listed(_DATABASE)

    async def tables(self, limit: int) -> Listed:
        return await self._listed(_TABLES, limit=integer(limit))

    async def xmin_holders(self, limit: int) -> Listed:
        """Sessions that hold back vacuum, the worst first."""
        return await self._listed(_XMIN_HOLDERS, limit=integer(limit))

    async def _listed(self, template: str, **facts: Typed) -> Listed:
        statement, values = parameterised(template, **facts)
        async with self._pool.connection() as connection:
            rows = [dict(row) for row in await connection.fetch(statement, *values)]
        return Listed(rows, shown(template, **facts))


def _literal_beginning(topic_filter: str) -> str:
    """The levels of a filter before its first wildcard, as a text that all matches begin with."""
    levels: list[str] = []
    for level in topic_filter.split("/"):
        if level in ("+", "#"):
            break
        levels.append(level)
    return "/".join(levels)
