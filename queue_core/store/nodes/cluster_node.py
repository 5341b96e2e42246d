"""A gateway as a node of a cluster: beats, looks at the others, fences and rises, and stops when it
was fenced itself.

`Membership` decides; this file carries out, on a connection of its own, so that no batch and no
client delays a beat. Beats are committed like messages: where commits wait for a standby server,
beats do, and a primary that was cut off from its standbys answers none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import asyncpg

from queue_core.cluster.counters import ClusterCounters
from queue_core.cluster.membership import UP, Decision, Membership, Move, Sighting
from queue_core.cluster.trust import TRUST_SHARE, LeasedTrust, boot_seconds
from queue_core.errors import StoreUnavailable
from queue_core.store.log_once import Complaints
from queue_core.store.nodes.fencing import fence, rise, without_session
from queue_core.store.nodes.joining import hold_together, join
from queue_core.store.nodes.locks import keep_node
from queue_core.store.nodes.rows import BEAT, LOOK, NodeLife, NodeTerms, end_nodes, sightings
from queue_core.store.ownership import (
    FENCED_MEANWHILE,
    DatabaseInUse,
    OwnershipLost,
    open_session,
    open_writer,
)
from queue_core.store.retry_rules import AWAY

log = logging.getLogger(__name__)

SETTINGS: Final = {"application_name": "howdah gateway (beat)", "timezone": "UTC"}
LOOKS_IN_A_BEAT: Final = 5  # of a standby, so that it soon sees that a session has ended
PATIENCE_LEASES: Final = 2.0  # that an answer may take before its connection is given up
AWAY_PAUSE_SECONDS: Final = 0.2
FAILURES: Final = (*AWAY, TimeoutError, StoreUnavailable)


class Drained(OwnershipLost):
    """Somebody asked this node to hand its work over."""


class ClusterNode:
    """One life of a gateway in a cluster, from `join_cluster` to `leave`."""

    def __init__(
        self,
        url: str,
        terms: NodeTerms,
        life: NodeLife,
        connection: asyncpg.Connection,
        fenced_lease: float,
    ) -> None:
        self.life = life
        self.terms = terms
        self.trust = LeasedTrust(asyncio.get_running_loop().call_soon)
        self.counters = ClusterCounters()
        self.names: dict[int, str] = {}
        self._beats: dict[int, int] = {}  # of each node, as the newest answer had it
        self._url = url
        self._connection = connection
        self._risen: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lost: list[Callable[[Exception], None]] = []
        self._endings: list[Exception] = []  # for whoever asks to be told after that
        self._asking = asyncio.Lock()  # held while a question is under way
        self._is_draining = False
        self._spare: asyncpg.Connection | None = None  # to write with, once this node is up
        begins = boot_seconds() + TRUST_SHARE * fenced_lease
        self.membership = Membership(life.id, terms.lease_ms / 1000, begins)
        self._complain = Complaints(log).warn
        self._task = asyncio.create_task(self._run(), name="howdah beat")

    @property
    def is_up(self) -> bool:
        return self._risen.done()

    @property
    def serving(self) -> str | None:
        """The name of the node that serves; None: nobody does, as far as is known."""
        if self.membership.state == UP:
            return self.terms.name
        up = (peer.seen for peer in self.membership.peers.values() if peer.seen.state == UP)
        return next((self.names.get(seen.id, "") for seen in up), None)

    async def until_up(self) -> None:
        """Returns when this node serves. Raises OwnershipLost where it was fenced before."""
        await asyncio.shield(self._risen)

    async def prepare(self) -> None:
        """Opens the session to write with, so that a takeover need not wait for it."""
        self._spare = await open_writer(self._url)

    def take_spare(self) -> asyncpg.Connection | None:
        """Gives the prepared session away; None: there is none."""
        spare, self._spare = self._spare, None
        return spare

    def on_lost(self, tell: Callable[[Exception], None]) -> None:
        """Calls `tell` when this node must not serve any longer; at once where that is so already:
        it may be fenced or drained while it takes the database over."""
        self._lost.append(tell)
        for error in self._endings:
            tell(error)

    async def leave(self) -> None:
        """Ends this life: nobody has to wait for anything of it."""
        self.trust.end()
        with suppress(*AWAY, TimeoutError):
            async with asyncio.timeout(self.terms.lease_ms / 1000), self._asking:
                self._task.cancel()
                await end_nodes(self._connection, [self.life.id], "left in order")
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._connection.terminate()
        spare = self.take_spare()
        if spare is not None:
            spare.terminate()
        if not self._risen.done():
            self._risen.cancel()

    # --- rounds

    async def _run(self) -> None:
        period = self.membership.period
        try:
            while True:
                began = boot_seconds()
                await self._round(self._beat)
                for _ in range(LOOKS_IN_A_BEAT - 1):
                    await asyncio.sleep(period / LOOKS_IN_A_BEAT)
                    if not self.is_up:
                        await self._round(self._look)
                await asyncio.sleep(max(0.0, began + period - boot_seconds()))
        except OwnershipLost as error:
            self._end(error)
        except Exception as error:
            log.critical("the beat failed; this gateway stops", exc_info=True)
            self._end(StoreUnavailable(f"the beat failed ({error}); see the log"))

    async def _round(self, question: Callable[[], Awaitable[None]]) -> None:
        """Asks the database, and does what follows from the answer. A database that is away is
        waited for."""
        try:
            async with asyncio.timeout(PATIENCE_LEASES * self.terms.lease_ms / 1000), self._asking:
                if self._connection.is_closed():
                    await self._reconnect()
                await question()
                if self.membership.state == UP:
                    self._serve()
                await self._follow(self.membership.decide(boot_seconds()))
        except OwnershipLost:
            raise
        except FAILURES as error:
            self.counters.missed_beats += 1
            self.membership.on_failure()
            self._connection.terminate()
            self._complain("a beat was not answered: %s", str(error) or type(error).__name__)
            await asyncio.sleep(AWAY_PAUSE_SECONDS)

    async def _beat(self) -> None:
        began = boot_seconds()
        rows = await self._connection.fetch(
            BEAT, self.life.id, self.life.started_at, list(self.membership.peers)
        )
        self.counters.beats += 1
        self.membership.on_beat(began, boot_seconds(), self._seen(rows))
        if not self._is_draining:
            self.trust.until = self.membership.trusted_until
            self.trust.renew()

    async def _look(self) -> None:
        began = boot_seconds()
        peers = list(self.membership.peers)
        rows = await self._connection.fetch(LOOK, self.life.id, peers)
        unlocked = await without_session(self._connection, peers)
        self.membership.on_look(began, boot_seconds(), self._seen(rows), unlocked)

    def _seen(self, rows: list[asyncpg.Record]) -> list[Sighting]:
        """Reads an answer. A row with this node's id and another start is another's, of a database
        that went back in time."""
        self.names = {row["id"]: row["name"] for row in rows}
        self._compare_beats({row["id"]: row["beat"] for row in rows})
        life = self.life
        return sightings(
            [r for r in rows if r["id"] != life.id or r["started_at"] == life.started_at]
        )

    def _compare_beats(self, beats: dict[int, int]) -> None:
        """Tells of a database that lacks beats which it had answered: it has lost commits. The node
        that served finds out which ones, if it lives; a standby knows only that there are some."""
        missing = {id_: beat for id_, beat in self._beats.items() if beats.get(id_, beat) < beat}
        for id_, beat in missing.items():
            self.counters.rewinds += 1
            log.critical(
                "the database went back in time: it had beat %d of node %d '%s', and now has %d. "
                "A standby that was behind has become the primary, or a backup was restored; what "
                "was committed since is lost. See howdah.loss",
                *(beat, id_, self.names.get(id_, "unknown"), beats[id_]),
            )
        self._beats = beats

    async def _reconnect(self) -> None:
        connection = await open_session(self._url, SETTINGS)
        try:
            await hold_together(connection)
            await keep_node(connection, self.life.id)
        except DatabaseInUse as error:
            connection.terminate()
            raise OwnershipLost(str(error)) from error
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection

    # --- decisions

    async def _follow(self, decision: Decision) -> None:
        match decision.move:
            case Move.FENCE:
                await self._fence(decision)
            case Move.RISE:
                await self._rise()
            case Move.DRAIN:
                self._drain()
            case Move.STOP:
                raise OwnershipLost(FENCED_MEANWHILE)

    async def _fence(self, decision: Decision) -> None:
        target, reason = decision.target, decision.reason
        if await fence(self._connection, self.life.id, target, decision.beat, reason):
            self.counters.fenced_nodes += 1
            log.warning(
                "fenced node %d '%s': %s", target, self.names.get(target, "unknown"), reason
            )
        await self._look()
        if self.membership.decide(boot_seconds()).move is Move.RISE:
            await self._rise()

    async def _rise(self) -> None:
        if await rise(self._connection, self.life, self.membership.peers):
            self.membership.state = UP
            self._serve()

    def _serve(self) -> None:
        """Lets this node serve, once: when it has risen, or when an answer tells so because that of
        the rise was lost. The others wait for it from the commit on."""
        if not self._risen.done():
            self.counters.takeovers += 1
            self.trust.begins = self.membership.trust_begins
            log.info("node %d '%s' is up: it serves from now on", self.life.id, self.terms.name)
            self._risen.set_result(None)

    def _drain(self) -> None:
        """Begins to end this node's work in order. It goes on beating meanwhile: whoever takes over
        is to wait for that."""
        if not self._is_draining:
            self._is_draining = True
            self._end(Drained(f"node '{self.terms.name}' was asked to hand its work over"))

    def _end(self, error: Exception) -> None:
        """Tells whoever waits that this life is over."""
        self.trust.end()
        self._endings.append(error)
        if not self._risen.done():
            self._risen.set_exception(error)
            self._risen.exception()  # whoever waits gets it; nobody has to
        for tell in self._lost:
            tell(error)


async def join_cluster(url: str, terms: NodeTerms) -> ClusterNode:
    """Joins the cluster of a database as a standby. Raises what `join` and `open_session` do."""
    connection = await open_session(url, SETTINGS)
    try:
        life, fenced_lease = await join(connection, terms)
    except BaseException:
        connection.terminate()
        raise
    log.info("node %d '%s' joined cluster '%s'", life.id, terms.name, terms.cluster)
    return ClusterNode(url, terms, life, connection, fenced_lease)
