"""Definitions that are there already, whoever knows them: the gateway by its memory, a command by
the tables."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from queue_core.access.accounts import Roll
from queue_core.message.value_identity import identity_of, text_of
from queue_core.policies.policy import Policy
from queue_core.queues.reserved_names import is_own
from queue_core.queues.spec import QueueSpec
from queue_core.routing.bindings import ExchangeRef
from queue_core.routing.exchanges import ExchangeSpec
from queue_core.vhost import Vhost

READ_AT_ONCE: Final = 500  # bindings, in a millisecond or two


@dataclass(frozen=True, slots=True)
class PresentBinding:
    """A binding by the names of its ends. Two are one when all of it is equal, numbers by value
    whatever their type."""

    source: str
    destination_type: str
    destination: str
    routing_key: str
    arguments: Mapping[str, object] = field(default_factory=dict, compare=False)
    identity: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        identity = text_of(identity_of(self.arguments)) if self.arguments else ""
        object.__setattr__(self, "identity", identity)


@dataclass(slots=True)
class PresentVhost:
    """The exchanges, queues and bindings of a virtual host. Built-in exchanges are among them where
    the gateway's memory was asked."""

    exchanges: dict[str, ExchangeSpec] = field(default_factory=dict)
    queues: dict[str, QueueSpec] = field(default_factory=dict)
    bindings: dict[PresentBinding, None] = field(default_factory=dict)  # in their order


@dataclass(frozen=True, slots=True)
class VhostFacts:
    """What is said of a virtual host, and its limits."""

    description: str = ""
    tags: tuple[str, ...] = ()
    default_queue_type: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KeptSettings:
    """What only the tables have in full: facts of virtual hosts, limits of users, policies and
    parameters."""

    vhosts: Mapping[str, VhostFacts] = field(default_factory=dict)
    user_limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    policies: Mapping[tuple[str, str, bool], Policy] = field(default_factory=dict)
    parameters: Mapping[tuple[str, str, str], Any] = field(default_factory=dict)
    global_parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Present:
    """All definitions as of one moment. Policies have the key virtual host, name, and whether it is
    an operator's; parameters virtual host, component and name."""

    roll: Roll
    vhosts: Mapping[str, PresentVhost]
    settings: KeptSettings = field(default_factory=KeptSettings)


async def present_in(
    roll: Roll, vhosts: Iterable[Vhost], settings: KeptSettings | None = None
) -> Present:
    """Reads the definitions from a running gateway's memory, those that are not durable among
    them. Others get their turn in between."""
    found = {vhost.name: await _present_vhost(vhost) for vhost in list(vhosts)}
    return Present(roll, found, settings or KeptSettings())


async def _present_vhost(vhost: Vhost) -> PresentVhost:
    found = PresentVhost()
    found.exchanges = {spec.name: spec for spec in vhost.router.exchanges() if spec.name}
    found.queues = {
        queue.name: queue.spec for queue in vhost.queues.values() if not is_own(queue.name)
    }
    for number, binding in enumerate(vhost.router.bindings(), 1):
        if number % READ_AT_ONCE == 0:
            await asyncio.sleep(0)
        if not binding.is_filter and binding.source:
            destination = binding.destination
            is_exchange = isinstance(destination, ExchangeRef)
            if is_exchange or destination.name in found.queues:
                kind = "exchange" if is_exchange else "queue"
                ends = (binding.source, kind, destination.name, binding.key)
                found.bindings[PresentBinding(*ends, binding.arguments or {})] = None
    return found
