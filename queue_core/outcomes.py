"""Outcomes of a delivery: four verdicts that every protocol's own words map to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from queue_core.message.message import Amendment


class Outcome(IntEnum):
    ACCEPTED = 0  # processed: the message is settled and never comes back
    RELEASED = 1  # not processed, nobody's fault: back to its place, flagged, not counted
    REJECTED = 2  # cannot be processed: dead-lettered where the queue says so, else dropped
    MODIFIED = 3  # the delivery failed: back to its place, flagged and counted


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome with what a consumer may say about it."""

    outcome: Outcome
    delay: float = 0.0  # seconds before a returned message may be delivered again
    reason: str | None = None  # for people: log and dead letters
    undeliverable_here: bool = False  # not again to the consumer that says so
    amendment: Amendment | None = None  # of a message that comes back; kept with it


ACCEPTED: Final = Verdict(Outcome.ACCEPTED)
RELEASED: Final = Verdict(Outcome.RELEASED)
REJECTED: Final = Verdict(Outcome.REJECTED)
FAILED: Final = Verdict(Outcome.MODIFIED)


class Published(IntEnum):
    """Tells what became of a publish at the moment it was made."""

    NOWHERE = 0  # no queue is bound for it: unroutable
    DONE = 1  # every queue that took it has it already (all of them ephemeral)
    PENDING = 2  # taken by a durable queue: the publisher is told when it is committed
    REFUSED = 3  # a queue that it was routed to is full and refuses more
    # no queue is bound for it, but an exchange remembers it, or what it repeats: the publisher is
    # told when that is committed
    REMEMBERED = 4
