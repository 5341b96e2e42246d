"""How far a cursor may hand out before the database knows of it."""

from __future__ import annotations

from queue_core.delivery.lease import LEASE_OFFSETS, Lease


def test_a_cursor_without_a_journal_may_hand_out_everything_and_suspects_nothing() -> None:
    lease = Lease.unlimited()
    assert not lease.ask(1 << 60)
    assert lease.recovered_mark == 0


def test_what_was_leased_before_a_restart_is_suspected_as_far_as_it_exists() -> None:
    assert Lease(1000, tail=30).recovered_mark == 30
    assert Lease(20, tail=30).recovered_mark == 20


def test_a_longer_lease_is_asked_for_once_and_holds_when_it_is_committed() -> None:
    lease = Lease(0, tail=0)
    assert lease.ask(5)
    assert not lease.ask(5)
    assert (lease.asked, lease.committed) == (5 + LEASE_OFFSETS, 0)
    lease.grant(lease.asked)
    lease.grant(3)  # an older commit that is told of late
    assert lease.committed == 5 + LEASE_OFFSETS


def test_a_lease_grows_with_what_is_written_before_half_of_it_is_used_up() -> None:
    lease = Lease(LEASE_OFFSETS, tail=0)
    assert not lease.extend(LEASE_OFFSETS // 2)
    assert lease.extend(LEASE_OFFSETS // 2 + 1)
    assert lease.asked == LEASE_OFFSETS // 2 + 1 + LEASE_OFFSETS


def test_an_orderly_end_keeps_what_was_suspected_before_under_suspicion() -> None:
    lease = Lease(1000, tail=40)
    lease.shorten(10)
    assert lease.asked == 40
    lease.shorten(100)
    assert lease.asked == 40
    lease.give_up()
    assert lease.asked == 0
