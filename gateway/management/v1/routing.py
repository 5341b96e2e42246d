"""Routing dry run: who would get a message, and why the others would not: bindings that do not
match, permissions, limits of queues, and what is lost in the conversion for their consumers.

Nothing is published. What is asked is what a publish would ask, of the same objects.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from gateway.management.api_errors import bad_request, not_found
from gateway.management.call import Call
from gateway.management.roles import Role
from gateway.management.routes import Body, Route
from gateway.management.v1.conversion import MOST_MESSAGE_BYTES, ProtocolName, conversion
from gateway.message_files.document import Document, MessageFileError, untagged
from gateway.message_files.protocols import PROTOCOLS
from queue_core.access.auth import Action, Identity, Resource
from queue_core.errors import AccessRefused, CoreError
from queue_core.message.message import CANONICAL, TOPIC_EXCHANGE, Message, Properties
from queue_core.message.topic_forms import dotted
from queue_core.queues.competing import CompetingQueue
from queue_core.queues.queue import Queue
from queue_core.queues.reserved_names import LIVE_SESSION_PREFIX, STORED_PREFIX
from queue_core.queues.spec import Overflow
from queue_core.queues.stream import StreamQueue
from queue_core.routing.bindings import Binding, ExchangeRef
from queue_core.routing.explanation import Step, explain
from queue_core.routing.topics import levels_of
from queue_core.sessions.subscription import LiveQueue, is_worth_storing
from queue_core.store.operator.shown_sql import Typed, shown, text
from queue_core.vhost import Vhost

ROUTED: Final = """
SELECT queue, source, pattern, is_one_of_several
FROM howdah.routed_queues({exchange}, {key}, headers => {headers}, vhost => {vhost})
"""
MOST_QUEUES: Final = 1_000
MOST_HEADERS: Final = 100
Outcome = Literal["takes it", "takes it and loses its oldest", "refuses it", "leaves it out"]
# How connections call their protocols, and what the converter calls them.
PROTOCOLS_OF_CONSUMERS: Final[tuple[tuple[str, ProtocolName], ...]] = (
    ("MQTT 5", "mqtt5"),
    ("MQTT 3", "mqtt311"),
    ("AMQP 0.9.1", "amqp091"),
    ("AMQP 1.0", "amqp10"),
)


class RoutingBody(Body, frozen=True, forbid_unknown_fields=True):
    """A message that somebody would publish: to a topic, or to an exchange with a key. With
    `protocol` and `message`, which a conversion has as `from` and `message`, losses on the way to
    its consumers are told too."""

    exchange: str | None = None
    routing_key: str = ""
    topic: str | None = None
    headers: dict[str, Any] = msgspec.field(default_factory=dict)
    durable: bool = True
    user: str | None = None  # who would publish; null: who asks
    body_bytes: int = 0
    protocol: ProtocolName | None = None
    message: dict[str, Any] | None = None


class BindingRow(Struct, frozen=True):
    destination: str
    destination_type: Literal["queue", "exchange"]
    key: str
    arguments: dict[str, Any] | None
    is_subscription: bool
    why_not: str | None = None  # null: the message takes it


class StepRow(Struct, frozen=True):
    """One exchange on the way. `alternate` is where the message goes on as no binding matched."""

    exchange: str
    type: str
    taken: list[BindingRow]
    taken_count: int
    passed_over: list[BindingRow]
    passed_over_count: int
    alternate: str | None


class QueueOutcome(Struct, frozen=True):
    """A queue that the message is routed to, and what becomes of it there."""

    queue: str
    type: str
    outcome: Outcome
    why: str
    client_id: str | None
    consumers: int
    losses: dict[str, list[str] | None]  # by protocol of its consumers; null: too many to tell


class Publisher(Struct, frozen=True):
    user: str
    may_publish: bool
    why_not: str | None


class RoutingAnswer(Struct, frozen=True):
    """What would become of the message."""

    verdict: Literal["routed", "unroutable", "refused"]
    why: str
    publisher: Publisher
    steps: list[StepRow]
    queues: list[QueueOutcome]
    queue_count: int
    sql: str  # finds the durable queues among them; what is in memory only, no table has


async def dry_run(call: Call[Any, RoutingBody]) -> RoutingAnswer:
    vhost, body = call.vhost(), call.body
    message, document = _message(body)
    publisher = _publisher(call, vhost, message)
    steps = explain(
        vhost.router, message.exchange, message.routing_key, message.properties.header_map()
    )
    queues = _queues_of(steps)
    outcomes = [
        _outcome(queue, options, message, document, body.protocol)
        for queue, options in list(queues.items())[:MOST_QUEUES]
    ]
    verdict, why = _verdict(call, publisher, message, body, outcomes)
    return RoutingAnswer(
        verdict=verdict,
        why=why,
        publisher=publisher,
        steps=[_step_row(step) for step in steps],
        queues=outcomes,
        queue_count=len(queues),
        sql=_sql(vhost, message),
    )


def _message(body: RoutingBody) -> tuple[Message, Document | None]:
    """Makes the message that would be published. Raises 400."""
    if (body.message is None) is not (body.protocol is None):
        raise bad_request("give protocol and message together, or neither")
    document = None
    if body.message is not None and body.protocol is not None:
        try:
            document = {name: untagged(value, name) for name, value in body.message.items()}
            return PROTOCOLS[body.protocol].read(document, 0.0), document
        except (MessageFileError, CoreError) as error:
            raise bad_request(f"no message of {PROTOCOLS[body.protocol].title}: {error}") from None
    if len(body.headers) > MOST_HEADERS:
        raise bad_request(f"a dry run takes {MOST_HEADERS} headers at most")
    exchange, key = _place(body)
    try:
        headers = [(name, untagged(value, name)) for name, value in body.headers.items()]
    except MessageFileError as error:
        raise bad_request(f"headers.{error}") from None
    native = CANONICAL.encode(Properties(headers=tuple(headers)))
    message = Message(
        b"", exchange, routing_key=key, durable=body.durable, form=CANONICAL, native=native
    )
    return message, None


def _place(body: RoutingBody) -> tuple[str, str]:
    if body.topic is not None:
        if body.exchange not in (None, TOPIC_EXCHANGE) or body.routing_key:
            raise bad_request("give a topic, or an exchange and a routing_key, not both")
        levels_of(body.topic)
        return TOPIC_EXCHANGE, dotted(body.topic)
    if body.exchange is None:
        raise bad_request("give a topic, or an exchange ('' is the default one) and a routing_key")
    return body.exchange, body.routing_key


def _publisher(call: Call[Any, RoutingBody], vhost: Vhost, message: Message) -> Publisher:
    """Judges whether the user may publish there, as each protocol does before it routes."""
    identity = _identity(call)
    auth = call.manager.auth
    if not auth.may_enter(identity, vhost.name):
        why = f"user '{identity.name}' may not use virtual host '{vhost.name}'"
        return Publisher(identity.name, False, why)
    spec = vhost.router.exchange(message.exchange).spec
    resource = Resource("exchange", vhost.name, message.exchange)
    if spec.is_topic:
        resource = Resource("topic", vhost.name, message.exchange, message.routing_key)
    try:
        auth.require(identity, Action.WRITE, resource)
    except AccessRefused as error:
        return Publisher(identity.name, False, str(error))
    if spec.internal:
        return Publisher(identity.name, False, f"exchange '{spec.name}' is internal")
    return Publisher(identity.name, True, None)


def _identity(call: Call[Any, RoutingBody]) -> Identity:
    name = call.body.user
    if name is None or name == call.identity.name:
        return call.identity
    call.require_role(Role.ADMINISTRATOR)
    user = call.manager.auth.accounts.roll.users.get(name)
    if user is None:
        raise not_found(f"there is no user '{name}'")
    return Identity(user.name, user.tags)


def _queues_of(steps: list[Step[Queue]]) -> dict[Queue, list[object]]:
    found: dict[Queue, list[object]] = {}
    for step in steps:
        for binding in step.taken:
            if not isinstance(binding.destination, ExchangeRef):
                options = found.setdefault(binding.destination, [])
                if binding.options is not None:
                    options.append(binding.options)
    return found


def _outcome(
    queue: Queue,
    options: list[object],
    message: Message,
    document: Document | None,
    source: ProtocolName | None,
) -> QueueOutcome:
    outcome, why = _judged(queue, tuple(options), message)
    losses: dict[str, list[str] | None] = {}
    if document is not None and source is not None:
        for target in _protocols_of(queue):
            losses[target] = conversion(message, document, source, target, 0.0).losses
    return QueueOutcome(
        queue=queue.name,
        type=queue.spec.queue_type,
        outcome=outcome,
        why=why,
        client_id=_client_id(queue.name),
        consumers=queue.counts().consumers,
        losses=losses,
    )


def _judged(queue: Queue, options: tuple[object, ...], message: Message) -> tuple[Outcome, str]:
    is_session = queue.name.startswith(STORED_PREFIX)
    is_kept = is_worth_storing(message, options)
    if is_session and not is_kept:
        return "leaves it out", "QoS 0, of the message or of the subscription, is not stored"
    if isinstance(queue, LiveQueue) and queue.has_stored and is_kept:
        return "leaves it out", "the stored queue of the same session takes it"
    if not queue.is_full():
        return "takes it", "it is bound, and has room"
    spec = queue.spec
    if spec.overflow is Overflow.DROP_HEAD:
        where = spec.dead_letter_exchange
        goes = "is dropped" if where is None else f"goes to exchange '{where}'"
        return "takes it and loses its oldest", f"it is full (drop-head): its oldest message {goes}"
    return "refuses it", str(queue.full_error())


def _protocols_of(queue: Queue) -> list[ProtocolName]:
    """The protocols of the queue's consumers, as the converter calls them."""
    cursors = queue.cursors() if isinstance(queue, StreamQueue) else []
    if isinstance(queue, CompetingQueue):
        cursors = [queue.cursor]
    said = {each.spec.origin.protocol for cursor in cursors for each in cursor.consumers}
    return [
        name for start, name in PROTOCOLS_OF_CONSUMERS if any(p.startswith(start) for p in said)
    ]


def _client_id(name: str) -> str | None:
    for prefix in (STORED_PREFIX, LIVE_SESSION_PREFIX):
        if name.startswith(prefix):
            return name[len(prefix) :]
    return None


def _verdict(
    call: Call[Any, RoutingBody],
    publisher: Publisher,
    message: Message,
    body: RoutingBody,
    outcomes: list[QueueOutcome],
) -> tuple[Literal["routed", "unroutable", "refused"], str]:
    if not publisher.may_publish:
        return "refused", publisher.why_not or ""
    most = call.services.config.broker.max_message_size
    if max(body.body_bytes, len(message.body)) > most:
        return "refused", f"the body is larger than broker.max_message_size, {most} bytes"
    refusing = [each.queue for each in outcomes if each.outcome == "refuses it"]
    if refusing:
        return "refused", f"full: {', '.join(refusing[:10])}; the publisher is told, by a nack"
    taking = [each for each in outcomes if each.outcome != "leaves it out"]
    if not taking:
        return "unroutable", "no queue takes it: it is dropped, or returned if it is mandatory"
    return "routed", "1 queue takes it" if len(taking) == 1 else f"{len(taking)} queues take it"


def _step_row(step: Step[Queue]) -> StepRow:
    return StepRow(
        exchange=step.exchange.name,
        type=step.exchange.kind.value,
        taken=[_binding_row(each) for each in step.taken],
        taken_count=step.taken_count,
        passed_over=[_binding_row(each.binding, each.why) for each in step.passed_over],
        passed_over_count=step.passed_over_count,
        alternate=step.alternate,
    )


def _binding_row(binding: Binding[Queue], why_not: str | None = None) -> BindingRow:
    destination = binding.destination
    return BindingRow(
        destination=destination.name,
        destination_type="exchange" if isinstance(destination, ExchangeRef) else "queue",
        key=binding.key,
        arguments=None if binding.arguments is None else dict(binding.arguments),
        is_subscription=binding.is_filter,
        why_not=why_not,
    )


def _sql(vhost: Vhost, message: Message) -> str:
    headers = msgspec.json.encode(message.properties.header_map(), enc_hook=str).decode()
    return shown(
        ROUTED,
        exchange=text(message.exchange),
        key=text(message.routing_key),
        headers=Typed(headers, "jsonb"),
        vhost=text(vhost.name),
    )


ROUTES: Final = (
    Route(
        method="POST",
        path="/api/howdah/v1/routing/{vhost}",
        handler=dry_run,
        summary="Who would get a message, and why the others would not; nothing is published",
        body=RoutingBody,
        answer=RoutingAnswer,
        most_body_bytes=MOST_MESSAGE_BYTES,
    ),
)
