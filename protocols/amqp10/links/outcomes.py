"""Outcomes of AMQP 1.0 and the core's verdicts: accepted, rejected, released, modified.

A receiver says an outcome in a disposition, a source has a default-outcome, and a transactional
state carries one. `modified` has delivery-failed, undeliverable-here and annotations.
"""

from __future__ import annotations

from typing import Final

from protocols.amqp10.engine import proton as engine
from protocols.amqp10.engine.proton import Handle
from protocols.amqp10.errors import INVALID_FIELD, Amqp10Error
from protocols.amqp10.links.modified_annotations import Annotating, amendment_of
from protocols.amqp10.wire.types import Described, encode
from queue_core.outcomes import ACCEPTED, REJECTED, RELEASED, Outcome, Verdict

OUTCOMES: Final[dict[int, Verdict]] = {
    engine.ACCEPTED: ACCEPTED,
    engine.RELEASED: RELEASED,
}


def verdict_of(state: int, delivery: Handle, default: Verdict | None) -> Verdict:
    """Translates a receiver's state to a verdict. A receiver that settles without an outcome has
    not said that it is done with the message, unless its source has a default-outcome."""
    known = OUTCOMES.get(state)
    if known is not None:
        return known
    if state == engine.REJECTED:
        reason = engine.rejection(delivery)
        return Verdict(Outcome.REJECTED, reason=reason) if reason else REJECTED
    if state == engine.MODIFIED:
        failed, undeliverable, annotations = engine.modification(delivery)
        return modified(
            failed=failed, undeliverable=undeliverable, amendment=amendment_of(annotations)
        )
    return default or RELEASED


def modified(*, failed: bool, undeliverable: bool, amendment: Annotating | None = None) -> Verdict:
    """Makes the verdict of a modified outcome: a message that has not failed is released."""
    outcome = Outcome.MODIFIED if failed else Outcome.RELEASED
    return Verdict(outcome, undeliverable_here=undeliverable, amendment=amendment)


STATES: Final[dict[object, int]] = {
    0x24: engine.ACCEPTED,
    0x25: engine.REJECTED,
    0x26: engine.RELEASED,
    0x27: engine.MODIFIED,
    "amqp:accepted:list": engine.ACCEPTED,
    "amqp:rejected:list": engine.REJECTED,
    "amqp:released:list": engine.RELEASED,
    "amqp:modified:list": engine.MODIFIED,
}


def outcome_of(outcome: object) -> Verdict | None:
    """Translates an outcome as it is written, in a source's default-outcome or a transactional
    state, to a verdict; None when there is none. Raises Amqp10Error."""
    if outcome is None:
        return None
    descriptor = outcome.descriptor if isinstance(outcome, Described) else None
    state = STATES.get(descriptor) if isinstance(descriptor, int | str) else None
    if state is None or not isinstance(outcome, Described):
        raise Amqp10Error(
            INVALID_FIELD, "an outcome is one of accepted, rejected, released and modified"
        )
    if state == engine.REJECTED:
        return REJECTED
    if state == engine.MODIFIED:
        fields = outcome.value if isinstance(outcome.value, list) else []
        failed, undeliverable, annotations = (*fields, None, None, None)[:3]
        added = encode(annotations) if isinstance(annotations, dict) else b""
        return modified(
            failed=failed is True,
            undeliverable=undeliverable is True,
            amendment=amendment_of(added),
        )
    return OUTCOMES[state]
