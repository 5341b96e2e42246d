"""Open connections have names that tell them apart, and are found by them."""

from __future__ import annotations

import asyncio
from typing import Any

from gateway.connections import Connections
from protocols.connection_report import ConnectionReport, ConnectionState, Flow, Volume


class Transport(asyncio.Transport):
    def __init__(self, peer: Any, local: Any) -> None:
        super().__init__({"peername": peer, "sockname": local})


class Client(asyncio.Protocol):
    """A connection that has published, and says so when it is asked."""

    def __init__(self) -> None:
        self.published = 0
        self.reasons: list[str] = []

    def report(self) -> ConnectionReport:
        return ConnectionReport(
            protocol="AMQP 0-9-1",
            user="ann",
            vhost="/",
            mechanism="PLAIN",
            client_name="",
            client_properties={},
            state=ConnectionState.RUNNING,
            ended_flow=Flow(published=self.published),
        )

    def volume(self) -> Volume:
        return Volume(0, 0, 0)

    def force_out(self, reason: str) -> None:
        self.reasons.append(reason)


def opened(connections: Connections, peer: Any, local: Any = ("::1", 5672)) -> Any:
    client = connections.tracked("amqp091", Client)()
    client.connection_made(Transport(peer, local))
    return client


async def test_a_connection_is_named_by_both_ends_and_found_by_its_name() -> None:
    connections = Connections()
    client = opened(connections, ("10.0.0.7", 40_000), ("10.0.0.1", 5672))
    found = connections.find("10.0.0.7:40000 -> 10.0.0.1:5672")
    assert found is not None
    found.force_out("enough")
    assert client.reasons == ["enough"]
    assert connections.find("10.0.0.7:40000 -> 10.0.0.1:5673") is None
    client.connection_lost(None)
    assert connections.find("10.0.0.7:40000 -> 10.0.0.1:5672") is None


async def test_connections_without_addresses_have_names_of_their_own() -> None:
    connections = Connections()
    opened(connections, None, "/run/howdah.sock")
    opened(connections, None, "/run/howdah.sock")
    names = [each.name for each in connections.all()]
    assert len(set(names)) == 2
    assert all(connections.find(name) is not None for name in names)


async def test_messages_of_a_connection_that_ended_still_count() -> None:
    connections = Connections()
    client = opened(connections, ("10.0.0.7", 40_000))
    client.published = 5
    connections.sample(connections.all()[0], 1.0)
    client.published = 7
    client.connection_lost(None)
    assert connections.flow[0] == 7


async def test_a_connection_whose_client_is_not_let_in_says_nothing() -> None:
    connections = Connections()
    kind = connections.tracked("mqtt_ws", asyncio.Protocol)
    kind().connection_made(Transport(("10.0.0.7", 1), ("10.0.0.1", 2)))
    (found,) = connections.all()
    assert found.report() is None
    assert found.volume() == Volume(0, 0, 0)
    connections.sample(found, 1.0)
    assert not any(connections.flow)
