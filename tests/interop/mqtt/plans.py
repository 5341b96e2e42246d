"""Plans of what a client of any make is to do, and what it heard: the words of these tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, runtime_checkable

from protocols.mqtt.wire.packets import Publish, Version, Will
from protocols.mqtt.wire.property_set import NO_PROPERTIES, PropertySet

Facts = dict[str, object]  # heard properties, by our names; several values are tuples
NO_FACTS: Final[Facts] = {}


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a client says until it waits for messages, and when it leaves."""

    version: Version = Version.V5
    client_id: str = ""  # none: the gateway is to choose one
    is_clean: bool = True
    keep_alive: int = 60
    connect: PropertySet = NO_PROPERTIES
    will: Will | None = None
    filters: tuple[str, ...] = ()
    qos: int = 0
    subscribe: PropertySet = NO_PROPERTIES
    resumes: bool = False  # the session has these filters already
    unsubscribe_from: str = ""
    unsubscribe: PropertySet = NO_PROPERTIES
    acknowledgements: PropertySet = NO_PROPERTIES  # of PUBACK, PUBREC, PUBREL and PUBCOMP
    disconnect: PropertySet = NO_PROPERTIES
    password: str | None = None  # of guest
    scram: bool = False  # logs in as guest by SCRAM-SHA-256
    auth: PropertySet = NO_PROPERTIES  # what AUTH says beside method and data


class Message(NamedTuple):
    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Facts = NO_FACTS


class Answer(NamedTuple):
    """A reason code, and the properties beside it."""

    reason: int
    properties: Facts = NO_FACTS


NOT_YET: Final = Answer(0)


class Refused(Exception):
    """CONNACK said no."""

    def __init__(self, reason: int, properties: Facts) -> None:
        super().__init__(f"0x{reason:02X} {properties}")
        self.answer = Answer(reason, properties)


@dataclass
class Heard:
    """Until it is subscribed."""

    connack: Facts = field(default_factory=dict)
    is_resumed: bool = False
    suback: Answer = NOT_YET
    unsuback: Answer = NOT_YET


class Seat(Protocol):
    """A client that is connected and subscribed."""

    heard: Heard

    def message(self) -> Message: ...
    def ended(self) -> Answer:
        """The gateway's DISCONNECT, which is to come."""
        ...

    def leave(self) -> None:
        """With DISCONNECT."""

    def lose(self) -> None:
        """Ends the connection without a word, as a network that is gone does."""


@runtime_checkable
class ScramSeat(Seat, Protocol):
    """One that logged in in several steps."""

    challenge: Facts  # of the gateway's AUTH

    def is_server_right(self, proof: object) -> bool: ...


class Peer(Protocol):
    """A make of clients."""

    def listen(self, port: int, transport: str, plan: Plan) -> Seat:
        """Raises Refused."""
        ...

    def publish(
        self, port: int, transport: str, plan: Plan, messages: tuple[Publish, ...]
    ) -> list[Answer]:
        """Connects, publishes, each message to its end, and leaves. Raises Refused."""
        ...

    def close(self) -> None: ...
