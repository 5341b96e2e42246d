"""The order in which SASL mechanisms are offered."""

from __future__ import annotations

from queue_core.access.mechanisms import BEST_FIRST, best_first


def test_the_best_mechanism_is_offered_first_whatever_the_order_of_those_who_take_it() -> None:
    assert best_first(reversed(BEST_FIRST)) == BEST_FIRST


def test_each_mechanism_is_offered_once_and_strange_ones_last() -> None:
    assert best_first(("X-B", "PLAIN", "X-A", "PLAIN")) == ("PLAIN", "X-B", "X-A")
