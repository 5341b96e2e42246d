"""The table of scenarios: what is loaded how, on which brokers, and which goal it is held to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from bench.flow import Spec
from bench.results import HOWDAH, Results, Sample, all_cpu_us

KIB: Final = 1024
MQTT_BROKERS: Final[tuple[str, ...]] = (HOWDAH, "mosquitto", "rabbitmq", "amqtt", "bare loop")
QOS2_BROKERS: Final[tuple[str, ...]] = (
    HOWDAH,
    "mosquitto",
    "amqtt",
)  # RabbitMQ grants QoS 1 at most
AMQP_BROKERS: Final = (HOWDAH, "rabbitmq")
RABBITMQ_ADDRESS: Final = "/amq/queue/bench"  # the first version of its AMQP 1.0 addresses
TENTH, HALF = "a tenth of the top rate", "half of the top rate"
SHARES: Final = {TENTH: 0.1, HALF: 0.5}


PLAIN: Final = Spec()


class Kind(Enum):
    THROUGHPUT = "throughput"
    LATENCY = "latency"  # at shares of the broker's own top rate
    IDLE = "idle"  # memory of connections that do nothing
    STORE = "store"  # bench.store, in a process of its own
    TABLES = "tables"  # bench.tables: other queues on PostgreSQL


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal of a scenario; `value` is None where a run has not got what the goal compares."""

    text: str
    wanted: float
    value: Callable[[Results], float | None]
    at_most: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    title: str
    brokers: tuple[str, ...]
    spec: Spec = PLAIN
    kind: Kind = Kind.THROUGHPUT
    goals: tuple[Goal, ...] = ()
    counts: tuple[int, ...] = ()  # of connections, for IDLE; of messages, for STORE
    elsewhere: str = ""  # what the other brokers call the address that is loaded


def speed(sample: Sample) -> float:
    return sample.per_second


def faster(scenario: str, peer: str, times: float) -> Goal:
    return Goal(
        f"at least {times:g}x the messages/s of {peer}",
        times,
        lambda results: results.ratio(scenario, peer, speed),
    )


def cheaper(scenario: str, peer: str, times: float) -> Goal:
    return Goal(
        f"at most {times:g}x the CPU a message of {peer}, PostgreSQL's included",
        times,
        lambda results: results.ratio(scenario, peer, all_cpu_us),
        at_most=True,
    )


def share_of(scenario: str, other: str, times: float) -> Goal:
    def value(results: Results) -> float | None:
        own = results.median(scenario, HOWDAH, "", speed)
        base = results.median(other, HOWDAH, "", speed)
        return own / base if own is not None and base else None

    return Goal(f"at least {times:g}x the messages/s of {other}", times, value)


def variants_share(scenario: str, variant: str, base: str, times: float) -> Goal:
    def value(results: Results) -> float | None:
        own = results.median(scenario, HOWDAH, variant, speed)
        other = results.median(scenario, HOWDAH, base, speed)
        return own / other if own is not None and other else None

    return Goal(f"{variant}: at least {times:g}x of {base}", times, value)


def quick_confirms(scenario: str, fsyncs: float) -> Goal:
    def value(results: Results) -> float | None:
        p99 = results.median(
            scenario, HOWDAH, TENTH, lambda s: s.confirm_seconds[2] if s.confirm_seconds else 0.0
        )
        return p99 / results.fsync_seconds if p99 and results.fsync_seconds else None

    text = f"p99 to confirm at {TENTH}: at most {fsyncs:g} fsyncs of this disk"
    return Goal(text, fsyncs, value, at_most=True)


def steady(scenario: str, times: float) -> Goal:
    def value(results: Results) -> float | None:
        return results.median(
            scenario, HOWDAH, TENTH, lambda s: s.delivery_seconds[-1] / s.delivery_seconds[0]
        )

    text = f"the latest message at {TENTH}: at most {times:g}x the median"
    return Goal(text, times, value, at_most=True)


def gateway_cpu(scenario: str, microseconds: float) -> Goal:
    return Goal(
        f"at most {microseconds:g} us of the gateway's CPU a message, in and out",
        microseconds,
        lambda results: results.median(scenario, HOWDAH, "", lambda s: s.cpu_us),
        at_most=True,
    )


def many_a_second(scenario: str, count: float) -> Goal:
    return Goal(
        f"at least {count:,.0f} messages/s",
        count,
        lambda results: results.median(scenario, HOWDAH, "", speed),
    )


def smaller(scenario: str, peer: str, variant: str) -> Goal:
    return Goal(
        f"less resident memory than {peer}",
        1.0,
        lambda results: results.ratio(scenario, peer, lambda s: s.resident_bytes, variant),
        at_most=True,
    )


def small_connections(scenario: str, variant: str, kib: float) -> Goal:
    def value(results: Results) -> float | None:
        each = results.median(scenario, HOWDAH, variant, lambda s: s.connection_bytes)
        return None if each is None else each / KIB

    return Goal(f"{variant}: at most {kib:g} KiB each", kib, value, at_most=True)


def _mqtt(shape: str, publishers: int, consumers: int, qos: int) -> Scenario:
    name = f"mqtt-{shape.replace(':', 'to')}-qos{qos}"
    spec = Spec(qos=qos, publishers=publishers, consumers=consumers)
    brokers = MQTT_BROKERS
    goals: tuple[Goal, ...] = ()
    if qos == 1:
        spec = replace(spec, outstanding=spec.window)
    if qos == 2:
        spec, brokers = replace(spec, outstanding=20 * publishers), QOS2_BROKERS
    elif shape != "1:100":
        goals = (faster(name, "mosquitto", 2), cheaper(name, "mosquitto", 0.5))
    return Scenario(name, f"MQTT QoS {qos}, clean sessions, {shape}", brokers, spec, goals=goals)


TRANSIENT: Final = Spec(
    "amqp091",
    "amqp091",
    source="bench",
    target="bench",
    queue="bench",
    window=0,
    outstanding=1000,
)
DURABLE: Final = replace(TRANSIENT, durable=True)
AMQP10: Final = replace(DURABLE, publish="amqp10", consume="amqp10", source="/queues/bench")
CROSS: Final = replace(DURABLE, publish="mqtt", qos=1, source="$queue/bench")
CROSS5: Final = replace(CROSS, publish="mqtt5")

MQTT: Final = tuple(
    _mqtt(shape, publishers, consumers, qos)
    for qos in (0, 1, 2)
    for shape, publishers, consumers in (
        ("1:1", 1, 1),
        ("4:1", 4, 1),
        ("1:10", 1, 10),
        ("1:100", 1, 100),
    )
)

MANY_TOPICS: Final = tuple(
    Scenario(
        f"mqtt-topics-qos{qos}",
        f"MQTT QoS {qos}, clean sessions, 1:1, each message to another of 500 topics",
        MQTT_BROKERS[:3],
        Spec(qos=qos, topics=500, target="bench/topic/+", outstanding=500 if qos else 0),
    )
    for qos in (0, 1)
)

AMQP: Final = (
    Scenario(
        "amqp091-transient",
        "AMQP 0.9.1 transient queue and messages, confirms, prefetch 500, acks",
        AMQP_BROKERS,
        TRANSIENT,
        goals=(faster("amqp091-transient", "rabbitmq", 4),),
    ),
    Scenario(
        "amqp091-durable",
        "AMQP 0.9.1 durable queue, persistent messages, confirms, prefetch 500, acks",
        AMQP_BROKERS,
        DURABLE,
        goals=(faster("amqp091-durable", "rabbitmq", 3), cheaper("amqp091-durable", "rabbitmq", 1)),
    ),
    Scenario(
        "amqp10-transient",
        "AMQP 1.0 transient queue and messages, unsettled both ways, credit 500",
        AMQP_BROKERS,
        replace(AMQP10, durable=False, target="/queues/bench"),
        elsewhere=RABBITMQ_ADDRESS,
    ),
    Scenario(
        "amqp10-presettled",
        "AMQP 1.0 into a transient queue of 10,000, settled by the sender, nobody receives",
        AMQP_BROKERS,
        replace(AMQP10, durable=False, is_settled=True, outstanding=0, max_length=10_000),
        goals=(many_a_second("amqp10-presettled", 60_000),),
        elsewhere=RABBITMQ_ADDRESS,
    ),
    Scenario(
        "amqp10-durable",
        "AMQP 1.0 durable queue and messages, unsettled both ways, credit 500",
        AMQP_BROKERS,
        replace(AMQP10, target="/queues/bench"),
        goals=(faster("amqp10-durable", "rabbitmq", 3), gateway_cpu("amqp10-durable", 50)),
        elsewhere=RABBITMQ_ADDRESS,
    ),
)

MIXED: Final = (
    Scenario(
        "mqtt-queue",
        "MQTT QoS 1 into $queue/... and out of it; RabbitMQ: through a topic",
        AMQP_BROKERS,
        replace(CROSS, consume="mqtt", target="$queue/bench"),
        goals=(faster("mqtt-queue", "rabbitmq", 5),),
        elsewhere="bench/topic",
    ),
    Scenario(
        "mqtt-to-amqp091",
        "MQTT 5 QoS 1 into $queue/..., consumed over AMQP 0.9.1",
        (HOWDAH,),
        CROSS5,
        goals=(share_of("mqtt-to-amqp091", "amqp091-durable", 0.8),),
    ),
    Scenario(
        "mqtt-to-amqp10",
        "MQTT 5 QoS 1 into $queue/..., consumed over AMQP 1.0",
        (HOWDAH,),
        replace(CROSS5, consume="amqp10", target="/queues/bench"),
        goals=(share_of("mqtt-to-amqp10", "amqp10-durable", 0.8),),
    ),
    Scenario(
        "mqtt-to-amqp091-properties",
        "the same with a content type and a user property, consumed over AMQP 0.9.1",
        (HOWDAH,),
        replace(CROSS5, properties=True),
    ),
    Scenario(
        "mqtt-to-amqp10-properties",
        "the same with a content type and a user property, consumed over AMQP 1.0",
        (HOWDAH,),
        replace(CROSS5, properties=True, consume="amqp10", target="/queues/bench"),
    ),
    Scenario(
        "amqp091-to-mqtt",
        "AMQP 0.9.1 persistent, consumed over MQTT 5 QoS 1 from $queue/...",
        (HOWDAH,),
        replace(DURABLE, consume="mqtt5", qos=1, target="$queue/bench"),
        goals=(share_of("amqp091-to-mqtt", "amqp091-durable", 0.8),),
    ),
    Scenario(
        "amqp10-to-mqtt",
        "AMQP 1.0 durable, consumed over MQTT 5 QoS 1 from $queue/...",
        (HOWDAH,),
        replace(AMQP10, consume="mqtt5", qos=1, target="$queue/bench"),
        goals=(share_of("amqp10-to-mqtt", "amqp10-durable", 0.8),),
    ),
    Scenario(
        "many-queues",
        "1,000 active durable queues, AMQP 0.9.1, one publisher in turn to each",
        AMQP_BROKERS,
        replace(DURABLE, queues=1000),
    ),
    Scenario(
        "bodies-64k",
        "bodies of 64 KiB, AMQP 0.9.1 durable, 100 unconfirmed",
        AMQP_BROKERS,
        replace(DURABLE, payload=64 * KIB, outstanding=100, prefetch=100),
    ),
    Scenario(
        "bodies-1m",
        "bodies of 1 MiB, AMQP 0.9.1 durable, 16 unconfirmed",
        AMQP_BROKERS,
        replace(DURABLE, payload=KIB * KIB, outstanding=16, prefetch=16),
    ),
    Scenario(
        "bodies-64k-amqp10",
        "bodies of 64 KiB, AMQP 1.0 durable, 100 unsettled",
        AMQP_BROKERS,
        replace(AMQP10, target="/queues/bench", payload=64 * KIB, outstanding=100, prefetch=100),
        elsewhere=RABBITMQ_ADDRESS,
    ),
    Scenario(
        "bodies-64k-mqtt",
        "bodies of 64 KiB, MQTT QoS 0, 1:1",
        MQTT_BROKERS[:2],
        Spec(payload=64 * KIB, window=64),
    ),
)

TIMES: Final = (
    Scenario(
        "latency-amqp091",
        "time to confirm and to deliver, AMQP 0.9.1 durable, from when each was due",
        AMQP_BROKERS,
        DURABLE,
        Kind.LATENCY,
        (quick_confirms("latency-amqp091", 3),),
    ),
    Scenario(
        "latency-amqp10",
        "time to settle and to deliver, AMQP 1.0 durable, from when each was due",
        AMQP_BROKERS,
        replace(AMQP10, target="/queues/bench"),
        Kind.LATENCY,
        elsewhere=RABBITMQ_ADDRESS,
    ),
    Scenario(
        "latency-crowd",
        "the same over AMQP 0.9.1 with 1,000 connections, 100 of them active",
        AMQP_BROKERS,
        replace(
            DURABLE, is_paired=True, publishers=50, consumers=50, outstanding=5000, bystanders=900
        ),
        Kind.LATENCY,
        (steady("latency-crowd", 5),),
    ),
    Scenario(
        "latency-mqtt",
        "time to deliver, MQTT QoS 1, 1:1, from when each was due",
        MQTT_BROKERS[:2],
        Spec(qos=1),
        Kind.LATENCY,
    ),
)

IDLE: Final = (
    Scenario(
        "idle",
        "idle MQTT connections: resident memory of each",
        MQTT_BROKERS[:3],
        kind=Kind.IDLE,
        goals=(small_connections("idle", "10,000 connections", 12),),
        counts=(1_000, 10_000),
    ),
    Scenario(
        "idle-amqp091",
        "idle AMQP 0.9.1 connections with a channel each, and 5,000 queues: resident memory",
        AMQP_BROKERS,
        Spec("amqp091", queues=5_000),
        Kind.IDLE,
        (smaller("idle-amqp091", "rabbitmq", "1,000 connections"),),
        counts=(1_000,),
    ),
)

STORES: Final = (
    Scenario(
        "store-append",
        "durable append by 64 publishers against the raw batched INSERT (no network)",
        (HOWDAH,),
        kind=Kind.STORE,
        goals=(variants_share("store-append", "append", "raw INSERT", 0.7),),
        counts=(200_000,),
    ),
    Scenario(
        "store-depth",
        "publish, consume and acknowledge with 1,000,000 messages ready (no network)",
        (HOWDAH,),
        kind=Kind.STORE,
        goals=(variants_share("store-depth", "depth 1,000,000", "depth 0", 0.8),),
        counts=(200_000,),
    ),
    Scenario(
        "queue-tables",
        "append, then consume and delete: other queues on the same PostgreSQL (no network)",
        (HOWDAH, "pgmq-style", "pgqueuer"),
        kind=Kind.TABLES,
        counts=(50_000,),
    ),
)

SCENARIOS: Final = {
    each.name: each for each in (*MQTT, *MANY_TOPICS, *AMQP, *MIXED, *TIMES, *IDLE, *STORES)
}
