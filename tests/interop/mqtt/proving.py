"""How a test says what it proves, and how it is held to that.

`@proves` runs a test for every client that can do at least some of what it names. The test speaks
through a `Case`, which leaves out what the client cannot say, and at its end everything that was
named must have been on the wire, and what the client heard must have been compared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final, TypeVar

import pytest
from msgspec.structs import replace

from protocols.mqtt.wire.packets import Packet, Publish, Version, Will
from protocols.mqtt.wire.property_set import PacketType, PropertySet
from tests.interop.mqtt.columns import COLUMNS, NOT_SENT, Column
from tests.interop.mqtt.plans import Answer, Facts, Peer, Plan, Seat
from tests.interop.mqtt.rows import CLIENT, GATEWAY, Row
from tests.interop.mqtt.wire import Wire, fields_of
from tests.support.until import PATIENCE_SECONDS

P = PacketType
Test = TypeVar("Test", bound=Callable[..., Any])
ROWS: Final = "rows"  # a test's attribute
FEATURES: Final = "features"


def proves(*groups: frozenset[Row], at_once: bool = False) -> Callable[[Test], Test]:
    """Marks a test with the MQTT 5.0 properties it proves; `at_once`: one run has all clients."""
    rows = frozenset().union(*groups)
    columns = columns_for(rows)

    def mark(test: Test) -> Test:
        setattr(test, ROWS, rows)
        if at_once:
            return test
        names = [column.name for column in columns]
        marked: Test = pytest.mark.parametrize("column", columns, ids=names)(test)
        return marked

    return mark


def columns_for(rows: frozenset[Row]) -> list[Column]:
    return [column for column in COLUMNS if provable(rows, column)]


def does(*features: str) -> Callable[[Test], Test]:
    """Marks a test with the features, of every version, that it proves."""

    def mark(test: Test) -> Test:
        setattr(test, FEATURES, features)
        cases = [(column, version) for column in COLUMNS for version in column.versions]
        names = [f"{column.name}-{version.name}" for column, version in cases]
        marked: Test = pytest.mark.parametrize(("column", "version"), cases, ids=names)(test)
        return marked

    return mark


def provable(rows: frozenset[Row], column: Column) -> frozenset[Row]:
    """Returns the rows that this client can say, or hear."""
    return rows - column.cannot.keys() - NOT_SENT.keys()


class Case:
    """One client, at one gateway."""

    def __init__(self, peer: Peer, column: Column, wire: Wire, rows: frozenset[Row]) -> None:
        self.column = column
        self.wire = wire
        self._peer = peer
        self._rows = provable(rows, column)
        self._compared: set[Row] = set()
        self._seats: list[Seat] = []

    # --- speaking

    def listen(self, plan: Plan) -> Seat:
        """Raises Refused."""
        seat = self._peer.listen(self.wire.port, self.column.transport, self._sayable(plan))
        self._seats.append(seat)
        return seat

    def publish(self, *messages: Publish, plan: Plan | None = None) -> list[Answer]:
        """Raises Refused."""
        chosen = self._sayable(plan or Plan())
        return self._peer.publish(self.wire.port, self.column.transport, chosen, messages)

    def leave(self, *seats: Seat) -> None:
        for seat in seats:
            seat.leave()
            self._seats.remove(seat)

    def lose(self, seat: Seat) -> None:
        seat.lose()
        self._seats.remove(seat)

    def _sayable(self, plan: Plan) -> Plan:
        """Without what this client cannot say."""
        if plan.version is not Version.V5:
            return plan
        will = plan.will
        if will is not None:
            properties = self._allowed(P.WILL, will.properties)
            will = Will(will.topic, will.payload, will.qos, will.retain, properties)
        return dataclasses.replace(
            plan,
            will=will,
            connect=self._allowed(P.CONNECT, plan.connect),
            subscribe=self._allowed(P.SUBSCRIBE, plan.subscribe),
            unsubscribe=self._allowed(P.UNSUBSCRIBE, plan.unsubscribe),
            disconnect=self._allowed(P.DISCONNECT, plan.disconnect),
        )

    def _allowed(self, packet: PacketType, properties: PropertySet) -> PropertySet:
        cannot = [
            field
            for field in fields_of(properties)
            if Row(CLIENT, packet, field) in self.column.cannot
        ]
        return replace(properties, **dict.fromkeys(cannot)) if cannot else properties

    # --- hearing

    def hears(self, packet: PacketType, facts: Facts, **expected: Any) -> None:
        """Compares what the client shows of a packet; a callable judges an unknown value."""
        for field, value in expected.items():
            row = Row(GATEWAY, packet, field)
            assert row in self._rows or row in self.column.cannot, f"{row} is not claimed"
            if row in self.column.cannot or row in self.column.silent:
                continue
            assert field in facts, f"{self.column.name} did not show {packet.name}.{field}"
            heard = facts[field]
            is_right = value(heard) if callable(value) else heard == value
            assert is_right, f"{packet.name}.{field} is {heard!r}"
            self._compared.add(row)

    def waits_for(self, sender: str, packet: type[Packet]) -> None:
        assert self.wire.waits_for_packet(sender, packet, PATIENCE_SECONDS), f"no {packet.__name__}"

    # --- the end

    def close(self) -> None:
        for seat in self._seats:
            seat.lose()

    def check(self) -> None:
        """Everything that the test claims was said, and was heard."""
        missing = self.wire.waits_for(self._rows, PATIENCE_SECONDS)
        assert not missing, f"never on the wire: {sorted(missing)}"
        shown = {row for row in self._rows if row.sender == GATEWAY} - self.column.silent.keys()
        unheard = shown - self._compared
        assert not unheard, f"on the wire, but not compared: {sorted(unheard)}"
