"""Writes what is present as a definitions file, which RabbitMQ's tools and our own import read.

Only what survives a restart is written. Hashes that came from RabbitMQ are written as they came;
our own have an algorithm's name that RabbitMQ does not know, so that it refuses such a user rather
than letting nobody in without a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from queue_core.access.accounts import User
from queue_core.access.rabbitmq_passwords import SHA256, in_rabbitmqs_words, is_from_rabbitmq
from queue_core.definitions.items import BindingItem
from queue_core.definitions.plan import Step
from queue_core.definitions.present import KeptSettings, Present, PresentVhost, VhostFacts
from queue_core.definitions.rights_plan import ARGON2ID
from queue_core.definitions.settings_plan import LIMITS_COMPONENT, OPERATOR_COMPONENT
from queue_core.message.json_arguments import stored
from queue_core.policies.policy import Policy
from queue_core.queues.reserved_names import is_own
from queue_core.queues.spec import QueueKind, QueueSpec
from queue_core.routing.exchanges import ExchangeSpec

PRODUCT: Final = "Howdah"
BUILT_IN_PREFIX: Final = "amq."


def export_all(present: Present, rabbitmq_version: str, version: str) -> dict[str, Any]:
    """Writes the file of everything. The first version is that of RabbitMQ whose form it has."""
    roll, settings = present.roll, present.settings
    vhosts = sorted(present.vhosts.items())
    return {
        "rabbit_version": rabbitmq_version,
        "rabbitmq_version": rabbitmq_version,
        "product_name": PRODUCT,
        "product_version": version,
        "users": [_user(user, settings) for _, user in sorted(roll.users.items())],
        "vhosts": [_vhost(name, settings.vhosts.get(name, VhostFacts())) for name, _ in vhosts],
        "permissions": [
            {
                "user": user,
                "vhost": vhost,
                "configure": p.configure,
                "write": p.write,
                "read": p.read,
            }
            for (user, vhost), p in sorted(roll.permissions.items())
        ],
        "topic_permissions": [
            {"user": user, "vhost": vhost, "exchange": exchange, "write": p.write, "read": p.read}
            for (user, vhost, exchange), p in sorted(roll.topic_permissions.items())
        ],
        "global_parameters": [
            {"name": name, "value": value}
            for name, value in sorted(settings.global_parameters.items())
        ],
        "parameters": [each for name, _ in vhosts for each in _parameters(settings, name)],
        "policies": [each for name, _ in vhosts for each in _policies(settings, name)],
        "queues": [{**each, "vhost": name} for name, of in vhosts for each in _queues(of)],
        "exchanges": [{**each, "vhost": name} for name, of in vhosts for each in _exchanges(of)],
        "bindings": [{**each, "vhost": name} for name, of in vhosts for each in _bindings(of)],
    }


def export_vhost(
    present: Present, name: str, rabbitmq_version: str, version: str
) -> dict[str, Any]:
    """Writes the file of one virtual host, whose items do not name it: it may be imported into
    another."""
    found, settings = present.vhosts[name], present.settings
    return {
        "rabbit_version": rabbitmq_version,
        "product_name": PRODUCT,
        "product_version": version,
        "original_vhost_name": name,
        "parameters": [_without_vhost(each) for each in _parameters(settings, name)],
        "policies": [_without_vhost(each) for each in _policies(settings, name)],
        "queues": list(_queues(found)),
        "exchanges": list(_exchanges(found)),
        "bindings": list(_bindings(found)),
    }


def topology_of(steps: Iterable[Step]) -> dict[str, list[Any]]:
    """Writes the exchanges, queues and bindings that steps make in one virtual host as its file."""
    found: dict[str, list[Any]] = {"exchanges": [], "queues": [], "bindings": []}
    for step in steps:
        match step.wanted:
            case ExchangeSpec() as exchange:
                found["exchanges"].append(_exchange(exchange))
            case QueueSpec() as queue:
                found["queues"].append(_queue(queue))
            case BindingItem() as binding:
                found["bindings"].append(msgspec.to_builtins(binding))
    return found


def _queue(spec: QueueSpec) -> dict[str, Any]:
    arguments = stored(spec.arguments)
    return {"name": spec.name, "durable": True, "auto_delete": False, "arguments": arguments}


def _exchange(spec: ExchangeSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "type": spec.kind.value,
        "durable": True,
        "auto_delete": spec.auto_delete,
        "internal": spec.internal,
        "arguments": stored(spec.arguments),
    }


def _without_vhost(item: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key != "vhost"}


def _vhost(name: str, facts: VhostFacts) -> dict[str, Any]:
    """Writes a virtual host; limits are among the parameters, as RabbitMQ has them."""
    metadata = {"description": facts.description, "tags": list(facts.tags), **facts.metadata}
    kind = facts.default_queue_type
    default = {} if kind is None else {"default_queue_type": kind}
    return {
        "name": name,
        "description": facts.description,
        "tags": list(facts.tags),
        **default,
        "metadata": {**metadata, **default},
    }


def _parameters(settings: KeptSettings, vhost: str) -> Iterator[dict[str, Any]]:
    """Yields the parameters of a virtual host, operator policies and limits among them."""
    for (place, component, name), value in sorted(settings.parameters.items(), key=_key):
        if place == vhost:
            yield {"vhost": vhost, "component": component, "name": name, "value": value}
    for policy in _policies_of(settings, vhost, is_operator=True):
        value = {key: each for key, each in _policy(policy).items() if key != "name"}
        yield {
            "vhost": vhost,
            "component": OPERATOR_COMPONENT,
            "name": policy.name,
            "value": value,
        }
    limits = settings.vhosts.get(vhost, VhostFacts()).limits
    if limits:
        yield {
            "vhost": vhost,
            "component": LIMITS_COMPONENT,
            "name": "limits",
            "value": dict(limits),
        }


def _key(item: tuple[tuple[str, str, str], Any]) -> tuple[str, str, str]:
    return item[0]


def _policies(settings: KeptSettings, vhost: str) -> Iterator[dict[str, Any]]:
    for policy in _policies_of(settings, vhost, is_operator=False):
        yield {"vhost": vhost, **_policy(policy)}


def _policies_of(settings: KeptSettings, vhost: str, *, is_operator: bool) -> list[Policy]:
    found = [
        policy
        for (place, _, operator), policy in settings.policies.items()
        if place == vhost and operator is is_operator
    ]
    return sorted(found, key=lambda policy: policy.name)


def _policy(policy: Policy) -> dict[str, Any]:
    return {
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to.value,
        "definition": dict(policy.definition),
        "priority": policy.priority,
    }


def _user(user: User, settings: KeptSettings) -> dict[str, Any]:
    kept = user.password_hash
    if kept is None:
        password_hash, algorithm = "", SHA256
    elif is_from_rabbitmq(kept):
        password_hash, algorithm = in_rabbitmqs_words(kept)
    else:
        password_hash, algorithm = kept, ARGON2ID
    verifier = {} if user.verifier is None else {"scram_verifier": str(user.verifier)}
    return {
        "name": user.name,
        "password_hash": password_hash,
        "hashing_algorithm": algorithm,
        "tags": sorted(user.tags),
        "limits": dict(settings.user_limits.get(user.name, {})),
        **verifier,
    }


def _queues(present: PresentVhost) -> Iterator[dict[str, Any]]:
    for name, spec in sorted(present.queues.items()):
        if spec.kind is not QueueKind.EPHEMERAL and not is_own(name):
            yield _queue(spec)


def _exchanges(present: PresentVhost) -> Iterator[dict[str, Any]]:
    for name, spec in sorted(present.exchanges.items()):
        if spec.durable and not name.startswith(BUILT_IN_PREFIX):
            yield _exchange(spec)


def _bindings(present: PresentVhost) -> Iterator[dict[str, Any]]:
    """Yields the bindings between what is written: those of passing queues are passing, too."""
    queues = {each["name"] for each in _queues(present)}
    passing = {name for name, spec in present.exchanges.items() if not spec.durable}
    for each in present.bindings:
        is_queue = each.destination_type == "queue"
        leads_on = each.destination in queues if is_queue else each.destination not in passing
        if leads_on and each.source not in passing:
            yield {
                "source": each.source,
                "destination": each.destination,
                "destination_type": each.destination_type,
                "routing_key": each.routing_key,
                "arguments": stored(each.arguments),
            }
