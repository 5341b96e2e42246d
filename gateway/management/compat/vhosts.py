"""Virtual hosts: `/api/vhosts`. Numbers of messages are sums over memory, in slices of the loop."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from gateway.management.answers import NO_CONTENT, Reply, created_or_changed
from gateway.management.call import Call
from gateway.management.changed_rights import in_force
from gateway.management.compat.broker_figures import vhost_figures
from gateway.management.compat.message_stats import Stats
from gateway.management.lists import ColumnsQuery, Listing, ListQuery
from gateway.management.node import node_name
from gateway.management.roles import Role
from gateway.management.routes import Body, NoQuery, Route
from gateway.management.services import Services
from gateway.management.vhost_removal import remove_with_contents
from queue_core.store.tables.vhosts import VhostDescription
from queue_core.vhost import Vhost

SAMPLED: Final = (
    "messages_details",
    "messages_ready_details",
    "messages_unacknowledged_details",
    "message_stats",
)


class VhostRow(Struct, frozen=True):
    """One virtual host of RabbitMQ's list."""

    name: str
    cluster_state: dict[str, str]
    messages: int = 0
    messages_ready: int = 0
    messages_unacknowledged: int = 0
    description: str = ""
    tags: list[str] = []
    default_queue_type: str = "classic"
    metadata: dict[str, Any] = {}
    tracing: bool = False
    messages_details: Stats = {}
    messages_ready_details: Stats = {}
    messages_unacknowledged_details: Stats = {}
    message_stats: Stats = {}


async def described(services: Services, vhost: Vhost) -> VhostRow:
    """Describes a virtual host as of now, and its traffic as of the last sample."""
    share, sampled = services.loop_share, vhost_figures(services, vhost.name)
    ready = unacknowledged = delayed = 0
    async for part in share.slices(list(vhost.queues.values()), lambda queue: queue.counts()):
        ready += sum(counts.ready for counts in part)
        delayed += sum(counts.delayed for counts in part)
        unacknowledged += sum(counts.in_flight for counts in part)
    return VhostRow(
        vhost.name,
        {node_name(): "running"},
        ready + delayed + unacknowledged,
        ready,
        unacknowledged,
        vhost.settings.description,
        list(vhost.settings.tags),
        vhost.settings.default_queue_type or "classic",
        {
            **vhost.settings.metadata,
            "description": vhost.settings.description,
            "tags": list(vhost.settings.tags),
        },
        **{name: sampled[name] for name in SAMPLED},
    )


def _row(row: VhostRow) -> VhostRow:
    return row


async def list_vhosts(call: Call[ListQuery, None]) -> Listing[VhostRow]:
    visible = sorted(call.visible_vhosts(), key=lambda vhost: vhost.name)
    rows = [await described(call.services, vhost) for vhost in visible]
    return Listing(rows, _row)


async def show(call: Call[ColumnsQuery, None]) -> VhostRow:
    return await described(call.services, call.vhost())


class VhostBody(Body, frozen=True):
    """What is said of a virtual host; what is left out stays as it is. `tracing` is taken and has
    no effect: there is no firehose here."""

    description: str | None = None
    tags: Annotated[str | list[str] | None, Meta(description="a list, or names by commas")] = None
    default_queue_type: (
        Annotated[str, Meta(description="classic, quorum or stream; empty: stays")] | None
    ) = None
    metadata: dict[str, Any] | None = None
    tracing: bool = False


def _description(body: VhostBody) -> VhostDescription:
    tags = body.tags.split(",") if isinstance(body.tags, str) else body.tags
    named = None if tags is None else [tag.strip() for tag in tags if tag.strip()]
    queue_type = body.default_queue_type
    if queue_type in ("", "undefined"):  # as some clients say that they have none
        queue_type = None
    return VhostDescription(body.description, named, queue_type, body.metadata)


async def put(call: Call[NoQuery, VhostBody]) -> Reply:
    vhosts, name, said = call.manager.stored_vhosts, call.path["vhost"], _description(call.body)
    is_new = await vhosts.add(name, said)
    if not is_new:
        await vhosts.describe(name, said)
    await in_force(call.manager)
    return created_or_changed(is_new=is_new)


async def delete(call: Call[NoQuery, None]) -> Reply:
    await remove_with_contents(call.manager, call.vhost())
    await in_force(call.manager)
    return NO_CONTENT


ONE: Final = "/api/vhosts/{vhost}"
ROUTES: Final = (
    Route(
        method="GET",
        path="/api/vhosts",
        handler=list_vhosts,
        summary="All virtual hosts that the user may see",
        query=ListQuery,
        answer=VhostRow,
        is_list=True,
    ),
    Route(
        method="GET",
        path=ONE,
        handler=show,
        summary="One virtual host",
        query=ColumnsQuery,
        answer=VhostRow,
    ),
    Route(
        method="PUT",
        path=ONE,
        handler=put,
        summary="Make a virtual host, which nobody may enter yet, or change what is said of it",
        role=Role.ADMINISTRATOR,
        body=VhostBody,
    ),
    Route(
        method="DELETE",
        path=ONE,
        handler=delete,
        summary="Remove a virtual host with its queues, sessions, exchanges and permissions",
        role=Role.ADMINISTRATOR,
    ),
)
