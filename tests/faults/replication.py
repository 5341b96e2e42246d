"""A primary and its standby in fault tests: whether the one follows, how it is left behind, and a
client whose messages tell what either has."""

from __future__ import annotations

from typing import Any, Final

import pika

from tests.support.gateway_process import GatewayProcess
from tests.support.postgres import execute, fetch_value
from tests.support.standby import Standby
from tests.support.until import wait_until

DURABLE: Final = pika.BasicProperties(delivery_mode=2)


def follows(standby: Standby, primary: str) -> bool:
    """Whether the standby has all of it; asked of a database that is surely there."""
    written = fetch_value(primary, "SELECT pg_current_wal_lsn()::text")
    there = standby.url(primary).rpartition("/")[0] + "/postgres"
    return bool(fetch_value(there, f"SELECT pg_last_wal_replay_lsn() >= '{written}'::pg_lsn"))


def leave_behind(primary: str, standby: Standby) -> str:
    """The standby has everything up to now, and nothing that comes later; its URL."""
    wait_until(lambda: follows(standby, primary), "the standby does not follow")
    there = standby.url(primary)
    execute(
        there.rpartition("/")[0] + "/postgres",
        "ALTER SYSTEM SET primary_conninfo = ''",
        "SELECT pg_reload_conf()",
    )
    receiving = "SELECT count(*) FROM pg_stat_wal_receiver"
    wait_until(lambda: fetch_value(there, receiving) == 0, "the standby still receives")
    return there


class Client:
    def __init__(self, gateway: GatewayProcess, user: str = "guest", word: str = "guest") -> None:
        parameters = pika.URLParameters(gateway.amqp_url(user, word))
        self.connection = pika.BlockingConnection(parameters)
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
