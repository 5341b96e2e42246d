"""`python -m bench.machines`: measures the CPU time of one message through each protocol's machine.

No socket, no database, no other process: chunks of bytes go into a publisher's machine, through the
real virtual host, and into a subscriber's output. So a change of a hot path shows on a busy
computer, too. The writer forgets what it is given, and says that it is committed. The fakes below
the virtual host are the unit tests' own.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Iterable
from time import thread_time
from typing import Final

from protocols.amqp091.wire.methods import BasicConsume, ConfirmSelect
from protocols.amqp10.wire.types import UInt
from protocols.mqtt.machine import Machine
from protocols.mqtt.opening.handshake import Accepted
from protocols.mqtt.output import Output
from protocols.mqtt.wire.encoder import encode
from protocols.mqtt.wire.packets import (
    Connect,
    Packet,
    PubAck,
    Publish,
    Subscribe,
    SubscribeRequest,
    Version,
)
from queue_core.access.auth import Peer
from queue_core.commit.unit import Unit
from queue_core.queues.spec import QueueSpec
from queue_core.vhost import Vhost
from tests.support import amqp091_conversation, amqp10_wire
from tests.support.fake_services import FakeServices
from tests.unit.protocols.amqp10.conversation import Conversation as Amqp10Conversation
from tests.unit.protocols.mqtt.wired import Broking

BODY: Final = bytes(100)
CHUNK_MESSAGES: Final = 500
TOPICS: Final = 100
SUBSCRIBERS: Final = 10
QUEUE: Final = "bench"
DATA_SECTION: Final = b"\x00\x53\x75\xa0" + bytes((len(BODY),)) + BODY
CREDIT: Final = 100  # transfers in a chunk of AMQP 1.0: its link's credit is granted in between

Feed = Callable[[], float]  # one chunk: the seconds of CPU a message


class Forgetful:
    """A writer that stores nothing: what it is given counts as committed, chunk by chunk."""

    is_congested = False

    def __init__(self) -> None:
        self.submitted = 0
        self._units: list[Unit] = []

    def submit(self, unit: Unit) -> None:
        self.submitted += 1
        self._units.append(unit)

    def commit(self) -> None:
        units, self._units = self._units, []
        for unit in units:
            for log, _ in unit.appends:
                log.pending = 0
            if unit.publisher is not None:
                unit.publisher.on_committed(list(unit.tokens))

    def note(self, cursor: object) -> None: ...
    def note_failure(self, *facts: object) -> None: ...
    async def uncongested(self) -> None: ...
    async def flushed(self) -> None: ...


def timed(call: Callable[[], object], messages: int) -> float:
    before = thread_time()
    call()
    return (thread_time() - before) / messages


# --- MQTT


class Carrier:
    """Stands in for the socket's side of an MQTT machine."""

    def peer(self) -> Peer:
        return Peer("here")

    def on_opened(self, accepted: Accepted) -> None: ...
    def on_ended(self) -> None: ...


class MqttClient:
    """One machine, and the client that talks to it."""

    def __init__(self, broking: Broking, version: Version) -> None:
        self.version = version
        self.output = Output(lambda: None, lambda: None, lambda: 0)
        self.machine = Machine(broking.context, self.output, Carrier())

    async def say(self, *packets: Packet) -> None:
        """Says the packets, and waits until everything that they set going is done."""
        command = self.machine.receive(b"".join(encode(each, self.version) for each in packets))
        while command is not None:
            await self.machine.perform(command)
            command = self.machine.receive(b"") if self.machine.proceed() else None
        for _ in range(10):
            await asyncio.sleep(0)
        self.output.pieces.clear()

    def acknowledge_all(self) -> None:
        """Answers every QoS 1 message that this client was sent."""
        self.output.pieces.clear()
        client = self.machine.client
        assert client is not None
        waiting = list(client.deliverer.outbound.in_flight)
        self.machine.receive(b"".join(encode(PubAck(each), self.version) for each in waiting))


async def mqtt(
    version: Version,
    qos: int,
    topics: Iterable[str],
    *,
    subscribers: int = 1,
    one_a_chunk: bool = False,
) -> Feed:
    """Publishes to the topics in turn; all subscribers take all of them, at the same QoS."""
    names = list(topics)
    broking = Broking()
    vhost, writer = forgetting(broking.world.vhost)
    await vhost.declare_queue(QueueSpec.parse(QUEUE, {}, durable=True))
    publisher = MqttClient(broking, version)
    await publisher.say(Connect("publisher", version))
    takers = [MqttClient(broking, version) for _ in range(subscribers)]
    for number, taker in enumerate(takers):
        await taker.say(Connect(f"subscriber {number}", version))
        await taker.say(Subscribe(1, (SubscribeRequest("#", qos),)))
    frames = [
        encode(Publish(names[i % len(names)], BODY, qos, packet_id=i + 1 if qos else 0), version)
        for i in range(CHUNK_MESSAGES)
    ]
    chunks = frames if one_a_chunk else [b"".join(frames)]
    receive = publisher.machine.receive

    def send() -> None:
        for chunk in chunks:
            receive(chunk)

    def feed() -> float:
        seconds = timed(send, CHUNK_MESSAGES)
        assert publisher.machine.command is None
        writer.commit()
        publisher.output.pieces.clear()
        for taker in takers:
            assert taker.output.pieces or names[0].startswith("$")
            taker.acknowledge_all()
        return seconds

    return feed


def forgetting(vhost: Vhost) -> tuple[Vhost, Forgetful]:
    vhost.writer = writer = Forgetful()
    return vhost, writer


# --- AMQP


async def amqp091(*, is_durable: bool) -> Feed:
    """Publishes to one queue: durable with confirms, or transient to a consumer without acks."""
    services = amqp091_conversation.anns_gateway()
    vhost, writer = forgetting(services.root)
    await vhost.declare_queue(QueueSpec.parse(QUEUE, {}, durable=is_durable))
    talk = await amqp091_conversation.Conversation(services).open()
    await talk.say(ConfirmSelect() if is_durable else BasicConsume(queue=QUEUE, no_ack=True))
    mode = 2 if is_durable else 1
    one = amqp091_conversation.published(QUEUE, BODY, delivery_mode=mode)
    chunk = one * CHUNK_MESSAGES
    machine = talk.machine

    def send() -> None:
        machine.receive(chunk)
        while machine.is_unfinished:
            machine.receive(b"")

    def feed() -> float:
        seconds = timed(send, CHUNK_MESSAGES)
        writer.commit()
        machine.output.take()
        return seconds

    return feed


async def amqp10() -> Feed:
    """Sends transfers to one durable queue; each is answered when it is committed."""
    services = FakeServices()
    vhost, writer = forgetting(services.root)
    await vhost.declare_queue(QueueSpec.parse(QUEUE, {}, durable=True))
    talk = Amqp10Conversation(services)
    await talk.begin()
    await talk.attach(f"/queues/{QUEUE}", 0, is_receiver=False)
    machine, sent = talk.machine, 0

    def feed() -> float:
        nonlocal sent
        numbers = range(sent, sent + CREDIT)
        sent += CREDIT
        chunk = b"".join(amqp10_wire.transfer(0, number, DATA_SECTION) for number in numbers)

        seconds = timed(lambda: machine.receive(chunk), CREDIT)
        writer.commit()
        accepted = amqp10_wire.frame(
            0, amqp10_wire.DISPOSITION, [False, UInt(numbers[0]), UInt(numbers[-1]), True]
        )
        machine.receive(accepted)
        machine.take_output()
        return seconds

    return feed


def many_topics() -> list[str]:
    return [f"site/{number}/temperature" for number in range(TOPICS)]


CASES: Final[dict[str, Callable[[], Awaitable[Feed]]]] = {
    "mqtt QoS 0, 1 topic": lambda: mqtt(Version.V311, 0, ["t"]),
    "mqtt QoS 0, 100 topics": lambda: mqtt(Version.V311, 0, many_topics()),
    "mqtt QoS 1, 1 topic": lambda: mqtt(Version.V311, 1, ["t"]),
    "mqtt QoS 1, 100 topics": lambda: mqtt(Version.V311, 1, many_topics()),
    "mqtt QoS 1, one packet a chunk": lambda: mqtt(Version.V311, 1, ["t"], one_a_chunk=True),
    "mqtt 5 QoS 1, 100 topics": lambda: mqtt(Version.V5, 1, many_topics()),
    "mqtt QoS 0, 1 topic, 10 subscribers": lambda: mqtt(
        Version.V311, 0, ["t"], subscribers=SUBSCRIBERS
    ),
    "mqtt QoS 1, 100 topics, 10 subscribers": lambda: mqtt(
        Version.V311, 1, many_topics(), subscribers=SUBSCRIBERS
    ),
    "mqtt QoS 1 into a durable queue": lambda: mqtt(Version.V5, 1, [f"$queue/{QUEUE}"]),
    "amqp091 to a consumer without acks": lambda: amqp091(is_durable=False),
    "amqp091 durable with confirms": lambda: amqp091(is_durable=True),
    "amqp10 durable": amqp10,
}


async def measure(rounds: int, only: str) -> None:
    feeds = {name: await make() for name, make in CASES.items() if only in name}
    best = dict.fromkeys(feeds, float("inf"))
    for _ in range(rounds):  # in turn, so that a noisy moment meets all of them
        for name, feed in feeds.items():
            best[name] = min(best[name], feed())
            await asyncio.sleep(0)
    print(f"{len(BODY)}-byte bodies, microseconds of CPU a message, best of {rounds} chunks:")
    for name, seconds in best.items():
        print(f"  {name:<42} {seconds * 1e6:8.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.machines", description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    options = parser.parse_args()
    asyncio.run(measure(options.rounds, options.only))


if __name__ == "__main__":
    main()
