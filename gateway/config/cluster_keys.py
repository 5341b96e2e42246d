"""The configuration keys of a cluster: several gateways on one database.

Answers for the contract with whoever runs the gateway. It must not act on any of it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from gateway.config.quantities import Duration
from gateway.config.section import Section


class Cluster(Section, frozen=True, kw_only=True):
    """Several gateways on one PostgreSQL: one serves, the others stand by and take over."""

    enabled: Annotated[
        bool,
        Meta(
            description="take part in the cluster of this database; false: have the database "
            "alone, and let no other gateway in"
        ),
    ] = False
    name: Annotated[
        str | None,
        Meta(
            description="name of this node, which no other node may have; left out: the host's",
        ),
    ] = None
    cluster_name: Annotated[
        str,
        Meta(
            min_length=1,
            description="name of the cluster; a gateway with another one is refused, so that two "
            "clusters do not meet on one database by mistake",
        ),
    ] = "howdah"
    lease: Annotated[
        Duration,
        Meta(
            extra={"min": Duration(1), "max": Duration(60)},
            description="silence after which a node is taken for dead; it beats four times in that "
            "time, and hands out nothing durable after three quarters of it without an answer",
        ),
    ] = Duration(2)
    standby_listeners: Annotated[
        Literal["closed", "refuse"],
        Meta(
            description="listeners of a node that stands by: closed, or open and refusing each "
            "client in its protocol's own terms; the management listener is always open"
        ),
    ] = "closed"
