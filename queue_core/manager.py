"""The queue manager: opens the database, finds everything again, and keeps it going.

One manager owns one database. Adapters get a `Vhost` from it, and who may do what from `auth`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from os import getpid
from typing import Final

from queue_core.access.accounts import Policy, UserAuth
from queue_core.access.auth import Action, Identity, Resource
from queue_core.cluster.trust import SoleTrust, Trust
from queue_core.counters import Counters
from queue_core.delivery.delayed_messages_limit import MOST_DELAYS, DelayBudget
from queue_core.delivery.ready import Budget
from queue_core.errors import CoreError, StoreUnavailable, VhostNotFound
from queue_core.memory_account import LOOK_PAUSE_SECONDS, Memory, MemorySettings
from queue_core.message.message import TOPIC_EXCHANGE, Form
from queue_core.message.topic_forms import dotted
from queue_core.policies.policy_set import NO_POLICIES
from queue_core.queues.context import QueueContext
from queue_core.queues.dead_letters import DeadLetters
from queue_core.queues.deduplication_by_message_id import MOST_IDS, IdBudget
from queue_core.queues.exchange_history import MOST_HISTORY_BYTES, HistoryBudget
from queue_core.queues.exchange_state_queues import StoredStateQueue
from queue_core.queues.memory_limit import MOST_BYTES, EphemeralMemory
from queue_core.queues.queue import Queue
from queue_core.routing.bindings import BindingLimits, ExchangeRef
from queue_core.routing.router import Router
from queue_core.sessions.deferred_work import DeferredWork
from queue_core.sessions.sessions import SessionSettings
from queue_core.sessions.subscription import Subscription
from queue_core.store.background_work import BackgroundWork
from queue_core.store.database import Database, StoreSettings, open_database
from queue_core.store.lost_commits.state_comparison import Inventory, remembered
from queue_core.store.nodes.cluster_node import ClusterNode
from queue_core.store.operator.inspection import Inspection
from queue_core.store.tables.definitions import Definitions, StoredBinding
from queue_core.store.tables.definitions_import import DefinitionsImports
from queue_core.store.tables.parameters import Parameters
from queue_core.store.tables.policies import Policies
from queue_core.store.tables.rights_changes import RightsListener
from queue_core.store.tables.sessions import make_sessions
from queue_core.store.tables.users import StoredRoll, Users
from queue_core.store.tables.vhosts import Vhosts
from queue_core.store.write.rows import Forms
from queue_core.timers import Agenda
from queue_core.traffic import Traffic
from queue_core.vhost import Vhost

log = logging.getLogger(__name__)

# Between two looks at the outbox, just after one found rows.
SHORTEST_POLL_PAUSE_SECONDS: Final = 0.002
POLL_PAUSE_GROWTH: Final = 1.3  # so that it takes fifteen looks, half a second, to come to rest
BACKGROUND_RETRY_SECONDS: Final = 0.5  # before background work is tried again
CANCEL_SECONDS: Final = 1.0  # before work that goes on although it was cancelled is cancelled again


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    cache_bytes: int = 32 * 1024 * 1024  # messages of stored queues kept in memory
    ephemeral_bytes: int = MOST_BYTES  # of queues in memory together
    history_bytes: int = MOST_HISTORY_BYTES  # of exchanges that remember their last messages
    dedup_ids: int = MOST_IDS  # that all that tells repetitions may hold together
    delays: int = MOST_DELAYS  # messages of all queues that wait for their time
    memory: MemorySettings = field(default_factory=MemorySettings)
    poll_interval: float = 0.1  # seconds between looks at the outbox and at commands
    upkeep_interval: float = 1.0  # seconds between looks at segments, users and retention
    bindings: BindingLimits = field(default_factory=BindingLimits)
    store: StoreSettings = field(default_factory=StoreSettings)
    sessions: SessionSettings = field(default_factory=SessionSettings)


class LoopbackOnly:
    """Lets in from this machine whoever does not say who it is, until there are users: what a fresh
    gateway does."""

    def admits_anonymous(self, *, is_loopback: bool, has_users: bool) -> bool:
        return is_loopback and not has_users

    def admits_guest(self, *, is_loopback: bool, has_users: bool) -> bool:
        return is_loopback and not has_users

    @property
    def certificate_name(self) -> str:
        return "commonName"


class LossNotice:
    """Tells one listener that this gateway must stop, at once if that was known before it
    listened: the writer may end during the start, and without it nothing is ever stored."""

    def __init__(self) -> None:
        self._tell: Callable[[Exception], None] | None = None
        self._lost: Exception | None = None

    def listen(self, tell: Callable[[Exception], None]) -> None:
        self._tell = tell
        if self._lost is not None:
            tell(self._lost)

    def give(self, error: Exception) -> None:
        self._lost = error
        if self._tell is not None:
            self._tell(error)


class Manager:
    """All virtual hosts, sessions and users of one database. `open` makes a manager and finds
    everything again; `close` ends it."""

    def __init__(
        self,
        database: Database,
        url: str,
        settings: ManagerSettings,
        policy: Policy,
        give_back: Callable[[], object] | None,
        node: ClusterNode | None = None,
    ) -> None:
        self.settings = settings
        self.node = node  # None: this gateway has the database for itself
        self.clock = clock = database.clock
        self.agenda = Agenda()
        self.counters = database.counters
        self.vhosts: dict[str, Vhost] = {}
        # The traffic of queues that something happened in; whoever samples it takes it from here.
        self.changed_traffic: set[Traffic] = set()
        self._budget = Budget(self.settings.cache_bytes)
        self._ids = IdBudget(self.settings.dedup_ids, self.counters)
        self._histories = HistoryBudget(self.settings.history_bytes)
        self._delays = DelayBudget(self.settings.delays, self.counters, clock)
        self._ephemeral = EphemeralMemory(self.settings.ephemeral_bytes, clock, self._queues)
        self.memory = Memory(self.settings.memory, give_back, time.monotonic())
        self.writer = database.writer
        self.auth = UserAuth(StoredRoll(database.engine), policy)
        self.sessions = make_sessions(
            database.engine,
            database.forms,
            self.vhosts,
            DeferredWork(clock, self.agenda, database.definitions.later),
            flushed=self.writer.flushed,
            may_publish=self._may_publish,
            settings=settings.sessions,
        )
        self._database = database
        self._background = BackgroundWork(database, self.vhosts, self.sessions, self._remembered)
        self.inspection = Inspection(database.inspection)
        self.redrive = self._background.redrive
        self.stored_vhosts = Vhosts(database.engine)
        self.stored_users = Users(database.engine)  # for changes; `auth` has them as last read
        self.imports = DefinitionsImports(database.engine)
        self.stored_policies = Policies(database.engine)
        self.stored_parameters = Parameters(database.engine)
        self._policy_revision: object = None
        self._url = url
        self._loss = LossNotice()
        self._trust: Trust = SoleTrust() if node is None else node.trust
        self.writer.on_lost = self._on_lost
        if node is not None:
            node.trust.can_write = lambda: self.writer.is_connected
            node.on_lost(self._on_lost)
        self.sessions.may_grant = self._trust.is_given
        self._taking_over = asyncio.Lock()
        self._has_found_all = False  # the start has read everything that the tables have
        self._is_mark_due = False  # something was taken over that no mark vouches for yet
        self._tasks: list[asyncio.Task[None]] = []
        self._agenda_moved = asyncio.Event()
        self._woken = asyncio.Event()  # SQL published, and asks not to wait for the next look

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        forms: Sequence[Form] = (),
        settings: ManagerSettings | None = None,
        policy: Policy | None = None,
        clock: Callable[[], float] = time.time,
        give_back: Callable[[], object] | None = None,
        node: ClusterNode | None = None,
    ) -> Manager:
        """Takes the database and everything in it; for a cluster's `node` once that is up. Raises
        DatabaseInUse, or what PostgreSQL says."""
        settings = settings or ManagerSettings()
        who = node or f"{socket.gethostname()} (pid {getpid()})"
        stored_forms = Forms(forms, Subscription)
        database = await open_database(url, who, stored_forms, Counters(), clock, settings.store)
        try:
            manager = cls(database, url, settings, policy or LoopbackOnly(), give_back, node)
            await manager._start()
        except BaseException:
            await database.abandon()
            raise
        return manager

    async def vhost(self, name: str) -> Vhost:
        vhost = self.vhosts.get(name)
        if vhost is None:
            raise VhostNotFound(f"no vhost '{name}'; make it with `howdah vhost add`")
        return vhost

    async def add_vhost(self, name: str) -> Vhost:
        if name not in self.vhosts:
            await self._database.definitions.add_vhost(name)
            self._make_vhost(name)
        return self.vhosts[name]

    async def refresh_vhosts(self) -> bool:
        """Takes over what operators have made and removed since; True: there was something."""
        settings = await self.stored_vhosts.settings()
        names = settings.keys()
        is_changed = names != self.vhosts.keys()
        for name in names - self.vhosts.keys():
            self._make_vhost(name)
            log.info("virtual host '%s' is new", name)
        for name in self.vhosts.keys() - names:
            self.vhosts.pop(name).end()
            self.sessions.forget_vhost(name)
            log.info("virtual host '%s' is gone", name)
        for name, vhost in self.vhosts.items():
            vhost.settings = settings[name]
        is_applied = await self._refresh_policies()
        return is_changed or is_applied

    async def _refresh_policies(self) -> bool:
        """Applies policies that were changed; True: there were some."""
        # Asked first: a change between the two is seen again next time, never missed.
        revision = await self.stored_policies.revision()
        if revision == self._policy_revision:
            return False
        policies = await self.stored_policies.sets()
        for name, vhost in list(self.vhosts.items()):
            await vhost.policies.change(policies.get(name, NO_POLICIES))
        self._policy_revision = revision
        return True

    async def refresh_rights(self) -> bool:
        """Takes over what was changed in virtual hosts, users and permissions; True when all that
        was committed before the call is in force. Raises StoreUnavailable."""
        async with self._taking_over:
            before = self.auth.accounts.roll
            is_changed = await self.refresh_vhosts()
            is_in_force = await self.auth.refresh()
            if is_changed or self.auth.accounts.roll is not before:
                self._is_mark_due = True
            if self._is_mark_due:
                await self._database.leave_mark()
                self._is_mark_due = False
            return is_in_force

    def held_since(self, consumer: int) -> Mapping[int, float]:
        """Tells since when a consumer of a stored queue has its messages, by their offsets and to
        about a second."""
        return self._background.held_since(consumer)

    def count_passed_on(self) -> None:
        """Adds to the deliveries what queues passed on at once since the last call."""
        self.counters.delivered += sum(traffic.untold() for traffic in self.changed_traffic)

    @property
    def is_ready(self) -> bool:
        """Tells whether durable messages can be stored at this moment."""
        is_reached = self._background.is_reached and self.writer.is_connected
        is_held_up = self.writer.is_congested or self.writer.is_waiting or self.memory.is_short
        return is_reached and not is_held_up

    # --- life

    async def _start(self) -> None:
        await self._define(self._database.defined)
        self._background.start()
        if not await self.auth.refresh():
            raise StoreUnavailable("users and permissions cannot be read; nobody could be let in")
        await self.sessions.recover()
        self._has_found_all = True
        self.agenda.on_earlier = self._agenda_moved.set
        self.memory.sources.update(
            ephemeral_queues=lambda: self._ephemeral.used(exactly=self.memory.is_short),
            cached_messages=lambda: self._budget.used,
            write_buffer=lambda: self.writer.held_bytes,
            retained_cache=lambda: self.sessions.retained.cached_bytes,
            exchange_histories=lambda: self._histories.used,
            delayed_messages=self._delays.memory,
        )
        rights = RightsListener(self._url, self.refresh_rights, self._woken.set)
        works = (self._run_agenda(), self._run_polls(), self._run_upkeep(), self._run_memory())
        for work in (*works, rights.run()):
            self._tasks.append(asyncio.create_task(work))

    def _remembered(self) -> Inventory:
        """Says what memory knows; nothing during the start, as users and sessions that were not
        read yet are not removed."""
        if not self._has_found_all:
            return {}
        return remembered(self.vhosts, self.auth.accounts.roll, self.sessions)

    def _may_publish(self, identity: Identity, vhost: str, topic: str) -> bool:
        """Tells whether a user who is not there any more may still publish to a topic."""
        resource = Resource("topic", vhost, TOPIC_EXCHANGE, dotted(topic))
        return self.auth.authorize(identity, Action.WRITE, resource)

    async def _define(self, definitions: Definitions) -> None:
        for name in definitions.vhosts:
            self._make_vhost(name)
        for vhost_name, spec in definitions.exchanges:
            self.vhosts[vhost_name].router.declare_exchange(spec)
        memories: dict[str, list[StoredStateQueue]] = {}
        async with self._database.restoring() as restore:
            for stored in definitions.queues:
                vhost = self.vhosts[stored.vhost]
                queue = await restore(vhost, stored)
                # By kind, as queues of all kinds are made here: a memory belongs to its exchange
                # alone.
                if isinstance(queue, StoredStateQueue):
                    memories.setdefault(vhost.name, []).append(queue)
                else:
                    vhost.restore_queue(queue)
                    if stored.is_paused:
                        queue.pause()
        for vhost in self.vhosts.values():
            await vhost.topology.memories.restore(memories.get(vhost.name, []))
        await self._database.watch_expiry()
        await self.refresh_vhosts()
        for binding in definitions.bindings:
            self._bind(binding)

    def _bind(self, stored: StoredBinding) -> None:
        """Binds as stored. A binding whose ends somebody removed by hand is left out: the others
        are not to suffer."""
        vhost = self.vhosts[stored.vhost]
        is_exchange = stored.destination_kind == "exchange"
        name = stored.destination
        try:
            destination = ExchangeRef(name) if is_exchange else vhost.queue(name)
            vhost.router.bind(stored.source, destination, stored.key, stored.arguments)
        except CoreError as error:
            log.error(
                "the binding from exchange '%s' to %s '%s' with key '%s' is left out: %s. Way out: "
                "declare and bind it again, or DELETE FROM howdah.binding WHERE id = %d",
                stored.source,
                stored.destination_kind,
                name,
                stored.key,
                error,
                stored.id,
            )

    def _on_lost(self, error: Exception) -> None:
        """Hands out nothing from now on, also of what clients give back as they are sent away."""
        self._trust.end()
        self._loss.give(error)

    def _make_vhost(self, name: str) -> None:
        database, router = self._database, Router[Queue]()
        context = QueueContext(
            name,
            self.clock,
            self.agenda,
            self._budget,
            self.counters,
            DeadLetters(router, self.writer, self.counters, self.clock, self._delays),
            self.writer,
            asyncio.get_running_loop().call_soon,
            self._ids,
            self._ephemeral,
            self._histories,
            self._delays,
            trust=self._trust,
            changed=self.changed_traffic,
        )
        self.vhosts[name] = Vhost(
            name,
            router,
            context,
            self.writer,
            database.definitions,
            database.queues,
            self.settings.bindings,
        )

    def _queues(self) -> Iterator[Queue]:
        return (queue for vhost in self.vhosts.values() for queue in vhost.queues.values())

    def on_lost(self, tell: Callable[[Exception], None]) -> None:
        """Calls `tell` when this gateway must stop, at once if the writer has ended already."""
        self._loss.listen(tell)

    async def close(self) -> None:
        """Writes what is there, and lets the database go. Adapters have ended before."""
        running = {task for task in self._tasks if not task.done()}
        while running:  # a library below may swallow a cancellation: then it is asked again
            for task in running:
                task.cancel()
            _, running = await asyncio.wait(running, timeout=CANCEL_SECONDS)
        await self.auth.close()  # before the database goes that it writes renewed hashes to
        await self._background.close()

    # --- what goes on by itself

    async def _run_agenda(self) -> None:
        while True:
            self._agenda_moved.clear()
            when = self.agenda.next_time()
            delay = None if when is None else max(0.0, when - self.clock())
            try:
                # not wait_for: of a cancellation in the same turn as the event, it says nothing
                async with asyncio.timeout(delay):
                    await self._agenda_moved.wait()
            except TimeoutError:
                self._run_due()

    def _run_due(self) -> None:
        try:
            self.agenda.run_due(self.clock())
        except Exception:
            log.exception("something that was due failed")

    async def _run_polls(self) -> None:
        """Looks often while something comes, and less and less often while nothing does: the next
        message of a steady flow waits for 2 ms or so, and an idle gateway costs little."""
        pause = self.settings.poll_interval
        while True:
            self._woken.clear()
            if await self._guarded(self._background.poll):
                pause = min(SHORTEST_POLL_PAUSE_SECONDS, self.settings.poll_interval)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._woken.wait()
            pause = min(pause * POLL_PAUSE_GROWTH, self.settings.poll_interval)

    async def _run_upkeep(self) -> None:
        while True:
            await asyncio.sleep(self.settings.upkeep_interval)
            await self._guarded(self._background.keep_up)
            await self._guarded(self.refresh_rights)  # in case that nobody said a word

    async def _run_memory(self) -> None:
        while True:
            await asyncio.sleep(LOOK_PAUSE_SECONDS)
            try:
                self.memory.look(time.monotonic())
            except Exception:
                log.exception("the look at memory failed; it goes on")

    async def _guarded(self, work: Callable[[], Awaitable[int | None]]) -> int | None:
        """Runs background work that may fail. That the database is away is for the writer to
        say."""
        try:
            return await work()
        except StoreUnavailable as error:
            log.debug("put off: %s", error)
        except Exception:
            log.exception("background work failed; it goes on")
        await asyncio.sleep(BACKGROUND_RETRY_SECONDS)
        return None
