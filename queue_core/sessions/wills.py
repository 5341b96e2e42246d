"""Wills: what a client wants published when it is lost.

A will is written down before its client is told that it is connected, so that it outlives this
process too. It is published at most once: its row leaves with the commit of its message.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from queue_core.access.auth import Identity
from queue_core.commit.unit import Record, WillRecord
from queue_core.commit.waiter import Waiter
from queue_core.errors import CoreError, StoreUnavailable
from queue_core.message.message import Message
from queue_core.outcomes import Published
from queue_core.sessions.orphan_queues import DATABASE_RETRY_SECONDS
from queue_core.sessions.retained import Retained
from queue_core.sessions.session import ClientKey
from queue_core.timers import Agenda, Appointment

if TYPE_CHECKING:
    from queue_core.sessions.sessions import Session
    from queue_core.vhost import Vhost

log = logging.getLogger(__name__)

MAX_WILL_IN_MEMORY_BYTES: Final = 4096  # of a will that is kept here, too; others are read back
CLOSING_WAIT_SECONDS: Final = 10.0  # that the end of the gateway waits for wills


MayPublish = Callable[[Identity, str, str], bool]  # to a topic of a virtual host


@dataclass(slots=True)
class Will:
    """A will as its row has it; without its message where that is large."""

    delay: float
    retain: bool
    qos: int
    lifetime: float | None  # seconds that the message is worth something, once published
    message: Message | None
    due_at: float | None = None  # None while the client is connected
    appointment: Appointment | None = None
    identity: Identity | None = None  # whose it is; nobody's is not published


class WillStore(Protocol):
    """The table of wills."""

    async def put(self, key: ClientKey, will: Will) -> None: ...
    async def set_due(self, dues: Mapping[ClientKey, float]) -> None: ...
    async def delete(self, key: ClientKey) -> None: ...
    async def message(self, key: ClientKey) -> Message | None: ...
    async def all(self, largest: int) -> list[tuple[ClientKey, Will]]:
        """Every row, without the messages that are larger."""
        ...


class Wills:
    def __init__(
        self,
        store: WillStore,
        retained: Retained,
        vhosts: Mapping[str, Vhost],
        *,
        clock: Callable[[], float],
        agenda: Agenda,
        may_publish: MayPublish,
    ) -> None:
        self._store = store
        self._may_publish = may_publish
        self._retained = retained
        self._vhosts = vhosts
        self._clock = clock
        self._agenda = agenda
        self._wills: dict[ClientKey, Will] = {}
        self._leaving: dict[ClientKey, asyncio.Task[None]] = {}

    # --- for adapters

    async def set(
        self,
        session: Session,
        message: Message,
        identity: Identity,
        *,
        delay: float = 0.0,
        retain: bool = False,
        qos: int = 0,
        lifetime: float | None = None,
    ) -> None:
        """Stores a will, which is in the database when this returns. `lifetime` starts when the
        will is published, which happens in the name of `identity`."""
        async with session.turn():
            session.check_attached()
            key = session.key
            await self._settled(key)
            # Known before it is written: a deletion of the one before that comes late passes by.
            will = self._wills[key] = Will(delay, retain, qos, lifetime, message, identity=identity)
            try:
                await self._store.put(key, will)
            except BaseException:
                self._wills.pop(key, None)
                raise
            if message.size() > MAX_WILL_IN_MEMORY_BYTES:
                will.message = None

    # --- for sessions, in the client's turn

    async def lose(self, key: ClientKey, session_left: float | None) -> None:
        """The connection was lost: the will is due when its delay is over or the session ends,
        whichever comes first. `session_left` in seconds; None: the session stays."""
        will = self._wills.get(key)
        if will is None or will.due_at is not None:
            return
        wait = will.delay if session_left is None else min(will.delay, session_left)
        if wait <= 0:
            self._publish(key)
            return
        due_at = self._clock() + wait
        self._plan(key, will, due_at)
        try:
            await self._store.set_due({key: due_at})
        except CoreError as error:
            # after a crash it would count as lost at the next start: late, but not forgotten
            log.warning("will of '%s' is due, but not yet written so: %s", key[1], error)

    async def drop(self, key: ClientKey) -> None:
        """The client said goodbye, or came back: nothing is published."""
        will = self._forget(key)
        if will is not None:
            await self._delete(key)

    def end(self, key: ClientKey) -> None:
        """The session ended: a will that waits is published now."""
        will = self._wills.get(key)
        if will is not None and will.due_at is not None:
            self._publish(key)

    def forget_vhost(self, vhost: str) -> None:
        """The virtual host is gone, and its rows with it."""
        for key in [key for key in self._wills if key[0] == vhost]:
            self._forget(key)

    async def recover(self, session_left: Callable[[ClientKey], float | None]) -> None:
        """Plans what is due. Whoever was connected when the gateway ended is lost from now on."""
        now = self._clock()
        lost: dict[ClientKey, float] = {}
        for key, will in await self._store.all(MAX_WILL_IN_MEMORY_BYTES):
            self._wills[key] = will
            if will.due_at is None:
                left = session_left(key)
                lost[key] = now + (will.delay if left is None else min(will.delay, left))
            self._plan(key, will, lost[key] if will.due_at is None else will.due_at)
        if lost:
            await self._store.set_due(lost)

    def keys(self) -> Iterable[ClientKey]:
        """Clients that have a will in the database."""
        return self._wills.keys()

    async def settled(self) -> None:
        """Returns when no will is on its way; one that takes too long is published after the next
        start."""
        if self._leaving:
            await asyncio.wait(self._leaving.values(), timeout=CLOSING_WAIT_SECONDS)

    # --- publishing

    def _plan(self, key: ClientKey, will: Will, due_at: float) -> None:
        will.due_at = due_at
        will.appointment = self._agenda.at(due_at, lambda: self._fire(key, will))

    def _fire(self, key: ClientKey, will: Will) -> None:
        if self._wills.get(key) is will:
            self._publish(key)

    def _publish(self, key: ClientKey) -> None:
        will = self._forget(key)
        assert will is not None
        self._leave(key, self._send(key, will))

    def _forget(self, key: ClientKey) -> Will | None:
        will = self._wills.pop(key, None)
        if will is not None and will.appointment is not None:
            will.appointment.cancel()
        return will

    async def _send(self, key: ClientKey, will: Will) -> None:
        try:
            message = will.message or await self._store.message(key)
        except CoreError as error:
            log.warning("will of '%s' waits for the database: %s", key[1], error)
            if key not in self._wills:
                self._wills[key] = will
                self._plan(key, will, self._clock() + DATABASE_RETRY_SECONDS)
            return
        vhost = self._vhosts.get(key[0])
        if message is None or vhost is None:
            return
        if will.identity is None or not self._may_publish(will.identity, key[0], message.topic):
            await self._drop_forbidden(vhost, key, will)
            return
        if will.lifetime is not None:
            message.expires_at = self._clock() + will.lifetime
        try:
            await self._commit(vhost, key, will, message)
        except StoreUnavailable as error:  # the gateway stops; its row is there for the next one
            log.warning("will of '%s' waits for the next start: %s", key[1], error)
        except CoreError as error:
            log.error("will of '%s' cannot be published, and is dropped: %s", key[1], error)
            await self._delete(key)

    async def _drop_forbidden(self, vhost: Vhost, key: ClientKey, will: Will) -> None:
        """Drops a will whose user was removed, or may not publish there any more."""
        vhost.context.counters.dropped_wills += 1
        whose = "nobody" if will.identity is None else f"user '{will.identity.name}'"
        log.warning("will of '%s' is dropped: %s may not publish it any more", key[1], whose)
        await self._delete(key)

    async def _commit(self, vhost: Vhost, key: ClientKey, will: Will, message: Message) -> None:
        records: tuple[Record, ...] = (WillRecord(*key),)
        if will.retain:
            message.retain = True
            try:
                records += (self._retained.record(vhost.name, message, will.qos),)
            except CoreError as error:
                log.error("will of '%s' is published, but not retained: %s", key[1], error)
        waiter = Waiter()
        if vhost.publish(message, waiter, 0, records) is Published.REFUSED:
            log.warning("will of '%s' was refused by a queue that is full", key[1])
            await vhost.writer.flushed()
        else:
            await waiter.done

    async def _delete(self, key: ClientKey) -> None:
        """Deletes the row; if that cannot be done now, soon, and before another takes its place."""
        try:
            await self._store.delete(key)
        except CoreError as error:
            log.warning("the will that '%s' took back is still in the database: %s", key[1], error)
            self._agenda.at(self._clock() + DATABASE_RETRY_SECONDS, lambda: self._delete_again(key))

    def _delete_again(self, key: ClientKey) -> None:
        if key not in self._wills and key not in self._leaving:
            self._leave(key, self._delete(key))

    # --- a row that leaves does so before the next one comes

    def _leave(self, key: ClientKey, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._leaving[key] = task
        task.add_done_callback(lambda done: self._left(key, done))

    def _left(self, key: ClientKey, task: asyncio.Task[None]) -> None:
        if self._leaving.get(key) is task:
            del self._leaving[key]
        if not task.cancelled() and task.exception() is not None:
            log.error("will of '%s' failed", key[1], exc_info=task.exception())

    async def _settled(self, key: ClientKey) -> None:
        leaving = self._leaving.get(key)
        if leaving is not None:
            await asyncio.wait([leaving])
