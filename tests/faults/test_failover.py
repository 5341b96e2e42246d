"""A standby that was behind becomes the primary: what was committed and is gone is noticed, named,
and neither counted nor numbered again, whatever it was, and by a gateway without memory as well."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pika
import pika.exceptions
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from tests.faults.replication import Client, follows, leave_behind
from tests.faults.server import Server
from tests.support.gateway_process import GatewayProcess, running
from tests.support.postgres import execute, fetch_value
from tests.support.standby import Standby
from tests.support.until import PATIENCE_SECONDS, wait_until

WORD = "not-guessed-at-once"


@pytest.fixture
def gateway(both: str, tmp_path: Path) -> Iterator[GatewayProcess]:
    with running(tmp_path / "gateway", {"database": {"url": both}}) as process:
        yield process


def fail_over(primary: Server, there: str, gateway: GatewayProcess) -> str:
    """The standby takes over, and the gateway with it; what the gateway wrote down as lost."""
    primary.kill()
    execute(there, "SELECT pg_promote()")
    said = gateway.said
    wait_until(lambda: "went back in time" in said(), lambda: f"the gateway notices\n{said()}")
    wait_until(lambda: said().count("ready\n") == 2, lambda: f"it is ready again\n{said()}")
    return losses(there)


def die_together(primary: Server, there: str, gateway: GatewayProcess) -> None:
    """The gateway and the primary go in the same moment, and the standby takes over."""
    gateway.kill()
    primary.kill()
    execute(there, "SELECT pg_promote()")


def losses(url: str) -> str:
    details = "SELECT coalesce(string_agg(detail, E'\\n' ORDER BY id), '') FROM howdah.loss"
    return str(fetch_value(url, details))


def numbered(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


def test_what_a_standby_that_was_behind_has_lost_is_named_and_not_counted(
    primary: Server, standby: Standby, gateway: GatewayProcess
) -> None:
    url = primary.database("messages")
    client = Client(gateway).declare()
    client.publish(*numbered(0, 6))
    assert client.take(2) == numbered(0, 2)
    there = leave_behind(url, standby)
    client.publish(*numbered(6, 10))  # confirmed, and on the primary alone
    assert client.take(3) == numbered(2, 5)
    fail_over(primary, there, gateway)

    client = Client(gateway)
    assert (client.count("orders"), client.count("log")) == (4, 6)
    lost = fetch_value(
        there,
        "SELECT string_agg(format('%s %s-%s', queue, first_offset, end_offset), ', ' "
        "ORDER BY queue) FROM howdah.loss WHERE queue IS NOT NULL",
    )
    assert lost == "log 6-10, orders 6-10"
    assert "4 messages of queue 'orders' in virtual host '/', offsets 6 to 9" in gateway.log()
    count = fetch_value(there, "SELECT count(*) FROM howdah.loss")
    assert gateway.metric("howdah_losses_noted_total") == count
    assert "4 messages of queue 'orders'" in gateway.run("doctor").stdout
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
    wait_until(lambda: follows(standby, url), "the standby does not follow")
    primary.kill()
    execute(standby.url(url), "SELECT pg_promote()")
    client.publish(*numbered(6, 8))  # waits for the new primary
    assert client.take(6) == numbered(2, 8)
    assert client.count("log") == 8
    assert "went back in time" not in gateway.log()
    assert fetch_value(standby.url(url), "SELECT count(*) FROM howdah.loss") == 0


def test_a_primary_that_turned_read_only_is_left_by_all_sessions_of_the_gateway(
    primary: Server, standby: Standby, gateway: GatewayProcess
) -> None:
    """As a managed service fails over: sessions stay open, and every write fails with 25006."""
    url = primary.database("messages")
    client = Client(gateway).declare()
    client.publish(b"0")
    wait_until(lambda: follows(standby, url), "the standby does not follow")
    execute(
        url,
        "ALTER SYSTEM SET default_transaction_read_only = on",
        "SELECT pg_reload_conf()",
    )
    execute(standby.url(url), "SELECT pg_promote()")
    client.publish(b"1")
    for number in range(10):  # more than there are pooled sessions
        client.channel.queue_declare(f"later-{number}", durable=True)
    assert client.take(2) == [b"0", b"1"]
    there = standby.url(url)
    assert fetch_value(there, "SELECT count(*) FROM howdah.queue WHERE name ~ '^later'") == 10
    assert fetch_value(there, "SELECT count(*) FROM howdah.loss") == 0


def test_lost_definitions_alone_are_noticed_and_named(
    primary: Server, standby: Standby, gateway: GatewayProcess
) -> None:
    """No message, no acknowledgement: queues, exchanges, bindings, users, rights, virtual hosts."""
    url = primary.database("messages")
    for name in ("ann", "old-user"):
        assert gateway.run("user", "add", name, words=f"{WORD}\n").returncode == 0
    client = Client(gateway, "ann", WORD)
    client.channel.queue_declare("old-queue", durable=True)
    there = leave_behind(url, standby)
    client.channel.queue_declare("new-queue", durable=True)
    client.channel.exchange_declare("new-exchange", "fanout", durable=True)
    client.channel.queue_bind("old-queue", "amq.direct", "new-key")
    for arguments in (
        ("add", "new-user"),
        ("remove", "old-user"),
        ("grant", "ann", "--read", "x"),
    ):
        assert gateway.run("user", *arguments, words=f"{WORD}\n").returncode == 0
    assert gateway.run("vhost", "add", "new-vhost").returncode == 0
    lost = fail_over(primary, there, gateway)
    for what in (
        "queue 'new-queue' of virtual host '/' with all 0 messages in it",
        "exchange 'new-exchange' of virtual host '/'",
        "the binding from exchange 'amq.direct' to queue 'old-queue' with key 'new-key'",
        "\nuser 'new-user'",
        "the removal of user 'old-user': it is there again",
        "the newest change of what user 'ann' may do in virtual host '/'",
        "virtual host 'new-vhost'",
    ):
        assert what in lost
        assert what.strip() in gateway.log()
    # From here on, what the tables say holds.
    client = Client(gateway, "ann", WORD)
    assert client.count("old-queue") == 0
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="new-queue"):
        client.count("new-queue")
    assert losses(there) == lost


def test_lost_sessions_alone_are_noticed_and_named(
    primary: Server, standby: Standby, gateway: GatewayProcess
) -> None:
    """The state of MQTT clients: sessions, subscriptions, wills, retained values, packet ids."""
    url = primary.database("messages")
    old = MqttClient(gateway, "old")
    old.publish("state", b"first", retain=True)
    there = leave_behind(url, standby)
    new = MqttClient(gateway, "new", will=True)
    new.subscribe("state/#")
    old.subscribe("orders/+")
    old.publish("state", b"a later value", retain=True)
    old.publish("another", b"value", retain=True)
    sent_but_not_released(gateway, "half", 7)
    lost = fail_over(primary, there, gateway)
    for what in (
        "the session of client 'new' in virtual host '/'",
        "the subscription of client 'new' to 'state/#' in virtual host '/'",
        "the subscription of client 'old' to 'orders/+' in virtual host '/'",
        "the will of client 'new' in virtual host '/'",
        "the newest change of the retained message of topic 'state' in virtual host '/'",
        "the retained message of topic 'another' in virtual host '/'",
        "packet 7 in flight from client 'half' in virtual host '/'",
    ):
        assert what in lost
    for client in (old, new):
        client.end()
    assert MqttClient(gateway, "old").is_present
    again = MqttClient(gateway, "new")
    assert not again.is_present
    again.subscribe("state")
    wait_until(lambda: again.received == [b"first"], "the retained value of the tables")


def test_a_gateway_that_died_with_its_primary_notices_what_the_standby_lacks(
    primary: Server, standby: Standby, gateway: GatewayProcess
) -> None:
    url = primary.database("messages")
    client = Client(gateway).declare()
    client.publish(*numbered(0, 6))
    assert client.take(2) == numbered(0, 2)
    there = leave_behind(url, standby)
    client.publish(*numbered(6, 10))
    client.channel.queue_declare("new", durable=True)
    die_together(primary, there, gateway)
    gateway.restart()
    lost = losses(there)
    # Nobody remembers which queue the eight were in: each goes on behind as many.
    assert "commits with 8 messages, made from " in lost
    assert "timeline 2) does not have them" in lost
    assert "offsets 6 to 13 are not given, numbers go on at 14" in lost
    assert "commits with 8 messages" in gateway.log()
    said = gateway.run("doctor")
    assert "commits with 8 messages" in said.stdout + said.stderr
    client = Client(gateway)
    assert (client.count("orders"), client.count("log")) == (4, 6)
    client.publish(b"new")
    offsets = 'SELECT array_agg(DISTINCT o) FROM (SELECT max("offset") AS o FROM howdah.message '
    assert fetch_value(there, f"{offsets} GROUP BY queue_id) m") == [14]
    status = "SELECT string_agg(format('%s %s', queue, ready), ', ' ORDER BY queue) FROM "
    assert fetch_value(there, f"{status} howdah.queue_status") == "log 7, orders 5"
    assert client.take(5) == [*numbered(2, 6), b"new"]
    assert fetch_value(there, "SELECT count(*) FROM howdah.find_gaps()") == 0
    client.connection.close()
    gateway.restart()
    assert losses(there) == lost  # said once


def test_a_gateway_that_lost_nothing_but_its_life_says_nothing(
    primary: Server, standby: Standby, gateway: GatewayProcess
) -> None:
    url = primary.database("messages")
    client = Client(gateway).declare()
    client.publish(*numbered(0, 6))
    there = leave_behind(url, standby)
    die_together(primary, there, gateway)
    gateway.restart()
    assert losses(there) == ""
    assert Client(gateway).take(6) == numbered(0, 6)


def test_a_new_host_on_another_timeline_says_that_it_cannot_tell(
    primary: Server, standby: Standby, gateway: GatewayProcess
) -> None:
    url = primary.database("messages")
    client = Client(gateway).declare()
    client.publish(*numbered(0, 6))
    there = leave_behind(url, standby)
    client.publish(*numbered(6, 8))
    die_together(primary, there, gateway)
    shutil.rmtree(gateway.data_dir, ignore_errors=True)
    gateway.restart()
    assert "whether commits are missing cannot be proven" in losses(there)
    assert "cannot be proven" in gateway.log()
    assert Client(gateway).take(6) == numbered(0, 6)


class MqttClient:
    """paho with a session that lasts, for a conversation step by step."""

    def __init__(self, gateway: GatewayProcess, name: str, *, will: bool = False) -> None:
        self.received: list[bytes] = []
        self._done = threading.Event()
        # One that came back by itself would make its session anew before a test looks for it.
        self._client = paho.Client(
            CallbackAPIVersion.VERSION2, name, clean_session=False, reconnect_on_failure=False
        )
        if will:
            self._client.will_set("status", b"gone", qos=1)
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = lambda *_: self._done.set()
        self._client.on_message = lambda _client, _data, m: self.received.append(bytes(m.payload))
        self._client.connect("127.0.0.1", gateway.ports["mqtt"])
        self._client.loop_start()
        self._wait()

    def _on_connect(self, _client: object, _data: object, flags: Any, *_rest: object) -> None:
        self.is_present = bool(flags.session_present)
        self._done.set()

    def _wait(self) -> None:
        assert self._done.wait(PATIENCE_SECONDS)
        self._done.clear()

    def subscribe(self, topic_filter: str) -> None:
        self._client.subscribe(topic_filter, qos=1)
        self._wait()

    def publish(self, topic: str, body: bytes, *, retain: bool) -> None:
        self._client.publish(topic, body, qos=1, retain=retain).wait_for_publish(PATIENCE_SECONDS)

    def end(self) -> None:
        self._client.loop_stop()
        self._client.disconnect()


def sent_but_not_released(gateway: GatewayProcess, name: str, packet_id: int) -> None:
    """A client of a lasting session sends a message with QoS 2, and leaves before its PUBREL."""
    said = len(name).to_bytes(2) + name.encode()
    connect = b"\x00\x04MQTT\x04\x00\x00\x00" + said
    publish = b"\x00\x01t" + packet_id.to_bytes(2) + b"x"
    with socket.create_connection(("127.0.0.1", gateway.ports["mqtt"]), PATIENCE_SECONDS) as client:
        client.sendall(b"\x10" + bytes([len(connect)]) + connect)
        assert client.recv(4) == b"\x20\x02\x00\x00"
        client.sendall(b"\x34" + bytes([len(publish)]) + publish)
        assert client.recv(4) == b"\x50\x02" + packet_id.to_bytes(2)
