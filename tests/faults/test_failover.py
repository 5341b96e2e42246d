"""A standby that was behind becomes the primary: what was confirmed and is gone is noticed, named,
and neither counted nor numbered again; a partition that is taken away is told of truly."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pika
import pytest

from tests.etl.standby import Standby, running_standby
from tests.faults.server import Server
from tests.gateway_process import GatewayProcess
from tests.postgres import execute, fetch_value

PATIENCE = 60.0
DURABLE = pika.BasicProperties(delivery_mode=2)


@pytest.fixture
def primary(server: Server) -> Iterator[Server]:
    """A server of the test's own, with a migrated database called messages."""
    with tempfile.TemporaryDirectory(prefix="howdah-failover-") as folder:
        Path(folder).chmod(0o711)
        made = Server(Path(folder) / "data")
        with made.postgres:
            execute(made.postgres.url, "CREATE DATABASE messages TEMPLATE template0")
            yield made


@pytest.fixture
def standby(primary: Server) -> Iterator[Standby]:
    with tempfile.TemporaryDirectory(prefix="howdah-standby-") as folder:
        Path(folder).chmod(0o711)
        with running_standby(primary.postgres, Path(folder)) as made:
            yield made


@pytest.fixture
def gateway(primary: Server, standby: Standby, tmp_path: Path) -> Iterator[GatewayProcess]:
    url = urlsplit(primary.database("messages"))
    other = urlsplit(standby.url(primary.database("messages")))
    hosts = f"{url.netloc},127.0.0.1:{other.port}"
    both = url._replace(netloc=hosts, query="target_session_attrs=read-write").geturl()
    process = GatewayProcess(tmp_path / "gateway", {"database": {"url": both}})
    try:
        process.start()
        yield process
    finally:
        process.kill()


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def follows(standby: Standby, primary: str) -> bool:
    """Whether the standby has all of it; asked of a database that is surely there."""
    written = fetch_value(primary, "SELECT pg_current_wal_lsn()::text")
    there = standby.url(primary).rpartition("/")[0] + "/postgres"
    return bool(fetch_value(there, f"SELECT pg_last_wal_replay_lsn() >= '{written}'::pg_lsn"))


class Client:
    def __init__(self, gateway: GatewayProcess) -> None:
        self.connection = pika.BlockingConnection(pika.URLParameters(gateway.amqp_url()))
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()

    def declare(self) -> Client:
        self.channel.queue_declare("orders", durable=True)
        self.channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
        return self

    def publish(self, *bodies: bytes) -> None:
        """To both, confirmed."""
        for body in bodies:
            for queue in ("orders", "log"):
                self.channel.basic_publish("", queue, body, DURABLE)

    def count(self, queue: str) -> int:
        found: Any = self.channel.queue_declare(queue, passive=True)
        return int(found.method.message_count)

    def take(self, count: int) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < count:
            method, _, body = self.channel.basic_get("orders")
            assert method is not None, f"only {found}"
            self.channel.basic_ack(method.delivery_tag)
            found.append(body)
        return found


def numbered(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


def test_what_a_standby_that_was_behind_has_lost_is_named_and_not_counted(
    primary: Server, standby: Standby, gateway: GatewayProcess
) -> None:
    url = primary.database("messages")
    client = Client(gateway).declare()
    client.publish(*numbered(0, 6))
    assert client.take(2) == numbered(0, 2)
    until(lambda: follows(standby, url), "the standby does not follow")
    there = standby.url(url)
    execute(
        there.rpartition("/")[0] + "/postgres",
        "ALTER SYSTEM SET primary_conninfo = ''",
        "SELECT pg_reload_conf()",
    )
    receiving = "SELECT count(*) FROM pg_stat_wal_receiver"
    until(lambda: fetch_value(there, receiving) == 0, "the standby still receives")
    client.publish(*numbered(6, 10))  # confirmed, and on the primary alone
    assert client.take(3) == numbered(2, 5)
    primary.kill()
    execute(there, "SELECT pg_promote()")
    until(lambda: gateway.log().count("went back in time") > 0, "nobody noticed")
    until(lambda: gateway.said().count("ready\n") == 2, "it does not start again")

    client = Client(gateway)
    assert (client.count("orders"), client.count("log")) == (4, 6)
    lost = fetch_value(
        there,
        "SELECT string_agg(format('%s %s-%s', queue, first_offset, end_offset), ', ' "
        "ORDER BY queue) FROM howdah.loss WHERE queue IS NOT NULL",
    )
    assert lost == "log 6-10, orders 6-10"
    assert "4 messages of queue 'orders' in virtual host '/', offsets 6 to 9" in gateway.log()
    client.publish(b"new")
    offsets = 'SELECT max("offset") FROM howdah.message m JOIN howdah.queue q ON q.id = m.queue_id'
    assert fetch_value(there, f"{offsets} WHERE q.name = 'log'") == 10  # no number twice
    assert (client.count("orders"), client.count("log")) == (5, 7)
    # What was settled after the moment that the database is back at comes again.
    assert client.take(5) == [*numbered(2, 6), b"new"]
    assert client.count("orders") == 0
    assert fetch_value(there, "SELECT count(*) FROM howdah.find_gaps()") == 0


def test_a_failover_that_loses_nothing_is_not_noticed_by_clients(
    primary: Server, standby: Standby, gateway: GatewayProcess
) -> None:
    url = primary.database("messages")
    client = Client(gateway).declare()
    client.publish(*numbered(0, 6))
    client.take(2)
    until(lambda: follows(standby, url), "the standby does not follow")
    primary.kill()
    execute(standby.url(url), "SELECT pg_promote()")
    client.publish(*numbered(6, 8))  # waits for the new primary
    assert client.take(6) == numbered(2, 8)
    assert client.count("log") == 8
    assert "went back in time" not in gateway.log()
    assert fetch_value(standby.url(url), "SELECT count(*) FROM howdah.loss") == 0
