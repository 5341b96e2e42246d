"""Shared subscriptions: groups whose members compete for what one filter matches.

A group has a live queue while a member is connected, and a stored one beside it from the first
member on that outlives its connection. Members consume from both; who is away is passed over,
because it does not consume.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from queue_core.errors import QueueNotFound
from queue_core.keyed_lock import Turns
from queue_core.queues.classic import ClassicQueue, classic
from queue_core.queues.competing import CompetingQueue
from queue_core.queues.reserved_names import LIVE_SHARE_PREFIX, SHARE_PREFIX
from queue_core.queues.spec import QueueSpec
from queue_core.sessions.orphan_queues import Leftovers
from queue_core.sessions.subscription import LiveQueue, Subscription, is_worth_storing

if TYPE_CHECKING:
    from queue_core.sessions.sessions import Session
    from queue_core.vhost import Vhost

log = logging.getLogger(__name__)

GroupKey = tuple[str, str]  # vhost and address


@dataclass(slots=True)
class Member:
    subscription: Subscription
    is_persistent: bool


@dataclass(slots=True)
class Group:
    vhost: Vhost
    name: str  # share/filter, as the names of its queues end
    filter: str
    members: dict[str, Member] = field(default_factory=dict)  # by client id
    connected: dict[str, Session] = field(default_factory=dict)
    live: LiveQueue | None = None
    stored: ClassicQueue | None = None

    def options(self) -> Subscription:
        """Returns what the group asks for: as much as the most demanding of its members."""
        qos = max((member.subscription.qos for member in self.members.values()), default=0)
        return Subscription(self.filter, qos, share=self.name.partition("/")[0])

    def needs_stored(self) -> bool:
        return any(each.is_persistent and each.subscription.qos for each in self.members.values())

    def queue_names(self) -> list[str]:
        queues = (self.live, self.stored)
        return [queue.name for queue in queues if queue is not None and not queue.is_deleted]


class Shares:
    def __init__(
        self,
        live_spec: Callable[[str], QueueSpec],
        stored_spec: Callable[[str], QueueSpec],
        leftovers: Leftovers,
        hold_publishers: Callable[[CompetingQueue], None],
    ) -> None:
        self._live_spec = live_spec
        self._stored_spec = stored_spec
        self._leftovers = leftovers
        self._hold_publishers = hold_publishers
        self._groups: dict[GroupKey, Group] = {}
        self._turns = Turns()

    def queue_names(self, vhost: str, address: str) -> list[str]:
        group = self._groups.get((vhost, address))
        return [] if group is None else group.queue_names()

    def has(self, vhost: str, address: str) -> bool:
        return (vhost, address) in self._groups

    def turn_of(self, vhost: str, address: str) -> AbstractAsyncContextManager[None]:
        return self._turns.of((vhost, address))

    # --- members come and go

    def join(self, session: Session, subscription: Subscription) -> None:
        """A connected session subscribes, or subscribes again, and gets its share from now on.
        `provide` makes the queue that keeps the group's messages, where a member asks for that."""
        group = self._group(session.vhost, subscription)
        group.members[session.client_id] = Member(subscription, session.is_persistent)
        self._connect(group, session)

    async def provide(self, vhost: Vhost, address: str) -> None:
        """The group's stored queue is in the database on return, if any member needs one. Raises
        CoreError."""
        key = (vhost.name, address)
        async with self._turns.of(key):
            group = self._groups.get(key)
            if group is not None and group.members:
                await self._provide_stored(group)

    def leave(self, vhost: Vhost, client_id: str, address: str) -> None:
        """The session ended, or took its subscription back. A group without members takes no more
        messages; `clear` removes it."""
        group = self._groups.get((vhost.name, address))
        if group is None:
            return
        group.members.pop(client_id, None)
        self._disconnect(group, client_id)
        if group.members:
            self._bind(group)
        elif group.stored is not None:
            vhost.unsubscribe(group.filter, group.stored)

    async def clear(self, vhost: Vhost, address: str) -> None:
        """Removes the group, with its queue, if nobody belongs to it any more."""
        key = (vhost.name, address)
        async with self._turns.of(key):
            group = self._groups.get(key)
            if group is None or group.members:
                return
            del self._groups[key]
            if group.stored is not None:
                await self._leftovers.drop(vhost, group.stored, lambda: self.turn_of(*key))

    async def part(self, vhost: Vhost, client_id: str, address: str) -> None:
        """Leaves, and clears what is left."""
        self.leave(vhost, client_id, address)
        await self.clear(vhost, address)

    # --- connections come and go

    def connect(self, session: Session, subscriptions: Iterable[Subscription]) -> None:
        """A session that was away is back."""
        for each in subscriptions:
            self._connect(self._group(session.vhost, each), session)

    def disconnect(self, session: Session, addresses: Iterable[str]) -> None:
        for address in addresses:
            group = self._groups.get((session.vhost.name, address))
            if group is not None and group.connected.get(session.client_id) is session:
                self._disconnect(group, session.client_id)

    def restore(self, vhost: Vhost, client_id: str, subscription: Subscription) -> None:
        """A stored session's membership, read at start."""
        group = self._group(vhost, subscription)
        group.members[client_id] = Member(subscription, is_persistent=True)
        if group.stored is None:
            queue = classic(vhost.queues.get(SHARE_PREFIX + group.name))
            if queue is not None:
                self._adopt(group, queue)

    async def heal(self) -> None:
        """Mends groups after all members are restored: groups whose stored queue is missing get
        one, and those that have one are bound to it."""
        for group in list(self._groups.values()):
            await self._provide_stored(group)

    # --- queues of a group

    def _group(self, vhost: Vhost, subscription: Subscription) -> Group:
        key = (vhost.name, subscription.address)
        group = self._groups.get(key)
        if group is None:
            name = subscription.address[len(SHARE_PREFIX) :]
            group = self._groups[key] = Group(vhost, name, subscription.filter)
        return group

    async def _provide_stored(self, group: Group) -> None:
        is_missing = group.stored is None or group.stored.is_deleted
        if is_missing and group.needs_stored():
            spec = self._stored_spec(SHARE_PREFIX + group.name)
            if spec.name in group.vhost.queues:  # of a group that ended, and not yet deleted
                with suppress(QueueNotFound):
                    await group.vhost.delete_queue(spec.name, inside=True)
            queue = classic(await group.vhost.declare_queue(spec, inside=True))
            if queue is None:
                raise QueueNotFound(f"queue '{spec.name}' is not the kind that a group needs")
            self._adopt(group, queue)
        self._bind(group)

    def _adopt(self, group: Group, queue: ClassicQueue) -> None:
        queue.spec = self._stored_spec(queue.name)
        queue.wants = is_worth_storing
        self._hold_publishers(queue)
        group.stored = queue
        for session in list(group.connected.values()):
            session.owner.on_shared_changed()

    def _bind(self, group: Group) -> None:
        """Binds the group's queues with what the group asks for now. The stored one comes first:
        what is on its way goes to one of the two queues in any case, and never to both."""
        options = group.options()
        if group.stored is not None and not group.stored.is_deleted:
            group.vhost.subscribe(group.filter, group.stored, options)
        if group.live is not None:
            group.live.has_stored = group.stored is not None and not group.stored.is_deleted
            group.vhost.subscribe(group.filter, group.live, options)

    def _connect(self, group: Group, session: Session) -> None:
        group.connected[session.client_id] = session
        if group.live is None:
            spec = self._live_spec(LIVE_SHARE_PREFIX + group.name)
            group.live = LiveQueue(spec, group.vhost.context)
            self._hold_publishers(group.live)
            group.vhost.add_queue(group.live)
        self._bind(group)

    def _disconnect(self, group: Group, client_id: str) -> None:
        group.connected.pop(client_id, None)
        live = group.live
        if live is not None and not group.connected:
            group.live = None
            gone = QueueNotFound(f"nobody of the group '{group.name}' is connected any more")
            group.vhost.end_ephemeral(live, gone)
