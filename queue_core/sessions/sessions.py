"""Sessions: what a client has subscribed to and what is in flight to it, over its connections.

A session that ends with its connection is in memory only. One that outlives it is in PostgreSQL
before its client is told so: the session, its subscriptions, and a queue that fills while the
client is away. Everything about one client happens in its turn, one thing after another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from queue_core.commit.unit import PacketRecord, Record, RetainedRecord
from queue_core.errors import (
    CoreError,
    InvalidArgument,
    LimitExceeded,
    QueueNotFound,
    SessionNotFound,
    StoreUnavailable,
)
from queue_core.keyed_lock import Turns
from queue_core.outcomes import FAILED
from queue_core.queues.classic import ClassicQueue, classic
from queue_core.queues.ephemeral import EphemeralQueue
from queue_core.queues.queue import Queue
from queue_core.queues.reserved_names import LIVE_SESSION_PREFIX, SHARE_PREFIX, STORED_PREFIX
from queue_core.queues.spec import QueueSpec
from queue_core.sessions.deferred_work import DeferredWork
from queue_core.sessions.inflight import PacketLedger
from queue_core.sessions.orphan_queues import DATABASE_RETRY_SECONDS, Leftovers, Turn
from queue_core.sessions.retained import Retained
from queue_core.sessions.session import (
    KEEP,
    USERS_OWN,
    ClientKey,
    Keep,
    Session,
    SessionInfo,
    SessionOwner,
    SessionSettings,
    SessionState,
    SessionStore,
    users_own_id,
)
from queue_core.sessions.shared_subscriptions import Shares
from queue_core.sessions.subscription import LiveQueue, Subscription, is_worth_storing
from queue_core.sessions.subscription_changes import Change, Changes
from queue_core.sessions.wills import Wills

if TYPE_CHECKING:
    from queue_core.vhost import Vhost

__all__ = ["KEEP", "Session", "SessionOwner", "SessionSettings", "Sessions", "Subscription"]

log = logging.getLogger(__name__)

MAX_OWN_ID_BYTES: Final = 1900
CUT_OFF: Final = (
    "this node does not hear from its database, and another one may have taken over: no session "
    "is granted until it does; try again, or at another node"
)
MAX_CLIENT_ID_BYTES: Final = 1024  # it is in the keys of tables and the name of a queue


class Sessions:
    def __init__(
        self,
        store: SessionStore,
        retained: Retained,
        wills: Wills,
        vhosts: Mapping[str, Vhost],
        deferred: DeferredWork,
        settings: SessionSettings | None = None,
    ) -> None:
        self.retained = retained
        self.wills = wills
        self.settings = settings or SessionSettings()
        self.may_grant: Callable[[], bool] = lambda: True  # no other gateway may have the session
        self._live = self.settings.live_spec()
        self._stored = self.settings.stored_spec()
        self._leftovers = Leftovers(deferred)
        self.shares = Shares(
            self._live_spec,
            self._stored_spec,
            self._leftovers,
            self.settings.hold_publishers,
        )
        self.ledger = PacketLedger()
        self._store = store
        self._vhosts = vhosts
        self._clock = deferred.clock
        self._agenda = deferred.agenda
        self._later = deferred.later
        self._states: dict[ClientKey, SessionState] = {}  # of the stored ones
        self._attached: dict[ClientKey, Session] = {}
        self._turns = Turns()
        self._changes = Changes(
            store,
            self.shares,
            self._turns,
            self._states,
            self._attached,
            self.settings.max_subscriptions,
        )

    # --- opening

    async def open(
        self,
        vhost: Vhost,
        client_id: str,
        *,
        clean_start: bool,
        expiry: float | None,
        user: str | None,
        protocol: str,
        owner: SessionOwner,
    ) -> Session:
        """The session of that client, which is the caller's until it detaches or another takes it
        over. `expiry`: seconds that it outlives its connection; None: for ever. Not to be
        cancelled: whoever loses its peer meanwhile detaches afterwards."""
        check_client_id(client_id)
        if not self.may_grant():
            raise StoreUnavailable(CUT_OFF)
        async with self._turns.of((vhost.name, client_id)):
            key = self._key_of(vhost.name, client_id, user)
            async with nullcontext() if key[1] == client_id else self._turns.of(key):
                state = await self._opened(vhost, key, clean_start, expiry, user, protocol)
                is_present = state is not None
                if state is None:
                    state = SessionState(key, user, protocol, expiry)
                    if expiry != 0:
                        await self._create(vhost, state)
                session = Session(self, vhost, state, owner, is_present)
                self._attach(session)
                return session

    def _key_of(self, vhost: str, client_id: str, user: str | None) -> ClientKey:
        """Client ids are each user's own: one that another user has a session with is told apart by
        the user's name, for as long as that session is there. So nobody gets another's messages,
        and nobody keeps another out by taking its id first."""
        key, own = (vhost, client_id), (vhost, users_own_id(user, client_id))
        if own in self._states or own in self._attached:
            return own
        attached = self._attached.get(key)
        holder = self._states.get(key) if attached is None else attached.state
        if holder is None or holder.user == user:
            return key
        if attached is None and holder.is_over(self._clock()):
            return key
        _check_length("a client id with its user's name", own[1], MAX_OWN_ID_BYTES)
        return own

    async def _opened(
        self,
        vhost: Vhost,
        key: ClientKey,
        clean_start: bool,
        expiry: float | None,
        user: str | None,
        protocol: str,
    ) -> SessionState | None:
        """The stored session that goes on; None: there is none, or none any more."""
        earlier = self._attached.get(key)
        if earlier is not None:
            _tell(earlier.owner.on_takeover)
            await self._detach(earlier, earlier.state.expiry, publish_will=True)
        state = self._states.get(key)
        if state is None:
            return None
        is_over = clean_start or state.user != user or state.is_over(self._clock())
        if not is_over and await self._resume(vhost, state, expiry, protocol):
            return state
        await self._end(vhost, state)
        return None

    async def _create(self, vhost: Vhost, state: SessionState) -> None:
        if len(self._states) >= self.settings.max_sessions:
            raise LimitExceeded(
                f"{len(self._states)} sessions are stored, which is the limit; "
                "end some, connect with an expiry of 0, or raise the limit"
            )
        state.stored = await self._make_queue(vhost, state)
        try:
            state.id = await self._store.add(state, state.stored.name, self._clock())
        except BaseException:
            self._leftovers.drop_later(vhost, state.stored, lambda: self.turn_of(state.key))
            raise
        self._states[state.key] = state
        self.ledger.open(state.id)

    async def _make_queue(self, vhost: Vhost, state: SessionState) -> ClassicQueue:
        spec = self._stored_spec(STORED_PREFIX + state.key[1])
        if spec.name in vhost.queues:  # of a session that ended when it could not be deleted
            with suppress(QueueNotFound):
                await vhost.delete_queue(spec.name, inside=True)
        queue = classic(await vhost.declare_queue(spec, created_by=state.user, inside=True))
        if queue is None:
            raise InvalidArgument(f"queue '{spec.name}' is not of the kind that a session needs")
        queue.wants = is_worth_storing
        return queue

    async def _resume(
        self, vhost: Vhost, state: SessionState, expiry: float | None, protocol: str
    ) -> bool:
        """False: somebody deleted it from the table."""
        if not await self._store.connect(state.id, expiry, protocol, self._clock()):
            return False
        if state.stored is None or state.stored.is_deleted:
            await self._heal(vhost, state)
        await self.wills.drop(state.key)
        state.expiry, state.protocol, state.disconnected_at = expiry, protocol, None
        if state.ending is not None:
            state.ending.cancel()
            state.ending = None
        return True

    async def _heal(self, vhost: Vhost, state: SessionState) -> None:
        """The queue of a stored session is missing: somebody deleted it."""
        state.stored = await self._make_queue(vhost, state)
        for each in state.topic_subscriptions():
            vhost.subscribe(each.filter, state.stored, each)

    def _attach(self, session: Session) -> None:
        vhost, state = session.vhost, session.state
        for each in state.topic_subscriptions():
            vhost.subscribe(each.filter, session.live, each)
        if state.stored is not None:
            self.settings.hold_publishers(state.stored)
        self.shares.connect(session, state.shared_subscriptions())
        self._attached[state.key] = session

    def make_live(self, vhost: Vhost, state: SessionState) -> EphemeralQueue:
        """The queue of a connection that begins."""
        spec = self._live_spec(LIVE_SESSION_PREFIX + state.key[1])
        queue: EphemeralQueue
        if state.id:
            queue = live = LiveQueue(spec, vhost.context)
            live.has_stored = True
        else:
            queue = EphemeralQueue(spec, vhost.context)
        self.settings.hold_publishers(queue)
        vhost.add_queue(queue)
        return queue

    def _live_spec(self, name: str) -> QueueSpec:
        return replace(self._live, name=name)

    def _stored_spec(self, name: str) -> QueueSpec:
        return replace(self._stored, name=name)

    # --- subscribing, in the name of a session

    def turn_of(self, key: ClientKey) -> AbstractAsyncContextManager[None]:
        return self._turns.of(key)

    def change(self, session: Session) -> Change:
        """A change of the session's subscriptions, which acts step by step, and is to be
        committed."""
        return Change(self._changes, session)

    def check_subscriptions(self, state: SessionState, coming: list[Subscription]) -> None:
        """Raises CoreError: the session may not have them."""
        self._changes.check(state, coming)

    # --- detaching and ending

    async def detach(
        self,
        session: Session,
        expiry: float | Keep | None = KEEP,
        *,
        publish_will: bool,
    ) -> None:
        """The connection ended, with its consumers. Does nothing for a session that has another
        owner by now, and never fails: what the database must know of it, it will hear."""
        async with self._turns.of(session.key):
            if session.is_attached:
                kept = session.state.expiry if isinstance(expiry, Keep) else expiry
                await self._detach(session, kept, publish_will=publish_will)

    async def _detach(self, session: Session, expiry: float | None, *, publish_will: bool) -> None:
        vhost, state = session.vhost, session.state
        self._release(session)
        if publish_will:
            await self.wills.lose(state.key, expiry if state.id else 0.0)
        else:
            await self.wills.drop(state.key)
        state.expiry = expiry
        if not state.id:
            for each in state.shared_subscriptions():
                await self.shares.part(vhost, session.client_id, each.address)
            return
        state.disconnected_at = now = self._clock()
        if expiry == 0:
            await self._end_or_retry(state)
            return
        self._plan_end(state)
        try:
            await self._store.disconnect(state.id, expiry, now)
        except CoreError as error:
            log.warning("session '%s' is away, but not yet written so: %s", state.key[1], error)
            self._agenda.at(
                now + DATABASE_RETRY_SECONDS, lambda: self._later(self._disconnect_again(state))
            )

    def _release(self, session: Session) -> None:
        """Takes the session from its connection, which has nothing of it from here on."""
        vhost, state = session.vhost, session.state
        session.is_attached = False
        self._attached.pop(state.key, None)
        self.shares.disconnect(session, [each.address for each in state.shared_subscriptions()])
        if state.stored is not None:
            for consumer in list(state.stored.cursor.consumers):
                vhost.end_consumer(consumer, FAILED)
        vhost.end_ephemeral(session.live, QueueNotFound("the session's connection ended"))

    async def _disconnect_again(self, state: SessionState) -> None:
        async with self._turns.of(state.key):
            since = state.disconnected_at
            if since is None or self._states.get(state.key) is not state:
                return
            try:
                await self._store.disconnect(state.id, state.expiry, since)
            except CoreError:
                when = self._clock() + DATABASE_RETRY_SECONDS
                self._agenda.at(when, lambda: self._later(self._disconnect_again(state)))

    def _plan_end(self, state: SessionState) -> None:
        if state.ending is not None:
            state.ending.cancel()
            state.ending = None
        when = state.ends_at()
        if when is not None:
            state.ending = self._agenda.at(when, lambda: self._later(self._expire(state)))

    async def _expire(self, state: SessionState) -> None:
        async with self._turns.of(state.key):
            if self._states.get(state.key) is state and state.is_over(self._clock()):
                await self._end_or_retry(state)

    async def _end_or_retry(self, state: SessionState) -> None:
        try:
            await self._end(self._vhosts[state.key[0]], state)
        except (CoreError, KeyError) as error:
            log.warning("session '%s' is over, but cannot be removed yet: %s", state.key[1], error)
            if self._states.get(state.key) is state:
                when = self._clock() + DATABASE_RETRY_SECONDS
                state.ending = self._agenda.at(when, lambda: self._later(self._expire(state)))

    async def end(self, vhost: Vhost, client_id: str) -> None:
        """Ends the session, whoever has it; for operators."""
        key = (vhost.name, client_id)
        async with self._turns.of(key):
            session = self._attached.get(key)
            if session is not None:
                reason = SessionNotFound(f"session '{client_id}' was ended")
                _tell(session.owner.on_ended, reason)
                await self._detach(session, session.state.expiry, publish_will=True)
            state = self._states.get(key)
            if state is not None:
                await self._end(vhost, state)
            elif session is None:
                raise SessionNotFound(f"no session '{client_id}' in vhost '{vhost.name}'")

    async def _end(self, vhost: Vhost, state: SessionState) -> None:
        """Removes all of a stored session that nobody is attached to."""
        if state.ending is not None:
            state.ending.cancel()
            state.ending = None
        self.wills.end(state.key)
        await self._store.delete(state.id)
        self._states.pop(state.key, None)
        self.ledger.forget(state.id)
        for each in state.shared_subscriptions():
            await self.shares.part(vhost, state.key[1], each.address)
        if state.stored is not None:
            await self._leftovers.drop(vhost, state.stored, lambda: self.turn_of(state.key))

    def forget_vhost(self, vhost: str) -> None:
        """The virtual host was removed: of what it had, nothing is left in the database."""
        for key in [key for key in self._states if key[0] == vhost]:
            state = self._states.pop(key)
            self.ledger.forget(state.id)
            if state.ending is not None:
                state.ending.cancel()
        self.wills.forget_vhost(vhost)
        self.retained.forget_vhost(vhost)

    # --- starting, and what the writer and people ask

    async def recover(self) -> None:
        """Restores what was stored, once all queues are there. Whoever was connected when the
        gateway ended is away from now on."""
        now = self._clock()
        packets = await self._store.packets()
        for state in await self._store.load(now):
            vhost = self._vhosts[state.key[0]]
            self._states[state.key] = state
            self._restore(vhost, state, packets.get(state.id, ()))
            if state.stored is None:
                await self._heal(vhost, state)
            self._plan_end(state)
        await self.shares.heal()
        await self._store.note_limits(self._stored.arguments)
        await self.retained.recover()
        await self.wills.recover(self._left)
        self._drop_orphans()

    def _restore(self, vhost: Vhost, state: SessionState, packets: Iterable[PacketRecord]) -> None:
        queue = classic(vhost.queues.get(STORED_PREFIX + state.key[1]))
        if queue is not None:
            queue.spec = self._stored_spec(queue.name)  # limits are as configured now
            queue.wants = is_worth_storing
            state.stored = queue
            for each in state.topic_subscriptions():
                vhost.subscribe(each.filter, queue, each)
        for each in state.shared_subscriptions():
            self.shares.restore(vhost, state.key[1], each)
        self.ledger.open(state.id, packets)
        for record in packets:
            state.note(record)
            stored = state.stored
            if stored is None or record.queue_id != stored.log.queue_id:
                continue
            if record.state and record.offset is not None:
                stored.cursor.history.begun.add(record.offset)

    def _left(self, key: ClientKey) -> float | None:
        """Returns how long a session will still be there, in seconds; None: for ever."""
        state = self._states.get(key)
        ends_at = 0.0 if state is None else state.ends_at()
        return None if ends_at is None else max(0.0, ends_at - self._clock())

    def _drop_orphans(self) -> None:
        """Queues whose session ended, or never was, when the gateway stopped in between."""
        for vhost in self._vhosts.values():
            for queue in vhost.queues.values():
                if queue.is_stored and self._is_orphan(vhost.name, queue.name):
                    log.info("queue '%s' belongs to no session any more; removed", queue.name)
                    self._leftovers.drop_later(vhost, queue, self._turn_of_queue(vhost, queue))

    def _is_orphan(self, vhost: str, name: str) -> bool:
        if name.startswith(STORED_PREFIX):
            return (vhost, name[len(STORED_PREFIX) :]) not in self._states
        return name.startswith(SHARE_PREFIX) and not self.shares.has(vhost, name)

    def _turn_of_queue(self, vhost: Vhost, queue: Queue) -> Turn:
        if queue.name.startswith(SHARE_PREFIX):
            return lambda: self.shares.turn_of(vhost.name, queue.name)
        return lambda: self.turn_of((vhost.name, queue.name[len(STORED_PREFIX) :]))

    def committed(self, records: Iterable[Record]) -> None:
        """The writer's word that these are in the database, in this order."""
        self.ledger.commit(each for each in records if isinstance(each, PacketRecord))
        self.retained.committed(each for each in records if isinstance(each, RetainedRecord))

    def live_packets(self) -> Iterator[PacketRecord]:
        """Returns all packets in flight as the database knows them, for a new generation of the
        journal."""
        return self.ledger.records()

    def stored_states(self) -> Iterable[SessionState]:
        """Sessions that are in the database."""
        return self._states.values()

    async def close(self) -> None:
        """Returns when nothing of this waits for the writer any more."""
        await self.wills.settled()

    @property
    def count(self) -> int:
        """Sessions that are stored, connected or not."""
        return len(self._states)

    def all(self, vhost: str | None = None) -> Iterator[SessionInfo]:
        """Lists every session, stored or connected, for people."""
        states = {key: session.state for key, session in self._attached.items()} | self._states
        for key, state in states.items():
            if vhost is None or key[0] == vhost:
                yield state.info(is_connected=key in self._attached)


def _tell(call: Callable[..., None], *facts: object) -> None:
    """Tells a connection that it has lost its session. An error that it makes then is logged: the
    next connection is not to suffer from it."""
    try:
        call(*facts)
    except Exception:
        log.exception("a connection failed when it was told that its session is gone")


def check_client_id(client_id: str) -> None:
    """Raises InvalidArgument for a name that no session can have."""
    if not client_id or "\0" in client_id:
        raise InvalidArgument("a client id has at least one character, and no NUL")
    if client_id.startswith(USERS_OWN):
        raise InvalidArgument(f"client ids that begin with {USERS_OWN} are the gateway's own")
    _check_length("a client id", client_id, MAX_CLIENT_ID_BYTES)


def _check_length(what: str, text: str, longest: int) -> None:
    if len(text) > longest // 4 and len(text.encode()) > longest:
        raise InvalidArgument(f"{what} has {longest} bytes at most; choose a shorter one")
