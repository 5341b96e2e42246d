"""Histories of a cluster: clients of all three protocols on several gateways with one PostgreSQL,
while the gateway that serves is killed, stopped or cut off.

Whatever happens: what was confirmed is there, what was settled does not return, order and the
redelivered flag hold, no offset is given twice, and one node at a time hands out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.faults.actors import Actor, acting, assert_promises_hold, drained
from tests.faults.amqp10_clients import Amqp10Consumer, Amqp10Publisher
from tests.faults.amqp_clients import AmqpConsumer, AmqpPublisher
from tests.faults.history import Calm, Fault, History
from tests.faults.mqtt_clients import MqttPublisher, MqttSubscriber
from tests.faults.nodes import (
    LIBFAKETIME,
    Nodes,
    assert_no_offset_twice,
    assert_one_node_hands_out,
    cluster,
)
from tests.faults.replication import follows, leave_behind
from tests.faults.server import Server
from tests.support.postgres import execute, fetch_value
from tests.support.standby import Standby
from tests.support.until import until, wait_until

ROUND = 60  # messages that get through between two faults, of all clients together
LEASE_SECONDS = 2.0


class Clients:
    """Publishers and consumers of all three protocols, each of which knows every node."""

    def __init__(self, nodes: Nodes) -> None:
        history, url = nodes.history, nodes.urls
        amqp, mqtt = nodes.ports, nodes.ports
        self.publishers: list[Actor] = [
            AmqpPublisher(history, "p091", url(), "first", window=20),
            Amqp10Publisher(history, "p10", amqp("amqp"), "second", window=20),
            MqttPublisher(
                history, "pm1", mqtt("mqtt"), 1, queue="first", topic="$queue/first", window=10
            ),
            MqttPublisher(
                history, "pm2", mqtt("mqtt"), 2, queue="second", topic="$queue/second", window=10
            ),
            MqttPublisher(history, "pt2", mqtt("mqtt"), 2, queue="third", window=10),
        ]
        self.consumer = AmqpConsumer(history, "c091", url(), "first")
        self.second = AmqpConsumer(history, "d091", url(), "second")
        self.subscriber = MqttSubscriber(history, "s2", mqtt("mqtt"), 2, topic="third")
        self.consumers: list[Actor] = [
            self.consumer,
            self.second,
            Amqp10Consumer(history, "c10", amqp("amqp"), "second"),
            self.subscriber,
        ]


@asynccontextmanager
async def scene(nodes: Nodes) -> AsyncIterator[Clients]:
    """Traffic for as long as the block takes; then all of it is drained and the promises are
    checked."""
    clients, history = Clients(nodes), nodes.history
    async with acting(clients.consumer, clients.second, clients.subscriber):
        for begun in (
            clients.consumer.is_consuming,
            clients.second.is_consuming,
            clients.subscriber.is_subscribed,
        ):
            await begun.wait()
        async with acting(*clients.consumers[2:3], *clients.publishers):
            await moves(history)
            yield clients
            await moves(history)
            for publisher in clients.publishers:
                await publisher.stop()
            node = await nodes.serving()
            await drained(node.gateway)
            await history.until(lambda: history.confirmed <= history.delivered, "all delivered")
    assert_promises_hold(history)
    assert_one_node_hands_out(nodes)
    assert_no_offset_twice(nodes.url)


async def moves(history: History) -> None:
    await history.grow(ROUND)
    await history.grow(ROUND, of="settled")


async def test_nothing_confirmed_is_lost_when_the_node_that_serves_is_killed(
    tmp_path: Path, server: Server, database: str, history: History
) -> None:
    async with cluster(tmp_path, server.database(database), history) as nodes, scene(nodes):
        assert (await nodes.kill()).name == "south"
        await moves(history)
        await nodes.start_again()
        assert (await nodes.kill()).name == "north"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seconds", [1, 3, 60])
async def test_a_node_that_stands_still_for_a_while_hands_out_nothing_afterwards(
    tmp_path: Path, server: Server, database: str, history: History, seconds: int
) -> None:
    async with cluster(tmp_path, server.database(database), history) as nodes, scene(nodes):
        found = await nodes.stop_for(seconds)
        assert found.name == ("north" if seconds < LEASE_SECONDS else "south")


async def test_a_node_that_is_cut_off_from_postgresql_is_followed_and_comes_back_as_a_standby(
    tmp_path: Path, server: Server, database: str, history: History
) -> None:
    async with cluster(tmp_path, server.database(database), history) as nodes, scene(nodes):
        assert (await nodes.cut()).name == "south"
        await moves(history)
        north = nodes.nodes[0]
        await until(
            lambda: "standby\n" in north.gateway.said(),
            lambda: f"the node that was cut off stands by\n{nodes.said()}",
        )
        assert (await nodes.kill()).name == "north"


async def test_two_takeovers_in_a_row_lose_nothing(
    tmp_path: Path, server: Server, database: str, history: History
) -> None:
    url = server.database(database)
    async with cluster(tmp_path, url, history, count=3) as nodes, scene(nodes):
        first = await nodes.kill()
        second = await nodes.kill()
        assert {first.name, second.name} == {"south", "west"}


async def test_a_node_that_is_killed_while_it_adopts_is_followed_by_the_next(
    tmp_path: Path, server: Server, database: str, history: History
) -> None:
    url = server.database(database)
    async with cluster(tmp_path, url, history, count=3) as nodes, scene(nodes):
        first = await nodes.serving()
        history.add(Fault(f"kill -9 of {first.name}"))
        await asyncio.to_thread(first.gateway.kill)
        others = [node for node in nodes.nodes if node is not first]

        def adopting() -> bool:
            return any("fenced node" in node.gateway.log() for node in others)

        await until(adopting, lambda: f"a node has fenced {first.name}\n{nodes.said()}")
        heir = next(node for node in others if "fenced node" in node.gateway.log())
        history.add(Fault(f"kill -9 of {heir.name} while it adopts"))
        await asyncio.to_thread(heir.gateway.kill)
        found = await nodes.serving(first, heir)
        history.add(Calm())
        assert found not in (first, heir)


@pytest.mark.parametrize("offset", ["+1h", "-1h"])
async def test_a_clock_that_is_an_hour_off_decides_nothing(
    tmp_path: Path, server: Server, database: str, history: History, offset: str
) -> None:
    assert LIBFAKETIME.exists(), "libfaketime is missing: tools/peers.sh installs it"
    clocks = {"south": offset}
    url = server.database(database)
    async with cluster(tmp_path, url, history, clocks=clocks) as nodes:
        async with scene(nodes):
            assert (await nodes.kill()).name == "south"
            await moves(history)
            await nodes.start_again()
            assert (await nodes.kill()).name == "north"
        assert "s apart" in nodes.nodes[1].gateway.log()


async def test_a_synchronous_standby_that_is_promoted_has_all_that_was_confirmed(
    tmp_path: Path, primary: Server, standby: Standby, both: str, history: History
) -> None:
    url = primary.database("messages")
    execute(url, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
    async with cluster(tmp_path, both, history) as nodes, scene(nodes):
        promote(primary, standby, history)
        await moves(history)
        history.add(Calm())
        assert fetch_value(standby.url(url), "SELECT count(*) FROM howdah.loss") == 0


async def test_what_an_asynchronous_standby_lacks_is_told_by_whoever_serves(
    tmp_path: Path, primary: Server, standby: Standby, both: str, history: History
) -> None:
    url = primary.database("messages")
    async with cluster(tmp_path, both, history) as nodes:
        clients = Clients(nodes)
        async with acting(clients.consumer, clients.publishers[0]):
            await history.grow(ROUND, of="settled")
            wait_until(lambda: follows(standby, url), "the standby follows")
            there = leave_behind(url, standby)
            await history.grow(ROUND)
            promote(primary, standby, history)
            lost = "SELECT count(*) FROM howdah.loss WHERE cause = 'setback'"
            await until(
                lambda: bool(fetch_value(there, lost)),
                lambda: f"the loss is written down\n{nodes.said()}",
            )
            await nodes.serving()
            await history.grow(ROUND, of="settled")
        assert "went back in time" in nodes.said()
        assert_no_offset_twice(there)


async def test_a_node_that_takes_over_on_a_standby_that_was_behind_says_that_it_cannot_tell(
    tmp_path: Path, primary: Server, standby: Standby, both: str, history: History
) -> None:
    """The node that knew what was committed has died together with the primary."""
    url = primary.database("messages")
    async with cluster(tmp_path, both, history) as nodes:
        publisher = AmqpPublisher(history, "p", nodes.urls(), "first")
        async with acting(publisher):
            await history.grow(ROUND)
            there = await asyncio.to_thread(leave_behind, url, standby)
            await history.grow(ROUND)
            north = nodes.nodes[0]
            await asyncio.to_thread(north.gateway.kill)
            promote(primary, standby, history)
            found = await nodes.serving(north)
            await history.grow(ROUND)
        said = await asyncio.to_thread(found.gateway.run, "doctor")
        assert fetch_value(there, "SELECT count(*) FROM howdah.loss") != 0
        assert "cannot be proven" in said.stdout
        assert_no_offset_twice(there)


def promote(primary: Server, standby: Standby, history: History) -> None:
    history.add(Fault("the primary is killed, and its standby promoted"))
    primary.kill()
    execute(standby.url(primary.database("messages")), "SELECT pg_promote()")
