"""A router beside a model that knows no trie and no cache: both find the same queues."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from queue_core.routing.bindings import ExchangeRef
from queue_core.routing.router import Router
from tests.unit.queue_core.routing.routers import declare, queues

# Against a model


NAMES = ["x", "y", "z", "amq.topic"]
QUEUES = ["q1", "q2", "q3"]
KEYS = ["a", "b", "a.b", "$a", ""]
PATTERNS = [*KEYS, "#", "*", "a.*", "#.b", "$a.#"]
KINDS = {"x": "direct", "y": "fanout", "z": "topic", "amq.topic": "topic"}
ALTERNATES = {"x": "y", "z": "x"}


def fits(kind: str, hides_dollar: bool, pattern: str, key: str) -> bool:
    if kind == "fanout":
        return True
    if kind == "direct":
        return pattern == key
    if hides_dollar and key.startswith("$") and pattern[:1] in ("*", "#"):
        return False
    return words_fit(pattern.split(".") if pattern else [], key.split(".") if key else [])


def words_fit(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return words_fit(pattern[1:], words) or (bool(words) and words_fit(pattern, words[1:]))
    return bool(words) and pattern[0] in ("*", words[0]) and words_fit(pattern[1:], words[1:])


class RoutingAgainstAModel(RuleBasedStateMachine):
    """Bindings come and go; every route, cached or not, is what the list of bindings says."""

    def __init__(self) -> None:
        super().__init__()
        self.router: Router[str] = Router()
        for name, kind in KINDS.items():
            if name != "amq.topic":
                declare(self.router, name, kind, ALTERNATES.get(name, ""))
        self.bound: set[tuple[str, str, str]] = set()

    @rule(
        source=st.sampled_from(NAMES),
        destination=st.sampled_from(QUEUES + NAMES),
        key=st.sampled_from(PATTERNS),
    )
    def bind(self, source: str, destination: str, key: str) -> None:
        target = ExchangeRef(destination) if destination in NAMES else destination
        is_new = self.router.bind(source, target, key)
        assert is_new is ((source, destination, key) not in self.bound)
        self.bound.add((source, destination, key))

    @rule(data=st.data())
    def unbind(self, data: st.DataObject) -> None:
        if self.bound:
            chosen = data.draw(st.sampled_from(sorted(self.bound)))
            source, destination, key = chosen
            target = ExchangeRef(destination) if destination in NAMES else destination
            assert len(self.router.unbind(source, target, key).bindings) == 1
            self.bound.remove(chosen)

    @rule(queue=st.sampled_from(QUEUES))
    def unbind_all(self, queue: str) -> None:
        gone = {each for each in self.bound if each[1] == queue}
        assert len(self.router.unbind_all(queue).bindings) == len(gone)
        self.bound -= gone

    @rule(exchange=st.sampled_from(NAMES), key=st.sampled_from(KEYS))
    def route(self, exchange: str, key: str) -> None:
        assert set(queues(self.router.route(exchange, key))) == self.expected(exchange, key)

    @rule(key=st.sampled_from(["a", "b", "a.b", "$a"]))
    def route_topic(self, key: str) -> None:
        found = queues(self.router.route_topic(key.replace(".", "/")))
        assert set(found) == self.expected("amq.topic", key)
        assert len(set(found)) == len(found)

    @invariant()
    def nothing_is_bound_but_what_was(self) -> None:
        assert len(self.router.bindings()) == len(self.bound)

    def expected(self, start: str, key: str) -> set[str]:
        reached, pending = {start}, [start]
        while pending:
            name = pending.pop()
            taken = {
                destination
                for source, destination, pattern in self.bound
                if source == name and fits(KINDS[name], name == "amq.topic", pattern, key)
            }
            if not taken and name in ALTERNATES:
                taken = {ALTERNATES[name]}
            pending += [each for each in taken - reached if each in NAMES]
            reached |= taken
        return reached - set(NAMES)


TestRoutingAgainstAModel = RoutingAgainstAModel.TestCase
TestRoutingAgainstAModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(st.lists(st.tuples(st.sampled_from(QUEUES), st.sampled_from(["#", "a/+", "a/b"]))))
def test_subscriptions_that_all_go_leave_nothing_behind(pairs: list[tuple[str, str]]) -> None:
    router: Router[str] = Router()
    for queue, topic_filter in pairs:
        router.subscribe(topic_filter, queue, 1)
    for queue in QUEUES:
        router.unbind_all(queue)
    assert router.bindings() == []
    assert router.route_topic("a/b") == ()
