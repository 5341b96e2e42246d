"""The open connections: names and counts them, and ends them politely when the gateway stops.

It must not know which protocol any of them speaks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import islice
from operator import add
from time import time
from typing import Protocol, TypeVar, cast

from gateway.statistics.connection_samples import NO_FLOW, Samples
from protocols.connection_report import ConnectionReport, Volume
from queue_core.access.auth import UNKNOWN_HOST, Peer

logger = logging.getLogger(__name__)

DRAIN_SECONDS = 10.0
MOST_LOOKED_AT = 64  # strangers, for one that waits for nothing but its own client


class Connection(Protocol):
    """The methods that every adapter's connection has besides asyncio's callbacks."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...
    def connection_lost(self, error: Exception | None) -> None: ...
    def data_received(self, data: bytes) -> None: ...

    def shut_down(self, reason: str) -> None:
        """Says the protocol's own goodbye, and closes when that is sent."""


class Guest(Protocol):
    """A connection of a client that may have logged in, as operators see it."""

    def report(self) -> ConnectionReport | None:
        """Describes the connection; None: the client has not opened it, or is gone."""
        ...

    def volume(self) -> Volume:
        """Counts the bytes of the connection so far."""
        ...

    def force_out(self, reason: str) -> None:
        """Ends the connection, and tells the client that an operator wants it."""

    def cancel_consumer(self, channel: int, tag: str, reason: str) -> bool:
        """Ends a consumer; False: there is no such consumer. Raises NotSupported."""
        ...


class OpenConnection:
    """One open connection, by the name that people know it by."""

    __slots__ = ("_connection", "adapter", "address", "sampled", "since", "transport")

    def __init__(
        self, adapter: str, connection: object, transport: asyncio.BaseTransport, number: int
    ) -> None:
        self._connection = connection
        self.adapter = adapter
        self.transport = transport  # which knows both ends: many idle clients take little memory
        self.since = time()
        peer = self.peer
        # Two connections cannot have the same ends, but those without addresses have none at all.
        self.address = peer.address if peer.port else f"{peer.host} #{number}"
        self.sampled = Samples()

    @property
    def name(self) -> str:
        """The name as in RabbitMQ: the client's end, and ours."""
        host, port = self.local
        return f"{self.address} -> {host}:{port}"

    @property
    def peer(self) -> Peer:
        return Peer.described_by(self.transport.get_extra_info)

    @property
    def local(self) -> tuple[str, int]:
        """Host and port of our end; a Unix socket has a path and no port."""
        try:
            name = self.transport.get_extra_info("sockname")
        except (AttributeError, OSError):  # uvloop's, once its socket is gone
            return UNKNOWN_HOST, 0
        if isinstance(name, tuple):
            return str(name[0]), int(name[1])
        return str(name or "unix"), 0

    @property
    def guest(self) -> Guest | None:
        """The connection that logs in; None: a WebSocket whose upgrade is under way."""
        inside = getattr(self._connection, "guest", self._connection)
        return cast(Guest, inside) if hasattr(inside, "report") else None

    def report(self) -> ConnectionReport | None:
        """Describes the connection; None: the client has not opened it."""
        guest = self.guest
        return None if guest is None else guest.report()

    def volume(self) -> Volume:
        """Counts the bytes of the connection so far."""
        guest = self.guest
        return Volume(0, 0, 0) if guest is None else guest.volume()

    def sample(self, now: float) -> tuple[int, ...]:
        """Looks at the counts of the connection, and returns what the last look did not see of its
        messages."""
        report = self.report()
        if report is None:
            return NO_FLOW
        return self.sampled.put(now, report, self.volume())

    def force_out(self, reason: str) -> None:
        """Ends the connection, and tells the client that an operator wants it."""
        guest = self.guest
        if guest is not None:
            guest.force_out(reason)


Kind = TypeVar("Kind", bound=type)
Newcomers = dict[object, tuple[float, asyncio.BaseTransport]]


class Connections:
    """Tracks the open connections of all adapters, by the adapter's name."""

    def __init__(self) -> None:
        self._open: dict[object, OpenConnection] = {}
        self._by_address: dict[str, OpenConnection] = {}  # of the client's end
        self.flow = NO_FLOW  # of all connections that there were, as far as they were looked at
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self.accepted: dict[str, int] = {}
        self._counts: dict[str, int] = {}  # those that are open, likewise by adapter
        self.ended = 0
        # Have not said yet which protocol they speak; and those that have, until it is noticed that
        # they are let in. Both with the moment at which they came, the oldest first.
        self.undecided: Newcomers = {}
        self._newcomers: Newcomers = {}

    def __len__(self) -> int:
        return len(self._open)

    def count(self, name: str) -> int:
        return self._counts.get(name, 0)

    def all(self) -> list[OpenConnection]:
        """Lists the open connections, the oldest first."""
        return list(self._open.values())

    def find(self, name: str) -> OpenConnection | None:
        """Finds an open connection by its name."""
        found = self._by_address.get(name.partition(" -> ")[0])
        return found if found is not None and found.name == name else None

    def find_peer(self, address: str) -> OpenConnection | None:
        """Finds an open connection by the address of its client, the newest of them."""
        return self._by_address.get(address)

    def is_open(self, connection: OpenConnection) -> bool:
        """Tells whether a connection has not ended."""
        return self._by_address.get(connection.address) is connection

    def sample(self, connection: OpenConnection, now: float) -> None:
        """Looks at the counts of an open connection, and adds what is new to those of all."""
        self.flow = tuple(map(add, self.flow, connection.sample(now)))

    def tracked(self, name: str, kind: Kind) -> Kind:
        """Returns a subclass of a connection class that is tracked here from its first to its last
        moment. A subclass, so that data goes to the adapter without passing through anything of
        ours."""
        book = self
        self.accepted.setdefault(name, 0)
        self._counts.setdefault(name, 0)

        class Tracked(kind):  # type: ignore[misc,valid-type]
            __slots__ = ()

            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                book._add(name, self, transport)
                super().connection_made(transport)

            def connection_lost(self, error: Exception | None) -> None:
                book._remove(self)
                super().connection_lost(error)

        Tracked.__name__ = Tracked.__qualname__ = kind.__name__
        return Tracked  # type: ignore[return-value]

    def _add(self, name: str, connection: object, transport: asyncio.BaseTransport) -> None:
        opened = OpenConnection(name, connection, transport, sum(self.accepted.values()))
        self._open[connection] = opened
        self._by_address[opened.address] = opened
        self._newcomers[connection] = (asyncio.get_running_loop().time(), transport)
        self._is_empty.clear()
        self.accepted[name] += 1
        self._counts[name] += 1

    def _remove(self, connection: object) -> None:
        opened = self._open.pop(connection, None)
        if opened is not None:
            if self._by_address.get(opened.address) is opened:
                del self._by_address[opened.address]
            self._counts[opened.adapter] -= 1
            self.sample(opened, time())
        self._newcomers.pop(connection, None)
        self.ended += 1
        if not self._open:
            self._is_empty.set()

    def strangers(self, is_let_in: Callable[[object], bool]) -> Strangers:
        """Returns the open connections of clients that have not logged in."""
        return Strangers(self.undecided, self._newcomers, is_let_in)

    async def drain(self, reason: str, seconds: float = DRAIN_SECONDS) -> None:
        """Has every connection say its protocol's goodbye, and cuts off those that are still open
        after `seconds`."""
        for connection in list(self._open):
            _say_goodbye(connection, reason)
        try:
            # not wait_for: of a cancellation in the same turn as the event, it says nothing
            async with asyncio.timeout(seconds):
                await self._is_empty.wait()
        except TimeoutError:
            logger.warning("%d connections did not close in time: cut off", len(self._open))
            for opened in self.all():
                _cut(opened.transport)


class Strangers:
    """Connections of clients that have not logged in, the oldest first."""

    def __init__(
        self, undecided: Newcomers, newcomers: Newcomers, is_let_in: Callable[[object], bool]
    ) -> None:
        self._undecided = undecided
        self._newcomers = newcomers
        self._is_let_in = is_let_in

    def oldest(self) -> float | None:
        """Returns when the oldest such connection came, by the loop's clock; None if there is none.
        One whose login is being checked is left out: it waits for us."""
        found = self._find()
        return None if found is None else found[0]

    def end_oldest(self) -> None:
        found = self._find()
        assert found is not None
        _, book, connection = found
        _, transport = book.pop(connection)
        _cut(transport)

    def _find(self) -> tuple[float, Newcomers, object] | None:
        found = [self._find_in(book) for book in (self._newcomers, self._undecided)]
        return min((each for each in found if each), key=lambda each: each[0], default=None)

    def _find_in(self, book: Newcomers) -> tuple[float, Newcomers, object] | None:
        """Finds the oldest connection without a login among newcomers, and drops those that have
        logged in since: each is looked at once."""
        for connection, (since, _) in list(islice(book.items(), MOST_LOOKED_AT)):
            guest = getattr(connection, "guest", connection)  # a WebSocket carries who logs in
            if self._is_let_in(guest):
                del book[connection]
            elif not getattr(guest, "awaits_us", False):
                return since, book, connection
        return None


def _say_goodbye(connection: object, reason: str) -> None:
    shut_down: Callable[[str], None] = connection.shut_down  # type: ignore[attr-defined]
    try:
        shut_down(reason)
    except Exception:
        logger.exception("a connection could not say goodbye")


def _cut(transport: asyncio.BaseTransport) -> None:
    if isinstance(transport, asyncio.Transport):
        transport.abort()
    else:
        getattr(transport, "abort", transport.close)()
