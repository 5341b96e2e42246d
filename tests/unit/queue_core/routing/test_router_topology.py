"""Exchanges, queues and bindings at a router: declared, listed, gone with what hangs on them."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from queue_core.errors import (
    ExchangeInUse,
    ExchangeNotFound,
    NameReserved,
    NotEquivalent,
)
from queue_core.routing.bindings import Binding, ExchangeRef
from queue_core.routing.exchanges import ExchangeSpec
from queue_core.routing.route import Match
from queue_core.routing.router import Removal, Router
from tests.unit.queue_core.routing.routers import declare, queues

# Bindings


def test_binding_twice_is_binding_once(router: Router[str]) -> None:
    assert router.bind("amq.direct", "q", "k", {"a": 1})
    assert not router.bind("amq.direct", "q", "k", {"a": 1})
    assert router.bind("amq.direct", "q", "k", {"a": 2})
    assert router.bind("amq.direct", "q", "k", {})
    assert not router.bind("amq.direct", "q", "k", None)
    assert router.route("amq.direct", "k") == (Match("q", ()),)


def test_subscribing_again_replaces_the_options(router: Router[str]) -> None:
    assert router.subscribe("a/+", "q", "old")
    assert router.route_topic("a/b") == (Match("q", ("old",)),)
    assert not router.subscribe("a/+", "q", "new")
    assert router.route_topic("a/b") == (Match("q", ("new",)),)
    assert [each.options for each in router.bindings_of("q")] == ["new"]


def test_a_subscription_and_a_binding_of_one_queue_are_two(router: Router[str]) -> None:
    router.subscribe("a", "q", "options")
    router.bind("amq.topic", "q", "a")
    assert router.unsubscribe("a", "q")
    assert not router.unsubscribe("a", "q")
    assert router.route_topic("a") == (Match("q", ()),)
    assert len(router.unbind("amq.topic", "q", "a").bindings) == 1
    assert router.route_topic("a") == ()


def test_unbinding_what_is_not_bound_changes_nothing(router: Router[str]) -> None:
    router.bind("amq.direct", "q", "k", {"a": 1})
    assert router.unbind("amq.direct", "q", "k") == Removal((), ())
    assert queues(router.route("amq.direct", "k")) == ["q"]


def test_bindings_are_listed_by_their_names(router: Router[str]) -> None:
    router.register_queue("name", "q")
    router.bind("amq.direct", "q", "k", {"a": 1})
    router.subscribe("a/+", "q", "options")
    router.bind("amq.fanout", ExchangeRef("amq.direct"))
    of_queue = [
        Binding("", "q", "name"),
        Binding("amq.direct", "q", "k", {"a": 1}),
        Binding("amq.topic", "q", "a/+", is_filter=True),
    ]
    assert router.bindings_of("q") == of_queue
    to_exchange: Binding[str] = Binding("amq.fanout", ExchangeRef("amq.direct"))
    assert router.bindings_of(ExchangeRef("amq.direct")) == [to_exchange]
    assert set(router.bindings()) == {*of_queue, to_exchange}


def test_the_default_exchange_cannot_be_bound(router: Router[str]) -> None:
    router.register_queue("q", "q")
    with pytest.raises(NameReserved):
        router.bind("", "q", "k")
    with pytest.raises(NameReserved):
        router.bind("amq.direct", ExchangeRef(""), "k")
    with pytest.raises(NameReserved):
        router.unbind("", "q", "q")


def test_both_ends_of_a_binding_must_be_there(router: Router[str]) -> None:
    with pytest.raises(ExchangeNotFound):
        router.bind("nowhere", "q")
    with pytest.raises(ExchangeNotFound):
        router.bind("amq.direct", ExchangeRef("nowhere"))
    with pytest.raises(ExchangeNotFound):
        router.unbind("nowhere", "q")


# Queues


def test_a_queue_that_goes_takes_its_bindings_along(router: Router[str]) -> None:
    router.declare_exchange(ExchangeSpec.parse("auto", "direct", auto_delete=True))
    router.declare_exchange(ExchangeSpec.parse("shared", "direct", auto_delete=True))
    router.register_queue("name", "q")
    router.bind("auto", "q", "a")
    router.bind("auto", "q", "b")
    router.bind("shared", "q", "k")
    router.bind("shared", "other", "k")
    removal = router.unregister_queue("name")
    assert [binding.source for binding in removal.bindings] == ["", "auto", "auto", "shared"]
    assert removal.unused_exchanges == ("auto",)
    assert router.queue("name") is None
    assert router.bindings_of("q") == []
    assert router.route("", "name") == ()
    assert queues(router.route("shared", "k")) == ["other"]
    assert router.unregister_queue("name") == Removal((), ())


def test_a_queue_name_is_taken_once(router: Router[str]) -> None:
    router.register_queue("name", "q")
    router.register_queue("name", "q")
    assert router.queue("name") == "q"
    with pytest.raises(ValueError, match="taken"):
        router.register_queue("name", "other")


def test_unbinding_reports_an_auto_delete_exchange_that_became_unused(
    router: Router[str],
) -> None:
    router.declare_exchange(ExchangeSpec.parse("auto", "direct", auto_delete=True))
    assert router.exchange("auto").is_unused
    router.bind("auto", "q", "a")
    router.bind("auto", "q", "b")
    assert router.unbind("auto", "q", "a").unused_exchanges == ()
    assert router.unbind("auto", "q", "b").unused_exchanges == ("auto",)
    router.bind("amq.direct", "q", "a")
    assert router.unbind("amq.direct", "q", "a").unused_exchanges == ()


# Exchanges


def test_the_exchanges_that_every_vhost_has(router: Router[str]) -> None:
    assert {spec.name: spec.kind.value for spec in router.exchanges()} == {
        "": "direct",
        "amq.direct": "direct",
        "amq.fanout": "fanout",
        "amq.topic": "topic",
        "amq.headers": "headers",
        "amq.match": "headers",
    }
    for spec in router.exchanges():
        with pytest.raises(NameReserved):
            router.delete_exchange(spec.name)


def test_declaring_again_is_fine_with_the_same_words_only(router: Router[str]) -> None:
    assert router.declare_exchange(ExchangeSpec.parse("x", "direct"))
    assert not router.declare_exchange(ExchangeSpec.parse("x", "direct"))
    assert not router.declare_exchange(ExchangeSpec.parse("amq.topic", "topic"))
    with pytest.raises(NotEquivalent):
        router.declare_exchange(ExchangeSpec.parse("x", "fanout"))
    with pytest.raises(NotEquivalent):
        router.declare_exchange(ExchangeSpec.parse("amq.topic", "fanout"))


@pytest.mark.parametrize("name", ["", "amq.mine"])
def test_reserved_names_cannot_be_declared(router: Router[str], name: str) -> None:
    with pytest.raises(NameReserved):
        router.declare_exchange(ExchangeSpec.parse(name, "direct"))


def test_looking_for_an_exchange_that_is_not_there_is_an_error(router: Router[str]) -> None:
    assert router.exchange("amq.topic").spec.kind == "topic"
    with pytest.raises(ExchangeNotFound):
        router.exchange("x")
    with pytest.raises(ExchangeNotFound):
        router.delete_exchange("x")


def test_a_deleted_exchange_is_gone_for_publishers_who_used_it(router: Router[str]) -> None:
    declare(router, "x")
    assert router.route("x", "k") == ()
    router.delete_exchange("x")
    with pytest.raises(ExchangeNotFound):
        router.route("x", "k")


def test_an_exchange_that_goes_takes_its_bindings_along(router: Router[str]) -> None:
    router.declare_exchange(ExchangeSpec.parse("auto", "fanout", auto_delete=True))
    router.declare_exchange(ExchangeSpec.parse("x", "fanout", auto_delete=True))
    router.bind("auto", ExchangeRef("x"))
    router.bind("x", ExchangeRef("x"))
    router.bind("x", "q")
    with pytest.raises(ExchangeInUse, match="2 bindings"):
        router.delete_exchange("x", if_unused=True)
    removal = router.delete_exchange("x")
    assert len(removal.bindings) == 3
    assert removal.unused_exchanges == ("auto",)
    assert router.bindings() == []
    assert router.delete_exchange("auto", if_unused=True) == Removal((), ())


def test_an_exchange_with_bindings_to_it_only_is_unused(router: Router[str]) -> None:
    declare(router, "x")
    router.bind("amq.fanout", ExchangeRef("x"))
    assert len(router.delete_exchange("x", if_unused=True).bindings) == 1


def test_what_comes_and_goes_leaves_no_memory_behind() -> None:
    router: Router[str] = Router()
    bound = [("amq.direct", "{}"), ("amq.fanout", "{}"), ("amq.topic", "{}.*.x.{}.#")]

    def come_and_go(times: int) -> None:
        for number in range(times):
            for exchange, key in bound:
                router.bind(exchange, f"q{number}", key.format(number, number))
            router.bind("amq.headers", f"q{number}", "", {"number": number})
            router.subscribe(f"a/{number}/+/#", f"q{number}", number)
            router.unbind_all(f"q{number}")

    come_and_go(10)
    tracemalloc.start()
    try:
        come_and_go(1000)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 20_000
    finally:
        tracemalloc.stop()
