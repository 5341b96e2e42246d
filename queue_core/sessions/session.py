"""One session: what its connection may do with it, and the state that outlives the connection.

The life of sessions (opening, takeover, expiry, restart) is told in `sessions`; here are the
objects it is told about, and what it asks of the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import quote

from queue_core.commit.unit import PacketRecord
from queue_core.errors import CoreError, SessionNotFound
from queue_core.queues.backpressure import STALL_SECONDS, Backpressure
from queue_core.queues.classic import ClassicQueue
from queue_core.queues.competing import CompetingQueue
from queue_core.queues.reserved_names import LIVE_SHARE_PREFIX, SHARE_PREFIX
from queue_core.queues.spec import Overflow, QueueSpec
from queue_core.sessions.inflight import PacketKey, PacketState
from queue_core.sessions.retained import RetainedSettings
from queue_core.sessions.shared_claims import claim_entry
from queue_core.sessions.subscription import Subscription
from queue_core.timers import Appointment

if TYPE_CHECKING:
    from queue_core.delivery.consumer import Delivery
    from queue_core.sessions.sessions import Sessions
    from queue_core.sessions.subscription_changes import Change
    from queue_core.vhost import Vhost

ClientKey = tuple[str, str]  # vhost and client id
USERS_OWN: Final = "$user/"  # and the user's name: a client id that another user has, too


def users_own_id(user: str | None, client_id: str) -> str:
    """Returns a client id that differs from the same id of another user."""
    return f"{USERS_OWN}{quote(user or '', safe='')}/{client_id}"


def given_id(client_id: str) -> str:
    """The client id as the client gave it."""
    return client_id.split("/", 2)[2] if client_id.startswith(USERS_OWN) else client_id


class Keep(Enum):
    """The expiry stays as it is."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Limits of MQTT sessions. The queue of a client that is away drops its oldest message when it
    is full, and counts it."""

    max_sessions: int = 1_000_000  # stored ones
    max_subscriptions: int = 10_000  # of one session
    offline_messages: int = 100_000  # kept for a client that is away
    live_messages: int = 100_000  # waiting for a client that is connected, and slow
    live_bytes: int = 32 * 1024 * 1024
    holds_publishers: bool = (
        True  # of clients that are connected, and slow; False: drops the oldest
    )
    stall_seconds: float = STALL_SECONDS  # that publishers wait for one that takes nothing
    retained: RetainedSettings = field(default_factory=RetainedSettings)

    def hold_publishers(self, queue: CompetingQueue) -> None:
        """Has a queue of connected clients hold its publishers, where that is wanted."""
        if self.holds_publishers and queue.backpressure is None:
            queue.backpressure = Backpressure(queue, self.stall_seconds)

    def live_spec(self) -> QueueSpec:
        """Returns the spec of a connected client's queue; only the name differs between clients."""
        arguments = {
            "x-max-length": self.live_messages,
            "x-max-length-bytes": self.live_bytes,
            "x-overflow": Overflow.DROP_HEAD.value,
        }
        return QueueSpec.parse("", arguments, durable=False)

    def stored_spec(self) -> QueueSpec:
        """Returns the spec of a stored session's queue; only the name differs between sessions."""
        arguments = {
            "x-max-length": self.offline_messages,
            "x-overflow": Overflow.DROP_HEAD.value,
        }
        return QueueSpec.parse("", arguments)


class SessionOwner(Protocol):
    """The connection that a session is attached to."""

    def on_takeover(self) -> None:
        """Another connection has the session from now on: end all consumers before you return."""

    def on_shared_changed(self) -> None:
        """`session.shared` names a queue that it did not name before: consume from it, too."""

    def on_ended(self, reason: CoreError) -> None:
        """An operator ended the session: end all consumers before you return."""


class SessionStore(Protocol):
    """The tables of sessions, subscriptions and packets."""

    async def load(self, now: float) -> list[SessionState]:
        """Reads all stored sessions. Those that were connected are disconnected from now on."""
        ...

    async def packets(self) -> dict[int, list[PacketRecord]]:
        """Reads what is in flight, by session."""
        ...

    async def add(self, state: SessionState, queue_name: str, now: float) -> int:
        """The number that the new session gets."""
        ...

    async def connect(
        self, session_id: int, expiry: float | None, protocol: str, now: float
    ) -> bool:
        """False: its row is not there any more."""
        ...

    async def disconnect(self, session_id: int, expiry: float | None, now: float) -> None: ...

    async def delete(self, session_id: int) -> None: ...

    async def put_subscriptions(
        self, session_id: int, subscriptions: Iterable[Subscription]
    ) -> None: ...

    async def delete_subscriptions(self, session_id: int, addresses: Iterable[str]) -> None: ...

    async def note_limits(self, arguments: Mapping[str, object]) -> None:
        """The queues of sessions have these arguments from now on."""


@dataclass(slots=True)
class SessionState:
    """Holds the state of a session, connected or not. `id` is 0 when nothing of it is stored."""

    key: ClientKey
    user: str | None
    protocol: str
    expiry: float | None
    id: int = 0
    stored: ClassicQueue | None = None
    subscriptions: dict[str, Subscription] = field(default_factory=dict)  # by address
    packets: dict[PacketKey, PacketState] = field(default_factory=dict)
    disconnected_at: float | None = None
    ending: Appointment | None = None

    def topic_subscriptions(self) -> Iterator[Subscription]:
        for each in self.subscriptions.values():
            if each.share is None and each.queue is None:
                yield each

    def shared_subscriptions(self) -> list[Subscription]:
        return [each for each in self.subscriptions.values() if each.share is not None]

    def ends_at(self) -> float | None:
        """Returns when the session ends if nobody comes back before; None: never."""
        if self.disconnected_at is None or self.expiry is None:
            return None
        return self.disconnected_at + self.expiry

    def is_over(self, now: float) -> bool:
        ends_at = self.ends_at()
        return ends_at is not None and ends_at <= now

    def note(self, record: PacketRecord) -> None:
        key = (record.is_outgoing, record.packet_id)
        self.packets.pop(key, None)  # they stand in the order of what was said of them last
        if record.state:
            self.packets[key] = PacketState(record.state, record.queue_id, record.offset)

    def info(self, *, is_connected: bool) -> SessionInfo:
        return SessionInfo(
            self.key[0],
            self.key[1],
            self.user,
            self.protocol,
            is_connected,
            bool(self.id),
            self.expiry,
            self.disconnected_at,
            len(self.subscriptions),
            len(self.packets),
            0 if self.stored is None else self.stored.counts().waiting,
        )


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session as people see it."""

    vhost: str
    client_id: str
    user: str | None
    protocol: str
    is_connected: bool
    is_persistent: bool
    expiry: float | None
    disconnected_at: float | None
    subscriptions: int
    in_flight: int
    waiting: int


class Session:
    """A session in the hands of one connection, until it detaches or is taken over."""

    __slots__ = ("_sessions", "is_attached", "is_present", "live", "owner", "state", "vhost")

    def __init__(
        self,
        sessions: Sessions,
        vhost: Vhost,
        state: SessionState,
        owner: SessionOwner,
        is_present: bool,
    ) -> None:
        self.vhost = vhost
        self.state = state
        self.owner = owner
        self.is_present = is_present  # it was there before this connection
        self.is_attached = True
        self.live = sessions.make_live(vhost, state)
        self._sessions = sessions

    @property
    def key(self) -> ClientKey:
        return self.state.key

    @property
    def id(self) -> int:
        return self.state.id

    @property
    def client_id(self) -> str:
        return self.state.key[1]

    @property
    def user(self) -> str | None:
        return self.state.user

    @property
    def protocol(self) -> str:
        return self.state.protocol

    @property
    def expiry(self) -> float | None:
        return self.state.expiry

    @property
    def is_persistent(self) -> bool:
        return self.state.id != 0

    @property
    def stored(self) -> ClassicQueue | None:
        return self.state.stored

    @property
    def subscriptions(self) -> Mapping[str, Subscription]:
        """Returns the subscriptions by address."""
        return self.state.subscriptions

    @property
    def shared(self) -> list[str]:
        """Queues of shared subscriptions to consume from."""
        shares, vhost = self._sessions.shares, self.vhost.name
        return [
            name
            for each in self.state.shared_subscriptions()
            for name in shares.queue_names(vhost, each.address)
        ]

    @staticmethod
    def shared_address(queue_name: str) -> str:
        """The subscription that a queue of `shared` serves."""
        if queue_name.startswith(LIVE_SHARE_PREFIX):
            return SHARE_PREFIX + queue_name[len(LIVE_SHARE_PREFIX) :]
        return queue_name

    def check_attached(self) -> None:
        if not self.is_attached:
            raise SessionNotFound(
                f"session '{self.client_id}' is not this connection's any more; connect again"
            )

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Keeps everything else from happening to this client's session meanwhile."""
        return self._sessions.turn_of(self.key)

    # --- subscriptions

    def change(self) -> Change:
        """A change of subscriptions: each of its steps acts at once, and `commit` stores them."""
        return self._sessions.change(self)

    async def subscribe(self, subscription: Subscription) -> bool:
        """Committed on return. False: it was there, and has the new options."""
        return (await self.subscribe_all([subscription]))[0]

    async def subscribe_all(self, subscriptions: list[Subscription]) -> list[bool]:
        """Adds subscriptions in one transaction, all or none."""
        self.check_attached()
        self._sessions.check_subscriptions(self.state, subscriptions)
        change = self.change()
        are_new = [change.put(each) for each in subscriptions]
        await change.commit()
        return are_new

    async def unsubscribe(self, address: str) -> bool:
        """Committed on return. False: there was no such subscription."""
        return (await self.unsubscribe_all([address]))[0]

    async def unsubscribe_all(self, addresses: list[str]) -> list[bool]:
        change = self.change()
        were_there = [change.drop(address) for address in addresses]
        await change.commit()
        return were_there

    # --- deliveries of a group

    def claim(self, delivery: Delivery, subscription: Subscription) -> None:
        """A message of a group becomes this stored session's own: it leaves the group's queue and
        enters the session's, in one commit."""
        stored = self.stored
        assert stored is not None
        claim_entry(self.vhost, delivery, stored, subscription)

    # --- packets in flight

    @property
    def packets(self) -> Mapping[PacketKey, PacketState]:
        return self.state.packets

    def note(
        self,
        is_outgoing: bool,
        packet_id: int,
        state: int,
        queue_id: int | None = None,
        offset: int | None = None,
    ) -> tuple[PacketRecord, ...]:
        """Changes the state of an exchange; 0 ends it. What comes back is to be committed with
        whatever it belongs to; nothing, where the session is not stored."""
        record = self.remember(is_outgoing, packet_id, state, queue_id, offset)
        return (record,) if self.state.id else ()

    def remember(
        self,
        is_outgoing: bool,
        packet_id: int,
        state: int,
        queue_id: int | None = None,
        offset: int | None = None,
    ) -> PacketRecord:
        """Notes a packet in flight in memory only: it outlives the connection, not the gateway."""
        record = PacketRecord(self.state.id, is_outgoing, packet_id, state, queue_id, offset)
        self.state.note(record)
        return record

    def forget_packet(self, is_outgoing: bool, packet_id: int) -> None:
        """Ends an exchange of a session that is not stored."""
        self.state.packets.pop((is_outgoing, packet_id), None)
