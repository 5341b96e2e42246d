"""Connections are counted, and ended politely; or, in the end, not."""

from __future__ import annotations

import asyncio

import pytest

from gateway.connections import Connections


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


class Polite(asyncio.Protocol):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def shut_down(self, reason: str) -> None:
        self.heard.append(reason)
        asyncio.get_running_loop().call_soon(self.connection_lost, None)


class Stubborn(Polite):
    def shut_down(self, reason: str) -> None:
        self.heard.append(reason)


class Broken(Polite):
    def shut_down(self, reason: str) -> None:
        raise RuntimeError("no words")


async def test_a_tracked_connection_is_counted_from_its_first_to_its_last_moment() -> None:
    connections = Connections()
    kind = connections.tracked("mqtt", Polite)
    assert (len(connections), connections.count("mqtt")) == (0, 0)
    first, second = kind(), kind()
    first.connection_made(Transport())
    second.connection_made(Transport())
    assert (len(connections), connections.count("mqtt"), connections.count("amqp")) == (2, 2, 0)
    first.connection_lost(None)
    assert len(connections) == 1
    assert connections.accepted == {"mqtt": 2}
    assert isinstance(first, Polite)


async def test_everybody_hears_a_goodbye_and_the_drain_waits_for_them() -> None:
    connections = Connections()
    kind = connections.tracked("mqtt", Polite)
    guests = [kind() for _ in range(3)]
    for guest in guests:
        guest.connection_made(Transport())
    await connections.drain("bye", 30)
    assert [guest.heard for guest in guests] == [["bye"]] * 3
    assert len(connections) == 0


@pytest.mark.parametrize("kind", [Stubborn, Broken])
async def test_who_does_not_go_in_time_is_cut_off(kind: type[Polite]) -> None:
    connections = Connections()
    guest, transport = connections.tracked("mqtt", kind)(), Transport()
    guest.connection_made(transport)
    await connections.drain("bye", 0.0)
    assert transport.is_aborted


async def test_nobody_there_is_nobody_to_wait_for() -> None:
    await asyncio.wait_for(Connections().drain("bye", 30), 1)
