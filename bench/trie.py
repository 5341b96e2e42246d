"""`python -m bench.trie`: measures the cost of finding a topic's subscribers.

100,000 filters, a topic that ten of them match; without the cache, through the router without and
with its cache, and what a subscription weighs in memory.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from timeit import repeat

from queue_core.message.topic_forms import dotted, slashed
from queue_core.routing.router import Router
from queue_core.routing.topics import filter_tokens, levels_of
from queue_core.routing.trie import Trie

FILTERS = 100_000
TOPIC = "site/7/device/507/temperature"
KEY = dotted(TOPIC)
WILDCARDS = (
    "#",
    "site/#",
    "site/7/#",
    "site/+/device/+/temperature",
    "site/7/device/+/temperature",
    "+/7/device/#",
    "site/7/+/507/#",
    "+/+/+/+/+",
    "site/7/device/507/+",
)


def filters() -> Iterator[str]:
    """Yields one filter a device, and some with wildcards: ten of them match the topic."""
    for device in range(FILTERS - len(WILDCARDS)):
        yield f"site/{device % 100}/device/{device}/temperature"
    yield from WILDCARDS


def microseconds(call: Callable[[], object], number: int = 20_000) -> float:
    return min(repeat(call, number=number, repeat=7)) / number * 1e6


def filled_trie() -> Trie[int]:
    trie: Trie[int] = Trie(hides_dollar=True)
    for entry, topic_filter in enumerate(filters()):
        trie.add(filter_tokens(topic_filter), entry)
    return trie


def filled_router() -> Router[object]:
    router: Router[object] = Router()
    for topic_filter in filters():
        router.subscribe(topic_filter, object(), 1)
    return router


def weight(fill: Callable[[], object]) -> float:
    """Returns the bytes of memory for each filter."""
    gc.collect()
    tracemalloc.start()
    filled = fill()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del filled
    return size / FILTERS


def main() -> None:
    trie, router = filled_trie(), filled_router()
    levels = levels_of(TOPIC)
    assert len(trie.match(levels)) == len(router.route_topic(TOPIC)) == 10

    def anew() -> None:
        router.topic_routes.clear()
        router.route_topic(TOPIC)

    router.route("amq.topic", KEY)
    rows = {
        "trie.match, goal 10": microseconds(lambda: trie.match(levels)),
        "router.route_topic, not cached": microseconds(anew),
        "router.route_topic, cached, goal 0.3": microseconds(lambda: router.route_topic(TOPIC)),
        "router.route, cached, goal 0.3": microseconds(lambda: router.route("amq.topic", KEY)),
        "router.topic_routes.get": microseconds(lambda: router.topic_routes.get(TOPIC)),
        "slashed(key)": microseconds(lambda: slashed(KEY)),
        "dotted(topic)": microseconds(lambda: dotted(TOPIC)),
    }
    print(f"{FILTERS} filters, 10 of them match {TOPIC}; microseconds a call, best of 7:")
    for name, figure in rows.items():
        print(f"  {name:<40} {figure:8.3f}")
    print(f"  {'trie, bytes a filter':<40} {weight(filled_trie):8.0f}")
    print(f"  {'router, bytes a subscription':<40} {weight(filled_router):8.0f}")


if __name__ == "__main__":
    main()
