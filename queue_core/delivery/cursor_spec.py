"""The facts that a cursor is made of: the rules that its queue's arguments set, and how far its
group had come when the journal was last written."""

from __future__ import annotations

from dataclasses import dataclass, field

from queue_core.delivery.settled_offsets import Settled


@dataclass(frozen=True, slots=True)
class CursorSpec:
    """The rules by which a cursor hands out and takes back, and the queue and group it is for."""

    queue_id: int = 0  # of a stored queue; 0: the queue lives in memory
    group: str = ""  # of a stream's readers; a queue has one cursor, without a name
    single_active: bool = False  # one consumer at a time, the others wait
    delivery_limit: int | None = None  # failed deliveries after which a message is exhausted
    ack_timeout_seconds: float | None = None  # that a consumer has to settle a delivery
    requeues: bool = True  # False: a stream, to which nothing comes back
    tracks_settled: bool = False  # deduplication asks what has left, without a journal, too


@dataclass(frozen=True, slots=True)
class SavedProgress:
    """The progress of a group, as the journal knows it: what is settled, up to where a lease was
    granted, and how often which deliveries failed."""

    settled: Settled = field(default_factory=Settled)
    lease: int = 0
    failures: dict[int, int] = field(default_factory=dict)
