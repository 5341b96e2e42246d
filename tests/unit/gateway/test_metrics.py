"""Metrics: every counter has a name and a description, and queues are limited in number."""

from __future__ import annotations

from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any, cast

from prometheus_client import CollectorRegistry, generate_latest

from gateway.acceptor import ListenerCounters
from gateway.collector import CollectorCounters
from gateway.connections import Connections
from gateway.handshakes import TlsCounters
from gateway.metrics import DESCRIPTIONS, MOST_QUEUES, GatewayCollector
from protocols.amqp091.counters import Amqp091Counters
from protocols.amqp10.counters import Amqp10Counters
from protocols.mqtt.counters import MqttCounters
from queue_core.auth import AuthCounters
from queue_core.counters import Counters
from queue_core.manager import Manager
from queue_core.memory import Memory, MemoryCounters
from queue_core.specs import QueueKind, QueueSpec


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


def exported(queues: list[FakeQueue]) -> str:
    """What a manager with these queues shows."""
    vhost: Any = SimpleNamespace(name="/", queues={queue.name: queue for queue in queues})
    manager = SimpleNamespace(
        auth=SimpleNamespace(counters=AuthCounters(failed_logins=2)),
        is_ready=True,
        memory=Memory(),
        vhosts={"/": vhost},
    )
    registry = CollectorRegistry()
    connections = Connections()
    connections.tracked("mqtt", object)
    counters = {"": Counters(published=7), "mqtt": MqttCounters(takeovers=3)}
    registry.register(GatewayCollector(cast(Manager, manager), connections, counters))
    return generate_latest(registry).decode()


def test_every_counter_is_described() -> None:
    kinds = {
        "": Counters,
        "mqtt": MqttCounters,
        "amqp091": Amqp091Counters,
        "amqp10": Amqp10Counters,
        "memory": MemoryCounters,
        "tls": TlsCounters,
        "listener": ListenerCounters,
        "collector": CollectorCounters,
    }
    named = {prefix: {field.name for field in fields(kind)} for prefix, kind in kinds.items()}
    assert named == {prefix: set(described) for prefix, described in DESCRIPTIONS.items()}


def test_counters_are_exported_under_their_names() -> None:
    text = exported([])
    assert "howdah_published_total 7.0" in text
    assert "howdah_mqtt_takeovers_total 3.0" in text
    assert 'howdah_logins_total{result="refused"} 2.0' in text
    assert 'howdah_connections{adapter="mqtt"} 0.0' in text
    assert "howdah_ready 1.0" in text


def test_the_fullest_queues_are_shown_and_the_rest_counted() -> None:
    text = exported([FakeQueue(f"q{number}", ready=number) for number in range(MOST_QUEUES + 3)])
    shown = [line for line in text.splitlines() if line.startswith("howdah_queue_ready{")]
    assert len(shown) == MOST_QUEUES
    assert f'howdah_queue_ready{{kind="classic",queue="q{MOST_QUEUES + 2}",vhost="/"}}' in text
    assert 'queue="q2"' not in text
    assert "howdah_queues_without_metrics 3.0" in text


def test_queues_that_nobody_named_are_in_the_sums_only() -> None:
    text = exported([FakeQueue("$session/sensor-1", ready=5), FakeQueue("amq.gen-x", ready=1)])
    assert "sensor-1" not in text
    assert "howdah_queues_ready 6.0" in text
