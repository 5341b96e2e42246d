"""Explanations of routes: they agree with the router, and say why a binding is not taken."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.errors import ExchangeNotFound
from queue_core.routing.bindings import ExchangeRef
from queue_core.routing.exchanges import ExchangeSpec
from queue_core.routing.explanation import MOST_PASSED_OVER, explain
from queue_core.routing.router import Router

WORDS = st.sampled_from(["a", "b", "*", "#"])
KEYS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map(".".join)
PATTERNS = st.lists(WORDS, min_size=1, max_size=4).map(".".join)


def make_router(*exchanges: tuple[str, str, Mapping[str, object]]) -> Router[str]:
    router: Router[str] = Router()
    for name, kind, arguments in exchanges:
        router.declare_exchange(ExchangeSpec.parse(name, kind, arguments))
    return router


def queues_of(router: Router[str], exchange: str, key: str) -> set[str]:
    return {
        binding.destination
        for step in explain(router, exchange, key, {})
        for binding in step.taken
        if not isinstance(binding.destination, ExchangeRef)
    }


@given(st.lists(PATTERNS, max_size=6), KEYS)
def test_an_explanation_names_the_queues_of_the_route(patterns: list[str], key: str) -> None:
    router = make_router(("t", "topic", {}), ("u", "topic", {}))
    router.bind("t", ExchangeRef("u"), "a.#")
    for number, pattern in enumerate(patterns):
        router.bind("tu"[number % 2], f"q{number}", pattern)
    routed = {match.queue for match in router.route("t", key)}
    assert queues_of(router, "t", key) == routed


def test_the_alternate_exchange_is_a_step_where_nothing_matches() -> None:
    router = make_router(("rest", "fanout", {}), ("d", "direct", {"alternate-exchange": "rest"}))
    router.bind("rest", "left", "")
    router.bind("d", "q", "key")
    first, second = explain(router, "d", "other", {})
    assert (first.alternate, second.exchange.name) == ("rest", "rest")
    assert first.passed_over[0].why == "its key is 'key', and the message's is 'other'"
    assert [step.alternate for step in explain(router, "d", "key", {})] == [None]


def test_circles_end() -> None:
    router = make_router(("x", "fanout", {}), ("y", "fanout", {}))
    router.bind("x", ExchangeRef("y"))
    router.bind("y", ExchangeRef("x"))
    assert [step.exchange.name for step in explain(router, "x", "", {})] == ["x", "y"]


def test_an_exchange_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ExchangeNotFound):
        explain(make_router(), "nowhere", "", {})


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({}, "'a' is missing, 'b' is missing"),
        ({"a": 1}, "'b' is missing"),
        ({"a": "1", "b": 2}, "'a' has another value, or one of another type"),
    ],
)
def test_headers_that_lack_something_are_named(headers: dict[str, object], said: str) -> None:
    router = make_router(("h", "headers", {}))
    router.bind("h", "q", "", {"x-match": "all", "a": 1, "b": 2})
    (step,) = explain(router, "h", "", headers)
    assert step.passed_over[0].why == f"it asks for all of its headers: {said}"


def test_wildcards_at_the_beginning_leave_out_topics_of_the_system() -> None:
    router = make_router()
    router.subscribe("#", "q")
    (step,) = explain(router, "amq.topic", "$SYS.load", {})
    assert "begins with a wildcard" in step.passed_over[0].why


def test_a_choosing_exchange_says_that_it_chose_another() -> None:
    router = make_router(("c", "x-random", {}))
    router.bind("c", "q1")
    router.bind("c", "q2")
    (step,) = explain(router, "c", "", {})
    assert (step.taken_count, step.passed_over_count) == (1, 1)
    assert "chose another" in step.passed_over[0].why


def test_what_is_passed_over_is_counted_and_listed_up_to_a_bound() -> None:
    router = make_router(("d", "direct", {}))
    for number in range(MOST_PASSED_OVER + 50):
        router.bind("d", "q", f"k{number}")
    (step,) = explain(router, "d", "k0", {})
    assert len(step.passed_over) == MOST_PASSED_OVER
    assert step.passed_over_count == MOST_PASSED_OVER + 49
