"""Looks at a database the way a doctor does: what makes queues slow, large or unsafe, who causes
it, and how to mend it.

Every check asks one question of one connection and returns findings; it changes nothing. Whether
the gateway may start at all is preflight's question.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Final

import asyncpg

from queue_core.store.lost_commits.losses import UNPROVEN
from queue_core.store.operator import preflight
from queue_core.store.operator.cluster_check import cluster
from queue_core.store.operator.finding import Finding, Level, fail, ok, warn
from queue_core.store.operator.queue_operations import IS_SERVED
from queue_core.store.operator.replication_check import replication
from queue_core.store.operator.row_security import listed, read_policies
from queue_core.store.read.recovery import torn_text

SKEW_SECONDS: Final = 2.0
OLD_XMIN: Final = timedelta(minutes=10)
LONG_UNDROPPED: Final = timedelta(hours=1)
LONG_UNDONE: Final = timedelta(minutes=1)
RECENT_LOSS: Final = timedelta(days=30)
LONG_WAIT: Final = timedelta(seconds=1)
ROLES: Final = ("howdah_gateway", "howdah_operator", "howdah_publisher", "howdah_reader")

BY_WHOM: Final = " (as that login, a superuser or a member of pg_signal_backend)"
RELOAD: Final = "SELECT pg_reload_conf();"
LOSES: Final = "a crash of the machine loses messages that were confirmed"
GROWS: Final = "outbox, sessions and retained messages grow without limit"
UNSAFE_WHEN_OFF: Final = (
    ("fsync", Level.FAIL, LOSES),
    ("full_page_writes", Level.FAIL, LOSES),
    ("autovacuum", Level.WARN, GROWS),
    ("track_counts", Level.WARN, GROWS),
)

# The second is the preflight's to find fault with.
SAFE_WHEN_ON: Final = ("fsync", "synchronous_commit", "full_page_writes")

Check = Callable[[asyncpg.Connection], Awaitable[list[Finding]]]

_SERVER: Final = """
SELECT current_setting('server_version') AS version, current_database() AS database,
       current_user AS login
"""
_SETTINGS: Final = """
SELECT name, setting FROM pg_settings
WHERE name IN ('fsync', 'full_page_writes', 'autovacuum', 'synchronous_commit', 'track_counts')
"""
# Whoever keeps dead rows from being forgotten, the oldest.
_XMIN: Final = """
SELECT pid, application_name, usename, state, left(query, 80) AS query,
       now() - coalesce(xact_start, backend_start) AS age, age(backend_xmin) AS transactions
FROM pg_stat_activity
WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker'
ORDER BY age(backend_xmin) DESC, xact_start LIMIT 1
"""
_SLOTS: Final = """
SELECT slot_name, active, wal_status,
       pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
                            ELSE pg_current_wal_lsn() END, restart_lsn)::bigint AS bytes
FROM pg_replication_slots WHERE NOT active
"""
_PREPARED: Final = """
SELECT gid, owner, now() - prepared AS age FROM pg_prepared_xacts
WHERE database = current_database() ORDER BY prepared
"""
_SEGMENTS: Final = """
SELECT count(*) AS segments,
       count(*) FILTER (WHERE retired_at < now() - $1::interval) AS overdue,
       now() - min(retired_at) AS longest
FROM howdah.segment
"""
# Everybody may see who holds a lock, and not everybody since when.
_BLOCKERS: Final = """
SELECT DISTINCT a.pid, a.application_name, now() - a.xact_start AS age
FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.relation = 'howdah.message'::regclass AND l.granted AND a.pid <> pg_backend_pid()
  AND a.application_name NOT LIKE 'howdah gateway%'
  AND coalesce(a.xact_start < now() - interval '10 seconds', true)
ORDER BY age DESC NULLS LAST LIMIT 3
"""
# Sessions of other logins are there, and PostgreSQL hides what they do.
_HIDDEN: Final = """
SELECT current_user AS login, count(*) AS sessions FROM pg_stat_activity
WHERE datid IS NOT NULL AND query = '<insufficient privilege>' AND xact_start IS NULL
"""
_JIT: Final = """
SELECT pg_jit_available() AND reset_val = 'on' AS is_on, current_database() AS database
FROM pg_settings WHERE name = 'jit'
"""
# Whoever the gateway waits for, and who waits for nobody himself.
_IN_THE_WAY: Final = """
SELECT h.pid, h.application_name, h.usename, left(h.query, 80) AS query,
       max(clock_timestamp() - l.waitstart) AS waited
FROM pg_locks l
JOIN pg_stat_activity w ON w.pid = l.pid AND w.datname = current_database()
CROSS JOIN LATERAL unnest(pg_blocking_pids(l.pid)) AS b (pid)
JOIN pg_stat_activity h ON h.pid = b.pid
WHERE NOT l.granted AND w.application_name LIKE 'howdah gateway%'
  AND l.waitstart <= clock_timestamp() - $1::interval
  AND NOT EXISTS (SELECT FROM pg_locks x WHERE x.pid = h.pid AND NOT x.granted)
GROUP BY h.pid, h.application_name, h.usename, h.query ORDER BY waited DESC LIMIT 3
"""
# Logins that are here by the default grant alone, and hold nothing of ours.
_STRANGERS: Final = """
SELECT r.rolname AS login FROM pg_roles r
WHERE has_database_privilege('public', current_database(), 'CONNECT')
  AND r.rolcanlogin AND NOT r.rolsuper AND r.rolname <> current_user
  AND NOT EXISTS (
      SELECT FROM pg_roles o
      WHERE (o.rolname = ANY ($1)
             OR o.oid IN (SELECT n.nspowner FROM pg_namespace n WHERE n.nspname = 'howdah')
             OR o.oid IN (SELECT d.datdba FROM pg_database d
                          WHERE d.datname = current_database()))
        AND pg_has_role(r.oid, o.oid, 'MEMBER'))
ORDER BY r.rolname LIMIT 4
"""
_TORN: Final = "SELECT missing, stands_in FROM howdah.torn_tables() LIMIT 20"
_LOST: Final = "lost"
_UNKNOWN: Final = "perhaps lost"
_LOSSES: Final = """
SELECT cause, detail, now() - noted_at AS age FROM howdah.loss
WHERE noted_at > now() - $1::interval ORDER BY id DESC LIMIT 20
"""
_WAITING: Final = """
SELECT (SELECT count(*) FROM howdah.command WHERE done_at IS NULL) AS commands,
       (SELECT now() - min(requested_at) FROM howdah.command WHERE done_at IS NULL)
           AS oldest_command,
       (SELECT count(*) FROM (
           SELECT FROM howdah.outbox WHERE waiting_for IS NULL LIMIT 100001) o) AS outbox,
       (SELECT now() - min(inserted_at) FROM howdah.outbox WHERE waiting_for IS NULL)
           AS oldest_outbox
"""
_WAITING_FOR_ROOM: Final = """
SELECT o.vhost, w.queue, count(*) AS messages, now() - min(o.inserted_at) AS oldest_age
FROM howdah.outbox o CROSS JOIN LATERAL unnest(o.waiting_for) AS w (queue)
WHERE o.waiting_for IS NOT NULL
GROUP BY o.vhost, w.queue ORDER BY messages DESC, o.vhost, w.queue LIMIT 10
"""
_SIZE: Final = """
SELECT pg_size_pretty(pg_database_size(current_database())) AS size,
       current_setting('max_connections')::int AS most_connections,
       (SELECT sum(numbackends)::int FROM pg_stat_database) AS connections
"""


async def server(connection: asyncpg.Connection) -> list[Finding]:
    row = await connection.fetchrow(_SERVER)
    assert row is not None
    problems = await preflight.check(connection)
    if problems:
        return [fail(problem.cause, problem.way_out) for problem in problems]
    return ok(
        f"PostgreSQL {row['version']}, database {row['database']} as {row['login']}: "
        "schema and grants are in place"
    )


async def safety(connection: asyncpg.Connection) -> list[Finding]:
    """Settings under which a confirmed message may be lost, or the tables grow for ever."""
    settings = {row["name"]: row["setting"] for row in await connection.fetch(_SETTINGS)}
    found = [
        Finding(level, f"{name} is off: {what}", f"ALTER SYSTEM SET {name} = on; {RELOAD}")
        for name, level, what in UNSAFE_WHEN_OFF
        if settings.get(name) == "off"
    ]
    on = [name for name in SAFE_WHEN_ON if settings.get(name) != "off"]
    return found or ok(f"{', '.join(on)} and autovacuum are on")


async def clock(connection: asyncpg.Connection) -> list[Finding]:
    """Expiry and delays are reckoned on both sides."""
    before = time.time()
    theirs: datetime = await connection.fetchval("SELECT clock_timestamp()")
    after = time.time()
    skew = theirs.astimezone(UTC).timestamp() - (before + after) / 2
    if abs(skew) - (after - before) / 2 > SKEW_SECONDS:
        return [
            warn(
                f"the database's clock is {abs(skew):.1f} s "
                f"{'ahead of' if skew > 0 else 'behind'} this machine's",
                "let NTP set both (timedatectl set-ntp true)",
            )
        ]
    return ok(f"clocks differ by {abs(skew) * 1000:.0f} ms")


async def sight(connection: asyncpg.Connection) -> list[Finding]:
    """Says what this login cannot see, and concludes nothing from it."""
    row = await connection.fetchrow(_HIDDEN)
    assert row is not None
    if not row["sessions"]:
        return ok("no other session is hidden from this login")
    return [
        warn(
            f"sessions of other logins, hidden from this one: {row['sessions']}; whether one of "
            "them holds back vacuum, or runs what is in the gateway's way, cannot be told",
            f'GRANT pg_read_all_stats TO "{row["login"]}"; and run this again',
        )
    ]


async def oldest_reader(connection: asyncpg.Connection) -> list[Finding]:
    row = await connection.fetchrow(_XMIN)
    hidden = await connection.fetchrow(_HIDDEN)
    if row is None:
        if hidden is not None and hidden["sessions"]:
            return []  # `sight` has said so
        return ok("no transaction holds back vacuum")
    who = (
        f"pid {row['pid']} ({row['application_name'] or 'unnamed'}, user {row['usename']}, "
        f"{row['state'] or 'background'}) holds back vacuum for {_age(row['age'])}, "
        f"{row['transactions']} transactions"
    )
    if (row["age"] or timedelta()) < OLD_XMIN:
        return ok(who)
    return [
        warn(
            f"{who}: {_what_it_runs(row['query'])}",
            f"end it, or let it commit more often: SELECT pg_terminate_backend({row['pid']});"
            f"{BY_WHOM}",
        )
    ]


async def in_the_way(connection: asyncpg.Connection) -> list[Finding]:
    """Locks that the gateway waits for: it stores or reads nothing that they are in the way of."""
    found = [
        fail(
            f"the gateway waits since {_age(row['waited'])} for a lock of pid {row['pid']} "
            f"({row['application_name'] or 'unnamed'}, user {row['usename']}): "
            f"{_what_it_runs(row['query'])}",
            f"let it finish, or SELECT pg_terminate_backend({row['pid']});{BY_WHOM}",
        )
        for row in await connection.fetch(_IN_THE_WAY, LONG_WAIT)
    ]
    return found or ok("no lock is in the gateway's way")


async def leftovers(connection: asyncpg.Connection) -> list[Finding]:
    """Slots and prepared transactions that nobody finishes."""
    found = [
        warn(
            f"replication slot {row['slot_name']} is not in use ({row['wal_status']}) and keeps "
            f"{(row['bytes'] or 0) >> 20} MiB of WAL",
            f"connect its consumer, or SELECT pg_drop_replication_slot('{row['slot_name']}');",
        )
        for row in await connection.fetch(_SLOTS)
    ]
    found += [
        warn(
            f"transaction {row['gid']!r} of {row['owner']} is prepared since {_age(row['age'])}",
            f"COMMIT PREPARED '{row['gid']}'; or ROLLBACK PREPARED '{row['gid']}';",
        )
        for row in await connection.fetch(_PREPARED)
    ]
    return found or ok("no dead replication slots, no prepared transactions")


async def segments(connection: asyncpg.Connection) -> list[Finding]:
    row = await connection.fetchrow(_SEGMENTS, LONG_UNDROPPED)
    assert row is not None
    if not row["overdue"]:
        return ok(f"segments: {row['segments']}, none overdue to be dropped")
    blockers = ", ".join(
        f"pid {b['pid']} ({b['application_name'] or 'unnamed'}, "
        f"{'since when is hidden from this login' if b['age'] is None else _age(b['age'])})"
        for b in await connection.fetch(_BLOCKERS)
    )
    if blockers:
        way_out = f"end the transactions that read howdah.message: {blockers}"
    elif await connection.fetchval(IS_SERVED):
        way_out = "the gateway tries again within half a minute; its log says what is in the way"
    else:
        way_out = "start the gateway: it drops them"
    return [
        warn(
            f"{row['overdue']} segments cannot be dropped, the oldest since {_age(row['longest'])}",
            way_out,
        )
    ]


async def row_security(connection: asyncpg.Connection) -> list[Finding]:
    """Policies that do not keep anybody out: the views run as the owner of the schema."""
    policies = await read_policies(connection)
    if not policies.tables:
        return ok("no row-level security on tables of the schema")
    return [
        warn(
            f"row-level security is on for {listed(policies.tables)}, and the views and functions "
            "of the schema go around it: they run as its owner",
            "give people views that show their own queues, and no role of ours: see `Rights on "
            "single queues` in docs/dba.md",
        )
    ]


async def strangers(connection: asyncpg.Connection) -> list[Finding]:
    """Logins that may connect and have no business here: an advisory lock needs no right, so each
    of them can hold up every commit."""
    logins = [row["login"] for row in await connection.fetch(_STRANGERS, list(ROLES))]
    if not logins:
        return ok("no login without a role of ours may connect by PUBLIC")
    database = await connection.fetchval("SELECT quote_ident(current_database())")
    named = ", ".join(logins[:3]) + (" and others" if len(logins) > 3 else "")
    return [
        warn(
            f"everybody may connect to this database (PUBLIC), {named} among them, and whoever is "
            "connected can take an advisory lock that commits wait for",
            f"GRANT CONNECT ON DATABASE {database} TO {', '.join(ROLES)}; and to whoever else is "
            f"to come in; then REVOKE CONNECT ON DATABASE {database} FROM PUBLIC;",
        )
    ]


async def compiling(connection: asyncpg.Connection) -> list[Finding]:
    """JIT: the gateway, its commands and the views do without; a DBA's own queries do not."""
    row = await connection.fetchrow(_JIT)
    if row is None or not row["is_on"]:
        return ok("plans are not compiled (JIT)")
    return [
        warn(
            "JIT is on: queries of your own over many segments may take seconds to compile; the "
            "gateway, its commands and the views do without it",
            f'ALTER DATABASE "{row["database"]}" SET jit = off; or SET jit = off; before such a '
            "query",
        )
    ]


async def torn_tables(connection: asyncpg.Connection) -> list[Finding]:
    """Partitions that somebody took away or renamed."""
    found = [
        fail(torn_text(row["missing"], row["stands_in"]), "see there")
        for row in await connection.fetch(_TORN)
    ]
    return found or ok("every partition of the log and the journal is there")


async def losses(connection: asyncpg.Connection) -> list[Finding]:
    """Finds what the database has lost of late, by its own account."""
    found = [
        warn(
            f"{_LOST if row['cause'] != UNPROVEN else _UNKNOWN}, noticed {_age(row['age'])} ago: "
            f"{row['detail']}",
            "have publishers send it again; a standby that must not be behind needs "
            "synchronous_standby_names. This is said for 30 days",
        )
        for row in await connection.fetch(_LOSSES, RECENT_LOSS)
    ]
    return found or ok("nothing that was confirmed is known to be lost")


async def waiting_work(connection: asyncpg.Connection) -> list[Finding]:
    row = await connection.fetchrow(_WAITING)
    assert row is not None
    found = [
        warn(
            f"{count if count <= 100_000 else 'more than 100000'} {what} wait, the oldest for "
            f"{_age(oldest)}",
            "start the gateway (howdah serve), or see its log for why it does not do them",
        )
        for what, count, oldest in (
            ("commands", row["commands"], row["oldest_command"]),
            ("messages in the outbox", row["outbox"], row["oldest_outbox"]),
        )
        if count and oldest > LONG_UNDONE
    ]
    found += [
        warn(
            f"{each['messages']} messages that SQL published wait for room in queue "
            f"'{each['queue']}' of vhost '{each['vhost']}', the oldest since "
            f"{_age(each['oldest_age'])}",
            "consume from it, or purge it",
        )
        for each in await connection.fetch(_WAITING_FOR_ROOM)
    ]
    return found or ok("no command and no outbox message waits for long")


async def size(connection: asyncpg.Connection) -> list[Finding]:
    row = await connection.fetchrow(_SIZE)
    assert row is not None
    used = f"{row['connections']} of {row['most_connections']} connections in use"
    if row["connections"] > row["most_connections"] * 0.9:
        return [warn(used, "raise max_connections, or find out who holds them: pg_stat_activity")]
    return ok(f"the database takes {row['size']}; {used}")


SCHEMA_FREE: Final[tuple[Check, ...]] = (
    safety,
    replication,
    clock,
    compiling,
    sight,
    in_the_way,
    oldest_reader,
    leftovers,
    size,
)
ON_OUR_SCHEMA: Final[tuple[Check, ...]] = (
    torn_tables,
    losses,
    cluster,
    row_security,
    strangers,
    segments,
    waiting_work,
)


async def examine(connection: asyncpg.Connection) -> list[Finding]:
    """Examines everything. Where the schema is not as it should be, its own tables are left
    alone."""
    found = await server(connection)
    checks = SCHEMA_FREE
    if all(finding.level is Level.OK for finding in found):
        checks += ON_OUR_SCHEMA
    for check in checks:
        try:
            found += await check(connection)
        except asyncpg.LockNotAvailableError as error:
            found.append(warn(f"cannot be examined: {error}", "see above who holds a lock"))
        except asyncpg.InsufficientPrivilegeError as error:
            found.append(
                warn(f"cannot be examined: {error}", "run it as a member of pg_monitor to see more")
            )
    return found


def _what_it_runs(query: str | None) -> str:
    """Writes the query of a session in one line; one that PostgreSQL hides is said to be hidden."""
    if query == "<insufficient privilege>":
        return "what it runs is hidden from this login"
    return " ".join((query or "").split())


def _age(age: timedelta | None) -> str:
    seconds = int((age or timedelta()).total_seconds())
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
