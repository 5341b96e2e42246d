"""The methods of AMQP 0.9.1 with RabbitMQ's extensions, as field tables.

Each class lists its fields in the order of the wire, each with its domain. `codec` reads and writes
all of them by these lists; nothing here knows what a method does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum, auto
from typing import Annotated, ClassVar, Final, NamedTuple, TypeVar, get_type_hints


class Domain(Enum):
    """The ways in which a field is written."""

    BIT = auto()
    OCTET = auto()
    SHORT = auto()
    LONG = auto()
    LONG_LONG = auto()
    SHORT_STR = auto()
    LONG_STR = auto()
    TABLE = auto()


Bit = Annotated[bool, Domain.BIT]
Octet = Annotated[int, Domain.OCTET]
Short = Annotated[int, Domain.SHORT]
Long = Annotated[int, Domain.LONG]
LongLong = Annotated[int, Domain.LONG_LONG]
ShortStr = Annotated[str, Domain.SHORT_STR]
LongStr = Annotated[bytes, Domain.LONG_STR]
Table = Annotated[Mapping[str, object], Domain.TABLE]


class Method:
    """One method, in either direction."""

    __slots__ = ()

    index: ClassVar[int]  # class id << 16 | method id, as the wire has them

    @classmethod
    def ids(cls) -> tuple[int, int]:
        return divmod(cls.index, 1 << 16)


M = TypeVar("M", bound=Method)


class Layout(NamedTuple):
    """A method's class, and its fields in the order of the wire."""

    kind: type[Method]
    fields: tuple[tuple[str, Domain], ...]


METHODS: Final[dict[int, Layout]] = {}


def method(class_id: int, method_id: int) -> Callable[[type[M]], type[M]]:
    """Gives a method its number and puts it into the table."""

    def register(kind: type[M]) -> type[M]:
        kind.index = class_id << 16 | method_id
        hints = get_type_hints(kind, include_extras=True)
        domains = [(each.name, hints[each.name].__metadata__[0]) for each in fields(kind)]  # type: ignore[arg-type]
        METHODS[kind.index] = Layout(kind, tuple(domains))
        return kind

    return register


@method(10, 10)
@dataclass(frozen=True, slots=True)
class ConnectionStart(Method):
    version_major: Octet = 0
    version_minor: Octet = 9
    server_properties: Table = field(default_factory=dict)
    mechanisms: LongStr = b"PLAIN"
    locales: LongStr = b"en_US"


@method(10, 11)
@dataclass(frozen=True, slots=True)
class ConnectionStartOk(Method):
    client_properties: Table = field(default_factory=dict)
    mechanism: ShortStr = "PLAIN"
    response: LongStr = b""
    locale: ShortStr = "en_US"


@method(10, 20)
@dataclass(frozen=True, slots=True)
class ConnectionSecure(Method):
    challenge: LongStr = b""


@method(10, 21)
@dataclass(frozen=True, slots=True)
class ConnectionSecureOk(Method):
    response: LongStr = b""


@method(10, 30)
@dataclass(frozen=True, slots=True)
class ConnectionTune(Method):
    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


@method(10, 31)
@dataclass(frozen=True, slots=True)
class ConnectionTuneOk(Method):
    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


@method(10, 40)
@dataclass(frozen=True, slots=True)
class ConnectionOpen(Method):
    virtual_host: ShortStr = "/"
    reserved_1: ShortStr = ""
    reserved_2: Bit = False


@method(10, 41)
@dataclass(frozen=True, slots=True)
class ConnectionOpenOk(Method):
    reserved_1: ShortStr = ""


@method(10, 50)
@dataclass(frozen=True, slots=True)
class ConnectionClose(Method):
    reply_code: Short = 200
    reply_text: ShortStr = ""
    class_id: Short = 0
    method_id: Short = 0


@method(10, 51)
@dataclass(frozen=True, slots=True)
class ConnectionCloseOk(Method):
    pass


@method(10, 60)
@dataclass(frozen=True, slots=True)
class ConnectionBlocked(Method):
    reason: ShortStr = ""


@method(10, 61)
@dataclass(frozen=True, slots=True)
class ConnectionUnblocked(Method):
    pass


@method(10, 70)
@dataclass(frozen=True, slots=True)
class ConnectionUpdateSecret(Method):
    new_secret: LongStr = b""
    reason: ShortStr = ""


@method(10, 71)
@dataclass(frozen=True, slots=True)
class ConnectionUpdateSecretOk(Method):
    pass


@method(20, 10)
@dataclass(frozen=True, slots=True)
class ChannelOpen(Method):
    reserved_1: ShortStr = ""


@method(20, 11)
@dataclass(frozen=True, slots=True)
class ChannelOpenOk(Method):
    reserved_1: LongStr = b""


@method(20, 20)
@dataclass(frozen=True, slots=True)
class ChannelFlow(Method):
    active: Bit = True


@method(20, 21)
@dataclass(frozen=True, slots=True)
class ChannelFlowOk(Method):
    active: Bit = True


@method(20, 40)
@dataclass(frozen=True, slots=True)
class ChannelClose(Method):
    reply_code: Short = 200
    reply_text: ShortStr = ""
    class_id: Short = 0
    method_id: Short = 0


@method(20, 41)
@dataclass(frozen=True, slots=True)
class ChannelCloseOk(Method):
    pass


@method(30, 10)
@dataclass(frozen=True, slots=True)
class AccessRequest(Method):
    realm: ShortStr = ""
    exclusive: Bit = False
    passive: Bit = False
    active: Bit = False
    write: Bit = False
    read: Bit = False


@method(30, 11)
@dataclass(frozen=True, slots=True)
class AccessRequestOk(Method):
    ticket: Short = 1


@method(40, 10)
@dataclass(frozen=True, slots=True)
class ExchangeDeclare(Method):
    ticket: Short = 0
    exchange: ShortStr = ""
    type: ShortStr = "direct"
    passive: Bit = False
    durable: Bit = False
    auto_delete: Bit = False
    internal: Bit = False
    nowait: Bit = False
    arguments: Table = field(default_factory=dict)


@method(40, 11)
@dataclass(frozen=True, slots=True)
class ExchangeDeclareOk(Method):
    pass


@method(40, 20)
@dataclass(frozen=True, slots=True)
class ExchangeDelete(Method):
    ticket: Short = 0
    exchange: ShortStr = ""
    if_unused: Bit = False
    nowait: Bit = False


@method(40, 21)
@dataclass(frozen=True, slots=True)
class ExchangeDeleteOk(Method):
    pass


@method(40, 30)
@dataclass(frozen=True, slots=True)
class ExchangeBind(Method):
    ticket: Short = 0
    destination: ShortStr = ""
    source: ShortStr = ""
    routing_key: ShortStr = ""
    nowait: Bit = False
    arguments: Table = field(default_factory=dict)


@method(40, 31)
@dataclass(frozen=True, slots=True)
class ExchangeBindOk(Method):
    pass


@method(40, 40)
@dataclass(frozen=True, slots=True)
class ExchangeUnbind(Method):
    ticket: Short = 0
    destination: ShortStr = ""
    source: ShortStr = ""
    routing_key: ShortStr = ""
    nowait: Bit = False
    arguments: Table = field(default_factory=dict)


@method(40, 51)
@dataclass(frozen=True, slots=True)
class ExchangeUnbindOk(Method):
    pass


@method(50, 10)
@dataclass(frozen=True, slots=True)
class QueueDeclare(Method):
    ticket: Short = 0
    queue: ShortStr = ""
    passive: Bit = False
    durable: Bit = False
    exclusive: Bit = False
    auto_delete: Bit = False
    nowait: Bit = False
    arguments: Table = field(default_factory=dict)


@method(50, 11)
@dataclass(frozen=True, slots=True)
class QueueDeclareOk(Method):
    queue: ShortStr = ""
    message_count: Long = 0
    consumer_count: Long = 0


@method(50, 20)
@dataclass(frozen=True, slots=True)
class QueueBind(Method):
    ticket: Short = 0
    queue: ShortStr = ""
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    nowait: Bit = False
    arguments: Table = field(default_factory=dict)


@method(50, 21)
@dataclass(frozen=True, slots=True)
class QueueBindOk(Method):
    pass


@method(50, 30)
@dataclass(frozen=True, slots=True)
class QueuePurge(Method):
    ticket: Short = 0
    queue: ShortStr = ""
    nowait: Bit = False


@method(50, 31)
@dataclass(frozen=True, slots=True)
class QueuePurgeOk(Method):
    message_count: Long = 0


@method(50, 40)
@dataclass(frozen=True, slots=True)
class QueueDelete(Method):
    ticket: Short = 0
    queue: ShortStr = ""
    if_unused: Bit = False
    if_empty: Bit = False
    nowait: Bit = False


@method(50, 41)
@dataclass(frozen=True, slots=True)
class QueueDeleteOk(Method):
    message_count: Long = 0


@method(50, 50)
@dataclass(frozen=True, slots=True)
class QueueUnbind(Method):
    ticket: Short = 0
    queue: ShortStr = ""
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    arguments: Table = field(default_factory=dict)


@method(50, 51)
@dataclass(frozen=True, slots=True)
class QueueUnbindOk(Method):
    pass


@method(60, 10)
@dataclass(frozen=True, slots=True)
class BasicQos(Method):
    prefetch_size: Long = 0
    prefetch_count: Short = 0
    is_global: Bit = False


@method(60, 11)
@dataclass(frozen=True, slots=True)
class BasicQosOk(Method):
    pass


@method(60, 20)
@dataclass(frozen=True, slots=True)
class BasicConsume(Method):
    ticket: Short = 0
    queue: ShortStr = ""
    consumer_tag: ShortStr = ""
    no_local: Bit = False
    no_ack: Bit = False
    exclusive: Bit = False
    nowait: Bit = False
    arguments: Table = field(default_factory=dict)


@method(60, 21)
@dataclass(frozen=True, slots=True)
class BasicConsumeOk(Method):
    consumer_tag: ShortStr = ""


@method(60, 30)
@dataclass(frozen=True, slots=True)
class BasicCancel(Method):
    consumer_tag: ShortStr = ""
    nowait: Bit = False


@method(60, 31)
@dataclass(frozen=True, slots=True)
class BasicCancelOk(Method):
    consumer_tag: ShortStr = ""


@method(60, 40)
@dataclass(frozen=True, slots=True)
class BasicPublish(Method):
    ticket: Short = 0
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    mandatory: Bit = False
    immediate: Bit = False


@method(60, 50)
@dataclass(frozen=True, slots=True)
class BasicReturn(Method):
    reply_code: Short = 0
    reply_text: ShortStr = ""
    exchange: ShortStr = ""
    routing_key: ShortStr = ""


@method(60, 60)
@dataclass(frozen=True, slots=True)
class BasicDeliver(Method):
    consumer_tag: ShortStr = ""
    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: ShortStr = ""
    routing_key: ShortStr = ""


@method(60, 70)
@dataclass(frozen=True, slots=True)
class BasicGet(Method):
    ticket: Short = 0
    queue: ShortStr = ""
    no_ack: Bit = False


@method(60, 71)
@dataclass(frozen=True, slots=True)
class BasicGetOk(Method):
    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    message_count: Long = 0


@method(60, 72)
@dataclass(frozen=True, slots=True)
class BasicGetEmpty(Method):
    reserved_1: ShortStr = ""


@method(60, 80)
@dataclass(frozen=True, slots=True)
class BasicAck(Method):
    delivery_tag: LongLong = 0
    multiple: Bit = False


@method(60, 90)
@dataclass(frozen=True, slots=True)
class BasicReject(Method):
    delivery_tag: LongLong = 0
    requeue: Bit = True


@method(60, 100)
@dataclass(frozen=True, slots=True)
class BasicRecoverAsync(Method):
    requeue: Bit = False


@method(60, 110)
@dataclass(frozen=True, slots=True)
class BasicRecover(Method):
    requeue: Bit = False


@method(60, 111)
@dataclass(frozen=True, slots=True)
class BasicRecoverOk(Method):
    pass


@method(60, 120)
@dataclass(frozen=True, slots=True)
class BasicNack(Method):
    delivery_tag: LongLong = 0
    multiple: Bit = False
    requeue: Bit = True


@method(85, 10)
@dataclass(frozen=True, slots=True)
class ConfirmSelect(Method):
    nowait: Bit = False


@method(85, 11)
@dataclass(frozen=True, slots=True)
class ConfirmSelectOk(Method):
    pass


@method(90, 10)
@dataclass(frozen=True, slots=True)
class TxSelect(Method):
    pass


@method(90, 11)
@dataclass(frozen=True, slots=True)
class TxSelectOk(Method):
    pass


@method(90, 20)
@dataclass(frozen=True, slots=True)
class TxCommit(Method):
    pass


@method(90, 21)
@dataclass(frozen=True, slots=True)
class TxCommitOk(Method):
    pass


@method(90, 30)
@dataclass(frozen=True, slots=True)
class TxRollback(Method):
    pass


@method(90, 31)
@dataclass(frozen=True, slots=True)
class TxRollbackOk(Method):
    pass
