"""The plan of an import: for each item of a file whether it is made, there already, changed, in
conflict with what is there, or nothing that this gateway has.

Pure: a document and what is present in, a plan out. `rights_plan` judges users, virtual hosts and
permissions, `topology_plan` exchanges, queues and bindings. The same plan serves the command line,
HTTP and the start; nothing is changed before it is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from queue_core.access.accounts import Permission, TopicPermission, User
from queue_core.definitions.items import BindingItem, Section
from queue_core.definitions.present import VhostFacts
from queue_core.errors import InvalidArgument
from queue_core.policies.policy import Policy
from queue_core.queues.spec import QueueSpec
from queue_core.routing.exchanges import ExchangeSpec

SHOWN_IN_ERROR: Final = 20  # items that a strict import names, of those that it cannot take


class Action(StrEnum):
    CREATE = "create"
    CHANGE = "change"  # of what may be changed in place: users, permissions
    SAME = "same"
    CONFLICT = "conflict"  # what is there stays as it is
    UNSUPPORTED = "unsupported"  # nothing here can take it


MADE: Final = frozenset((Action.CREATE, Action.CHANGE))
LEFT_OUT: Final = frozenset((Action.CONFLICT, Action.UNSUPPORTED))


@dataclass(frozen=True, slots=True)
class Account:
    """A user as it will be, with its limits."""

    user: User
    limits: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a parameter."""

    value: object
    component: str = ""  # empty: of a global parameter


@dataclass(frozen=True, slots=True)
class VhostLimits:
    """The limits of a virtual host, in place of those that it had."""

    limits: Mapping[str, int]


Wanted = (
    Account
    | VhostFacts
    | VhostLimits
    | Permission
    | TopicPermission
    | Policy
    | Value
    | ExchangeSpec
    | QueueSpec
    | BindingItem
    | None
)


@dataclass(frozen=True, slots=True)
class Step:
    """What becomes of one item. `reason` is for people. `notes` name the parts of the item that
    have no effect here, though the item is taken. `wanted` is what there will be."""

    section: Section
    name: str
    vhost: str | None
    action: Action
    reason: str = ""
    notes: tuple[str, ...] = ()
    wanted: Wanted = None
    exchange: str = ""  # of a topic permission

    @property
    def label(self) -> str:
        """Names the item as people do: `queue 'orders' in '/'`."""
        kind = SINGULAR[self.section]
        where = "" if self.vhost is None else f" in '{self.vhost}'"
        on = f" on exchange '{self.exchange}'" if self.section is Section.TOPIC_PERMISSIONS else ""
        return f"{kind} '{self.name}'{on}{where}"

    @property
    def is_made(self) -> bool:
        return self.action in MADE

    @property
    def is_left_out(self) -> bool:
        return self.action in LEFT_OUT

    @property
    def complaints(self) -> list[str]:
        """Tells what of the item is not taken, a line for each part."""
        lines = [f"{self.label}: {note}" for note in self.notes]
        if self.is_left_out:
            lines.append(f"{self.label}: {self.action}: {self.reason}")
        return lines


SINGULAR: Final[Mapping[Section, str]] = {
    Section.USERS: "user",
    Section.VHOSTS: "virtual host",
    Section.PERMISSIONS: "permission of user",
    Section.TOPIC_PERMISSIONS: "topic permission of user",
    Section.GLOBAL_PARAMETERS: "global parameter",
    Section.PARAMETERS: "parameter",
    Section.POLICIES: "policy",
    Section.EXCHANGES: "exchange",
    Section.QUEUES: "queue",
    Section.BINDINGS: "binding",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """All steps of an import, in the order in which they are done."""

    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()  # on the file itself

    @property
    def changes(self) -> Iterator[Step]:
        """Yields the steps that make or change something."""
        return (step for step in self.steps if step.is_made)

    @property
    def complaints(self) -> list[str]:
        """Tells everything in the file that is not taken: nothing is dropped in silence."""
        return [*self.notes, *(line for step in self.steps for line in step.complaints)]

    def require_complete(self) -> None:
        """Refuses an import that would leave something out, for who asks for that (strict). Raises
        InvalidArgument."""
        lines = self.complaints
        if lines:
            more = len(lines) - SHOWN_IN_ERROR
            shown = "; ".join(lines[:SHOWN_IN_ERROR]) + (f"; and {more} more" if more > 0 else "")
            raise InvalidArgument(
                f"nothing is imported, as strict is set and not all can be taken: {shown}"
            )

    def counts(self) -> dict[str, int]:
        """Counts the steps by what they do."""
        return {each.value: sum(step.action is each for step in self.steps) for each in Action}


def without_repetitions(steps: Iterable[Step]) -> Iterator[Step]:
    """Yields the steps, and for an item that a file has twice a second step that does nothing: the
    first one counts."""
    first: dict[tuple[Section, str | None, str, str], Step] = {}
    for step in steps:
        key = (step.section, step.vhost, step.name, step.exchange)
        before = first.setdefault(key, step)
        if before is step:
            yield step
        elif before.wanted == step.wanted:
            yield replace(step, action=Action.SAME, reason="the file has it twice", notes=())
        else:
            reason = "the file has it twice, in different words; the first counts"
            yield replace(step, action=Action.CONFLICT, reason=reason, notes=())
