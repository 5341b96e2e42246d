"""The configuration keys of memory: its high-water mark, and how long a slow peer may hold memory.

Answers for the contract with whoever runs the gateway. It must not act on any of it.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from gateway.config.quantities import Duration, Size
from gateway.config.section import Section

MIB = 1024 * 1024


class Memory(Section, frozen=True, kw_only=True):
    """One account covers all memory that clients make the gateway hold."""

    high_watermark: Annotated[
        Size | None,
        Meta(
            extra={"min": Size(MIB)},
            description="memory for unfinished messages, open transactions, unread output, queues "
            "in memory, caches and the write buffer together; above it publishers wait. null: two "
            "fifths of what the machine or the container has",
        ),
    ] = None
    grace: Annotated[
        Duration,
        Meta(description="when memory is short for longer, the connection that holds most ends"),
    ] = Duration(10)
    partial_timeout: Annotated[
        Duration,
        Meta(
            extra={"min": Duration(0.1)},
            description="an unfinished message that does not go on for so long ends its connection",
        ),
    ] = Duration(60)
    unread_timeout: Annotated[
        Duration,
        Meta(
            extra={"min": Duration(0.1)},
            description="so does a client that takes nothing of the output that waits for it",
        ),
    ] = Duration(300)
