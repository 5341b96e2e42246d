"""What is present, in tests of plans: made by hand, and changed as a plan says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from queue_core.access.accounts import Permission, Roll, TopicPermission, User
from queue_core.definitions.document import read_object
from queue_core.definitions.document_export import export_all
from queue_core.definitions.items import BindingItem, Section, arguments_of
from queue_core.definitions.plan import Plan, Step
from queue_core.definitions.planning import make_plan
from queue_core.definitions.present import Present, PresentBinding, PresentVhost
from queue_core.queues.spec import QueueSpec
from queue_core.routing.exchanges import ExchangeSpec

EMPTY = Present(Roll(), {"/": PresentVhost()})


def plan_of(found: dict[str, Any], present: Present = EMPTY, vhost: str | None = None) -> Plan:
    return make_plan(read_object(found, vhost), present)


def only_step(found: dict[str, Any], present: Present = EMPTY) -> Step:
    (step,) = plan_of(found, present).steps
    return step


def done(plan: Plan, present: Present = EMPTY) -> Present:
    """What is present when a plan is done."""
    roll = present.roll
    users, permissions = dict(roll.users), dict(roll.permissions)
    topics = dict(roll.topic_permissions)
    vhosts = {name: copied(of) for name, of in present.vhosts.items()}
    for step in plan.changes:
        match step.wanted:
            case User():
                users[step.name] = step.wanted
            case Permission():
                permissions[step.name, step.vhost or ""] = step.wanted
            case TopicPermission():
                topics[step.name, step.vhost or "", step.exchange] = step.wanted
            case _ if step.section is Section.VHOSTS:
                vhosts[step.name] = PresentVhost()
            case _:
                add(vhosts[step.vhost or ""], step)
    changed = replace(roll, users=users, permissions=permissions, topic_permissions=topics)
    return Present(changed, vhosts)


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
