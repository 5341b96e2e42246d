"""The configuration keys of AMQP, both versions.

Answers for the contract with whoever runs the gateway. It must not act on any of it.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from gateway.config.quantities import Duration, Size
from gateway.config.section import Section

KIB, MIB = 1024, 1024 * 1024
# AMQP 1.0 writes it as milliseconds in four bytes, and some clients read those as a signed number.
LONGEST_IDLE: Final = Duration(24 * 86_400)


class Amqp10(Section, frozen=True, kw_only=True):
    idle_timeout: Annotated[
        Duration,
        Meta(
            extra={"max": LONGEST_IDLE},
            description="silence after which a client is taken for dead; 0s: never",
        ),
    ] = Duration(60)
    link_credit: Annotated[
        int, Meta(ge=1, le=65_536, description="messages a sender may have on their way to disk")
    ] = 1000
    max_links: Annotated[int, Meta(ge=1, le=1_000_000, description="links on one connection")] = (
        4096
    )
    max_partial_size: Annotated[
        Size,
        Meta(
            extra={"min": Size(KIB)},
            description="messages of one connection that have come in part, together",
        ),
    ] = Size(64 * MIB)


class Amqp091(Section, frozen=True, kw_only=True):
    strict: Annotated[
        bool,
        Meta(
            description="no pub/sub fallback of the default exchange, no consuming of patterns, no "
            "arguments of queues, exchanges, bindings and consumers that have no effect here"
        ),
    ] = False
    max_partial_size: Annotated[
        Size,
        Meta(
            extra={"min": Size(KIB)},
            description="messages of one connection that have come in part, together",
        ),
    ] = Size(64 * MIB)
