"""The account of memory: who is stopped when it is short, who goes on, and that nobody waits for
ever."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest

from queue_core.memory_account import GIVE_BACK_BYTES, MIB, Holding, Memory, MemorySettings
from queue_core.queues.memory_limit import EphemeralMemory
from tests.support.until import turns

SETTINGS = MemorySettings(mark=100 * MIB, partial_timeout=60, unread_timeout=300, grace=10)


class FakeHolder:
    def __init__(self, memory: Memory, name: str = "a client") -> None:
        self._is_read = True
        self.ended: list[str] = []
        self.received = 0
        self.unsent = 0
        self.name = name
        self.holding: Holding = memory.open(self)

    def reads(self) -> bool:
        return self._is_read

    def on_short(self) -> None:
        self._is_read = False

    def on_room(self) -> None:
        self._is_read = True

    def is_read(self) -> bool:
        return self._is_read

    def received_bytes(self) -> int:
        return self.received

    def unsent_bytes(self) -> int:
        return self.unsent

    def who(self) -> str:
        return self.name

    def relieve(self, reason: str) -> None:
        self.ended.append(reason)
        self.holding.end()


def account(**sources: int) -> tuple[Memory, dict[str, int]]:
    memory, core = Memory(SETTINGS), dict(sources)
    for kind in sources:
        memory.sources[kind] = partial(core.__getitem__, kind)
    memory.look(1.0)
    return memory, core


def is_short(memory: Memory) -> bool:
    return memory.is_short


# --- the alarm


def test_publishers_wait_above_the_mark_and_go_on_well_below_it() -> None:
    memory, core = account(ephemeral_queues=0)
    publisher = FakeHolder(memory)
    core["ephemeral_queues"] = 101 * MIB
    memory.look(2.0)
    assert is_short(memory)
    publisher.holding.hold()
    assert not publisher.reads()
    core["ephemeral_queues"] = 99 * MIB
    memory.look(3.0)
    assert not publisher.reads(), "it would go on and off with every message"
    core["ephemeral_queues"] = 87 * MIB
    memory.look(4.0)
    assert not is_short(memory)
    assert publisher.reads()
    assert (memory.counters.alarms, memory.counters.held_publishers) == (1, 1)


def test_the_log_says_when_memory_is_short_of_what_and_when_not_any_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    memory, core = account(ephemeral_queues=70 * MIB, write_buffer=40 * MIB)
    memory.look(2.0)
    core["ephemeral_queues"] = 0
    memory.look(5.0)
    memory.look(6.0)
    assert [record.getMessage() for record in caplog.records] == [
        (
            "memory is short: 70 MiB ephemeral queues + 40 MiB write buffer of 100 MiB "
            "(memory.high_watermark) are in use; publishers wait until an eighth of it is free"
        ),
        "memory is not short any more, after 4.0 s: 0 publishers go on",
    ]


def test_a_connection_that_ends_gives_back_all_that_it_held() -> None:
    memory, _ = account()
    holder = FakeHolder(memory)
    holder.holding.expect(7 * MIB)
    holder.holding.add_transaction(8 * MIB)
    holder.unsent = 9 * MIB
    holder.holding.watch_output(0, [bytes(9 * MIB)])
    memory.look(2.0)
    assert memory.kinds() == {
        "partial": 7 * MIB,
        "transactions": 8 * MIB,
        "unsent": 9 * MIB,
    }
    holder.holding.end()
    memory.look(3.0)
    assert not any(memory.kinds().values())


def test_a_large_message_for_many_queues_in_memory_is_no_shortage() -> None:
    """Each counts it whole, though it is there once: together they count up to their limit."""
    queue = SimpleNamespace(memory=lambda: 15 * MIB)
    ephemeral = EphemeralMemory(50 * MIB, lambda: 1.0, lambda: [queue] * 40)
    memory = Memory(SETTINGS)
    memory.sources["ephemeral_queues"] = ephemeral.used
    for _ in range(40):
        ephemeral.keep(15 * MIB)
    memory.look(1.0)
    assert not is_short(memory)
    assert ephemeral.is_full()


# --- unfinished messages


def test_room_is_reserved_by_the_declared_size_and_who_finds_none_is_not_read() -> None:
    memory, _ = account()
    first, second = FakeHolder(memory), FakeHolder(memory)
    first.holding.expect(20 * MIB)
    second.holding.expect(10 * MIB)  # a fourth of the mark is for all of them
    assert (first.reads(), second.reads()) == (True, False)
    assert memory.partial == 20 * MIB, "what waits is not here yet"
    first.holding.expect(0)
    assert second.reads()
    assert memory.partial == 10 * MIB


def test_those_who_wait_for_room_get_it_in_the_order_they_came() -> None:
    memory, _ = account()
    holders = [FakeHolder(memory) for _ in range(4)]
    for holder in holders:
        holder.holding.expect(12 * MIB)
    assert [holder.reads() for holder in holders] == [True, True, False, False]
    holders[0].holding.end()
    assert [holder.reads() for holder in holders[1:]] == [True, True, False]


def test_one_message_larger_than_all_room_is_let_in_where_there_is_no_other() -> None:
    memory, _ = account()
    holder = FakeHolder(memory)
    holder.holding.expect(60 * MIB)
    assert holder.reads()


def test_who_has_begun_a_message_is_read_to_its_end() -> None:
    memory, core = account(ephemeral_queues=0)
    holder = FakeHolder(memory)
    holder.holding.expect(10 * MIB)
    core["ephemeral_queues"] = 95 * MIB
    memory.look(2.0)
    assert is_short(memory)
    holder.holding.expect(11 * MIB)  # one more message on the same connection
    assert holder.reads(), "it can give back what it has only if it is read"


def test_a_message_that_does_not_go_on_ends_its_connection() -> None:
    memory, _ = account()
    stalled, slow = FakeHolder(memory), FakeHolder(memory)
    for holder in (stalled, slow):
        holder.holding.expect(10 * MIB)
    for second in range(1, 100):
        slow.received += 1000
        memory.look(1.0 + second)
    assert stalled.ended == ["an unfinished message has not gone on for 60 s"]
    assert not slow.ended
    assert memory.counters.stalled_messages == 1
    assert memory.partial == 10 * MIB


def test_who_is_not_read_cannot_be_blamed_for_a_message_that_does_not_go_on() -> None:
    memory, _ = account()
    first, waiting = FakeHolder(memory), FakeHolder(memory)
    first.holding.expect(20 * MIB)
    waiting.holding.expect(20 * MIB)
    for second in range(200):
        first.received += 5000
        memory.look(1.0 + second)
    assert not waiting.ended


def test_who_is_not_read_for_another_reason_is_not_blamed_for_its_message_either() -> None:
    memory, _ = account()
    held = FakeHolder(memory)
    held.holding.expect(10 * MIB)
    held.on_short()  # as by a database that is away, or a subscriber that is behind
    for second in range(1, 200):
        memory.look(1.0 + second)
    assert not held.ended
    held.on_room()
    for second in range(200, 300):
        memory.look(1.0 + second)
    assert held.ended == ["an unfinished message has not gone on for 60 s"]


# --- transactions


def test_an_open_transaction_may_end_while_memory_is_short() -> None:
    memory, core = account(write_buffer=95 * MIB)
    holder = FakeHolder(memory)
    holder.holding.add_transaction(6 * MIB)
    assert is_short(memory)
    holder.holding.hold()
    assert holder.reads()
    holder.holding.add_transaction(-6 * MIB)  # committed
    holder.holding.hold()
    assert not holder.reads()
    core["write_buffer"] = 0
    memory.look(2.0)
    assert holder.reads()


def test_when_memory_stays_short_those_who_hold_most_are_ended_one_by_one() -> None:
    memory, _ = account()
    holders = [FakeHolder(memory, f"number {number}") for number in range(4)]
    for number, holder in enumerate(holders, 1):
        holder.holding.add_transaction(number * 11 * MIB)
    assert is_short(memory)
    memory.look(10.0)
    assert not any(holder.ended for holder in holders), "they have some time to end by themselves"
    memory.look(11.0)
    memory.look(12.0)
    assert [len(holder.ended) for holder in holders] == [0, 0, 0, 1]
    assert not is_short(memory)
    assert memory.counters.relieved_connections == 1


async def test_far_above_the_mark_nobody_is_waited_for() -> None:
    memory, _ = account()
    large, small = FakeHolder(memory), FakeHolder(memory)
    small.holding.add_transaction(30 * MIB)
    large.holding.add_transaction(96 * MIB)
    assert not large.ended, "it may be in the middle of something"
    await turns()  # connections end between two turns
    assert large.ended
    assert not small.ended


# --- output


def test_a_body_that_waits_for_many_is_counted_once() -> None:
    memory, _ = account()
    body = bytes(10 * MIB)
    for _ in range(40):
        holder = FakeHolder(memory)
        holder.unsent = len(body) + 100
        holder.holding.watch_output(0, [b"x" * 100, body])
    memory.look(2.0)
    assert memory.unsent == 10 * MIB + 40 * 100
    assert not is_short(memory)


def test_what_a_peer_has_taken_is_not_kept_for_the_count() -> None:
    memory, _ = account()
    holder = FakeHolder(memory)
    holder.unsent = 20 * MIB
    holder.holding.watch_output(0, [bytes(10 * MIB), bytes(10 * MIB)])
    holder.unsent = 5 * MIB
    memory.look(2.0)
    assert memory.unsent == 10 * MIB, "a body that was taken in part is still there as a whole"
    holder.unsent = 0
    memory.look(3.0)
    assert memory.unsent == 0
    assert not holder.holding._pieces


def test_a_peer_that_takes_nothing_is_ended_and_one_that_is_slow_is_not() -> None:
    memory, _ = account()
    deaf, slow = FakeHolder(memory), FakeHolder(memory)
    for holder in (deaf, slow):
        holder.unsent = MIB
        holder.holding.watch_output(0, [bytes(MIB)])
    for second in range(302):
        slow.unsent -= second % 100 == 0
        memory.look(2.0 + second)
    assert deaf.ended == ["nothing of what waits for it was read for 300 s"]
    assert not slow.ended
    assert memory.counters.unread_connections == 1


# --- giving back


def test_what_became_free_goes_back_to_the_system_once_it_is_let_go_of() -> None:
    given: list[float] = []
    memory = Memory(SETTINGS, lambda: given.append(memory.now))
    holder = FakeHolder(memory)
    holder.holding.add_transaction(GIVE_BACK_BYTES)
    memory.look(1.0)
    holder.holding.add_transaction(-GIVE_BACK_BYTES)
    memory.look(2.0)
    assert not given
    memory.look(3.0)
    memory.look(4.0)
    assert given == [3.0]


# --- the start


async def test_what_is_held_before_the_first_look_has_its_time_as_well() -> None:
    """The clock of a machine that runs for long shows much more than any time-out."""
    uptime = 1_000_000.0
    memory = Memory(SETTINGS, now=uptime)
    large = FakeHolder(memory)
    large.holding.add_transaction(101 * MIB)
    large.holding.expect(MIB)
    large.unsent = MIB
    large.holding.watch_output(0, [bytes(MIB)])
    assert is_short(memory)
    memory.look(uptime + 0.25)
    assert not large.ended
