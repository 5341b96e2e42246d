"""Changes of a session's subscriptions: they route at once, and are written down afterwards.

Subscriptions act in the order in which their packets arrive, whatever the disk does meanwhile: a
change is made in memory in one turn of the loop, `commit` stores it, and undoes it where that
fails. Nothing here knows a protocol or SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from queue_core.errors import InvalidArgument, LimitExceeded
from queue_core.routing.topics import filter_tokens

if TYPE_CHECKING:
    from queue_core.keyed_lock import Turns
    from queue_core.queues.queue import Queue
    from queue_core.sessions.session import ClientKey, Session, SessionState, SessionStore
    from queue_core.sessions.shared_subscriptions import Shares
    from queue_core.sessions.subscription import Subscription
    from queue_core.vhost import Vhost

MAX_ADDRESS_BYTES: Final = 2000  # of a stored subscription's filter: it is in a table's key


@dataclass(slots=True, eq=False)
class Step:
    """Changes one address: what it was, and what it becomes; None: no subscription."""

    address: str
    before: Subscription | None
    after: Subscription | None


class Change:
    """Changes the subscriptions of one session, as one request asks. Steps act when they are made;
    `commit` once, after the last."""

    def __init__(self, changes: Changes, session: Session) -> None:
        self.vhost = session.vhost
        self.state = session.state
        self.steps: list[Step] = []
        self._changes = changes
        self._session = session

    def put(self, subscription: Subscription) -> bool:
        """False: it was there, and has the new options. Raises CoreError, and nothing happened."""
        self._session.check_attached()
        self._changes.check(self.state, [subscription])
        return self._step(subscription.address, subscription) is None

    def drop(self, address: str) -> bool:
        """False: there was no such subscription."""
        self._session.check_attached()
        return self._step(address, None) is not None

    def _step(self, address: str, after: Subscription | None) -> Subscription | None:
        before = self.state.subscriptions.get(address)
        if before is not None or after is not None:
            step = Step(address, before, after)
            self._changes.act(self, step)
        return before

    async def commit(self) -> None:
        """Stored on return. Raises CoreError: all of it is undone."""
        await self._changes.commit(self)


class Changes:
    def __init__(
        self,
        store: SessionStore,
        shares: Shares,
        turns: Turns,
        states: Mapping[ClientKey, SessionState],
        attached: Mapping[ClientKey, Session],
        most: int,
    ) -> None:
        self._store = store
        self._shares = shares
        self._turns = turns
        self._states = states  # of the stored sessions
        self._attached = attached
        self._most = most  # subscriptions of one session
        self._open: dict[ClientKey, list[Change]] = {}  # not committed yet, the oldest first

    def check(self, state: SessionState, coming: list[Subscription]) -> None:
        """Raises CoreError."""
        held = state.subscriptions
        new = {each.address for each in coming if each.address not in held}
        if len(held) + len(new) > self._most:
            raise LimitExceeded(
                f"a session has {self._most} subscriptions at most; take some back, or use a "
                "wildcard"
            )
        for each in coming:
            if each.queue is None:
                filter_tokens(each.filter)
            is_kept = state.id or each.share is not None
            if is_kept and len(each.address.encode()) > MAX_ADDRESS_BYTES:
                raise InvalidArgument(
                    f"the filter of a stored subscription has {MAX_ADDRESS_BYTES} bytes at most; "
                    "choose a shorter one"
                )

    def act(self, change: Change, step: Step) -> None:
        if not change.steps:
            self._open.setdefault(change.state.key, []).append(change)
        change.steps.append(step)
        self._turn_into(change, step.address, step.before, step.after)

    async def commit(self, change: Change) -> None:
        if not change.steps:
            return
        try:
            async with self._turns.of(change.state.key):
                await self._write(change)
        except BaseException:  # also whoever is cancelled before its turn has come
            self._undo(change)
            raise
        finally:
            self._forget(change)
            await self._clear_groups(change)

    async def _write(self, change: Change) -> None:
        state = change.state
        for step in change.steps:
            if step.after is not None and step.after.share is not None:
                await self._shares.provide(change.vhost, step.address)
        if not state.id or self._states.get(state.key) is not state:  # it may have ended meanwhile
            return
        last = {step.address: step.after for step in change.steps}
        coming = [each for each in last.values() if each is not None]
        gone = [address for address, each in last.items() if each is None]
        if coming:
            await self._store.put_subscriptions(state.id, coming)
        if gone:
            await self._store.delete_subscriptions(state.id, gone)

    async def _clear_groups(self, change: Change) -> None:
        for step in change.steps:
            for each in (step.before, step.after):
                if each is not None and each.share is not None:
                    await self._shares.clear(change.vhost, step.address)

    def _forget(self, change: Change) -> None:
        opened = self._open[change.state.key]
        opened.remove(change)
        if not opened:
            del self._open[change.state.key]

    # --- undoing

    def _undo(self, change: Change) -> None:
        """Puts everything back as it was before; but what a later change has made of an address
        stays, and that one comes to stand on what was before this one."""
        state = change.state
        if self._session_of(state) is None and self._states.get(state.key) is not state:
            return  # the session ended, with all its subscriptions
        opened = self._open[state.key]
        later = [each for each in opened[opened.index(change) + 1 :] if each.state is state]
        for step in reversed(change.steps):
            successor = next(
                (each for other in later for each in other.steps if each.address == step.address),
                None,
            )
            if successor is not None:
                successor.before = step.before
            else:
                self._turn_into(change, step.address, step.after, step.before)

    # --- acting

    def _turn_into(
        self,
        change: Change,
        address: str,
        before: Subscription | None,
        after: Subscription | None,
    ) -> None:
        vhost, state = change.vhost, change.state
        if after is not None:
            state.subscriptions[address] = after
            self._route(vhost, state, after)
            return
        state.subscriptions.pop(address, None)
        if before is None or before.queue is not None:
            return
        if before.share is not None:
            self._shares.leave(vhost, state.key[1], address)
            return
        for queue in reversed(self._queues(state)):
            vhost.unsubscribe(before.filter, queue)

    def _route(self, vhost: Vhost, state: SessionState, subscription: Subscription) -> None:
        if subscription.queue is not None:
            return  # a wish to compete, which the adapter sees to
        if subscription.share is None:
            for queue in self._queues(state):
                vhost.subscribe(subscription.filter, queue, subscription)
            return
        session = self._session_of(state)
        if session is not None:
            self._shares.join(session, subscription)
        elif state.id:
            self._shares.restore(vhost, state.key[1], subscription)

    def _queues(self, state: SessionState) -> list[Queue]:
        """Stored first: what is on its way goes to one of the two in any case."""
        queues: list[Queue] = []
        if state.stored is not None and not state.stored.is_deleted:
            queues.append(state.stored)
        session = self._session_of(state)
        if session is not None:
            queues.append(session.live)
        return queues

    def _session_of(self, state: SessionState) -> Session | None:
        """Whichever connection has the session now."""
        session = self._attached.get(state.key)
        return session if session is not None and session.state is state else None
