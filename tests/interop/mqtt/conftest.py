"""A client of each make, and the wires that they are seen on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Final

import pytest

from tests.interop.mqtt.columns import Column
from tests.interop.mqtt.peers import Peers
from tests.interop.mqtt.proving import ROWS, Case, columns_for
from tests.interop.mqtt.rows import Row
from tests.interop.mqtt.wire import Wire
from tests.support.gateway_process import GatewayProcess

LISTENERS: Final = {"tcp": "mqtt", "ws": "mqtt_ws"}


@pytest.fixture(scope="session")
def peers() -> Iterator[Peers]:
    with closing(Peers()) as peers:
        yield peers


@contextmanager
def wires_of(gateway: GatewayProcess) -> Iterator[dict[str, Wire]]:
    with ExitStack() as stack:
        yield {
            transport: stack.enter_context(
                Wire(gateway.ports[listener], is_websocket=transport == "ws")
            )
            for transport, listener in LISTENERS.items()
        }


@pytest.fixture(scope="session")
def wires(shared_gateway: GatewayProcess) -> Iterator[dict[str, Wire]]:
    with wires_of(shared_gateway) as wires:
        yield wires


@pytest.fixture(scope="session")
def limited_wires(limited_gateway: GatewayProcess) -> Iterator[dict[str, Wire]]:
    with wires_of(limited_gateway) as wires:
        yield wires


def rows_of(request: pytest.FixtureRequest) -> frozenset[Row]:
    rows: frozenset[Row] = getattr(request.function, ROWS, frozenset())
    return rows


@contextmanager
def at(
    wires: dict[str, Wire], peers: Peers, column: Column, rows: frozenset[Row]
) -> Iterator[Case]:
    wire = wires[column.transport]
    case = Case(peers.of(column.client), column, wire, rows)
    try:
        yield case
        case.check()
    finally:
        case.close()


@pytest.fixture
def case(
    request: pytest.FixtureRequest, peers: Peers, column: Column, wires: dict[str, Wire]
) -> Iterator[Case]:
    """At a gateway as it comes."""
    wires[column.transport].forget()
    with at(wires, peers, column, rows_of(request)) as case:
        yield case


@pytest.fixture
def limited_case(
    request: pytest.FixtureRequest, peers: Peers, column: Column, limited_wires: dict[str, Wire]
) -> Iterator[Case]:
    """At one that offers as little as it can."""
    limited_wires[column.transport].forget()
    with at(limited_wires, peers, column, rows_of(request)) as case:
        yield case


@pytest.fixture
def limited_cases(
    request: pytest.FixtureRequest, peers: Peers, limited_gateway: GatewayProcess
) -> Iterator[list[Case]]:
    """All clients at that one, each on wires of its own."""
    rows = rows_of(request)
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                at(stack.enter_context(wires_of(limited_gateway)), peers, column, rows)
            )
            for column in columns_for(rows)
        ]
