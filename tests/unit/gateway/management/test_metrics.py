"""Metrics: every counter has a name and a description, and queues are limited in number."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any, cast

from prometheus_client import CollectorRegistry, generate_latest

from gateway.acceptor import ListenerCounters
from gateway.connections import Connections
from gateway.garbage_collector import CollectorCounters
from gateway.management.listener import Scrapes
from gateway.management.metrics import DESCRIPTIONS, MOST_QUEUES, SURVEYED_AT_ONCE, GatewayCollector
from gateway.tls_handshakes import TlsCounters
from protocols.amqp091.counters import Amqp091Counters
from protocols.amqp10.counters import Amqp10Counters
from protocols.mqtt.counters import MqttCounters
from queue_core.access.auth import AuthCounters
from queue_core.cluster.counters import ClusterCounters
from queue_core.counters import Counters
from queue_core.manager import Manager
from queue_core.memory_account import Memory, MemoryCounters
from queue_core.queues.spec import QueueKind, QueueSpec
from tests.support.until import turns


@dataclass(frozen=True)
class Counts:
    ready: int
    in_flight: int = 0
    delayed: int = 0
    consumers: int = 0


@dataclass(frozen=True)
class FakeQueue:
    name: str
    ready: int = 0

    @property
    def spec(self) -> QueueSpec:
        return QueueSpec(self.name, QueueKind.CLASSIC)

    def counts(self) -> Counts:
        return Counts(self.ready)


def collector(queues: list[FakeQueue], counters: dict[str, Any]) -> GatewayCollector:
    """Makes the collector of a manager with these queues."""
    vhost: Any = SimpleNamespace(name="/", queues={queue.name: queue for queue in queues})
    manager = SimpleNamespace(
        auth=SimpleNamespace(counters=AuthCounters(failed_logins=2)),
        is_ready=True,
        memory=Memory(),
        vhosts={"/": vhost},
        count_passed_on=lambda: None,
    )
    connections = Connections()
    connections.tracked("mqtt", object)
    return GatewayCollector(cast(Manager, manager), connections, counters)


async def exported(queues: list[FakeQueue]) -> str:
    """Returns the metrics that a manager with these queues shows."""
    counters = {"": Counters(published=7), "mqtt": MqttCounters(takeovers=3)}
    registry = CollectorRegistry()
    made = collector(queues, counters)
    registry.register(made)
    await made.survey()
    return generate_latest(registry).decode()


def test_every_counter_is_described() -> None:
    kinds = {
        "": Counters,
        "mqtt": MqttCounters,
        "amqp091": Amqp091Counters,
        "amqp10": Amqp10Counters,
        "memory": MemoryCounters,
        "cluster": ClusterCounters,
        "tls": TlsCounters,
        "listener": ListenerCounters,
        "collector": CollectorCounters,
    }
    named = {prefix: {field.name for field in fields(kind)} for prefix, kind in kinds.items()}
    assert named == {prefix: set(described) for prefix, described in DESCRIPTIONS.items()}


async def test_counters_are_exported_under_their_names() -> None:
    text = await exported([])
    assert "howdah_published_total 7.0" in text
    assert "howdah_mqtt_takeovers_total 3.0" in text
    assert 'howdah_logins_total{result="refused"} 2.0' in text
    assert 'howdah_connections{adapter="mqtt"} 0.0' in text
    assert "howdah_ready 1.0" in text


async def test_the_fullest_queues_are_shown_and_the_rest_counted() -> None:
    text = await exported(
        [FakeQueue(f"q{number}", ready=number) for number in range(MOST_QUEUES + 3)]
    )
    shown = [line for line in text.splitlines() if line.startswith("howdah_queue_ready{")]
    assert len(shown) == MOST_QUEUES
    assert f'howdah_queue_ready{{kind="classic",queue="q{MOST_QUEUES + 2}",vhost="/"}}' in text
    assert 'queue="q2"' not in text
    assert "howdah_queues_without_metrics 3.0" in text


async def test_queues_that_nobody_named_are_in_the_sums_only() -> None:
    text = await exported(
        [FakeQueue("$session/sensor-1", ready=5), FakeQueue("amq.gen-x", ready=1)]
    )
    assert "sensor-1" not in text
    assert "howdah_queues_ready 6.0" in text


async def test_a_crowd_that_asks_for_metrics_gets_one_text_and_nobody_an_old_one() -> None:
    counted = Counters()
    scrapes = Scrapes(collector([FakeQueue("a", ready=1)], {"": counted}))
    first = [asyncio.create_task(scrapes.text()) for _ in range(50)]
    texts = await asyncio.gather(*first)
    assert len({id(text) for text in texts}) == 1
    counted.published = 5
    assert b"howdah_published_total 5.0" in await scrapes.text()


async def test_others_get_their_turn_while_many_queues_are_surveyed() -> None:
    made = collector([FakeQueue(f"q{n}", ready=0) for n in range(3 * SURVEYED_AT_ONCE)], {})
    taken = 0

    async def take_turns() -> None:
        nonlocal taken
        while True:
            taken += 1
            await turns()

    other = asyncio.create_task(take_turns())
    await made.survey()
    other.cancel()
    assert taken >= 3
