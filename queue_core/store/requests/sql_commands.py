"""Commands that people give in SQL: purge, redrive, declare, delete, bind, reset a group, end a
session, import definitions. The gateway runs them, since it alone knows which consumer holds which
message; the answer goes into the command's row."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import asyncpg
import msgspec

from queue_core.access.accounts import Roll
from queue_core.definitions.document import read_object
from queue_core.definitions.planning import make_plan
from queue_core.definitions.present import present_in
from queue_core.definitions.topology_import import TopologyImport
from queue_core.delivery.consumer import Position
from queue_core.errors import CoreError, InvalidArgument, QueueNotFound, VhostNotFound
from queue_core.queues.classic import ClassicQueue
from queue_core.queues.spec import QueueSpec
from queue_core.queues.stream import StreamQueue
from queue_core.store.read.recovery import parse_multirange
from queue_core.store.requests.redrive import Redrive
from queue_core.store.retry_rules import AWAY
from queue_core.store.write.fence import Fence, condition
from queue_core.store.write.rows import clean

if TYPE_CHECKING:
    from queue_core.sessions.sessions import Sessions
    from queue_core.vhost import Vhost

log = logging.getLogger(__name__)

OPEN: Final = """
    SELECT id, kind, vhost, queue, argument, requested_at FROM howdah.command
    WHERE done_at IS NULL ORDER BY id LIMIT 100
"""
DONE: Final = f"""
    UPDATE howdah.command SET done_at = clock_timestamp(), result = $2::jsonb, error = $3
    WHERE id = $1 AND {condition(4)}
"""
# The oldest by their number, so that no index on done_at is needed; more than OPEN can bring.
FORGET: Final = f"""
    DELETE FROM howdah.command
    WHERE id IN (SELECT id FROM howdah.command ORDER BY id LIMIT 200)
      AND done_at < now() - interval '7 days' AND {condition(1)}
"""

Result = dict[str, Any]
Answer = tuple[Result | None, str | None]  # what came of it, or why nothing did


class Commands:
    def __init__(
        self, vhosts: Mapping[str, Vhost], redrive: Redrive, sessions: Sessions, fence: Fence
    ) -> None:
        self._vhosts = vhosts
        self._redriver = redrive
        self._sessions = sessions
        self._fence = fence
        self._unsaid: dict[int, Answer] = {}  # done, and the database was away for the answer
        self._kinds: dict[str, Callable[[Vhost, str, Result], Any]] = {
            "purge": self._purge,
            "redrive": self._redrive,
            "delete_queue": self._delete_queue,
            "declare_queue": self._declare_queue,
            "bind": self._bind,
            "unbind": self._unbind,
            "reset_group": self._reset_group,
            "end_session": self._end_session,
            "import_definitions": self._import_definitions,
            "pause_queue": self._pause_queue,
            "resume_queue": self._resume_queue,
        }

    async def open(self, connection: asyncpg.pool.PoolConnectionProxy) -> list[asyncpg.Record]:
        """Reads the commands that are asked for and not done."""
        rows: list[asyncpg.Record] = await connection.fetch(OPEN)
        return rows

    async def forget(self, connection: asyncpg.pool.PoolConnectionProxy) -> None:
        """Forgets old commands, so that the table does not grow for ever."""
        await connection.execute(FORGET, *self._fence.unmarked().arguments)

    async def run(self, connection: asyncpg.pool.PoolConnectionProxy, row: asyncpg.Record) -> None:
        """Runs one command, and writes its result or its error into the row."""
        number = row["id"]
        if number not in self._unsaid:
            self._unsaid[number] = await self._run(row)
        result, error = self._unsaid[number]
        text = None if result is None else msgspec.json.encode(result).decode()
        passage = self._fence.begin()
        await connection.execute(DONE, number, text, error, *passage.arguments)
        passage.committed()
        del self._unsaid[number]

    async def _run(self, row: asyncpg.Record) -> Answer:
        try:
            vhost = self._vhosts.get(row["vhost"])
            if vhost is None:
                raise VhostNotFound(f"vhost '{row['vhost']}' does not exist")
            kind = self._kinds.get(row["kind"])
            if kind is None:
                raise InvalidArgument(
                    f"command '{row['kind']}' is unknown; use {', '.join(self._kinds)}"
                )
            argument = msgspec.json.decode(row["argument"])
            _check_same(vhost, row["queue"], argument.get("queue_id"))
            # What was on its way when this was asked for is there: SQL's own messages, say, that
            # were published before it.
            await vhost.writer.flushed()
            result: Result = await kind(vhost, row["queue"], argument)
        except CoreError as error:
            log.warning("command %d (%s) failed: %s", row["id"], row["kind"], error)
            return None, clean(str(error))
        except AWAY:
            raise  # it is asked for again when the database is back
        except Exception as error:  # whatever it says, it must not hold up the next one
            log.exception("command %d (%s) cannot be read", row["id"], row["kind"])
            return None, f"the command cannot be read: {clean(str(error))}; ask in other words"
        log.info("command %d: %s %s: %s", row["id"], row["kind"], row["queue"], result)
        return result, None

    async def _purge(self, vhost: Vhost, queue: str, argument: Result) -> Result:
        return {"messages": await vhost.purge_queue(queue)}

    async def _delete_queue(self, vhost: Vhost, queue: str, argument: Result) -> Result:
        count = await vhost.delete_queue(
            queue,
            if_unused=bool(argument.get("if_unused")),
            if_empty=bool(argument.get("if_empty")),
        )
        return {"messages": count}

    async def _declare_queue(self, vhost: Vhost, queue: str, argument: Result) -> Result:
        is_new = queue not in vhost.queues
        await vhost.declare_queue(QueueSpec.parse(queue, argument.get("arguments") or {}))
        return {"created": is_new}

    async def _bind(self, vhost: Vhost, queue: str, argument: Result) -> Result:
        source, key = argument["exchange"], argument["routing_key"]
        await vhost.bind(source, vhost.queue(queue), key, argument["arguments"])
        return {"exchange": source, "routing_key": key}

    async def _unbind(self, vhost: Vhost, queue: str, argument: Result) -> Result:
        source, key = argument["exchange"], argument["routing_key"]
        if not await vhost.unbind(source, vhost.queue(queue), key, argument["arguments"]):
            raise InvalidArgument(
                f"queue '{queue}' is not bound to exchange '{source}' with key '{key}' and these "
                "arguments; see `howdah queue show`, or the table howdah.binding"
            )
        return {"exchange": source, "routing_key": key}

    async def _reset_group(self, vhost: Vhost, name: str, argument: Result) -> Result:
        queue = vhost.queue(name)
        if not isinstance(queue, StreamQueue):
            raise InvalidArgument(f"queue '{name}' is {queue.spec.kind}: only streams have groups")
        place = Position(argument.get("name"), argument.get("offset"), argument.get("time"))
        start = await queue.reset_group(argument["group"], place)
        await vhost.writer.flushed()
        return {"group": argument["group"], "offset": start}

    async def _pause_queue(self, vhost: Vhost, queue: str, argument: Result) -> Result:
        await vhost.pause_queue(queue)
        return {}

    async def _resume_queue(self, vhost: Vhost, queue: str, argument: Result) -> Result:
        await vhost.pause_queue(queue, is_paused=False)
        return {}

    async def _import_definitions(self, vhost: Vhost, _: str, argument: Result) -> Result:
        """Makes exchanges, queues and bindings. An item that cannot be made does not keep the
        others from being made: the answer names it."""
        document = read_object(argument, vhost.name)
        present = await present_in(Roll(), [vhost])
        # The file of one virtual host has no users, and so no passwords to judge.
        plan = await asyncio.to_thread(make_plan, document, present, shortest_password=1)
        failures = await TopologyImport({vhost.name: vhost}, None).make(plan.steps)
        not_made = [(each.step.label, each.reason) for each in failures]
        not_made += [(step.label, step.reason) for step in plan.steps if step.is_left_out]
        counts = plan.counts()
        made = counts["create"] - len(failures)
        return {"made": made, "same": counts["same"], "not_made": not_made}

    async def _redrive(self, vhost: Vhost, name: str, argument: Result) -> Result:
        wanted = [
            offset
            for start, end in parse_multirange(argument.get("offsets", "{}"))
            for offset in range(start, end)
        ]
        done = await self._redriver.run(vhost, name, wanted)
        return {"moved": done.moved, "left": done.left}

    async def _end_session(self, vhost: Vhost, _queue: str, argument: Result) -> Result:
        await self._sessions.end(vhost, argument["client_id"])
        return {"client_id": argument["client_id"]}


def _check_same(vhost: Vhost, name: str, queue_id: int | None) -> None:
    """Raises QueueNotFound if the queue was deleted and made anew since the command was given."""
    queue = vhost.queues.get(name)
    if queue_id is None or not isinstance(queue, ClassicQueue | StreamQueue):
        return
    if queue.log.queue_id != queue_id:
        raise QueueNotFound(
            f"queue '{name}' is another one than when this was asked for; ask again"
        )
