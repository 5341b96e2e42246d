"""Bindings by the thousand: finding one among many costs the same as among few, and there is a
bound to how many there may be."""

from __future__ import annotations

from itertools import product
from typing import Final

import pytest

from queue_core.errors import LimitExceeded
from queue_core.message.value_identity import identity_of
from queue_core.routing import bindings as bindings_module
from queue_core.routing.bindings import (
    ARGUMENT_CHARACTERS_PER_BINDING,
    Binding,
    BindingLimits,
    ExchangeRef,
)
from queue_core.routing.exchanges import ExchangeSpec
from queue_core.routing.router import Router

MANY: Final = 3000
NUMBERS: Final = [{"x-match": "all", "n": number} for number in range(MANY)]
# Python's hash of -1 and of -2 is the same, so that all of these arrays have one hash.
CHOSEN: Final = [{"n": list(signs)} for signs in product((-1, -2), repeat=11)]
NOT_A_NUMBER: Final = [{"n": float("nan"), "m": number} for number in range(MANY)]


class Comparing:
    """Counts how often a binding is compared with another, and an identity is worked out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.comparisons = 0
        self.identities = 0
        equal = Binding.__eq__

        def counted(one: Binding[str], other: object) -> bool:
            self.comparisons += 1
            return equal(one, other)

        def worked_out(value: object) -> object:
            self.identities += 1
            return identity_of(value)

        monkeypatch.setattr(Binding, "__eq__", counted)
        monkeypatch.setattr(bindings_module, "identity_of", worked_out)


@pytest.mark.parametrize(
    "several",
    [
        pytest.param(NUMBERS, id="numbers"),
        pytest.param(CHOSEN, id="arrays of one hash"),
        pytest.param(NOT_A_NUMBER, id="not a number"),
    ],
)
def test_thousands_of_bindings_that_differ_by_their_arguments_are_no_search(
    several: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    router: Router[str] = Router()
    router.register_queue("q", "q")
    work = Comparing(monkeypatch)
    for arguments in several:
        assert router.bind("amq.headers", "q", "", arguments)
        assert not router.bind("amq.headers", "q", "", arguments)
    for arguments in several[::2]:
        assert router.unbind("amq.headers", "q", "", arguments).bindings
    router.unregister_queue("q")
    assert router.bindings() == []
    # A table may look at a neighbour now and then; it must not look at all of them.
    assert work.comparisons < 20 * len(several)
    assert work.identities < 60 * len(several)  # of arrays, one for each element as well


def test_bindings_are_one_when_a_client_would_call_their_arguments_the_same() -> None:
    def bound(value: object) -> Binding[str]:
        return Binding("x", "q", "", {"a": value})

    same = [(1, 1.0), (b"x", bytearray(b"x")), ([1, 2], (1.0, 2)), ({"a": 1}, {"a": 1.0})]
    for one, other in [*same, (float("nan"), float("nan")), (0, -0.0)]:
        assert (bound(one), hash(bound(one))) == (bound(other), hash(bound(other)))
    for one, other in [(1, True), ("1", 1), ("x", b"x"), (None, ""), ([1, [2]], [[1], 2])]:
        assert bound(one) != bound(other)
    assert Binding("x", "q", "", {}) == Binding("x", "q")


LIMITS: Final = BindingLimits(to_one=4, from_one=3, from_one_headers=2)


def bind(router: Router[str], source: str, number: int, destination: str = "q") -> bool:
    arguments = {"n": number} if source == "amq.headers" else None
    return router.bind(source, destination, f"k{number}", arguments, limits=LIMITS)


@pytest.mark.parametrize(
    ("source", "most", "key"),
    [
        ("amq.direct", 3, "broker.max_bindings_per_exchange"),
        ("amq.topic", 3, "broker.max_bindings_per_exchange"),
        ("amq.headers", 2, "broker.max_header_bindings_per_exchange"),
    ],
)
def test_an_exchange_has_a_bounded_number_of_bindings(source: str, most: int, key: str) -> None:
    router: Router[str] = Router()
    for number in range(10):
        router.subscribe(f"a/{number}", "session")  # these are the session's own
    for number in range(most):
        assert bind(router, source, number)
    with pytest.raises(LimitExceeded, match=key):
        bind(router, source, most)
    assert not bind(router, source, 0)  # what is there may be said again
    router.unbind(source, "q", "k0", {"n": 0} if source == "amq.headers" else None)
    assert bind(router, source, most)


@pytest.mark.parametrize("source", ["amq.headers", "amq.direct"])
def test_a_binding_with_long_arguments_counts_for_several(source: str) -> None:
    limits = BindingLimits(from_one=10, from_one_headers=10)
    router: Router[str] = Router()
    long = {f"k{number}": number for number in range(8 * ARGUMENT_CHARACTERS_PER_BINDING // 10)}
    with pytest.raises(LimitExceeded):
        router.bind(
            source, "q", "", {**long, "x": "y" * 9 * ARGUMENT_CHARACTERS_PER_BINDING}, limits=limits
        )
    assert router.bind(source, "q", "", long, limits=limits)
    with pytest.raises(LimitExceeded, match="long arguments count"):
        router.bind(source, "q", "", {**long, "other": 1}, limits=limits)
    router.unbind(source, "q", "", long)
    for number in range(10):
        assert router.bind(source, "q", "", {"n": number}, limits=limits)


def test_a_queue_and_an_exchange_are_led_to_by_a_bounded_number_of_bindings() -> None:
    router: Router[str] = Router()
    few = BindingLimits(to_one=4)
    router.declare_exchange(ExchangeSpec.parse("inner", "fanout"))
    for destination in ("q", ExchangeRef("inner")):
        for number, source in enumerate(("amq.direct", "amq.fanout", "amq.topic", "amq.direct")):
            router.bind(source, destination, f"k{number}", limits=few)
        with pytest.raises(LimitExceeded, match=r"broker\.max_bindings_per_queue"):
            router.bind("amq.topic", destination, "one.more", limits=few)


def test_what_is_stored_already_is_bound_at_a_start_whatever_the_limits_are() -> None:
    router: Router[str] = Router()
    assert all(router.bind("amq.direct", "q", f"k{number}") for number in range(5))
