"""CONNECT to CONNACK: who the client is, which session it gets, and what both sides agree on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from protocols.mqtt.conversion.properties import (
    MQTT3,
    MQTT5,
    is_text,
    native_of,
    read_facts,
)
from protocols.mqtt.negotiated_terms import NEVER_EXPIRES, Agreement, lifetime_of
from protocols.mqtt.opening.login import ByMethod, ByPassword, LoginRefused, place_of
from protocols.mqtt.publish.publishing import RESERVED_PREFIXES, check_claims
from protocols.mqtt.wire.encoder import encode
from protocols.mqtt.wire.packets import Auth, ConnAck, Connect, Version, Will
from protocols.mqtt.wire.property_set import PropertySet, encode_property_bytes
from protocols.mqtt.wire.reasons import MqttError, ReasonCode, reason_of
from queue_core.access.auth import Action, Identity, Peer, Resource
from queue_core.access.login import Answer, Proven
from queue_core.errors import AccessRefused, CoreError, InvalidArgument
from queue_core.message.message import TOPIC_EXCHANGE, Message
from queue_core.message.topic_forms import dotted
from queue_core.routing.topics import levels_of
from queue_core.sessions.sessions import check_client_id

if TYPE_CHECKING:
    from protocols.mqtt.context import Context
    from queue_core.sessions.session import Session
    from queue_core.vhost import Vhost

RESPONSE_PREFIX: Final = "responses/"  # the client's name follows, in its own response topics


class Refused(Exception):
    """CONNECT is refused, with this in CONNACK."""

    def __init__(self, reason: ReasonCode, text: str, *, is_said: bool = False) -> None:
        super().__init__(text)
        self.reason = reason
        self.is_said = is_said  # the log has the reason already


@dataclass(frozen=True, slots=True)
class Accepted:
    """A CONNECT that is accepted: the session is attached, and CONNACK is yet to be sent."""

    session: Session
    identity: Identity
    agreement: Agreement
    answer: ConnAck
    keep_alive: int  # seconds


class Opening:
    """One CONNECT on its way to CONNACK, with AUTH packets in between where its method asks for
    them."""

    def __init__(self, context: Context, connect: Connect, peer: Peer) -> None:
        """Gives a client without a name one. Raises Refused."""
        self._context = context
        self._connect = connect
        self._client_id = connect.client_id or _assigned(connect)
        self._vhost = context.settings.vhost
        self._peer = peer
        method = connect.properties.authentication_method
        self.by_method = (
            None if method is None else ByMethod(context, method, self._client_id, peer)
        )

    async def begin(self) -> Accepted | Auth:
        """Takes CONNECT: lets the client in, or asks for an AUTH. Raises Refused."""
        connect = self._connect
        with _refusing():
            check_client_id(self._client_id)  # before rights are judged with a name of any length
            self._vhost, username = await place_of(self._context, connect.username)
            if self.by_method is None:
                way = ByPassword(self._context, connect, self._client_id, self._peer)
                return await self._accept(await way.authenticate(username))
            return await self._go_on(
                await self.by_method.begin(connect.properties.authentication_data)
            )

    async def go_on(self, packet: Auth) -> Accepted | Auth:
        """Takes the client's AUTH [MQTT-4.12.0-4]. Raises Refused."""
        assert self.by_method is not None
        with _refusing():
            return await self._go_on(await self.by_method.go_on(packet))

    async def _go_on(self, answer: Answer) -> Accepted | Auth:
        if isinstance(answer, Proven):
            return await self._accept(answer)
        assert self.by_method is not None
        return self.by_method.challenge(answer)

    async def _accept(self, proven: Proven) -> Accepted:
        context, identity = self._context, proven.identity
        vhost = await _enter(context, identity, self._vhost)
        limit = vhost.settings.max_connections
        # Nothing is awaited between the end of this block and `let_in`, which counts the client.
        with context.services.auth.opening(identity, vhost.name, limit):
            _check_will(context, identity, vhost, self._connect.will)
            return await _open(context, self._connect, self._client_id, proven, vhost)


@contextmanager
def _refusing() -> Iterator[None]:
    """Turns whatever goes wrong into a refusal of CONNECT."""
    try:
        yield
    except MqttError as error:
        is_said = isinstance(error, LoginRefused)
        raise Refused(error.reason, str(error), is_said=is_said) from error
    except InvalidArgument as error:
        raise Refused(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, str(error)) from error
    except CoreError as error:
        raise Refused(reason_of(error), str(error)) from error


def _assigned(connect: Connect) -> str:
    """Makes a name for a client that has none [MQTT-3.1.3-6]. 3.1 has no such thing, and 3.1.1 only
    for sessions that end with their connection [MQTT-3.1.3-8]."""
    if connect.version is Version.V31 or (
        connect.version is Version.V311 and not connect.clean_start
    ):
        raise Refused(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "a client identifier is needed")
    return "auto-" + token_hex(12)


async def _enter(context: Context, identity: Identity, name: str) -> Vhost:
    vhost = await context.services.vhost(name)
    if not context.services.auth.may_enter(identity, name):
        raise AccessRefused(f"user '{identity.name}' may not use vhost '{name}'")
    return vhost


def _check_will(context: Context, identity: Identity, vhost: Vhost, will: Will | None) -> None:
    if will is None:
        return
    if will.qos > context.settings.max_qos:  # [MQTT-3.2.2-12]
        raise Refused(
            ReasonCode.QOS_NOT_SUPPORTED, f"a will has QoS {context.settings.max_qos} at most here"
        )
    if will.retain and not context.settings.retained_messages:  # [MQTT-3.2.2-13]
        raise Refused(ReasonCode.RETAIN_NOT_SUPPORTED, "nothing is retained here, wills neither")
    levels_of(will.topic)
    if will.topic.startswith((*RESERVED_PREFIXES, "$queue/")):
        raise AccessRefused(f"a will cannot go to '{will.topic}'")
    check_claims(read_facts(_published_properties(will.properties)), identity)
    if will.properties.payload_format == 1 and not is_text(will.payload):
        raise Refused(
            ReasonCode.PAYLOAD_FORMAT_INVALID, "the will's payload is not the UTF-8 it claims to be"
        )
    resource = Resource("topic", vhost.name, TOPIC_EXCHANGE, dotted(will.topic))
    context.services.auth.require(identity, Action.WRITE, resource)


async def _open(
    context: Context, connect: Connect, client_id: str, proven: Proven, vhost: Vhost
) -> Accepted:
    services, settings, identity = context.services, context.settings, proven.identity
    expiry = _expiry(connect, settings.max_session_expiry)
    keep_alive = _keep_alive(connect, settings.max_keep_alive)
    said = _fitting(_answer(context, connect, client_id, expiry, keep_alive, proven.data), connect)
    session = await services.sessions.open(
        vhost,
        client_id,
        clean_start=connect.clean_start,
        expiry=expiry,
        user=identity.name,
        protocol=f"MQTT {VERSION_NAMES[connect.version]}",
        owner=_Owner(),
    )
    try:
        if session.packets:
            # What an earlier connection published with QoS 2 must be safe before it is answered
            await vhost.writer.flushed()
        if connect.will is not None:
            await _set_will(context, session, connect.will, connect.version, identity)
        session.check_attached()
    except BaseException:
        await services.sessions.detach(session, publish_will=False)
        raise
    agreement = Agreement.of(connect, expiry, settings)
    answer = ConnAck(session.is_present, 0, said)
    return Accepted(session, identity, agreement, answer, keep_alive)


VERSION_NAMES: Final = {Version.V31: "3.1", Version.V311: "3.1.1", Version.V5: "5.0"}


class _Owner:
    """Owns the session until its client is made. A takeover in between is noticed by
    `check_attached`."""

    def on_takeover(self) -> None:
        """Does nothing: see `check_attached`."""

    def on_shared_changed(self) -> None:
        """Does nothing: the client looks for itself when it starts."""

    def on_ended(self, reason: CoreError) -> None:
        """Does nothing: see `check_attached`."""


def _expiry(connect: Connect, most: float | None) -> float | None:
    """Returns the seconds that the session outlives its connection; None: for ever. In 3.x a
    session that is not clean stays."""
    if connect.version is Version.V5:
        return lifetime_of(connect.properties.session_expiry or 0, most)
    return lifetime_of(0 if connect.clean_start else NEVER_EXPIRES, most)


def _keep_alive(connect: Connect, most: int) -> int:
    """Returns the keep alive in seconds. 3.x cannot be told of another one than it asked for, so
    that one holds."""
    if not most or connect.version is not Version.V5:
        return connect.keep_alive
    return min(connect.keep_alive or most, most)


async def _set_will(
    context: Context, session: Session, will: Will, version: Version, identity: Identity
) -> None:
    raw = _published_properties(will.properties)
    facts = read_facts(raw)
    message = Message(
        will.payload,
        topic=will.topic,
        durable=will.qos > 0,
        form=MQTT5 if version is Version.V5 else MQTT3,
        native=native_of(facts.native, will.qos, will.retain),
        priority=facts.priority,
        publisher=session.client_id,
        retain=will.retain,
    )
    await context.services.sessions.wills.set(
        session,
        message,
        identity,
        delay=float(will.properties.will_delay or 0),
        retain=will.retain,
        qos=will.qos,
        lifetime=None if facts.expiry is None else float(facts.expiry),
    )


def _published_properties(said: PropertySet) -> bytes:
    """Returns the properties of a will as a PUBLISH has them: without the delay."""
    return encode_property_bytes(
        PropertySet(
            payload_format=said.payload_format,
            message_expiry=said.message_expiry,
            content_type=said.content_type,
            response_topic=said.response_topic,
            correlation_data=said.correlation_data,
            user=said.user,
        )
    )


def _answer(
    context: Context,
    connect: Connect,
    client_id: str,
    expiry: float | None,
    keep_alive: int,
    proof: bytes,
) -> PropertySet:
    """Returns what CONNACK says beside the reason; 3.x leaves it out."""
    settings, asked = context.settings, connect.properties
    wanted = asked.session_expiry or 0
    granted = NEVER_EXPIRES if expiry is None else int(expiry)
    has_responses = asked.request_response == 1 and not set("+#\0") & set(client_id)
    return PropertySet(
        session_expiry=None if granted == wanted else granted,
        receive_maximum=settings.max_inflight,
        maximum_qos=settings.max_qos if settings.max_qos < 2 else None,
        retain_available=_unless(settings.retained_messages),
        maximum_packet_size=settings.max_message_size,
        assigned_client_id=None if connect.client_id else client_id,
        topic_alias_maximum=settings.topic_alias_maximum or None,
        wildcard_available=_unless(settings.wildcard_subscriptions),
        identifiers_available=_unless(settings.subscription_identifiers),
        shared_available=_unless(settings.shared_subscriptions),
        server_keep_alive=None if keep_alive == connect.keep_alive else keep_alive,
        response_information=f"{RESPONSE_PREFIX}{client_id}/" if has_responses else None,
        authentication_method=asked.authentication_method,
        authentication_data=proof or None,
    )


def _fitting(said: PropertySet, connect: Connect) -> PropertySet:
    """Cuts CONNACK down to the client's packets [MQTT-3.1.2-24]: the topic for answers may be left
    out, but not what the client must know. Raises Refused."""
    most = connect.properties.maximum_packet_size
    if most is None:
        return said
    for each in (said, replace(said, response_information=None)):
        size = len(encode(ConnAck(properties=each), connect.version))
        if size <= most:
            return each
    raise Refused(
        ReasonCode.PACKET_TOO_LARGE,
        f"CONNACK has {size} bytes, and the client takes {most}; raise its maximum packet size",
    )


def _unless(is_available: bool) -> int | None:
    """Returns None for a feature that is available: CONNACK says so by leaving it out."""
    return None if is_available else 0
