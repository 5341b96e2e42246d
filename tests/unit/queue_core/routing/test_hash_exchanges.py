"""Exchanges that choose one queue for each message, and those that delay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import pytest

from queue_core.errors import InvalidArgument, LimitExceeded, NotEquivalent
from queue_core.message.message import Message, Properties
from queue_core.routing import hash_exchanges as chosen_exchanges
from queue_core.routing.bindings import Binding
from queue_core.routing.exchange_kinds import make_exchange
from queue_core.routing.exchanges import Exchange, ExchangeKind, ExchangeSpec
from queue_core.routing.hash_exchanges import MOST_WEIGHT, MOST_WEIGHT_TOGETHER
from queue_core.routing.router import Router

NOTHING: Mapping[str, object] = {}
KEYS = [f"order-{number}" for number in range(2000)]
CHOOSING = ["x-consistent-hash", "x-modulus-hash", "x-random", "x-local-random"]


def bound(kind: str, *queues: str, **arguments: object) -> Exchange[str]:
    """Each queue with its weight, as in `q1:2`."""
    made: Exchange[str] = make_exchange(
        ExchangeSpec.parse("x", kind, {name.replace("_", "-"): v for name, v in arguments.items()})
    )
    for queue in queues:
        name, _, weight = queue.partition(":")
        made.add(Binding("x", name, weight or "1"))
    return made


def taken(made: Exchange[str], key: str, headers: Mapping[str, object] = NOTHING) -> str:
    (binding,) = made.match(key, headers)
    return str(binding.destination)


@pytest.mark.parametrize("kind", CHOOSING)
def test_each_message_goes_to_one_queue_and_all_of_them_get_their_share(kind: str) -> None:
    made = bound(kind, "a", "b", "c")
    counts = Counter(taken(made, key) for key in KEYS)
    assert counts.total() == len(KEYS)
    assert set(counts) == {"a", "b", "c"}
    assert min(counts.values()) > len(KEYS) // 6
    assert not bound(kind).match("k", NOTHING)


@pytest.mark.parametrize("kind", ["x-consistent-hash", "x-modulus-hash"])
def test_a_key_keeps_its_queue_in_whatever_order_the_queues_were_bound(kind: str) -> None:
    first, again = bound(kind, "a", "b", "c"), bound(kind, "c", "a", "b")
    assert [taken(first, key) for key in KEYS] == [taken(again, key) for key in KEYS]


def test_a_hash_does_not_depend_on_the_process() -> None:
    made = bound("x-consistent-hash", "a", "b", "c")
    assert [taken(made, key) for key in ("k1", "k2", "k3", "k4", "k5")] == list("cccba")


def test_a_weight_is_a_share() -> None:
    made = bound("x-consistent-hash", "light:1", "heavy:4")
    counts = Counter(taken(made, key) for key in KEYS)
    assert 2.5 < counts["heavy"] / counts["light"] < 6


def test_a_queue_that_goes_moves_only_what_was_its_own() -> None:
    made = bound("x-consistent-hash", "a", "b", "c")
    before = {key: taken(made, key) for key in KEYS}
    made.remove(Binding("x", "c", "1"))
    moved = [key for key in KEYS if before[key] != "c" and taken(made, key) != before[key]]
    assert moved == []


@pytest.mark.parametrize(
    "key", ["", "a", "0", "-1", "1.5", "\u0661", str(MOST_WEIGHT + 1), "9" * 99]
)
def test_a_weight_is_a_whole_number(key: str) -> None:
    made = bound("x-consistent-hash")
    with pytest.raises(InvalidArgument, match=f"from 1 to {MOST_WEIGHT}"):
        made.add(Binding("x", "q", key))
    assert made.is_unused


def test_the_weights_of_one_exchange_are_bounded_together_and_room_comes_back() -> None:
    made = bound("x-consistent-hash")
    full = [f"q{n}" for n in range(MOST_WEIGHT_TOGETHER // MOST_WEIGHT)]
    for name in full:
        made.add(Binding("x", name, str(MOST_WEIGHT)))
    with pytest.raises(LimitExceeded, match=f"weigh {MOST_WEIGHT_TOGETHER} together"):
        made.add(Binding("x", "more", "1"))
    assert len(made.bindings) == len(full)
    made.remove(Binding("x", full[0], str(MOST_WEIGHT)))
    made.add(Binding("x", "more", "1"))
    assert taken(made, "k") in {*full[1:], "more"}


@pytest.mark.parametrize("kind", CHOOSING)
def test_a_binding_that_comes_between_messages_is_put_into_its_place_alone(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost of a few hundred bindings must not grow with their square."""
    made, calls = bound(kind), Counter[str]()

    def counted(name: str) -> Callable[..., object]:
        work = getattr(chosen_exchanges, name)

        def call(*arguments: object, **options: object) -> object:
            calls[name] += 1
            return work(*arguments, **options)

        return call

    for name in ("_place", "blake2b"):
        monkeypatch.setattr(chosen_exchanges, name, counted(name))
    count = 300
    for number in range(count):
        made.add(Binding("x", f"q{number}", "1"))
        made.match("k", NOTHING)
    for number in range(count):
        made.remove(Binding("x", f"q{number}", "1"))
        made.match("k", NOTHING)
    assert calls.total() < 60 * count
    assert made.is_unused


def test_queues_that_come_and_go_leave_the_ring_as_if_they_had_never_been_there() -> None:
    made = bound("x-consistent-hash", "a", "b", "c")
    before = [taken(made, key) for key in KEYS]
    for name in ("d", "e", "f"):
        made.add(Binding("x", name, "7"))
    assert set("def") & {taken(made, key) for key in KEYS}
    made.remove(Binding("x", "d", "7"))
    made.add(Binding("x", "g", "2"))  # gone again before any message comes
    made.remove(Binding("x", "g", "2"))
    for name in ("e", "f"):
        made.remove(Binding("x", name, "7"))
    assert [taken(made, key) for key in KEYS] == before


def test_a_header_decides_where_the_exchange_says_so_whatever_the_key() -> None:
    made = bound("x-consistent-hash", "a", "b", "c", hash_header="part")
    by_part = {part: taken(made, "k1", {"part": part}) for part in KEYS}
    assert by_part == {part: taken(made, "k2", {"part": part}) for part in KEYS}
    assert set(by_part.values()) == {"a", "b", "c"}
    assert taken(made, "k1") == taken(made, "k2")  # without the header they stay together


def routed(router: Router[str], message: Message) -> str:
    route = router.route("x", "k", message.properties.header_map, message.deciding_property)
    return " ".join(match.queue for match in route)


@pytest.mark.parametrize("name", ["message_id", "correlation_id", "timestamp"])
def test_a_property_decides_where_the_exchange_says_so(name: str) -> None:
    router: Router[str] = Router()
    router.declare_exchange(ExchangeSpec.parse("x", "x-consistent-hash", {"hash-property": name}))
    for queue in "abc":
        router.bind("x", queue, "1")
    said = [
        Properties(
            message_id=f"{n}", correlation_id=f"{n}", created_at=datetime.fromtimestamp(n, UTC)
        )
        for n in range(300)
    ]
    found = {routed(router, Message(b"", "x", "k", properties=each)) for each in said}
    assert found == {"a", "b", "c"}


def test_chance_is_asked_for_every_message() -> None:
    router: Router[str] = Router()
    router.declare_exchange(ExchangeSpec.parse("x", "x-random"))
    for queue in "ab":
        router.bind("x", queue, "k")
    assert len({router.route("x", "k") for _ in range(200)}) == 2
    assert ("x", "k") not in router.routes


@pytest.mark.parametrize(
    "arguments",
    [
        {"hash-header": "a", "hash-property": "message_id"},
        {"hash-header": 1},
        {"hash-header": ""},
        {"hash-property": "odd"},
    ],
)
def test_a_hash_is_of_one_header_or_one_property(arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, match="hash-"):
        ExchangeSpec.parse("x", "x-consistent-hash", arguments)


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers", "x-consistent-hash"])
def test_an_exchange_that_delays_routes_as_it_is_told_to(kind: str) -> None:
    spec = ExchangeSpec.parse("x", "x-delayed-message", {"x-delayed-type": kind})
    made: Exchange[str] = make_exchange(spec)
    assert type(made) is type(make_exchange(ExchangeSpec.parse("x", kind)))
    assert (spec.routes_as, spec.is_topic) == (ExchangeKind(kind), kind == "topic")
    with pytest.raises(NotEquivalent):
        spec.check_equivalent(ExchangeSpec.parse("x", kind))


@pytest.mark.parametrize("asked", [None, 1, "odd", "x-delayed-message"])
def test_an_exchange_that_delays_must_be_told_how_to_route(asked: object) -> None:
    arguments = {} if asked is None else {"x-delayed-type": asked}
    with pytest.raises(InvalidArgument, match="x-delayed-type"):
        ExchangeSpec.parse("x", "x-delayed-message", arguments)
