"""What is present, in tests of plans: made by hand, and changed as a plan says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from queue_core.access.accounts import Permission, Roll, TopicPermission
from queue_core.access.occupancy import UserLimits
from queue_core.definitions.document import read_object
from queue_core.definitions.document_export import export_all
from queue_core.definitions.items import BindingItem, arguments_of
from queue_core.definitions.plan import Account, Plan, Step, Value, VhostLimits
from queue_core.definitions.planning import make_plan
from queue_core.definitions.present import (
    KeptSettings,
    Present,
    PresentBinding,
    PresentVhost,
    VhostFacts,
)
from queue_core.policies.policy import Policy
from queue_core.queues.spec import QueueSpec
from queue_core.routing.exchanges import ExchangeSpec

SHORTEST_PASSWORD = 8
EMPTY = Present(Roll(), {"/": PresentVhost()})


def plan_of(found: dict[str, Any], present: Present = EMPTY, vhost: str | None = None) -> Plan:
    return make_plan(read_object(found, vhost), present, shortest_password=SHORTEST_PASSWORD)


def only_step(found: dict[str, Any], present: Present = EMPTY) -> Step:
    (step,) = plan_of(found, present).steps
    return step


def done(plan: Plan, present: Present = EMPTY) -> Present:
    """What is present when a plan is done."""
    roll, kept = present.roll, present.settings
    users, permissions = dict(roll.users), dict(roll.permissions)
    topics, limits = dict(roll.topic_permissions), dict(kept.user_limits)
    vhosts = {name: copied(of) for name, of in present.vhosts.items()}
    facts, policies = dict(kept.vhosts), dict(kept.policies)
    parameters, global_parameters = dict(kept.parameters), dict(kept.global_parameters)
    for step in plan.changes:
        vhost = step.vhost or ""
        match step.wanted:
            case Account(user, own_limits):
                read = UserLimits(own_limits.get("max-connections"), own_limits.get("max-channels"))
                users[step.name] = replace(user, limits=read)  # as the table is read
                limits[step.name] = own_limits
            case VhostFacts():
                facts[step.name] = step.wanted
                vhosts.setdefault(step.name, PresentVhost())
            case VhostLimits(own_limits):
                facts[vhost] = replace(facts.get(vhost, VhostFacts()), limits=own_limits)
            case Permission():
                permissions[step.name, vhost] = step.wanted
            case TopicPermission():
                topics[step.name, vhost, step.exchange] = step.wanted
            case Policy() as policy:
                policies[vhost, policy.name, policy.is_operator] = policy
            case Value(value, component) if component:
                parameters[vhost, component, step.name.removeprefix(f"{component}/")] = value
            case Value(value):
                global_parameters[step.name] = value
            case _:
                add(vhosts[vhost], step)
    changed = replace(roll, users=users, permissions=permissions, topic_permissions=topics)
    settings = KeptSettings(facts, limits, policies, parameters, global_parameters)
    return Present(changed, vhosts, settings)


def copied(vhost: PresentVhost) -> PresentVhost:
    return PresentVhost(dict(vhost.exchanges), dict(vhost.queues), dict(vhost.bindings))


def add(vhost: PresentVhost, step: Step) -> None:
    match step.wanted:
        case ExchangeSpec():
            vhost.exchanges[step.name] = step.wanted
        case QueueSpec():
            vhost.queues[step.name] = step.wanted
        case BindingItem() as item:
            ends = (item.source, item.destination_type, item.destination, item.routing_key)
            vhost.bindings[PresentBinding(*ends, arguments_of(item))] = None


def exported(present: Present) -> dict[str, Any]:
    return export_all(present, "4.1.0", "0.1.0")


def actions(steps: Iterable[Step]) -> set[str]:
    return {step.action.value for step in steps}
