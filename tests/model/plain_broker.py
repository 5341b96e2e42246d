"""Several queues and exchanges together: lists, and arrows between them.

Knows nothing of commits. What a step makes happen is done in the order in which it becomes true:
a queue in memory has a message at once, a stored one when all that was said with it is there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace


class Refused(Exception):
    """A queue that a transaction publishes to is full."""


@dataclass(frozen=True)
class Death:
    queue: str
    reason: str
    exchange: str
    key: str
    count: int = 1


@dataclass(frozen=True)
class Letter:
    """A message, wherever it is."""

    body: bytes
    exchange: str
    key: str
    message_id: str | None = None
    deaths: tuple[Death, ...] = ()

    def died(self, queue: str, reason: str, exchange: str, key: str) -> Letter:
        """Returns the letter as it goes to a dead-letter exchange."""
        same = [d for d in self.deaths if (d.queue, d.reason) == (queue, reason)]
        others = tuple(d for d in self.deaths if d not in same)
        death = Death(queue, reason, self.exchange, self.key)
        if same:
            death = replace(same[0], count=same[0].count + 1)
        return replace(self, exchange=exchange, key=key, deaths=(death, *others))

    def would_circle(self, queue: str) -> bool:
        """Tells if the letter died in that queue before, and nobody rejected it since."""
        for death in self.deaths:
            if death.reason == "rejected":
                return False
            if death.queue == queue:
                return True
        return False


@dataclass(eq=False)
class Held:
    """A letter in a queue."""

    letter: Letter
    place: int
    expires_at: float | None
    failures: int = 0


@dataclass
class Rules:
    """The arguments that a queue is declared with."""

    ttl: float | None = None
    expires: float | None = None
    max_length: int | None = None
    refuses: bool = False
    dlx: str | None = None
    dlx_key: str | None = None
    delivery_limit: int | None = None
    window: float | None = None
    is_ephemeral: bool = False


@dataclass
class Shelf:
    """A queue."""

    rules: Rules
    used_at: float
    items: list[Held] = field(default_factory=list)
    seen: dict[str, float] = field(default_factory=dict)
    placed: int = 0

    def is_full(self, coming: int = 0) -> bool:
        most = self.rules.max_length
        return self.rules.refuses and most is not None and len(self.items) + coming >= most

    def has_seen(self, letter: Letter, now: float) -> bool:
        """A dead letter that returns is no repetition."""
        if self.rules.window is None or letter.message_id is None or letter.deaths:
            return False
        return self.seen.get(letter.message_id, 0.0) > now - self.rules.window


@dataclass(frozen=True)
class Exchange:
    kind: str
    alternate: str | None = None
    is_durable: bool = True
    auto_deletes: bool = False


@dataclass(frozen=True)
class Binding:
    source: str
    to_exchange: bool
    destination: str
    key: str


def is_match(kind: str, pattern: str, key: str) -> bool:
    if kind == "topic":
        return _is_topic_match(pattern.split("."), key.split("."))
    return kind == "fanout" or pattern == key


def _is_topic_match(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(_is_topic_match(pattern[1:], words[i:]) for i in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and _is_topic_match(pattern[1:], words[1:])


@dataclass
class PlainBroker:
    now: float
    queues: dict[str, Shelf] = field(default_factory=dict)
    exchanges: dict[str, Exchange] = field(default_factory=dict)
    bindings: list[Binding] = field(default_factory=list)
    arrived: list[str] = field(default_factory=list)  # where something has to fit yet

    # --- where messages go

    def route(self, exchange: str, key: str) -> list[str]:
        """Queues, each once. LookupError: no such exchange."""
        if exchange == "":
            return [key] if key in self.queues else []
        found: dict[str, None] = {}
        walk = [exchange]
        for name in walk:
            here = self.exchanges[name]
            taken = [
                b for b in self.bindings if b.source == name and is_match(here.kind, b.key, key)
            ]
            found |= dict.fromkeys(b.destination for b in taken if not b.to_exchange)
            onward = [b.destination for b in taken if b.to_exchange]
            if not taken and here.alternate in self.exchanges:
                onward = [str(here.alternate)]
            walk += [each for each in dict.fromkeys(onward) if each not in walk]
        return list(found)

    def publish(self, letter: Letter) -> tuple[bool, bool]:
        """Whether it had somewhere to go, and whether a queue refused it."""
        route = self.route(letter.exchange, letter.key)
        taken = [self._take(name, letter) for name in route]
        self._fit()
        return bool(route), not all(taken)

    def _take(self, name: str, letter: Letter, *, stays: bool = False) -> bool:
        queue, rules = self.queues[name], self.queues[name].rules
        if queue.has_seen(letter, self.now):
            return True
        if queue.is_full():
            if not stays:
                self._die(name, letter, "maxlen")
            return False
        if letter.message_id is not None and not letter.deaths:
            queue.seen[letter.message_id] = self.now
        expires_at = None if rules.ttl is None else self.now + rules.ttl
        queue.items.append(Held(letter, queue.placed, expires_at))
        queue.placed += 1
        self.arrived.append(name)
        if rules.is_ephemeral:
            self._shorten(name)
        return True

    def _fit(self) -> None:
        while self.arrived:
            self._shorten(self.arrived.pop(0))

    def _shorten(self, name: str) -> None:
        queue = self.queues[name]
        most = queue.rules.max_length
        while most is not None and not queue.rules.refuses and len(queue.items) > most:
            self._die(name, queue.items.pop(0).letter, "maxlen")

    def _die(self, name: str, letter: Letter, reason: str) -> None:
        rules = self.queues[name].rules
        if rules.dlx is None:
            return
        key = letter.key if rules.dlx_key is None else rules.dlx_key
        dead = letter.died(name, reason, rules.dlx, key)
        if rules.dlx != "" and rules.dlx not in self.exchanges:
            return
        for target in self.route(rules.dlx, key):
            if reason == "rejected" or not dead.would_circle(target):
                self._take(target, dead)

    # --- consuming

    def get(self, name: str) -> Held | None:
        queue = self.queues[name]
        queue.used_at = self.now
        return queue.items.pop(0) if queue.items else None

    def settle(self, name: str, held: Held, verdict: str) -> None:
        if verdict == "rejected":
            self._die(name, held.letter, "rejected")
        elif verdict != "accepted":
            self._return(name, held, is_failure=verdict == "failed")
        self._fit()

    def _return(self, name: str, held: Held, *, is_failure: bool) -> None:
        queue = self.queues[name]
        held.failures += is_failure
        limit = queue.rules.delivery_limit
        if limit is not None and held.failures > limit:
            self._die(name, held.letter, "delivery_limit")
            return
        queue.items.append(held)
        queue.items.sort(key=lambda each: each.place)
        self.arrived.append(name)

    def commit(self, letters: list[Letter], settled: list[tuple[str, Held, str]]) -> None:
        """All at once. Raises Refused, and has done nothing then."""
        routes = [(each, self.route(each.exchange, each.key)) for each in letters]
        coming: dict[str, int] = {}
        for _, route in routes:
            for name in route:
                if self.queues[name].is_full(coming.get(name, 0)):
                    raise Refused
                coming[name] = coming.get(name, 0) + 1
        late: list[tuple[str, Letter]] = []
        for letter, route in routes:
            for name in route:
                if self.queues[name].rules.is_ephemeral:
                    late.append((name, letter))
                else:
                    self._take(name, letter)
        for name, held, verdict in settled:
            if verdict == "rejected":
                self._die(name, held.letter, "rejected")
        self._fit()
        for name, letter in late:
            self._take(name, letter)
        for name, held, verdict in settled:
            if verdict in ("failed", "released"):
                self._return(name, held, is_failure=verdict == "failed")
        self._fit()

    # --- people

    def redrive(self, name: str) -> int:
        """Dead letters go back to where they died, if that is there and takes them."""
        source = self.queues[name]
        moved = 0
        for held in [each for each in source.items if each.letter.deaths]:
            death = held.letter.deaths[0]
            source.items.remove(held)
            revived = replace(held.letter, exchange=death.exchange, key=death.key)
            if death.queue in self.queues and self._take(death.queue, revived, stays=True):
                moved += 1
            else:
                source.items.append(held)
                source.items.sort(key=lambda each: each.place)
        self._fit()
        return moved

    # --- what is there

    def declare(self, name: str, rules: Rules) -> None:
        if name in self.queues:
            self.queues[name].used_at = self.now
        else:
            self.queues[name] = Shelf(rules, self.now)

    def delete(self, name: str) -> None:
        del self.queues[name]
        self.unbind([b for b in self.bindings if not b.to_exchange and b.destination == name])

    def delete_exchange(self, name: str) -> None:
        del self.exchanges[name]
        self.unbind(
            [
                b
                for b in self.bindings
                if b.source == name or (b.to_exchange, b.destination) == (True, name)
            ]
        )

    def unbind(self, gone: list[Binding]) -> None:
        """An exchange that deletes itself does when nothing leads from it any more."""
        self.bindings = [each for each in self.bindings if each not in gone]
        left = {each.source for each in self.bindings}
        for name in {each.source for each in gone} - left:
            if name in self.exchanges and self.exchanges[name].auto_deletes:
                self.delete_exchange(name)

    def restart(self) -> None:
        """Loses all that is in memory only."""
        self.queues = {n: q for n, q in self.queues.items() if not q.rules.is_ephemeral}
        self.exchanges = {n: x for n, x in self.exchanges.items() if x.is_durable}
        self.bindings = [
            b
            for b in self.bindings
            if b.source in self.exchanges
            and b.destination in (self.exchanges if b.to_exchange else self.queues)
        ]
        for queue in self.queues.values():
            queue.used_at = self.now

    # --- time

    def until(self, when: float) -> None:
        """Does what is due by then, one after the other."""
        while (event := self._next()) is not None and event[0] <= when:
            self.now, name, is_end = event
            if is_end:
                self.delete(name)
            else:
                self._die(name, self.queues[name].items.pop(0).letter, "expired")
                self._fit()
        self.now = when

    def _next(self) -> tuple[float, str, bool] | None:
        ends = [
            (queue.used_at + queue.rules.expires, name, True)
            for name, queue in self.queues.items()
            if queue.rules.expires is not None
        ]
        deaths = [
            (queue.items[0].expires_at, name, False)
            for name, queue in self.queues.items()
            if queue.items and queue.items[0].expires_at is not None
        ]
        return min([*ends, *deaths], default=None)
