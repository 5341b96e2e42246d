"""Makes the plan of an import from a document and from what is present."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from queue_core.definitions.document import Document
from queue_core.definitions.items import (
    GlobalParameterItem,
    ParameterItem,
    PolicyItem,
    Section,
)
from queue_core.definitions.plan import Action, Plan, Step
from queue_core.definitions.present import Present
from queue_core.definitions.rights_plan import RightsPlanner
from queue_core.definitions.topology_plan import TopologyPlanner

NO_PARAMETERS: Final = "there are no parameters here"
NO_POLICIES: Final = (
    "there are no policies here; declare the queues with arguments in place of its keys"
)


def make_plan(document: Document, present: Present) -> Plan:
    """Judges every item. May take as long as a password check for each password that is written
    out: not for the event loop."""
    rights = RightsPlanner(document, present)
    steps = [*rights.steps(), *_unsupported(document)]
    steps += TopologyPlanner(document, present, rights.vhosts).steps()
    return Plan(tuple(steps), document.notes)


def _unsupported(document: Document) -> Iterator[Step]:
    no = Action.UNSUPPORTED
    for each in document.of(GlobalParameterItem):
        yield Step(Section.GLOBAL_PARAMETERS, each.name, None, no, NO_PARAMETERS)
    for parameter in document.of(ParameterItem):
        name = f"{parameter.component}/{parameter.name}"
        yield Step(Section.PARAMETERS, name, parameter.vhost, no, NO_PARAMETERS)
    for policy in document.of(PolicyItem):
        yield Step(Section.POLICIES, policy.name, policy.vhost, no, NO_POLICIES)
