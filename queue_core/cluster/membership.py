"""Membership without a socket, a clock or a database: what a node concludes from its beats.

Every node counts its own row's beat up, and reads the rows of the others in the same answer.
`Membership` is told of answers and failures, with the time of an own clock that nobody sets, and
decides what is to be done next: serve, fence a node that is silent, stop. Silence is counted over
healthy rounds alone, so a database that stalls for all makes nobody suspect; no other machine's
clock is looked at. The database has the last word on each decision: see `store/nodes`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from queue_core.cluster.trust import NEVER, TRUST_SHARE

ROUNDS_OF_A_LEASE: Final = 4  # beats in the silence after which a node is suspect
# After a connection came back, since others may need as long to come back themselves.
GRACE_LEASES: Final = 2.5

JOINING: Final = "joining"
UP: Final = "up"
LEAVING: Final = "leaving"
GONE: Final = "gone"
SERVING: Final = (UP, LEAVING)


@dataclass(frozen=True, slots=True)
class Sighting:
    """One row of howdah.node, as the answer to a beat has it."""

    id: int
    state: str
    beat: int
    lease: float  # seconds of silence that it may keep; 0: it gives no signs of life
    is_fenced: bool = False  # gone by another's word, so it may not know of it yet


class Move(Enum):
    """A decision on what the node does next."""

    WAIT = auto()
    FENCE = auto()  # the node `target`, while its beat is still `beat`
    RISE = auto()  # from standby to serving
    DRAIN = auto()  # somebody asked this node to end its work in order
    STOP = auto()  # this node was fenced, or its row is lost: nothing in its memory counts


@dataclass(frozen=True, slots=True)
class Decision:
    move: Move
    target: int = 0
    beat: int = 0
    reason: str = ""


NOTHING: Final = Decision(Move.WAIT)


@dataclass(slots=True)
class Peer:
    """Another node, as this one has seen it."""

    seen: Sighting
    since: float  # when its newest beat was seen first
    silent: float = 0.0  # seconds of healthy rounds without a new one
    is_unlocked: bool = False  # no session of it holds its lock

    @property
    def distrusts_itself_at(self) -> float:
        """When this peer hands out nothing any more, unless it beats again: its trust began before
        its newest beat was seen."""
        return self.since + TRUST_SHARE * self.seen.lease


class Membership:
    """The conclusions of one node. `own` is its id; `trust_begins` is when nodes that were fenced
    before it came have lost their trust in themselves."""

    def __init__(self, own: int, lease: float, trust_begins: float) -> None:
        self.state = JOINING
        self.trust_begins = trust_begins
        self.trusted_until = -NEVER
        self.peers: dict[int, Peer] = {}
        self._own = own
        self._lease = lease
        self._answered_at = -NEVER
        self._is_beating = False  # the newest beat was answered in time
        self._is_interrupted = False
        self._grace_until = -NEVER
        self._vacant_since = NEVER  # when nobody who serves was there first

    @property
    def period(self) -> float:
        """Seconds between two beats."""
        return self._lease / ROUNDS_OF_A_LEASE

    # --- what is seen

    def on_beat(self, began: float, now: float, rows: Sequence[Sighting]) -> None:
        """Takes the answer of a beat that was sent at `began`. Rows that are not gone are all in
        it, and those of peers whose end is news."""
        self._is_beating = now - began <= self.period and not self._is_interrupted
        if self._is_interrupted:
            self._is_interrupted = False
            self._grace_until = now + GRACE_LEASES * self._lease
        self._take(began, now, rows)
        if self.state != GONE:
            self.trusted_until = began + TRUST_SHARE * self._lease

    def on_look(
        self, began: float, now: float, rows: Sequence[Sighting], unlocked: Collection[int]
    ) -> None:
        """Takes the answer of a look between two beats, which writes nothing. `unlocked` are peers
        without a session that holds their lock: their process has ended, or lost every
        connection."""
        self._take(began, now, rows)
        for id_, peer in self.peers.items():
            peer.is_unlocked = id_ in unlocked

    def _take(self, began: float, now: float, rows: Sequence[Sighting]) -> None:
        """Reads the rows of an answer. Silence counts where this node's own beats are answered in
        time, and for one period at most: it may have been stopped itself."""
        elapsed = min(now - self._answered_at, self.period)
        is_healthy = self._is_beating and now - began <= self.period
        self._answered_at = now
        self.state = next((row.state for row in rows if row.id == self._own), GONE)
        for row in rows:
            if row.id != self._own:
                self._see(row, now, elapsed if is_healthy else 0.0)
        self._forget(rows)
        if self._serving() is not None:
            self._vacant_since = NEVER
        elif self._vacant_since == NEVER:
            self._vacant_since = now

    def on_failure(self) -> None:
        """Notes that a beat was not answered, or its connection was lost."""
        self._is_interrupted = True

    def _see(self, row: Sighting, now: float, healthy_seconds: float) -> None:
        peer = self.peers.get(row.id)
        if peer is None or peer.seen.beat != row.beat:
            self.peers[row.id] = Peer(row, now)
        else:
            peer.silent += healthy_seconds
            peer.seen = row

    def _forget(self, rows: Sequence[Sighting]) -> None:
        """Drops peers that are gone. One that was fenced may hand out until its trust is over, so
        this node begins no earlier."""
        there = {row.id for row in rows if row.state != GONE}
        for id_ in [id_ for id_ in self.peers if id_ not in there]:
            peer = self.peers.pop(id_)
            has_left = peer.seen.state == GONE and not peer.seen.is_fenced
            if not has_left and self.state == JOINING:
                self.trust_begins = max(self.trust_begins, peer.distrusts_itself_at)

    # --- what follows

    def decide(self, now: float) -> Decision:
        if self.state == GONE:
            return Decision(Move.STOP)
        if self.state == LEAVING:
            return Decision(Move.DRAIN)
        if self._is_interrupted or now < self._grace_until:
            return NOTHING
        serving = self._serving()
        if self.state == UP or serving is None:
            dead = self._dead_standby()
            if dead is not None:
                return dead
        if self.state == UP:
            return NOTHING
        if serving is None:
            return Decision(Move.RISE) if self._is_my_turn(now, self._vacant_since) else NOTHING
        reason = self._suspicion(serving)
        if reason and self._is_my_turn(now, serving.since):
            return Decision(Move.FENCE, serving.seen.id, serving.seen.beat, reason)
        return NOTHING

    def _serving(self) -> Peer | None:
        return next((p for p in self.peers.values() if p.seen.state in SERVING), None)

    def _dead_standby(self) -> Decision | None:
        """Finds a standby that is dead, to clear its row away."""
        for peer in self.peers.values():
            reason = self._suspicion(peer)
            if reason and peer.seen.state == JOINING:
                return Decision(Move.FENCE, peer.seen.id, peer.seen.beat, reason)
        return None

    def _suspicion(self, peer: Peer) -> str:
        """Says why a peer is taken for dead; empty: it is not."""
        if peer.is_unlocked:
            return "its sessions have ended"
        lease = peer.seen.lease
        if lease and peer.silent >= lease:
            return f"it gave no sign of life for {lease:g} s"
        return ""

    def _is_my_turn(self, now: float, since: float) -> bool:
        """Tells whether this node goes first. The eldest standby that lives does; the others wait
        for a lease each, in case that it does not."""
        elder = sum(
            1
            for peer in self.peers.values()
            if peer.seen.state == JOINING and peer.seen.id < self._own and not self._suspicion(peer)
        )
        return elder == 0 or now >= since + (1 + elder) * self._lease
