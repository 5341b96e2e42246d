"""The part of a plan that sets things: facts and limits of virtual hosts, policies, parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from queue_core.definitions.document import UNDEFINED, Document
from queue_core.definitions.items import (
    GlobalParameterItem,
    ParameterItem,
    PolicyItem,
    Section,
    VhostItem,
    table,
    words,
)
from queue_core.definitions.plan import (
    Action,
    Step,
    Value,
    VhostLimits,
    Wanted,
    without_repetitions,
)
from queue_core.definitions.present import Present, VhostFacts
from queue_core.errors import CoreError
from queue_core.policies.policy import Policy
from queue_core.policies.policy_keys import inert_keys
from queue_core.policies.policy_set import QUEUE_TYPES
from queue_core.queues.spec import is_storable

LONGEST_NAME: Final = 255  # bytes
LARGEST_LIMIT: Final = 2**31 - 1
VHOST_LIMITS: Final = ("max-connections", "max-queues")
LIMITS_COMPONENT: Final = "vhost-limits"
OPERATOR_COMPONENT: Final = "operator_policy"
# Keys of a virtual host's metadata that it has as facts of their own.
FACTS: Final = frozenset(("description", "tags", "default_queue_type"))
# Global parameters by which RabbitMQ's MQTT plugin chooses a virtual host.
ACTING_ELSEWHERE: Final = frozenset(("mqtt_default_vhosts", "mqtt_port_to_vhost_mapping"))
KEPT: Final = "it is kept, and has no effect here"
NAMELESS: Final = f"a name is text of 1 to {LONGEST_NAME} bytes without NUL"


def read_limits(
    given: Mapping[str, Any], known: Sequence[str]
) -> tuple[dict[str, int], tuple[str, ...]]:
    """Reads limits, and notes on those that there are not; a negative number is no limit."""
    limits: dict[str, int] = {}
    notes = []
    for name, value in given.items():
        if name not in known:
            notes.append(f"there is no limit '{name}' here")
        elif isinstance(value, bool) or not isinstance(value, int) or value > LARGEST_LIMIT:
            notes.append(f"limit '{name}' is no number up to {LARGEST_LIMIT}")
        elif value >= 0:
            limits[name] = value
    return limits, tuple(notes)


class VhostPlanner:
    """Judges virtual hosts. What a file does not say of one stays as it is."""

    def __init__(self, present: Present) -> None:
        self._present = present

    def step(self, item: VhostItem) -> Step:
        name = item.name
        if not name or not is_storable(name) or len(name.encode()) > LONGEST_NAME:
            return Step(Section.VHOSTS, name, None, Action.UNSUPPORTED, NAMELESS)
        before = self._present.settings.vhosts.get(name, VhostFacts())
        wanted, notes = _facts(item, before)
        if name not in self._present.vhosts:
            action = Action.CREATE
        else:
            action = Action.SAME if wanted == before else Action.CHANGE
        return Step(Section.VHOSTS, name, None, action, "", notes, wanted)


def _facts(item: VhostItem, before: VhostFacts) -> tuple[VhostFacts, tuple[str, ...]]:
    metadata = table(item.metadata)
    notes = ["tracing has no effect here"] if item.tracing else []
    wanted = before
    description = metadata.get("description") if item.description is None else item.description
    if isinstance(description, str) and is_storable(description):
        wanted = replace(wanted, description=description)
    tags = metadata.get("tags") if item.tags is None else item.tags
    if isinstance(tags, list | str):
        wanted = replace(wanted, tags=tuple(str(tag) for tag in words(tags)))
    kind = item.default_queue_type or metadata.get("default_queue_type")
    if kind in QUEUE_TYPES:
        wanted = replace(wanted, default_queue_type=str(kind))
    elif kind not in (None, UNDEFINED):
        notes.append(f"default queue type '{kind}' is unknown here")
    others = {name: value for name, value in metadata.items() if name not in FACTS}
    if others:
        wanted = replace(wanted, metadata=others)
    limits, more = read_limits(table(item.limits), VHOST_LIMITS)
    if limits:
        wanted = replace(wanted, limits=limits)
    return wanted, (*notes, *more)


class SettingsPlanner:
    """Judges policies, operator policies, parameters and limits. `vhosts` are the virtual hosts
    that will be there."""

    def __init__(self, document: Document, present: Present, vhosts: set[str]) -> None:
        self._document = document
        self._settings = present.settings
        self._vhosts = vhosts

    def steps(self) -> Iterator[Step]:
        yield from without_repetitions(map(self._global, self._document.of(GlobalParameterItem)))
        yield from without_repetitions(map(self._parameter, self._document.of(ParameterItem)))
        yield from without_repetitions(map(self._policy, self._document.of(PolicyItem)))

    def _global(self, item: GlobalParameterItem) -> Step:
        name = item.name
        if not name or not is_storable(name) or item.value is None:
            return Step(Section.GLOBAL_PARAMETERS, name, None, Action.UNSUPPORTED, NAMELESS)
        known = self._settings.global_parameters
        notes = (KEPT,) if name in ACTING_ELSEWHERE else ()
        action, reason = _compared(known.get(name), item.value)
        return Step(Section.GLOBAL_PARAMETERS, name, None, action, reason, notes, Value(item.value))

    def _parameter(self, item: ParameterItem) -> Step:
        name = f"{item.component}/{item.name}"
        section, vhost = Section.PARAMETERS, item.vhost
        if vhost not in self._vhosts:
            return Step(section, name, vhost, Action.UNSUPPORTED, f"no virtual host '{vhost}'")
        if item.component == OPERATOR_COMPONENT:
            return self._operator_policy(item)
        if item.component == LIMITS_COMPONENT:
            return self._limits(item)
        names = (item.component, item.name)
        if not all(names) or not all(map(is_storable, names)) or item.value is None:
            return Step(section, name, vhost, Action.UNSUPPORTED, NAMELESS)
        before = self._settings.parameters.get((vhost, item.component, item.name))
        action, reason = _compared(before, item.value)
        wanted = Value(item.value, item.component)
        return Step(section, name, vhost, action, reason, (KEPT,), wanted)

    def _limits(self, item: ParameterItem) -> Step:
        name = f"{item.component}/{item.name}"
        given = item.value if isinstance(item.value, dict) else {}
        limits, notes = read_limits(given, VHOST_LIMITS)
        facts = self._settings.vhosts.get(item.vhost, VhostFacts())
        is_same = dict(facts.limits) == limits
        action = Action.SAME if is_same else Action.CHANGE if facts.limits else Action.CREATE
        wanted = VhostLimits(limits)
        return Step(Section.PARAMETERS, name, item.vhost, action, "", notes, wanted)

    def _operator_policy(self, item: ParameterItem) -> Step:
        given = item.value if isinstance(item.value, dict) else {}
        return self._judged(
            Section.PARAMETERS,
            f"{item.component}/{item.name}",
            item.vhost,
            {**given, "name": item.name, "is_operator": True},
        )

    def _policy(self, item: PolicyItem) -> Step:
        given = {
            "name": item.name,
            "pattern": item.pattern,
            "definition": item.definition,
            "apply-to": item.apply_to,
            "priority": item.priority,
        }
        if item.vhost not in self._vhosts:
            reason = f"no virtual host '{item.vhost}'"
            return Step(Section.POLICIES, item.name, item.vhost, Action.UNSUPPORTED, reason)
        return self._judged(Section.POLICIES, item.name, item.vhost, given)

    def _judged(self, section: Section, label: str, vhost: str, given: dict[str, Any]) -> Step:
        is_operator = given.get("is_operator") is True
        try:
            wanted = Policy.parse(
                given["name"],
                given.get("pattern"),
                given.get("definition"),
                apply_to=given.get("apply-to", "all"),
                priority=given.get("priority", 0),
                is_operator=is_operator,
            )
        except CoreError as error:
            return Step(section, label, vhost, Action.UNSUPPORTED, str(error))
        before = self._settings.policies.get((vhost, wanted.name, is_operator))
        action, reason = _compared(before, wanted)
        keys = inert_keys(wanted.definition)
        notes = tuple(f"key '{key}' is kept, and has no effect here" for key in keys)
        return Step(section, label, vhost, action, reason, notes, wanted)


def _compared(before: object, wanted: Wanted | object) -> tuple[Action, str]:
    if before is None:
        return Action.CREATE, ""
    return (Action.SAME, "") if before == wanted else (Action.CHANGE, "other values")
