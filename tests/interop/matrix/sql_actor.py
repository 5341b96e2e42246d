"""SQL with asyncpg: `howdah.publish` in, `howdah.peek` out. A peek settles nothing."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg

from tests.interop.matrix.letters import (
    ALL,
    PREFETCH,
    Actor,
    Kind,
    Letter,
    Place,
    Received,
    Verdict,
    told,
)
from tests.support.gateway_process import GatewayProcess
from tests.support.names import fresh
from tests.support.until import wait_until

PUBLISH = """
SELECT howdah.publish(
    $1, $2::bytea, exchange => $3, headers => $4::jsonb, content_type => $5,
    content_encoding => $6, correlation_id => $7, reply_to => $8, message_id => $9, subject => $10,
    priority => $11, mandatory => false)
"""
IS_TAKEN = "SELECT NOT EXISTS (SELECT FROM howdah.outbox WHERE id = $1)"
PEEK = "SELECT * FROM howdah.peek($1, 1, $2)"


class Sql(Actor):
    says = ALL
    hears = ALL - {"subject"}  # peek shows no subject
    verdicts = frozenset()
    orders_headers = False  # jsonb

    def __init__(self, gateway: GatewayProcess, credit: int = PREFETCH) -> None:
        super().__init__(gateway, credit)
        self._runner = asyncio.Runner()
        self._connection: asyncpg.Connection = self._runner.run(
            asyncpg.connect(gateway.database_url)
        )
        self._queue = ""
        self._next = 0

    def execute(self, statement: str) -> None:
        self._runner.run(self._connection.execute(statement))

    def value(self, statement: str, *arguments: object) -> Any:
        return self._runner.run(self._connection.fetchval(statement, *arguments))

    def row(self, statement: str, *arguments: object) -> Any:
        return self._runner.run(self._connection.fetchrow(statement, *arguments))

    def until(self, statement: str, *arguments: object) -> Any:
        """The first row that there is; the gateway looks into its tables now and then."""
        row = None

        def has_come() -> bool:
            nonlocal row
            row = self.row(statement, *arguments)
            return row is not None and row[0] is not False

        wait_until(has_come, f"a row of {statement}")
        return row

    def command(self, statement: str, *arguments: object) -> Any:
        """Asks the gateway for something, and waits until it is done."""
        number = self.value(statement, *arguments)
        row = self.until(
            "SELECT state, error FROM howdah.command_status($1) WHERE state <> 'waiting'", number
        )
        assert row["state"] == "done", row["error"]

    def publish(self, place: Place, letter: Letter) -> None:
        is_topic = place.kind is Kind.TOPIC
        headers = json.dumps(dict(letter.headers)) if letter.headers else None
        number = self.value(
            PUBLISH,
            place.key if is_topic else place.name,
            letter.body,
            "amq.topic" if is_topic else "",
            headers,
            letter.content_type,
            letter.content_encoding,
            letter.correlation_id,
            letter.reply_to,
            letter.message_id,
            letter.subject,
            letter.priority,
        )
        self.until(IS_TAKEN, number)

    def consume(self, place: Place) -> None:
        """Binds a queue where the place is a topic, since a topic keeps nothing to peek at."""
        self._queue = place.name
        if place.kind is Kind.TOPIC:
            self.capture("SELECT howdah.bind_topic($1, $2)", place.name)

    def capture(self, statement: str, pattern: str) -> None:
        """Peeks at a queue that is bound by that statement."""
        self._queue = fresh("captured")
        self.command("SELECT howdah.declare_queue($1)", self._queue)
        self.command(statement, self._queue, pattern)

    def receive(self) -> Received:
        row = self.until(PEEK, self._queue, self._next)
        self._next = row["offset"] + 1
        headers = json.loads(row["headers"] or "{}")
        deaths = json.loads(row["deaths"] or "[{}]")
        letter = Letter(
            row["body"],
            row["content_type"],
            row["content_encoding"],
            row["correlation_id"],
            row["reply_to"],
            row["message_id"],
            None,
            row["priority"],
            told(headers.items()),
        )
        count = row["delivery_count"]
        return Received(
            letter, count > 0, count, row["offset"], deaths[0].get("queue"), deaths[0].get("reason")
        )

    def settle(self, received: Received, verdict: Verdict) -> None:
        raise ValueError("a peek takes nothing, so there is nothing to settle")

    def stop(self) -> None:
        """Does nothing: SQL gets only what it asks for."""

    def settled(self) -> None:
        """Nothing to hear."""

    def cut(self) -> None:
        self._connection.terminate()

    def close(self) -> None:
        if not self._connection.is_closed():
            self._runner.run(self._connection.close())
        self._runner.close()
