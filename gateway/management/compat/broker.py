"""The broker as a whole: `/api/overview`, version, name, logins, and what RabbitMQ lists that
Howdah has none of: feature flags, deprecated features, extensions.

The version is RabbitMQ's, because its tools decide by it what they may ask; the product's own is in
`product_version`. Erlang's is text that clients show.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version
from typing import Any, Final

from msgspec import Struct

from gateway.connections import OpenConnection
from gateway.listeners import PRODUCT
from gateway.management.call import Call
from gateway.management.compat.broker_figures import (
    churn,
    message_stats,
    object_totals,
    queue_totals,
    vhost_figures,
)
from gateway.management.compat.message_stats import RatesQuery, Stats
from gateway.management.compat.nodes import RATES_MODE, exchange_types, require_this_node
from gateway.management.lists import Listing, ListQuery
from gateway.management.node import node_name
from gateway.management.node_listeners import PROTOCOLS, ListenerRow, listeners_of
from gateway.management.roles import Role
from gateway.management.routes import NoQuery, Route
from gateway.management.services import Services
from gateway.statistics.figures import LENGTHS
from protocols.connection_report import ConnectionReport

NO_MESSAGES: Final[Stats] = dict.fromkeys(LENGTHS, 0) | {
    f"{name}_details": {"rate": 0.0} for name in LENGTHS
}
RABBITMQ_VERSION: Final = "4.1.0"  # whose shapes the answers have
ERLANG_VERSION: Final = "27"
RETENTION: Final = {"global": [600, 3600, 28800], "basic": [600, 3600], "detailed": [600]}


class ObjectTotals(Struct, frozen=True):
    connections: int
    channels: int
    queues: int
    exchanges: int
    consumers: int


class Overview(Struct, frozen=True):
    """RabbitMQ's overview. Those who do not monitor see numbers of their virtual hosts only, and no
    listeners."""

    management_version: str
    rates_mode: str
    sample_retention_policies: dict[str, list[int]]
    exchange_types: list[dict[str, Any]]
    product_version: str
    product_name: str
    rabbitmq_version: str
    cluster_name: str
    cluster_tags: dict[str, str]
    node_tags: dict[str, str]
    erlang_version: str
    erlang_full_version: str
    release_series_support_status: str
    disable_stats: bool
    default_queue_type: str
    is_op_policy_updating_enabled: bool
    enable_queue_totals: bool
    message_stats: dict[str, Any]
    churn_rates: dict[str, Any]
    queue_totals: dict[str, Any]
    object_totals: ObjectTotals
    statistics_db_event_queue: int
    node: str
    listeners: list[ListenerRow]
    contexts: list[dict[str, Any]]


async def overview(call: Call[RatesQuery, None]) -> Overview:
    services, product = call.services, version("howdah")
    monitors = call.caller.has(Role.MONITORING)
    figures = _figures(call) if monitors else await _own_figures(call)
    return Overview(
        management_version=RABBITMQ_VERSION,
        rates_mode=RATES_MODE,
        sample_retention_policies=RETENTION,
        exchange_types=exchange_types(),
        product_version=product,
        product_name=PRODUCT,
        rabbitmq_version=RABBITMQ_VERSION,
        cluster_name=node_name(),
        cluster_tags={},
        node_tags={},
        erlang_version=ERLANG_VERSION,
        erlang_full_version=f"{PRODUCT} {product}, not Erlang",
        release_series_support_status="supported",
        disable_stats=False,
        default_queue_type="classic",
        is_op_policy_updating_enabled=True,
        enable_queue_totals=False,
        message_stats=figures.message_stats,
        churn_rates=churn(services, call.query),
        queue_totals=figures.queue_totals,
        object_totals=figures.objects,
        statistics_db_event_queue=0,
        node=node_name(),
        listeners=listeners_of(services) if monitors else [],
        contexts=_contexts(services) if monitors else [],
    )


class _Figures(Struct, frozen=True):
    """What the overview counts."""

    message_stats: Stats
    queue_totals: Stats
    objects: ObjectTotals


def _figures(call: Call[RatesQuery, None]) -> _Figures:
    """Counts the whole gateway, for those who monitor it: sums that are kept."""
    services, query = call.services, call.query
    return _Figures(
        message_stats(services, query),
        queue_totals(services, query),
        ObjectTotals(**object_totals(services)),
    )


async def _own_figures(call: Call[RatesQuery, None]) -> _Figures:
    """Counts the virtual hosts of a user who does not monitor."""
    vhosts = call.visible_vhosts()
    found = [vhost_figures(call.services, vhost.name) for vhost in vhosts]
    traffic = added(each.pop("message_stats") for each in found)
    names = {vhost.name for vhost in vhosts}
    connections = channels = consumers = 0

    def report(opened: OpenConnection) -> ConnectionReport | None:
        return opened.report()

    async for part in call.services.loop_share.slices(call.services.connections.all(), report):
        for each in part:
            if each is not None and each.vhost in names:
                connections += 1
                channels += len(each.channels)
                consumers += sum(len(channel.consumers) for channel in each.channels)
    objects = ObjectTotals(
        connections=connections,
        channels=channels,
        queues=sum(len(vhost.queues) for vhost in vhosts),
        exchanges=sum(len(vhost.router.exchanges()) for vhost in vhosts),
        consumers=consumers,
    )
    return _Figures(traffic, {**NO_MESSAGES, **added(found)}, objects)


def added(found: Iterable[Stats]) -> Stats:
    """Adds up counts and their rates; samples of charts are for those who monitor."""
    total: Stats = {}
    for stats in found:
        for name, value in stats.items():
            if isinstance(value, dict):
                rate = total.get(name, {"rate": 0.0})["rate"] + value["rate"]
                total[name] = {"rate": rate}
            else:
                total[name] = total.get(name, 0) + value
    return total


def _contexts(services: Services) -> list[dict[str, Any]]:
    """Lists where the HTTP API is."""
    return [
        {
            "node": row.node,
            "description": f"{PRODUCT} Management",
            "path": "/",
            "port": str(row.port),
            "ip": row.ip_address,
        }
        for row in listeners_of(services)
        if row.protocol in PROTOCOLS["management"]
    ]


class ClusterName(Struct, frozen=True):
    name: str


class LoginAttempts(Struct, frozen=True):
    """Logins of one protocol since the start."""

    protocol: str
    auth_attempts: int
    auth_attempts_succeeded: int
    auth_attempts_failed: int


async def show_version(call: Call[NoQuery, None]) -> str:
    return RABBITMQ_VERSION


async def show_cluster_name(call: Call[NoQuery, None]) -> ClusterName:
    return ClusterName(node_name())


async def list_nothing(call: Call[ListQuery, None]) -> Listing[dict[str, Any]]:
    return Listing([], dict)


async def list_attempts(call: Call[ListQuery, None]) -> Listing[LoginAttempts]:
    require_this_node(call)
    http = call.services.http_logins
    rows = [LoginAttempts("http", http.accepted + http.refused, http.accepted, http.refused)]
    for protocol in ("amqp091", "amqp10", "mqtt"):
        counted = call.services.counters.get(protocol)
        accepted = getattr(counted, "connections", 0)
        refused = getattr(counted, "refused_connections", 0)
        rows.append(LoginAttempts(protocol, accepted + refused, accepted, refused))
    return Listing(rows, lambda row: row, name=lambda row: row.protocol)


def _list_route(path: str, handler: Any, summary: str, answer: Any, role: Role) -> Route:
    return Route(
        method="GET",
        path=path,
        handler=handler,
        summary=summary,
        role=role,
        query=ListQuery,
        answer=answer,
        is_list=True,
    )


ANY_OBJECT: Final = dict[str, Any]
ROUTES: Final = (
    Route(
        method="GET",
        path="/api/overview",
        handler=overview,
        summary="The gateway as a whole: versions, messages, rates, objects, listeners",
        query=RatesQuery,
        answer=Overview,
    ),
    Route(
        method="GET",
        path="/api/version",
        handler=show_version,
        summary="The version of RabbitMQ whose API this is",
        answer=str,
    ),
    Route(
        method="GET",
        path="/api/cluster-name",
        handler=show_cluster_name,
        summary="The name of the cluster",
        answer=ClusterName,
    ),
    _list_route("/api/extensions", list_nothing, "No extensions", ANY_OBJECT, Role.MANAGEMENT),
    _list_route(
        "/api/feature-flags", list_nothing, "No feature flags", ANY_OBJECT, Role.MANAGEMENT
    ),
    _list_route(
        "/api/deprecated-features", list_nothing, "None is deprecated", ANY_OBJECT, Role.MANAGEMENT
    ),
    _list_route(
        "/api/deprecated-features/used", list_nothing, "None is used", ANY_OBJECT, Role.MANAGEMENT
    ),
    _list_route(
        "/api/auth/attempts/{node}",
        list_attempts,
        "Logins by protocol since the start",
        LoginAttempts,
        Role.MONITORING,
    ),
)
