"""Real connections on transports without a network, and sessions on a database in a test's hand.

What a connection is given, it takes in the same turn of the loop: so a test says which packet of
which client arrives first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from protocols.mqtt.connection import Connection
from protocols.mqtt.context import Context
from protocols.mqtt.settings import Settings
from protocols.mqtt.wire.codec import decode, split
from protocols.mqtt.wire.encoder import encode
from protocols.mqtt.wire.packets import ConnAck, Connect, Packet, Publish, Version
from protocols.mqtt.wire.property_set import PropertySet
from queue_core.access.auth import Auth, Credentials, Identity, Peer
from queue_core.access.mechanisms import ANONYMOUS
from queue_core.counters import Counters
from queue_core.memory_account import Memory
from queue_core.scheduler import scheduler
from queue_core.vhost import Vhost
from tests.support.fake_services import Everything
from tests.support.until import turns, until_turned
from tests.unit.queue_core.session_world import World


class Anybody:
    """Lets everybody in."""

    def mechanisms(self, peer: Peer) -> tuple[str, ...]:
        return (ANONYMOUS,)

    async def authenticate(self, credentials: Credentials, peer: Peer) -> Identity | None:
        return Identity("anybody")


class Services(World):
    def __init__(self) -> None:
        super().__init__()
        self.auth = Auth([Anybody()], [Everything()])
        self.counters = Counters()

    async def find(self, name: str) -> Vhost:
        return self.vhosts[name]


class Broking:
    """One gateway's MQTT: `client` connects to it."""

    def __init__(self, **settings: Any) -> None:
        scheduler().clock = lambda: 0.0  # however busy the machine is, no slice is over
        self.world = Services()
        self._ports: Any = _Ports(self.world)
        self.context = Context(self._ports, Settings(sys_interval=0, **settings))

    def use(self, auth: Auth) -> None:
        """Logins are checked there from now on."""
        self._ports.auth = auth

    def wire(self, version: Version = Version.V5) -> Wire:
        """A connection on which nothing was said."""
        return Wire(Connection(self.context), version)

    async def client(
        self,
        client_id: str,
        version: Version = Version.V5,
        *,
        expiry: int | None = None,
        clean: bool = True,
        **options: Any,
    ) -> Wire:
        """A client that is connected."""
        wire = self.wire(version)
        said = PropertySet(session_expiry=expiry)
        wire.gets(Connect(client_id, version, clean, properties=said, **options))
        await wire.until(ConnAck)
        return wire

    async def settle(self) -> None:
        """Everything that waits for nothing has happened."""
        await turns(50)


class _Ports:
    """`World.vhost` is a virtual host; a context asks for one by its name."""

    def __init__(self, world: Services) -> None:
        self.auth = world.auth
        self.sessions = world.sessions
        self.memory = Memory()
        self.counters = world.counters
        self.clock = world.clock
        self.vhost = world.find


class Wire(asyncio.Transport):
    """One connection, from its peer's side."""

    def __init__(self, connection: Connection, version: Version) -> None:
        super().__init__()
        self.connection = connection
        self.version = version
        self.heard: list[Packet] = []
        self.is_open = True
        connection.connection_made(self)

    # --- the peer

    def gets(self, *packets: Packet) -> None:
        self.gets_bytes(b"".join(encode(packet, self.version) for packet in packets))

    def gets_bytes(self, data: bytes) -> None:
        self.connection.data_received(data)

    async def until(self, kind: type[Packet]) -> Packet:
        """The last packet, once it is of that kind."""
        await self.when(lambda: bool(self.heard) and isinstance(self.heard[-1], kind))
        return self.heard[-1]

    async def when(self, is_so: Callable[[], bool]) -> None:
        await until_turned(is_so, lambda: f"last heard: {self.heard[-3:]}")

    def of(self, kind: type[Packet]) -> list[Any]:
        return [packet for packet in self.heard if isinstance(packet, kind)]

    @property
    def bodies(self) -> list[bytes]:
        return [packet.payload for packet in self.of(Publish)]

    # --- the transport

    def write(self, data: Any) -> None:
        position = 0
        while (frame := split(data, position, 1 << 28)) is not None:
            body = data[frame.start : frame.end]
            self.heard.append(decode(frame.head, body, self.version))
            position = frame.end
        assert position == len(data)

    def is_closing(self) -> bool:
        return not self.is_open

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    abort = write_eof = close  # whoever hears the end closes its half, too

    def can_write_eof(self) -> bool:
        return True

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.connection

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default
