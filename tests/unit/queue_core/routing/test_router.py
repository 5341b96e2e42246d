"""Where messages go: through exchanges and bindings, each queue once, by the cache or anew."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from queue_core.errors import (
    AccessRefused,
    ExchangeNotFound,
    InvalidTopic,
    LimitExceeded,
)
from queue_core.routing import router as router_module
from queue_core.routing.bindings import ExchangeRef
from queue_core.routing.exchanges import ExchangeSpec
from queue_core.routing.route import Match
from queue_core.routing.router import Router
from queue_core.routing.topics import MAX_LEVELS
from tests.unit.queue_core.routing.routers import declare, queues


def unexpected() -> Mapping[str, object]:
    raise AssertionError("headers were asked for without need")


# Routes


def test_the_default_exchange_routes_by_the_name_of_the_queue(router: Router[str]) -> None:
    router.register_queue("orders", "q")
    assert router.route("", "orders", unexpected) == (Match("q", ()),)
    assert router.route("", "other", unexpected) == ()


def test_a_message_reaches_each_queue_once_with_all_its_options(router: Router[str]) -> None:
    router.subscribe("a/#", "q1", "first")
    router.subscribe("a/b", "q1", "second")
    router.subscribe("+/b", "q2")
    router.bind("amq.topic", "q2", "a.*")
    (one, two) = sorted(router.route_topic("a/b"))
    assert (one.queue, sorted(map(str, one.options))) == ("q1", ["first", "second"])
    assert two == Match("q2", ())


def test_one_topic_has_one_route_whichever_form_it_is_written_in(router: Router[str]) -> None:
    router.subscribe("a/v1.2/+", "mqtt", 1)
    router.bind("amq.topic", "amqp", "a.v1/2.#")
    expected = {Match("mqtt", (1,)), Match("amqp", ())}
    assert set(router.route_topic("a/v1.2/x")) == expected
    assert set(router.route("amq.topic", "a.v1/2.x")) == expected
    assert router.route_topic("a/v1/2/x") == ()


def test_the_order_of_a_route_is_the_same_each_time(router: Router[str]) -> None:
    for number, topic_filter in enumerate(["#", "a/#", "+/b", "a/+", "a/b", "+/+"]):
        router.subscribe(topic_filter, "q", number)
        router.subscribe(topic_filter, f"q{number}", number)
    first = router.route_topic("a/b")
    router.subscribe("unrelated", "q9")
    assert router.route_topic("a/b") == first
    assert len(first) == 7


def test_an_unknown_exchange_is_an_error(router: Router[str]) -> None:
    with pytest.raises(ExchangeNotFound, match="nowhere"):
        router.route("nowhere", "k")


def test_an_internal_exchange_is_closed_to_publishers_but_not_to_bindings(
    router: Router[str],
) -> None:
    router.declare_exchange(ExchangeSpec.parse("inner", "fanout", internal=True))
    router.bind("inner", "q")
    router.bind("amq.direct", ExchangeRef("inner"), "k")
    assert queues(router.route("amq.direct", "k")) == ["q"]
    assert queues(router.route("inner", "k", inside=True)) == ["q"]
    with pytest.raises(AccessRefused, match="internal"):
        router.route("inner", "k")


@pytest.mark.parametrize("topic", ["", "a/+", "#", "a\0"])
def test_a_topic_that_is_none_is_refused_and_not_kept(router: Router[str], topic: str) -> None:
    with pytest.raises(InvalidTopic):
        router.route_topic(topic)
    assert topic not in router.topic_routes


def test_the_limit_of_levels_holds_for_names_filters_and_patterns() -> None:
    router: Router[str] = Router()
    most, too_many = ["a"] * MAX_LEVELS, ["a"] * (MAX_LEVELS + 1)
    router.subscribe("/".join(most), "q")
    with pytest.raises(InvalidTopic):
        router.subscribe("/".join(too_many), "q")
    with pytest.raises(InvalidTopic):
        router.bind("amq.topic", "q", ".".join(too_many))
    with pytest.raises(InvalidTopic):
        router.route_topic("/".join(too_many))
    with pytest.raises(InvalidTopic):
        router.route("amq.topic", ".".join(too_many))
    assert [binding.key for binding in router.bindings_of("q")] == ["/".join(most)]


def test_exchanges_lead_on_to_exchanges_and_cycles_end(router: Router[str]) -> None:
    for name in ("x", "y", "z"):
        declare(router, name, "fanout")
    router.bind("x", ExchangeRef("y"))
    router.bind("y", ExchangeRef("z"))
    router.bind("z", ExchangeRef("x"))
    router.bind("z", ExchangeRef("z"))
    for name in ("x", "y", "z"):
        router.bind(name, "shared")
        router.bind(name, f"q{name}")
    for name in ("x", "y", "z"):
        assert sorted(queues(router.route(name, "k"))) == ["qx", "qy", "qz", "shared"]


def test_the_key_of_a_topic_goes_on_in_its_dot_form(router: Router[str]) -> None:
    declare(router, "direct")
    router.bind("amq.topic", ExchangeRef("direct"), "#")
    router.bind("direct", "q", "a.v1/2")
    assert queues(router.route_topic("a/v1.2")) == ["q"]


def test_an_alternate_exchange_gets_what_nothing_matched(router: Router[str]) -> None:
    declare(router, "x", alternate="y")
    declare(router, "y", alternate="z")
    declare(router, "z", "fanout")
    router.bind("x", "qx", "x")
    router.bind("y", "qy", "y")
    router.bind("z", "qz")
    assert [queues(router.route("x", key)) for key in "xyz"] == [["qx"], ["qy"], ["qz"]]


def test_a_binding_that_leads_nowhere_is_still_a_match(router: Router[str]) -> None:
    declare(router, "dead-end")
    declare(router, "x", "fanout", alternate="y")
    declare(router, "y", "fanout")
    router.bind("x", ExchangeRef("dead-end"))
    router.bind("y", "q")
    assert router.route("x", "k") == ()


def test_alternate_exchanges_may_be_missing_or_go_in_circles(router: Router[str]) -> None:
    declare(router, "x", alternate="y")
    assert router.route("x", "k") == ()
    declare(router, "y", alternate="x")
    assert router.route("x", "k") == ()
    router.bind("y", "q", "k")
    assert queues(router.route("x", "k")) == ["q"]
    router.delete_exchange("y")
    assert router.route("x", "k") == ()


def test_an_alternate_exchange_counts_from_when_it_is_declared(router: Router[str]) -> None:
    declare(router, "x", alternate="y")
    router.bind("amq.fanout", "q")
    assert router.route("x", "k") == ()
    declare(router, "y", alternate="amq.fanout")
    assert queues(router.route("x", "k")) == ["q"]


def test_dollar_is_hidden_in_the_topic_space_and_nowhere_else(router: Router[str]) -> None:
    declare(router, "x", "topic")
    for name in ("x", "amq.topic"):
        router.bind(name, "q", "#")
    assert queues(router.route("x", "$a")) == ["q"]
    assert router.route("amq.topic", "$a") == router.route_topic("$a") == ()


def test_headers_are_asked_for_once_and_only_at_a_headers_exchange(router: Router[str]) -> None:
    router.bind("amq.headers", "q", "", {"a": 1})
    router.bind("amq.headers", ExchangeRef("amq.match"))
    router.bind("amq.match", "p", "", {"a": None})
    router.bind("amq.fanout", ExchangeRef("amq.headers"))
    router.bind("amq.topic", ExchangeRef("amq.headers"), "#")
    asked = []

    def headers() -> Mapping[str, object]:
        asked.append(1)
        return {"a": len(asked)}

    assert queues(router.route("amq.fanout", "k", headers)) == ["q", "p"]
    assert len(asked) == 1
    assert queues(router.route("amq.fanout", "k", headers)) == ["p"]
    assert queues(router.route_topic("k", headers)) == ["p"]
    assert not router.routes
    assert not router.topic_routes


def test_a_message_with_several_keys_reaches_each_queue_once(router: Router[str]) -> None:
    declare(router, "x", "topic", alternate="amq.fanout")
    router.bind("amq.fanout", "rest")
    router.bind("x", "q1", "a.#")
    router.bind("x", "q2", "b")
    assert router.route_keys("x", ["a", "a.b", "b", "c"]) == (Match("q1", ()), Match("q2", ()))
    router.subscribe("a/#", "q1", "o")
    assert router.route_keys("amq.topic", ["a", "a.b", "b"]) == (Match("q1", ("o",)),)
    assert queues(router.route_keys("x", ["c", "d"])) == ["rest"]


# The caches


def test_a_route_is_found_once_and_kept(router: Router[str]) -> None:
    router.subscribe("a/#", "q", 1)
    route = router.route_topic("a/b")
    assert router.topic_routes.get("a/b") is route
    assert router.route_topic("a/b") is route
    assert router.route("amq.topic", "a.b") is router.routes["amq.topic", "a.b"]
    assert router.routes_found == 2


def test_no_route_is_an_answer_that_is_kept_too(router: Router[str]) -> None:
    assert router.route_topic("a") == ()
    assert router.topic_routes["a"] == ()


def test_the_routes_of_an_internal_exchange_are_not_kept(router: Router[str]) -> None:
    router.declare_exchange(ExchangeSpec.parse("inner", "fanout", internal=True))
    router.route("inner", "k", inside=True)
    assert not router.routes


def test_the_caches_start_again_when_they_are_full(
    router: Router[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router_module, "MAX_ROUTES", 10)
    for number in range(25):
        router.route_topic(f"t/{number}")
    assert len(router.topic_routes) == 5
    assert router.cache_overflows == 2


def test_the_caches_are_bounded_by_what_their_routes_weigh(
    router: Router[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router_module, "MAX_MATCHES", 100)
    for number in range(30):
        router.subscribe("#", f"q{number}")
    for number in range(10):
        router.route_topic(f"t/{number}")
        router.route("amq.topic", f"t.{number}")
        assert sum(map(len, [*router.routes.values(), *router.topic_routes.values()])) <= 100
    assert router.cache_overflows > 0


def test_a_cache_that_a_change_emptied_has_all_its_room_again(
    router: Router[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router_module, "MAX_MATCHES", 100)
    router.subscribe("#", "q")
    for number in range(200):
        router.route_topic("t")
        router.subscribe("other", f"q{number}")
    assert router.cache_overflows == 0


def test_a_very_long_topic_is_routed_but_not_kept(router: Router[str]) -> None:
    router.subscribe("#", "q")
    assert queues(router.route_topic("t" * 1000)) == ["q"]
    assert queues(router.route("amq.topic", "t" * 1000)) == ["q"]
    assert not router.topic_routes
    assert not router.routes


# What one message may take


def test_many_keys_through_many_exchanges_are_refused(router: Router[str]) -> None:
    declare(router, "start", "fanout")
    for number in range(100):
        declare(router, f"x{number}", "topic")
        router.bind("start", ExchangeRef(f"x{number}"))
    assert router.route_keys("start", [f"k{number}" for number in range(100)]) == ()
    before = router.effort.spent
    assert before < 20_000
    with pytest.raises(LimitExceeded, match="fewer keys"):
        router.route_keys("start", [f"k{number}" for number in range(1000)])
    # A search in vain takes time, too: whoever sends one such message after another gives way.
    assert router_module.MAX_COMPARISONS < router.effort.spent - before < 20_000


def test_many_keys_that_each_match_much_are_refused(router: Router[str]) -> None:
    for number in range(200):
        router.subscribe("#", f"q{number}")
    assert len(router.route_keys("amq.topic", ["a", "b"])) == 200
    with pytest.raises(LimitExceeded, match="fewer keys"):
        router.route_keys("amq.topic", [f"k{number}" for number in range(200)])


@pytest.mark.parametrize("kind", ["fanout", "headers", "x-recent-history"])
def test_a_kind_that_reads_no_keys_is_asked_once(router: Router[str], kind: str) -> None:
    declare(router, "x", kind)
    for number in range(200):
        router.bind("x", f"q{number}", "", {"x-match": "any", "a": 1})
    found = router.route_keys("x", [f"k{number}" for number in range(2000)], lambda: {"a": 1})
    assert len(found) == 200
    assert router.effort.spent < 500


def test_the_same_key_again_is_one_key(router: Router[str]) -> None:
    for number in range(200):
        router.bind("amq.direct", f"q{number}", "k")
    assert len(router.route_keys("amq.direct", ["k"] * 2000)) == 200
    assert router.effort.spent < 500


def test_one_key_at_one_exchange_is_never_too_much(
    router: Router[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router_module, "MAX_COMPARISONS", 10)
    declare(router, "start", "fanout")
    router.bind("start", ExchangeRef("amq.headers"))
    for number in range(400):
        router.bind("amq.headers", "q", "", {"a": number})
    assert queues(router.route("start", "k", lambda: {"a": 7})) == ["q"]
    router.bind("amq.headers", ExchangeRef("amq.match"), "", {"a": 7})
    for number in range(400):
        router.bind("amq.match", "q", "", {"a": number})
    with pytest.raises(LimitExceeded, match="fewer exchanges"):
        router.route("start", "k", lambda: {"a": 7})
