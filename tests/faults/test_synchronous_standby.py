"""Synchronous replication: a publisher hears of nothing that its standby does not have, also where
the wait for the standby was cut off, and a failover then loses nothing that was acknowledged."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from tests.faults.replication import Client, leave_behind
from tests.faults.server import Server
from tests.support.gateway_process import GatewayProcess, running
from tests.support.postgres import execute, fetch_value
from tests.support.standby import Standby
from tests.support.until import PATIENCE_SECONDS, wait_until

# The session that writes for the gateway, while its commit waits for a standby.
WAITING = """
    SELECT pid FROM pg_stat_activity
    WHERE application_name = 'howdah gateway (writer)' AND wait_event = 'SyncRep'
"""
TOPIC = "$queue/orders"


@pytest.fixture
def gateway(both: str, tmp_path: Path) -> Iterator[GatewayProcess]:
    with running(tmp_path / "gateway", {"database": {"url": both}}) as process:
        yield process


@pytest.fixture
def synchronous(primary: Server, standby: Standby) -> str:
    """The primary waits for its standby from now on; the URL of its database."""
    url = primary.database("messages")
    execute(url, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
    is_waited_for = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
    wait_until(lambda: fetch_value(url, is_waited_for) == 1, "the standby is synchronous")
    return url


@contextmanager
def publisher(gateway: GatewayProcess) -> Iterator[paho.Client]:
    client = paho.Client(CallbackAPIVersion.VERSION2, "p", clean_session=False)
    is_connected = threading.Event()
    client.on_connect = lambda *_: is_connected.set()
    client.connect("127.0.0.1", gateway.ports["mqtt"])
    client.loop_start()
    try:
        assert is_connected.wait(PATIENCE_SECONDS)
        yield client
    finally:
        client.disconnect()
        client.loop_stop()


def waiting_writer(url: str, *others: object) -> object:
    """Waits until a commit of the gateway waits for the standby, in another session than these;
    returns the session's process."""
    found: list[object] = [None]

    def is_found() -> bool:
        found[0] = fetch_value(url, WAITING)
        return found[0] is not None and found[0] not in others

    wait_until(is_found, "a commit waits for the standby")
    return found[0]


@pytest.mark.parametrize("way", ["pg_terminate_backend", "pg_cancel_backend"])
def test_a_commit_whose_wait_for_the_standby_was_cut_off_is_not_acknowledged_on_its_own_word(
    primary: Server, standby: Standby, gateway: GatewayProcess, synchronous: str, way: str
) -> None:
    Client(gateway).declare()
    with publisher(gateway) as client:
        client.publish(TOPIC, b"first", qos=1).wait_for_publish(PATIENCE_SECONDS)
        there = leave_behind(synchronous, standby)
        sent = client.publish(TOPIC, b"x", qos=1)
        writer = waiting_writer(synchronous)
        execute(synchronous, f"SELECT {way}({writer})")
        visible = "SELECT count(*) FROM howdah.message"
        wait_until(lambda: fetch_value(synchronous, visible) == 2, "committed on the primary alone")
        # Something is committed after it, and waits for the standby as well.
        waiting_writer(synchronous, *([writer] if way == "pg_terminate_backend" else []))
        assert not sent.is_published()
        primary.kill()
        execute(there, "SELECT pg_promote()")
        sent.wait_for_publish(PATIENCE_SECONDS)
        assert sent.is_published()
    client_again = Client(gateway)
    assert client_again.take(2) == [b"first", b"x"]
    assert client_again.count("orders") == 0


def test_a_declaration_whose_wait_for_the_standby_was_cancelled_is_not_answered_on_its_own_word(
    standby: Standby, gateway: GatewayProcess, synchronous: str
) -> None:
    client = Client(gateway)
    leave_behind(synchronous, standby)
    declaring = threading.Thread(
        target=lambda: client.channel.queue_declare("late", durable=True), daemon=True
    )
    declaring.start()
    waiting = WAITING.replace("howdah gateway (writer)", "howdah gateway")
    wait_until(lambda: fetch_value(synchronous, waiting) is not None, "the declaration waits")
    execute(synchronous, f"SELECT pg_cancel_backend({fetch_value(synchronous, waiting)})")
    visible = "SELECT count(*) FROM howdah.queue WHERE name = 'late'"
    wait_until(lambda: fetch_value(synchronous, visible) == 1, "committed on the primary alone")
    wait_until(lambda: fetch_value(synchronous, waiting) is not None, "a mark waits after it")
    assert declaring.is_alive()
    execute(synchronous, "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
    declaring.join(PATIENCE_SECONDS)
    assert not declaring.is_alive()


def test_a_failover_to_a_synchronous_standby_loses_nothing_that_was_acknowledged(
    primary: Server, standby: Standby, gateway: GatewayProcess, synchronous: str
) -> None:
    Client(gateway).declare()
    with publisher(gateway) as client:
        sent = {b"%d" % n: client.publish(TOPIC, b"%d" % n, qos=1) for n in range(500)}
        wait_until(lambda: sum(each.is_published() for each in sent.values()) > 100)
        primary.kill()
        acknowledged = {body for body, each in sent.items() if each.is_published()}
        there = standby.url(synchronous)
        execute(there, "SELECT pg_promote()")
        for each in sent.values():
            each.wait_for_publish(PATIENCE_SECONDS)
    assert len(acknowledged) > 100
    bodies = fetch_value(there, "SELECT array_agg(body) FROM howdah.message")
    assert isinstance(bodies, list)
    assert set(bodies) >= acknowledged
    assert "went back in time" not in gateway.log()
    assert fetch_value(there, "SELECT count(*) FROM howdah.loss") == 0


def test_the_doctor_says_what_a_failover_would_cost(
    primary: Server, standby: Standby, gateway: GatewayProcess
) -> None:
    url = primary.database("messages")
    said = gateway.run("doctor").stdout
    assert "1 standby, and commits wait for none: a failover may lose confirmed messages" in said
    execute(url, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
    assert "1 standby; commits wait for *" in gateway.run("doctor").stdout
    execute(url, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()")
    said = gateway.run("doctor").stdout
    assert "no such standby is connected: every commit waits for one" in said
