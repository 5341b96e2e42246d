"""Makes the plan of an import from a document and from what is present."""

from __future__ import annotations

from queue_core.definitions.document import Document
from queue_core.definitions.plan import Plan
from queue_core.definitions.present import Present
from queue_core.definitions.rights_plan import RightsPlanner
from queue_core.definitions.settings_plan import SettingsPlanner
from queue_core.definitions.topology_plan import TopologyPlanner


def make_plan(document: Document, present: Present, *, shortest_password: int) -> Plan:
    """Judges every item; new passwords have at least `shortest_password` characters. May take as
    long as a password check for each password that is written out: not for the event loop."""
    rights = RightsPlanner(document, present, shortest_password)
    steps = [*rights.steps()]
    steps += SettingsPlanner(document, present, rights.vhosts).steps()
    steps += TopologyPlanner(document, present, rights.vhosts).steps()
    return Plan(tuple(steps), document.notes)
