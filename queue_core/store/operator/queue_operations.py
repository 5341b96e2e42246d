"""Operations on queues for operators: how they stand, what is in them, and changes that the running
gateway makes for them.

Answers for calling the views and functions of the schema over one connection, with the rights of
its login. Whoever prints or serves the answers decides how they look.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import asyncpg
import msgspec

from queue_core.store.planner_settings import NO_JIT
from queue_core.store.primary import connect_to_any

QUEUES: Final = """
SELECT vhost, queue AS name, kind, ready, delayed, in_flight, consumers, lag, oldest_age,
       size_bytes, head, tail, floor, noted_at
FROM howdah.queue_status
WHERE ($1::text IS NULL OR vhost = $1) AND ($2::text IS NULL OR queue = $2)
ORDER BY vhost, queue
"""
HAS_VHOST: Final = "SELECT EXISTS (SELECT FROM howdah.vhost WHERE name = $1)"
# Asked by the view, which operators may read; whoever may not is let through.
HAS_QUEUE: Final = """
SELECT EXISTS (SELECT FROM howdah.queue_status WHERE vhost = $1 AND queue = $2)
"""
WAIT_LITTLE: Final = "SET LOCAL lock_timeout = '500ms'"
MAY_READ_QUEUES: Final = """
SELECT has_table_privilege('howdah.vhost', 'SELECT')
   AND has_table_privilege('howdah.queue_status', 'SELECT')
"""
GROUPS: Final = """
SELECT group_name AS name, floor, tail, lag, oldest_unsettled_age AS oldest_age
FROM howdah.consumer_lag WHERE vhost = $1 AND queue = $2 AND kind = 'stream' ORDER BY group_name
"""
CONSUMERS: Final = """
SELECT vhost, queue, group_name, tag, state, protocol, user_name, client, address, prefetch, credit,
       in_flight, listed, oldest_age, priority, is_exclusive, auto_settle, arguments, since,
       noted_at, consumer_id
FROM howdah.consumer_status
WHERE ($1::text IS NULL OR vhost = $1) AND ($2::text IS NULL OR queue = $2)
ORDER BY vhost, queue, consumer_id
"""
IN_FLIGHT: Final = """
SELECT "offset", since, group_name, tag, protocol, user_name, client, address, consumer_id
FROM howdah.in_flight WHERE vhost = $1 AND queue = $2 ORDER BY since, "offset" LIMIT $3
"""
DEFINITION: Final = """
SELECT arguments, created_by, created_at FROM howdah.queue WHERE vhost = $1 AND name = $2
"""
MAY_READ_POLICIES: Final = "SELECT has_table_privilege('howdah.queue_policy', 'SELECT')"
POLICIES: Final = """
SELECT policy, operator_policy, effective FROM howdah.queue_policy
WHERE vhost = $1 AND queue = $2
"""
BINDINGS: Final = """
SELECT source AS exchange, routing_key FROM howdah.binding
WHERE vhost = $1 AND destination_kind = 'queue' AND destination = $2 ORDER BY source, routing_key
"""
MAY_READ_DEFINITIONS: Final = """
SELECT has_table_privilege('howdah.queue', 'SELECT')
   AND has_table_privilege('howdah.binding', 'SELECT')
"""
PEEK: Final = "SELECT * FROM howdah.peek($1, $2, $3, vhost => $4)"
PURGE: Final = "SELECT howdah.purge($1, vhost => $2)"
REDRIVE: Final = "SELECT howdah.redrive($1, $2, vhost => $3)"
DELETE: Final = "SELECT howdah.delete_queue($1, $2, $3, $4)"
DECLARE: Final = "SELECT howdah.declare_queue($1, $2::jsonb, vhost => $3)"
BIND: Final = "SELECT howdah.bind($1, $2, $3, vhost => $4)"
UNBIND: Final = "SELECT howdah.unbind($1, $2, $3, vhost => $4)"
BIND_TOPIC: Final = "SELECT howdah.bind_topic($1, $2, $3)"
UNBIND_TOPIC: Final = "SELECT howdah.unbind_topic($1, $2, $3)"
RESET_GROUP: Final = "SELECT howdah.reset_group($1, $2, $3, $4)"
PAUSE: Final = "SELECT howdah.pause_queue($1, $2)"
RESUME: Final = "SELECT howdah.resume_queue($1, $2)"
IMPORT: Final = "SELECT howdah.import_definitions($1, $2)"
STATUS: Final = "SELECT state, result, error FROM howdah.command_status($1)"
PUBLISH: Final = """
SELECT howdah.publish(
    $1, $2::bytea, exchange => $3, headers => $4::jsonb, content_type => $5, priority => $6,
    expires_in => $7, delay => $8, vhost => $9, correlation_id => $10, reply_to => $11,
    message_id => $12, mandatory => $13)
"""
PUBLISH_TOPIC: Final = """
SELECT howdah.publish_topic(
    $1, $2::bytea, retain => $3, headers => $4::jsonb, content_type => $5, expires_in => $6,
    delay => $7, vhost => $8, correlation_id => $9, reply_to => $10)
"""
IS_SERVED: Final = "SELECT howdah.is_served()"
# What the functions of the schema raise, and what PostgreSQL says of a caller's own condition.
REFUSALS: Final = (
    asyncpg.DataError,
    asyncpg.SyntaxOrAccessError,
    asyncpg.ProgramLimitExceededError,
)
FIRST_LOOK_SECONDS: Final = 0.02
LONGEST_PAUSE_SECONDS: Final = 0.5
LOCK_SECONDS: Final = 10


@dataclass(frozen=True, slots=True)
class QueueStatus:
    vhost: str
    name: str
    kind: str
    ready: int
    delayed: int
    in_flight: int
    consumers: int
    lag: int | None
    oldest_age: timedelta | None
    size_bytes: int
    head: int | None
    tail: int
    floor: int | None
    noted_at: datetime | None


@dataclass(frozen=True, slots=True)
class GroupStatus:
    name: str
    floor: int
    tail: int
    lag: int
    oldest_age: timedelta | None


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    """A consumer as the running gateway noted it."""

    vhost: str
    queue: str
    group_name: str | None
    tag: str
    state: str
    protocol: str
    user_name: str
    client: str
    address: str
    prefetch: int | None
    credit: int | None
    in_flight: int
    listed: int
    oldest_age: timedelta | None
    priority: int
    is_exclusive: bool
    auto_settle: bool
    arguments: dict[str, Any]
    since: datetime
    noted_at: datetime
    consumer_id: int


@dataclass(frozen=True, slots=True)
class HeldMessage:
    """A message in a consumer's hands."""

    offset: int
    since: datetime
    group_name: str | None
    tag: str
    protocol: str
    user_name: str
    client: str
    address: str
    consumer_id: int


@dataclass(frozen=True, slots=True)
class BindingView:
    exchange: str
    routing_key: str


@dataclass(frozen=True, slots=True)
class QueueDetails:
    """A queue in full; what the login may not see is left out."""

    status: QueueStatus
    groups: list[GroupStatus]
    arguments: dict[str, Any] | None = None
    created_by: str | None = None
    created_at: datetime | None = None
    bindings: list[BindingView] | None = None
    policy: str | None = None
    operator_policy: str | None = None
    effective: dict[str, Any] | None = None  # values in force, by arguments and policies


@dataclass(frozen=True, slots=True)
class PeekedMessage:
    offset: int
    enqueued_at: datetime
    delivery_count: int
    exchange: str
    routing_key: str
    priority: int | None
    expires_at: datetime | None
    not_before: datetime | None
    content_type: str | None
    content_encoding: str | None
    message_id: str | None
    correlation_id: str | None
    reply_to: str | None
    headers: dict[str, Any] | None
    publisher: str | None
    protocol: str | None
    deaths: list[dict[str, Any]] | None
    body: bytes


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to publish from SQL."""

    body: bytes
    headers: Mapping[str, str] | None = None
    content_type: str | None = None
    priority: int | None = None
    expires_in: timedelta | None = None
    delay: timedelta | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    message_id: str | None = None
    retain: bool = False


class OperationError(Exception):
    """Cannot be done; says why and what to do."""


class CommandFailed(OperationError):
    """The gateway, or the database before it, refused."""


class ConditionFailed(CommandFailed):
    """The caller's own condition, which PostgreSQL does not understand or cannot compute."""


class CommandWaits(OperationError):
    """Nobody has done it yet; it stays in the table `command` and will be done."""


class Operations:
    """Over one connection, which has decoded JSON: see `connect`."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    # --- looking

    async def queues(self, vhost: str | None = None) -> list[QueueStatus]:
        """Reads the state of the queues of all virtual hosts, or of one. Raises OperationError
        where there is no such one."""
        rows = await self._connection.fetch(QUEUES, vhost, None)
        if not rows and vhost and not await self._connection.fetchval(HAS_VHOST, vhost):
            raise OperationError(
                f"there is no virtual host '{vhost}'; see `howdah vhost list`, or make it with "
                "`howdah vhost add`"
            )
        return [QueueStatus(**row) for row in rows]

    async def queue(self, vhost: str, name: str) -> QueueDetails:
        row = await self._require_status(vhost, name)
        groups = [
            GroupStatus(**group) for group in await self._connection.fetch(GROUPS, vhost, name)
        ]
        if not await self._connection.fetchval(MAY_READ_DEFINITIONS):
            return QueueDetails(QueueStatus(**row), groups)
        definition = await self._connection.fetchrow(DEFINITION, vhost, name)
        bindings = await self._connection.fetch(BINDINGS, vhost, name)
        policies = None
        if await self._connection.fetchval(MAY_READ_POLICIES):
            policies = await self._connection.fetchrow(POLICIES, vhost, name)
        return QueueDetails(
            QueueStatus(**row),
            groups,
            **dict(definition or {}),
            **dict(policies or {}),
            bindings=[BindingView(**binding) for binding in bindings],
        )

    async def consumers(self, vhost: str | None, name: str | None) -> list[ConsumerStatus]:
        """Reads the consumers of all durable queues, of a virtual host's, or of one; none where no
        gateway runs."""
        if vhost is not None and name is not None:
            await self._require_status(vhost, name)
        rows = await self._connection.fetch(CONSUMERS, vhost, name)
        return [ConsumerStatus(**row) for row in rows]

    async def in_flight(self, vhost: str, name: str, limit: int) -> list[HeldMessage]:
        """Messages of a queue that consumers have, the longest held first."""
        await self._require_status(vhost, name)
        rows = await self._connection.fetch(IN_FLIGHT, vhost, name, limit)
        return [HeldMessage(**row) for row in rows]

    async def _require_status(self, vhost: str, name: str) -> asyncpg.Record:
        row = await self._connection.fetchrow(QUEUES, vhost, name)
        if row is None:
            raise OperationError(
                f"there is no durable queue '{name}' in virtual host '{vhost}'; "
                "see `howdah queue list`"
            )
        return row

    async def peek(
        self, vhost: str, name: str, limit: int, from_offset: int | None
    ) -> list[PeekedMessage]:
        async with _named_errors():
            rows = await self._connection.fetch(PEEK, name, limit, from_offset, vhost)
        return [PeekedMessage(**row) for row in rows]

    async def is_served(self) -> bool:
        """Tells whether a gateway owns this database now."""
        return bool(await self._connection.fetchval(IS_SERVED))

    # --- publishing

    async def has_queue(self, vhost: str, name: str) -> bool | None:
        """Tells whether there is a durable queue of that name. None: the login may not see that, or
        it would have to wait for somebody's lock, which publishing does not."""
        if not await self._connection.fetchval(MAY_READ_QUEUES):
            return None
        try:
            async with self._connection.transaction():
                await self._connection.execute(WAIT_LITTLE)
                return bool(await self._connection.fetchval(HAS_QUEUE, vhost, name))
        except asyncpg.LockNotAvailableError:
            return None

    async def require_queue(self, vhost: str, name: str) -> None:
        """Nobody hears that a message from SQL had nowhere to go: better told before. Raises
        OperationError; a login that sees no queues is not told."""
        if await self.has_queue(vhost, name) is False and await self._connection.fetchval(
            HAS_VHOST, vhost
        ):
            raise OperationError(
                f"there is no durable queue '{name}' in virtual host '{vhost}': make it with "
                f"`howdah queue declare {name}`, or give --exchange '' {name} for one that is in "
                "the gateway's memory"
            )

    async def publish(
        self, vhost: str, exchange: str, key: str, message: Outgoing, *, mandatory: bool = True
    ) -> int:
        """The message's number in the outbox; it is on its way when this returns. `mandatory`: to
        the default exchange, there must be a durable queue of that name."""
        async with _named_errors():
            number: int = await self._connection.fetchval(
                PUBLISH,
                key,
                message.body,
                exchange,
                message.headers,
                message.content_type,
                message.priority,
                message.expires_in,
                message.delay,
                vhost,
                message.correlation_id,
                message.reply_to,
                message.message_id,
                mandatory,
            )
        return number

    async def publish_topic(self, vhost: str, topic: str, message: Outgoing) -> int:
        if message.priority is not None or message.message_id is not None:
            raise OperationError(
                "a topic message from SQL has no priority and no message id; "
                "publish to exchange amq.topic instead"
            )
        async with _named_errors():
            number: int = await self._connection.fetchval(
                PUBLISH_TOPIC,
                topic,
                message.body,
                message.retain,
                message.headers,
                message.content_type,
                message.expires_in,
                message.delay,
                vhost,
                message.correlation_id,
                message.reply_to,
            )
        return number

    # --- changing: each returns the number of a command

    async def purge(self, vhost: str, name: str) -> int:
        return await self._submit(PURGE, name, vhost)

    async def redrive(self, vhost: str, name: str, predicate: str) -> int:
        """Raises ConditionFailed for a predicate that is none."""
        try:
            return await self._submit(REDRIVE, name, predicate, vhost)
        except CommandFailed as error:
            # The condition runs first; what is wrong with the rest, submit_command says.
            if "submit_command" in (getattr(error.__cause__, "context", None) or ""):
                raise
            raise ConditionFailed(str(error)) from error

    async def delete(self, vhost: str, name: str, *, if_unused: bool, if_empty: bool) -> int:
        return await self._submit(DELETE, name, vhost, if_unused, if_empty)

    async def declare(self, vhost: str, name: str, arguments: Mapping[str, object]) -> int:
        return await self._submit(DECLARE, name, arguments, vhost)

    async def bind(self, vhost: str, name: str, exchange: str, key: str) -> int:
        return await self._submit(BIND, name, key, exchange, vhost)

    async def unbind(self, vhost: str, name: str, exchange: str, key: str) -> int:
        return await self._submit(UNBIND, name, key, exchange, vhost)

    async def bind_topic(self, vhost: str, name: str, topic_filter: str) -> int:
        """Binds a queue to an MQTT filter."""
        return await self._submit(BIND_TOPIC, name, topic_filter, vhost)

    async def unbind_topic(self, vhost: str, name: str, topic_filter: str) -> int:
        return await self._submit(UNBIND_TOPIC, name, topic_filter, vhost)

    async def reset_group(self, vhost: str, name: str, group: str, position: str) -> int:
        """Sends a group of a stream to another place."""
        return await self._submit(RESET_GROUP, name, group, position, vhost)

    async def pause(self, vhost: str, name: str) -> int:
        """Stops deliveries from a queue."""
        return await self._submit(PAUSE, name, vhost)

    async def resume(self, vhost: str, name: str) -> int:
        """Lets deliveries from a queue go on."""
        return await self._submit(RESUME, name, vhost)

    async def import_definitions(self, vhost: str, definitions: Mapping[str, object]) -> int:
        """Makes exchanges, queues and bindings of a definitions file."""
        return await self._submit(IMPORT, definitions, vhost)

    async def _submit(self, statement: str, *arguments: object) -> int:
        async with _named_errors():
            number: int = await self._connection.fetchval(statement, *arguments)
        return number

    async def outcome(self, command: int, timeout_seconds: float) -> dict[str, Any]:
        """Waits for what comes of a command. Raises CommandFailed, or CommandWaits when the time is
        over."""
        pause = FIRST_LOOK_SECONDS
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        while True:
            row = await self._connection.fetchrow(STATUS, command)
            assert row is not None  # the function raises where there is none
            if row["state"] == "done":
                return row["result"] or {}
            if row["state"] == "failed":
                raise CommandFailed(row["error"])
            if asyncio.get_running_loop().time() >= deadline or not await self.is_served():
                raise CommandWaits(await self._why_it_waits(command, timeout_seconds))
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LONGEST_PAUSE_SECONDS)

    async def _why_it_waits(self, command: int, seconds: float) -> str:
        if await self.is_served():
            return (
                f"the gateway has not done it within {seconds:g} s; it is command {command} and "
                f"still in line: SELECT * FROM howdah.command_status({command})"
            )
        return (
            f"no gateway is running on this database: command {command} waits, and is done when "
            "one starts (howdah serve)"
        )


async def connect(
    url: str, application_name: str, timeout_seconds: float = 10
) -> asyncpg.Connection:
    """A connection that reads and writes JSON as Python values."""
    connection = await connect_to_any(
        url, seconds=timeout_seconds, server_settings={"application_name": application_name}
    )
    # A person waits, and would never learn for whom. Not asked for at the connection's start, which
    # poolers would refuse.
    await connection.execute(f"SET lock_timeout = '{LOCK_SECONDS}s'; {NO_JIT}")
    await connection.set_type_codec(
        "jsonb",
        schema="pg_catalog",
        encoder=lambda value: msgspec.json.encode(value).decode(),
        decoder=msgspec.json.decode,
    )
    return connection


@asynccontextmanager
async def _named_errors() -> AsyncIterator[None]:
    """The functions of the schema say cause and way out; here they become errors of ours. That one
    may not call them, or that there are none, is for the caller to tell."""
    try:
        yield
    except asyncpg.InsufficientPrivilegeError:
        raise
    except asyncpg.UndefinedFunctionError as error:
        if "function howdah." in str(error):
            raise
        raise CommandFailed(_said(error)) from error
    except REFUSALS as error:
        raise CommandFailed(_said(error)) from error


def _said(error: asyncpg.PostgresError) -> str:
    hint = getattr(error, "hint", None)
    message = getattr(error, "message", None) or str(error)
    return f"{message}. {hint}" if hint else str(message)
