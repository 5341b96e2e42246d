"""The part of a plan that says what there is to publish to and consume from: exchanges, queues and
bindings.

Bindings are tried on a router of their own, so that the plan refuses what declaring would refuse.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from queue_core.definitions.document import Document
from queue_core.definitions.items import BindingItem, ExchangeItem, QueueItem, Section, arguments_of
from queue_core.definitions.plan import Action, Step, without_repetitions
from queue_core.definitions.present import Present, PresentBinding, PresentVhost
from queue_core.errors import CoreError, NotEquivalent, ResourceLocked
from queue_core.queues.reserved_names import is_own
from queue_core.queues.spec import QueueSpec, is_storable, require_short_name
from queue_core.routing.bindings import ExchangeRef
from queue_core.routing.exchanges import ExchangeSpec
from queue_core.routing.router import Router

QUEUE_TYPE: Final = "x-queue-type"
LONGEST_KEY: Final = 255  # bytes, of a routing key in AMQP 0.9.1
PASSING_EXCHANGE: Final = (
    "it is not durable: its client declares it, as before, and it is gone at a restart"
)
PASSING_QUEUE: Final = (
    "a queue that is not durable, exclusive or deleted with its last consumer is in the gateway's "
    "memory here, and its client declares it, as before"
)
NAMELESS: Final = "a name is text of 1 to 255 bytes without NUL"


class TopologyPlanner:
    """Judges the exchanges, queues and bindings of a document. `vhosts` are the virtual hosts that
    will be there."""

    def __init__(self, document: Document, present: Present, vhosts: set[str]) -> None:
        self._document = document
        self._vhosts = {name: _PlannedVhost(present.vhosts.get(name)) for name in sorted(vhosts)}

    def steps(self) -> Iterator[Step]:
        yield from without_repetitions(map(self._exchange, self._document.of(ExchangeItem)))
        yield from without_repetitions(map(self._queue, self._document.of(QueueItem)))
        yield from map(self._binding, self._document.of(BindingItem))

    def _exchange(self, item: ExchangeItem) -> Step:
        vhost = self._vhosts.get(item.vhost)
        if vhost is None:
            return _without_vhost(Section.EXCHANGES, item.name, item.vhost)
        action, reason, spec = vhost.exchange(item)
        notes = () if spec is None else _without_effect(spec.inert)
        return Step(Section.EXCHANGES, item.name, item.vhost, action, reason, notes, spec)

    def _queue(self, item: QueueItem) -> Step:
        vhost = self._vhosts.get(item.vhost)
        if vhost is None:
            return _without_vhost(Section.QUEUES, item.name, item.vhost)
        action, reason, spec = vhost.queue(item)
        notes = () if spec is None else _without_effect(spec.inert)
        return Step(Section.QUEUES, item.name, item.vhost, action, reason, notes, spec)

    def _binding(self, item: BindingItem) -> Step:
        name = f"{item.source} -> {item.destination_type} {item.destination} ({item.routing_key})"
        vhost = self._vhosts.get(item.vhost)
        if vhost is None:
            return _without_vhost(Section.BINDINGS, name, item.vhost)
        action, reason = vhost.binding(item)
        return Step(Section.BINDINGS, name, item.vhost, action, reason, (), item)


class _PlannedVhost:
    """A virtual host as it will be: what is there, and what the file adds."""

    def __init__(self, present: PresentVhost | None) -> None:
        self._present = present or PresentVhost()
        self._router = Router[str]()
        for spec in self._present.exchanges.values():
            if not spec.name.startswith("amq."):
                self._router.declare_exchange(spec)
        self._queues = set(self._present.queues)

    def exchange(self, item: ExchangeItem) -> tuple[Action, str, ExchangeSpec | None]:
        if not item.name or not is_storable(item.name):
            return Action.UNSUPPORTED, NAMELESS, None
        if not item.durable:
            return Action.UNSUPPORTED, PASSING_EXCHANGE, None
        try:
            spec = ExchangeSpec.parse(
                item.name,
                item.type,
                arguments_of(item),
                auto_delete=item.auto_delete,
                internal=item.internal,
            )
            is_new = self._router.declare_exchange(spec)
        except NotEquivalent as error:
            return Action.CONFLICT, str(error), None
        except CoreError as error:
            return Action.UNSUPPORTED, str(error), None
        return (Action.CREATE if is_new else Action.SAME), "", spec

    def queue(self, item: QueueItem) -> tuple[Action, str, QueueSpec | None]:
        if not item.name or not is_storable(item.name) or is_own(item.name):
            return Action.UNSUPPORTED, f"{NAMELESS}, and none of the gateway's own", None
        if not item.durable or item.exclusive or item.auto_delete:
            return Action.UNSUPPORTED, PASSING_QUEUE, None
        arguments = arguments_of(item)
        if item.type is not None and QUEUE_TYPE not in arguments and item.type != "classic":
            arguments = {**arguments, QUEUE_TYPE: item.type}
        try:
            require_short_name(item.name)
            spec = QueueSpec.parse(item.name, arguments)
            before = self._present.queues.get(item.name)
            if before is not None:
                before.check_equivalent(spec)
        except (NotEquivalent, ResourceLocked) as error:
            return Action.CONFLICT, str(error), None
        except CoreError as error:
            return Action.UNSUPPORTED, str(error), None
        self._queues.add(item.name)
        return (Action.CREATE if before is None else Action.SAME), "", spec

    def binding(self, item: BindingItem) -> tuple[Action, str]:
        if _present(item) in self._present.bindings:
            return Action.SAME, ""
        is_queue = item.destination_type == "queue"
        if not item.source and is_queue and item.routing_key == item.destination:
            return Action.SAME, "every queue has it"
        if is_queue and item.destination not in self._queues:
            return Action.UNSUPPORTED, f"there is no durable queue '{item.destination}'"
        if len(item.routing_key.encode()) > LONGEST_KEY or not is_storable(item.routing_key):
            return Action.UNSUPPORTED, f"a routing key is text of {LONGEST_KEY} bytes without NUL"
        destination = item.destination if is_queue else ExchangeRef(item.destination)
        try:
            is_new = self._router.bind(
                item.source, destination, item.routing_key, arguments_of(item)
            )
        except CoreError as error:
            return Action.UNSUPPORTED, str(error)
        return (Action.CREATE, "") if is_new else (Action.SAME, "the file has it twice")


def _present(item: BindingItem) -> PresentBinding:
    return PresentBinding(
        item.source,
        item.destination_type,
        item.destination,
        item.routing_key,
        arguments_of(item),
    )


def _without_vhost(section: Section, name: str, vhost: str) -> Step:
    reason = f"there is no virtual host '{vhost}', and none is taken"
    return Step(section, name, vhost, Action.UNSUPPORTED, reason)


def _without_effect(arguments: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"argument '{name}' is kept, and has no effect here" for name in arguments)
