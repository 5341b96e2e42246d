"""replay: publishes messages from Parquet, or from a range of a stream, back into a queue, in
order.

Answers for order, pace and for each message being published once: the note of how far it came is
written in the transaction that publishes. Messages go through howdah.publish, as any application's:
they enter the queue with a new offset and time, without their old expiry.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from spark_etl.checkpoints import Checkpoint, Ledger
from spark_etl.database import Database, connected, refuse_standby
from spark_etl.errors import EtlError
from spark_etl.progress import Progress
from spark_etl.queues import find_queue
from spark_etl.sources import Chunk, Source

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

JOB: Final = "replay"
# Told after each step of a batch, so that a test can end the process there.
STEPS: Final = ("read", "published", "committed")
MESSAGES_PER_SECOND: Final = 2000.0
_MOST_AT_ONCE: Final = 500

_TEXTS: Final = (
    "content_type",
    "content_encoding",
    "message_id",
    "correlation_id",
    "reply_to",
    "subject",
    "app_id",
    "group_id",
)
_PUBLISH: Final = f"""
    SELECT count(howdah.publish(
        ?, decode(r.body, 'base64'), headers => r.headers, priority => r.priority,
        durable => r.durable, vhost => ?, {", ".join(f"{name} => r.{name}" for name in _TEXTS)}))
    FROM jsonb_to_recordset(?::jsonb) AS r (
        body text, headers jsonb, priority int, durable boolean,
        {", ".join(f"{name} text" for name in _TEXTS)})
"""


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    queue: str
    vhost: str = "/"
    rate: float = MESSAGES_PER_SECOND
    name: str | None = None  # another one replays the same messages again

    def target(self, source: Source) -> str:
        return self.name or f"{source} -> {self.queue}"


def plan_replay(spark: SparkSession, url: str, source: Source, settings: ReplaySettings) -> str:
    """Counts what would be published, and says so; changes nothing."""
    with connected(spark, url) as database:
        find_queue(database, settings.vhost, settings.queue)
        left = 0
        for chunk in source.chunks(spark):
            ledger = Ledger(database, JOB, settings.target(source), chunk.queue_id)
            left += _left(chunk, ledger.read()).frame(spark).count()
    seconds = left / settings.rate
    return (
        f"{left} messages from {source} into {settings.queue}, at most {settings.rate:g} a second: "
        f"{seconds:.0f} s or more"
    )


def replay(
    spark: SparkSession,
    url: str,
    source: Source,
    settings: ReplaySettings,
    *,
    on_step: Callable[[str], None] = lambda step: None,
) -> int:
    """Publishes what an earlier run of that name has not, to the database at url, and returns how
    many."""
    if settings.rate <= 0:
        raise EtlError(f"the rate is {settings.rate:g}, and must be above 0")
    published = 0
    with connected(spark, url) as database:
        refuse_standby(database, url)
        find_queue(database, settings.vhost, settings.queue)
        chunks = list(source.chunks(spark))
        progress = Progress(f"replay into {settings.queue}", sum(len(c.wanted) for c in chunks))
        pace = Pace(settings.rate)
        for chunk in chunks:
            ledger = Ledger(database, JOB, settings.target(source), chunk.queue_id)
            with ledger.locked(), progress.batch(str(chunk), len(chunk.wanted), lambda: 0.0):
                for batch in _batches(_left(chunk, ledger.read()), spark, pace.at_once):
                    on_step("read")
                    pace.wait(len(batch))
                    _publish(database, ledger, settings, batch, on_step)
                    published += len(batch)
                    on_step("committed")
    return published


class Pace:
    """Spreads messages evenly; says how long to wait, and waits."""

    def __init__(
        self,
        rate: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._due = clock()
        # Ten batches a second: even for those who consume, cheap for those who commit.
        self.at_once = max(1, min(_MOST_AT_ONCE, int(rate / 10)))

    def wait(self, count: int) -> None:
        now = self._clock()
        if self._due > now:
            self._sleep(self._due - now)
        self._due = max(now, self._due) + count / self._rate


def _left(chunk: Chunk, checkpoint: Checkpoint | None) -> Chunk:
    return chunk if checkpoint is None else chunk.after(checkpoint.offset)


def _batches(chunk: Chunk, spark: SparkSession, size: int) -> Iterator[list[Row]]:
    if not len(chunk.wanted):
        return
    # One partition, and small enough for the driver: no shuffle is needed to sort it.
    rows = chunk.frame(spark).sortWithinPartitions("offset").collect()
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _publish(
    database: Database,
    ledger: Ledger,
    settings: ReplaySettings,
    batch: list[Row],
    on_step: Callable[[str], None],
) -> None:
    text = json.dumps([_content(row) for row in batch])
    with database.transaction():
        count = database.value(_PUBLISH, settings.queue, settings.vhost, text)
        if count != len(batch):
            raise EtlError(f"{count} of {len(batch)} messages were taken: nothing was published")
        before = ledger.read()
        done = len(batch) + (before.messages if before is not None else 0)
        ledger.note(Checkpoint(batch[-1].offset, done))
        on_step("published")


def _content(row: Row) -> dict[str, Any]:
    known = row.asDict()
    headers = known.get("headers")
    return {
        "body": base64.b64encode(bytes(row.body or b"")).decode(),
        "headers": json.loads(headers) if headers else None,
        "priority": known.get("priority"),
        "durable": True if known.get("durable") is None else known["durable"],
        **{name: known.get(name) for name in _TEXTS},
    }
