"""When a socket is read: never while anybody has a reason against it, always when nobody has."""

from __future__ import annotations

from protocols.read_gate import ALL, BACKLOG, BUSY, MEMORY, STORE, ReadGate


class FakeTransport:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.is_ended = False

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def is_closing(self) -> bool:
        return self.is_ended


def test_reading_goes_on_only_when_the_last_reason_is_gone() -> None:
    transport = FakeTransport()
    gate = ReadGate(transport)
    gate.shut(BUSY)
    gate.shut(STORE)
    assert not gate.open(BUSY)
    assert transport.calls == ["pause"]
    assert gate.open(STORE)
    assert transport.calls == ["pause", "resume"]
    assert gate.is_open


def test_a_reason_that_was_never_given_opens_nothing() -> None:
    transport = FakeTransport()
    gate = ReadGate(transport)
    gate.shut(MEMORY)
    assert not gate.open(STORE)
    assert gate.is_shut_for(MEMORY)
    assert not gate.is_shut_for(STORE)


def test_the_same_reason_given_twice_is_taken_away_once() -> None:
    transport = FakeTransport()
    gate = ReadGate(transport)
    gate.shut(BUSY)
    gate.shut(BUSY)
    assert gate.open(BUSY)
    assert transport.calls == ["pause", "resume"]


def test_a_transport_that_closes_is_left_alone() -> None:
    transport = FakeTransport()
    gate = ReadGate(transport)
    gate.shut(BUSY)
    transport.is_ended = True
    assert not gate.open(BUSY)
    gate.shut(STORE)
    assert transport.calls == ["pause"]


def test_a_gate_that_ignores_its_reasons_reads_on_and_does_not_shut_for_them_again() -> None:
    transport = FakeTransport()
    gate = ReadGate(transport)
    gate.shut(STORE)
    gate.ignore(ALL & ~BUSY)
    gate.shut(MEMORY)
    assert transport.calls == ["pause", "resume"]
    gate.shut(BUSY)
    assert gate.open(BUSY)
    assert transport.calls == ["pause", "resume"] * 2


def test_what_has_come_already_goes_on_when_nothing_else_is_in_the_way() -> None:
    transport, calls = FakeTransport(), list[str]()
    gate = ReadGate(transport, lambda: calls.append("go on"))
    gate.shut(STORE)
    gate.shut(BACKLOG)
    assert calls == []
    assert not gate.open(STORE)
    assert calls == ["go on"]
    gate.shut(BACKLOG)  # not all of it could be handled in that turn
    assert calls == ["go on", "go on"]
    assert gate.open(BACKLOG)
    assert transport.calls == ["pause", "resume"]


def test_a_gate_whose_connection_is_gone_tells_nobody() -> None:
    calls = list[str]()
    gate = ReadGate(FakeTransport(), lambda: calls.append("go on"))
    gate.close()
    gate.shut(BACKLOG)
    assert calls == []
