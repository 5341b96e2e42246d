"""PostgreSQL 14 to 17 besides the 18 that all other tests run on: the same schema, the same SQL."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from gateway.postgres.server import EmbeddedPostgres
from queue_core.delivery.consumer import Consumer, ConsumerSpec, Delivery, Position
from queue_core.errors import CoreError
from queue_core.manager import Manager
from queue_core.message.message import Message
from queue_core.outcomes import ACCEPTED, FAILED, REJECTED
from queue_core.queues.spec import QueueSpec
from queue_core.store.operator import preflight
from queue_core.store.operator.migration import current_version, downgrade, upgrade
from tests.support.postgres_versions import VERSIONS, NotToBeHad, binaries_of
from tools import schema

LETTERS = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters"}


@pytest.fixture(scope="module", params=sorted(VERSIONS))
def server(request: pytest.FixtureRequest) -> Iterator[EmbeddedPostgres]:
    try:
        binaries = binaries_of(request.param)
    except NotToBeHad as reason:
        pytest.skip(str(reason))
    # what the packages leave out; production servers have it, and nothing here needs it
    lean = {"shared_preload_libraries": ""}
    # Not below pytest's folder, which every other run of pytest closes when it starts.
    with tempfile.TemporaryDirectory(prefix="howdah-test-") as folder:
        Path(folder).chmod(0o711)
        data = Path(folder) / "data"
        with EmbeddedPostgres(data, bin_dir=binaries, settings=lean) as running:
            yield running


class Collector:
    """A consumer that keeps what it gets until there is enough."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self.deliveries: list[Delivery] = []
        self.enough: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def deliver(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        self.deliveries += deliveries
        if len(self.deliveries) >= self._wanted and not self.enough.done():
            self.enough.set_result(None)

    def deliver_direct(self, consumer: Consumer, message: Message, options: object) -> None:
        raise AssertionError("a stored queue has no short way")

    def on_cancel(self, consumer: Consumer, reason: CoreError) -> None:
        self.enough.set_exception(reason)


async def test_the_schema_goes_up_serves_and_goes_down(server: EmbeddedPostgres) -> None:
    await upgrade(server.url)
    assert await schema.render(server.url) == schema.PAGE.read_text()
    connection = await asyncpg.connect(server.url)
    assert await preflight.check(connection) == []
    await connection.close()
    await _serve_a_little(server.url)
    await _look_with_sql(server.url)
    await downgrade(server.url)
    assert await current_version(server.url) is None


async def _serve_a_little(url: str) -> None:
    manager = await Manager.open(url)
    vhost = await manager.vhost("/")
    await vhost.declare_queue(QueueSpec.parse("letters"))
    await vhost.declare_queue(QueueSpec.parse("work", LETTERS))
    await vhost.declare_queue(QueueSpec.parse("log", {"x-queue-type": "stream"}))
    for number in range(100):
        for queue in ("work", "log"):
            vhost.publish(Message(b"%d" % number, "", routing_key=queue))
    await manager.writer.flushed()
    sink = Collector(100)
    consumer = await vhost.consume("work", sink, ConsumerSpec(credit=100))
    consumer.wake()
    await sink.enough
    vhost.settle(sink.deliveries[:50], ACCEPTED)
    vhost.settle(sink.deliveries[50:60], REJECTED)
    vhost.end_consumer(consumer, FAILED)
    await manager.writer.flushed()
    await manager.close()

    manager = await Manager.open(url)
    vhost = await manager.vhost("/")
    assert vhost.queue("work").counts().ready == 40
    assert vhost.queue("letters").counts().ready == 10
    reader = Collector(100)
    spec = ConsumerSpec(group="g", start=Position(name="first"))
    (await vhost.consume("log", reader, spec)).wake()
    await reader.enough
    assert [d.message.body for d in reader.deliveries] == [b"%d" % n for n in range(100)]
    vhost.settle(reader.deliveries[:30], ACCEPTED)
    await manager.writer.flushed()
    await _publish_with_sql(url, vhost.name)
    got = await _next_from(manager, "letters")
    assert got.message.body == b"from SQL"
    await manager.close()


async def _publish_with_sql(url: str, vhost: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("SELECT howdah.purge('letters')")
    await connection.execute("SELECT howdah.publish('letters', 'from SQL'::text)")
    await connection.close()


async def _next_from(manager: Manager, queue: str) -> Delivery:
    """The purge and the publish arrive in whatever order the gateway sees them: wait for both."""
    vhost = await manager.vhost("/")
    while True:
        sink = Collector(1)
        consumer = await vhost.consume(queue, sink, ConsumerSpec(credit=1))
        consumer.wake()
        await sink.enough
        delivery = sink.deliveries[0]
        vhost.settle([delivery], ACCEPTED)
        vhost.end_consumer(consumer, FAILED)
        if delivery.message.body == b"from SQL":
            return delivery


async def _look_with_sql(url: str) -> None:
    connection = await asyncpg.connect(url)
    status = {
        row["queue"]: row
        for row in await connection.fetch("SELECT * FROM howdah.queue_status ORDER BY queue")
    }
    assert status["work"]["ready"] == 40
    lag = await connection.fetchval(
        "SELECT lag FROM howdah.consumer_lag WHERE queue = 'log' AND group_name = 'g'"
    )
    assert lag == 70
    peeked = await connection.fetch("SELECT * FROM howdah.peek('work', 5)")
    assert [row["offset"] for row in peeked] == [60, 61, 62, 63, 64]
    await connection.close()
