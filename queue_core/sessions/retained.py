"""Retained messages: the last value of each topic, for those who subscribe later.

The topics are in memory, the messages in PostgreSQL, with a small cache of them here. A value
enters and leaves with the unit that published it: `record` makes what the unit carries, `committed`
hears of the commit. Nothing here knows a protocol or SQL.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Container,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, Final, NamedTuple, Protocol

from queue_core.commit.unit import RetainedRecord
from queue_core.errors import CoreError, LimitExceeded, StoreUnavailable
from queue_core.message.message import Message
from queue_core.routing.topics import MANY, ONE, Tokens, filter_tokens, levels_of
from queue_core.scheduler import Share, scheduler
from queue_core.timers import Agenda, Appointment

log = logging.getLogger(__name__)

MAX_TOPIC_BYTES: Final = 2000  # a key of the table's index has room for no more
WALK_SLICE_NODES: Final = 2000  # nodes of the index, in a millisecond or less
INDEX_SLICE_VALUES: Final = 500  # values on their way to the table, in a millisecond or two
PAGE_TOPICS: Final = 256  # read back at once
PAGE_BYTES: Final = 4 * 1024 * 1024
MAX_CACHED_VALUE_BYTES: Final = 16 * 1024
CACHED_VALUE_OVERHEAD_BYTES: Final = 512  # of Python objects around a value, however small that is
VALUE_WAIT_SECONDS: Final = 1.0  # that a subscriber waits for values on their way to the table
# Values on their way to the table, before those are looked for that never come.
MOST_COMING: Final = 10_000
SWEEP_PAUSE_SECONDS: Final = 60.0  # between two looks for expired ones
SWEEP_STEP_TOPICS: Final = 5000  # topics looked at before others get their turn
SWEEP_STEP_PAUSE_SECONDS: Final = 0.01  # until the next step


@dataclass(frozen=True, slots=True)
class RetainedSettings:
    max_topics: int = 1_000_000
    max_bytes: int = 4 * 1024 * 1024 * 1024
    cache_bytes: int = 16 * 1024 * 1024


class Kept(NamedTuple):
    """A retained message, with what its table knows of it."""

    message: Message
    qos: int
    retained_at: float


class KeptTopic(NamedTuple):
    """A row of the table without its message, as the index is built from."""

    vhost: str
    topic: str
    size: int
    expires_at: float | None


class RetainedStore(Protocol):
    """The table of retained messages."""

    def topics(self) -> AsyncIterator[list[KeptTopic]]:
        """Yields all rows, some at a time."""
        ...

    async def read(self, vhost: str, topics: Sequence[str]) -> dict[str, Kept]: ...

    async def delete_expired(self, vhost: str, topics: Sequence[str], now: float) -> None:
        """Deletes those of them that have expired by then."""


class Node:
    """Stands for one level of some topics; the topic that ends here is named in full."""

    __slots__ = ("children", "expires_at", "number", "size", "topic")

    def __init__(self) -> None:
        self.children: dict[str, Node] = {}
        self.topic: str | None = None
        self.size = 0
        self.expires_at: float | None = None
        self.number = 0  # of the publish that made this value; 0: before this gateway started


BREATH: Final = Node()  # stands for no topic


class TopicIndex:
    """The topics of one vhost that have a value. Matching a filter walks only where it leads."""

    def __init__(self) -> None:
        self._root = Node()
        self.count = 0
        self.bytes = 0
        self.expiring = 0

    def find(self, topic: str) -> Node | None:
        node: Node | None = self._root
        for level in levels_of(topic):
            node = node.children.get(level) if node is not None else None
        return None if node is None or node.topic is None else node

    def put(self, topic: str, size: int, expires_at: float | None, number: int = 0) -> None:
        node = self._root
        for level in levels_of(topic):
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = Node()
            node = child
        self._leave(node)
        node.topic, node.size, node.expires_at = topic, size, expires_at
        node.number = number
        self.count += 1
        self.bytes += size
        self.expiring += expires_at is not None

    def remove(self, topic: str) -> bool:
        """False if it has no value."""
        path = [self._root]
        levels = levels_of(topic)
        for level in levels:
            child = path[-1].children.get(level)
            if child is None:
                return False
            path.append(child)
        if not self._leave(path[-1]):
            return False
        for level in reversed(levels):
            node = path.pop()
            if node.children or node.topic is not None:
                break
            del path[-1].children[level]
        return True

    def _leave(self, node: Node) -> bool:
        if node.topic is None:
            return False
        self.count -= 1
        self.bytes -= node.size
        self.expiring -= node.expires_at is not None
        node.topic, node.expires_at = None, None
        return True

    def match(self, tokens: Tokens) -> Iterator[Node]:
        """The nodes of topics that the filter matches, in no promised order; and now and then a
        BREATH, at which others may have their turn. Topics may come and go while this is walked:
        what is there all along is met once."""
        stack, steps = [(self._root, 0)], 0
        while stack:
            steps += 1
            if steps % WALK_SLICE_NODES == 0:
                yield BREATH
            node, depth = stack.pop()
            if depth == len(tokens):
                if node.topic is not None:
                    yield node
                continue
            token = tokens[depth]
            if token == MANY and node.topic is not None:
                yield node
            if token in (MANY, ONE):
                onward = depth if token == MANY else depth + 1
                stack.extend((child, onward) for child in self._children(node))
            elif token in node.children:
                stack.append((node.children[token], depth + 1))

    def _children(self, node: Node) -> list[Node]:
        """Returns the nodes that a wildcard leads to: from the root, not the `$` topics."""
        if node is not self._root:
            return list(node.children.values())
        return [child for level, child in node.children.items() if level[:1] != "$"]

    def all(self) -> Iterator[Node]:
        stack = [self._root]
        while stack:
            node = stack.pop()
            if node.topic is not None:
                yield node
            stack.extend(node.children.values())


class Retained:
    def __init__(
        self,
        store: RetainedStore,
        *,
        clock: Callable[[], float],
        agenda: Agenda,
        later: Callable[[Coroutine[Any, Any, object]], None],
        flushed: Callable[[], Awaitable[None]],
        settings: RetainedSettings | None = None,
    ) -> None:
        self._store = store
        self._flushed = flushed  # returns when all that was submitted is committed, or refused
        self._clock = clock
        self._agenda = agenda
        self._later = later
        self._settings = settings or RetainedSettings()
        self._indexes: dict[str, TopicIndex] = {}
        # The newest of each topic that is on its way to the table, the oldest of them first. One
        # that is refused there stays until somebody subscribes, or they are many.
        self._coming: dict[tuple[str, str], RetainedRecord] = {}
        self._numbers = count(1)  # publishes and subscriptions, in one order
        self._is_clearing = False
        self._cache: OrderedDict[tuple[str, str], Kept] = OrderedDict()
        self.cached_bytes = 0
        self._sweep: Appointment | None = None
        self._swept: Iterator[tuple[str, Node]] | None = None

    @property
    def count(self) -> int:
        return sum(index.count for index in self._indexes.values())

    @property
    def bytes(self) -> int:
        return sum(index.bytes for index in self._indexes.values())

    # --- values come and go with commits

    def record(self, vhost: str, message: Message, qos: int) -> RetainedRecord:
        """Makes the record with which a unit makes this message its topic's value; an empty body
        clears it. Raises LimitExceeded."""
        topic = message.topic
        if message.body:
            self._check_limits(vhost, message)
        value = message if message.body else None
        record = RetainedRecord(vhost, topic, value, qos, next(self._numbers))
        self._coming.pop((vhost, topic), None)
        self._coming[vhost, topic] = record
        if len(self._coming) > MOST_COMING and not self._is_clearing:
            self._is_clearing = True
            self._later(self._clear_refused())
        return record

    async def _clear_refused(self) -> None:
        try:
            await self._has_caught_up(next(self._numbers))
        finally:
            self._is_clearing = False

    def _check_limits(self, vhost: str, message: Message) -> None:
        topic = message.topic
        if len(topic) > MAX_TOPIC_BYTES // 4 and len(topic.encode()) > MAX_TOPIC_BYTES:
            raise LimitExceeded(
                f"a retained message's topic has {MAX_TOPIC_BYTES} bytes at most; "
                "publish it without retain, or under a shorter topic"
            )
        held = self._index(vhost).find(topic)
        most = self._settings
        if held is None and self.count >= most.max_topics:
            raise LimitExceeded(
                f"{most.max_topics} topics have a retained message, which is the limit; "
                "clear some, or raise the limit"
            )
        if self.bytes - (0 if held is None else held.size) + message.size() > most.max_bytes:
            raise LimitExceeded(
                f"retained messages take {self.bytes} bytes of {most.max_bytes} allowed; "
                "clear some, or raise the limit"
            )

    def committed(self, records: Iterable[RetainedRecord]) -> None:
        """These are in the table now, in this order."""
        for record in records:
            vhost, topic, message = record.vhost, record.topic, record.message
            if self._coming.get((vhost, topic)) is record:
                del self._coming[vhost, topic]
            self._uncache(vhost, topic)
            if message is None:
                self._index(vhost).remove(topic)
                continue
            self._index(vhost).put(topic, message.size(), message.expires_at, record.number)
            self._keep(vhost, topic, Kept(message, record.qos, self._clock()))
            if message.expires_at is not None:
                self._plan_sweep()

    async def recover(self) -> None:
        """Reads which topics have a value."""
        async for page in self._store.topics():
            for kept in page:
                self._index(kept.vhost).put(kept.topic, kept.size, kept.expires_at)
        if any(index.expiring for index in self._indexes.values()):
            self._plan_sweep()

    def sizes(self) -> Iterator[tuple[str, str, int]]:
        """Virtual host, topic and size of every value that is in the table."""
        for vhost, index in self._indexes.items():
            for node in index.all():
                yield vhost, node.topic or "", node.size

    def forget_vhost(self, vhost: str) -> None:
        """The virtual host is gone, and its rows with it: nothing of them is for one that takes
        its name."""
        self._indexes.pop(vhost, None)
        for topic in [topic for name, topic in self._cache if name == vhost]:
            self._uncache(vhost, topic)
        self._coming = {key: held for key, held in self._coming.items() if key[0] != vhost}

    def _index(self, vhost: str) -> TopicIndex:
        index = self._indexes.get(vhost)
        if index is None:
            index = self._indexes[vhost] = TopicIndex()
        return index

    # --- matching

    def mark(self) -> int:
        """The present, in the order of publishes. Whoever subscribes takes it in the same turn in
        which its queues are bound: each publish is then either before it, and the business of
        `match`, or after it, and routed."""
        return next(self._numbers)

    async def match(
        self, vhost: str, topic_filter: str, *, mark: int | None = None
    ) -> AsyncIterator[Kept]:
        """Yields the values that the matching topics had at the mark, a page of them in memory at a
        time.
        A value published before the mark is waited for: it came too early for the subscriber to get
        otherwise. A topic published to after the mark is left out: its new value comes by itself,
        and the older one would come after it."""
        tokens = filter_tokens(topic_filter)
        if mark is None:
            mark = self.mark()
        share = scheduler().share()
        early: dict[str, tuple[int, Kept]] = {}
        if self._coming and not await self._has_caught_up(mark):
            early = await self._early(vhost, tokens, mark, share)
        for topic, (number, kept) in early.items():
            if self._is_value(vhost, topic, number):
                yield kept
        index = self._indexes.get(vhost)
        if index is None:
            return
        for page in _pages(_older(index.match(tokens), mark, early)):
            if not page:
                await share.turn()
                share.end()
                continue
            for kept in await self._values(vhost, page):
                topic = kept.message.topic
                if self._is_value(vhost, topic, page[topic]):
                    yield kept

    async def _has_caught_up(self, mark: int) -> bool:
        """Waits until all that was published before is in the table, or never will be. False: the
        database is away, and nobody has to wait for it who can be served without."""
        try:
            async with asyncio.timeout(VALUE_WAIT_SECONDS):
                await self._flushed()
        except (TimeoutError, StoreUnavailable):
            return False
        while self._coming:
            oldest = next(iter(self._coming))
            if self._coming[oldest].number > mark:
                break
            del self._coming[oldest]
        return True

    def _is_value(self, vhost: str, topic: str, number: int) -> bool:
        """Tells whether that publish still is the last one of its topic. Asked for each value when
        its turn comes: whoever reads a page may take long over it, and hears of newer ones
        itself."""
        coming = self._coming.get((vhost, topic))
        if coming is not None:
            return coming.number == number
        node = self._index(vhost).find(topic)
        return node is not None and node.number == number

    async def _early(
        self, vhost: str, tokens: Tokens, mark: int, share: Share
    ) -> dict[str, tuple[int, Kept]]:
        """Values that match, by topic, and that are on their way to the table since before, with
        the number of their publish. What gets there while others have their turn is found there,
        unless it was found here."""
        found: dict[str, tuple[int, Kept]] = {}
        coming = iter(list(self._coming.values()))
        while records := list(islice(coming, INDEX_SLICE_VALUES)):
            await share.turn()
            found |= self._early_of(records, vhost, tokens, mark)
            share.end()
        return found

    def _early_of(
        self, records: list[RetainedRecord], vhost: str, tokens: Tokens, mark: int
    ) -> dict[str, tuple[int, Kept]]:
        index, now = TopicIndex(), self._clock()
        known = {each.topic: each for each in records if each.vhost == vhost}
        for topic, record in known.items():
            if record.number < mark and record.message is not None:
                index.put(topic, 0, None)
        coming = [known[node.topic] for node in index.match(tokens) if node.topic is not None]
        return {
            each.topic: (each.number, Kept(each.message, each.qos, now))
            for each in coming
            if each.message is not None and not _is_expired(each.message, now)
        }

    async def _values(self, vhost: str, page: dict[str, int]) -> list[Kept]:
        found: dict[str, Kept] = {}
        for topic in page:
            kept = self._cache.get((vhost, topic))
            if kept is not None:
                found[topic] = kept
                self._cache.move_to_end((vhost, topic))
        if len(found) < len(page):
            missing = [topic for topic in page if topic not in found]
            read = await self._store.read(vhost, missing)
            for topic, kept in read.items():
                node = self._index(vhost).find(topic)
                if node is not None and node.number == page[topic]:  # no newer one came meanwhile
                    self._keep(vhost, topic, kept)
                    found[topic] = kept
        found = {topic: kept for topic, kept in found.items() if (vhost, topic) not in self._coming}
        now = self._clock()
        expired = [topic for topic, kept in found.items() if _is_expired(kept.message, now)]
        if expired:
            self._later(self._delete_expired(vhost, expired))
        return [kept for kept in found.values() if not _is_expired(kept.message, now)]

    # --- what is kept in memory

    def _keep(self, vhost: str, topic: str, kept: Kept) -> None:
        size = kept.message.size()
        if size > MAX_CACHED_VALUE_BYTES:
            return
        self._uncache(vhost, topic)
        self._cache[vhost, topic] = kept
        self.cached_bytes += size + CACHED_VALUE_OVERHEAD_BYTES
        while self.cached_bytes > self._settings.cache_bytes:
            _, oldest = self._cache.popitem(last=False)
            self.cached_bytes -= oldest.message.size() + CACHED_VALUE_OVERHEAD_BYTES

    def _uncache(self, vhost: str, topic: str) -> None:
        kept = self._cache.pop((vhost, topic), None)
        if kept is not None:
            self.cached_bytes -= kept.message.size() + CACHED_VALUE_OVERHEAD_BYTES

    # --- expiry

    def _plan_sweep(self) -> None:
        if self._sweep is None:
            self._sweep = self._agenda.at(self._clock() + SWEEP_PAUSE_SECONDS, self._sweep_some)

    def _sweep_some(self) -> None:
        """Looks at some topics; the next ones have their turn with the next call."""
        self._sweep = None
        now = self._clock()
        if self._swept is None:
            self._swept = self._expiring_nodes()
        expired: dict[str, list[str]] = {}
        seen = 0
        for vhost, node in islice(self._swept, SWEEP_STEP_TOPICS):
            seen += 1
            if node.topic is not None and node.expires_at is not None and node.expires_at <= now:
                expired.setdefault(vhost, []).append(node.topic)
        for vhost, topics in expired.items():
            self._later(self._delete_expired(vhost, topics))
        if seen == SWEEP_STEP_TOPICS:
            self._sweep = self._agenda.at(now + SWEEP_STEP_PAUSE_SECONDS, self._sweep_some)
            return
        self._swept = None
        if any(index.expiring for index in self._indexes.values()):
            self._plan_sweep()

    def _expiring_nodes(self) -> Iterator[tuple[str, Node]]:
        for vhost, index in list(self._indexes.items()):
            if index.expiring:
                for node in index.all():
                    yield vhost, node

    async def _delete_expired(self, vhost: str, topics: list[str]) -> None:
        now = self._clock()
        try:
            await self._store.delete_expired(vhost, topics, now)
        except CoreError as error:
            log.warning("expired retained messages stay until the next look: %s", error)
            return
        index = self._index(vhost)
        for topic in topics:
            node = index.find(topic)
            # a value that was published meanwhile has an expiry of its own
            if node is not None and node.expires_at is not None and node.expires_at <= now:
                index.remove(topic)
                self._uncache(vhost, topic)


def _is_expired(message: Message, now: float) -> bool:
    return message.expires_at is not None and message.expires_at <= now


def _older(nodes: Iterable[Node], mark: int, early: Container[str]) -> Iterator[Node]:
    """Nodes whose value is from before the mark, and was not found on its way already."""
    return (node for node in nodes if node.number < mark and node.topic not in early)


def _pages(nodes: Iterable[Node]) -> Iterator[dict[str, int]]:
    """Topics and the numbers of their values, as many at a time as are read back at once; none at
    all for a BREATH."""
    page: dict[str, int] = {}
    size = 0
    for node in nodes:
        if node is BREATH:
            yield {}
        if node.topic is None:
            continue
        page[node.topic] = node.number
        size += node.size
        if len(page) >= PAGE_TOPICS or size >= PAGE_BYTES:
            yield page
            page, size = {}, 0
    if page:
        yield page
