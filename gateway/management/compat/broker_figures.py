"""Figures of the whole gateway, for the overview and for nodes.

All of them are sums that are kept: however many queues and connections there are, they cost the
same to read.
"""

from __future__ import annotations

from typing import Final

from gateway.management.compat.message_stats import (
    RatesQuery,
    Stats,
    broker_stats,
    churn_rates,
    lengths,
    queue_stats,
)
from gateway.management.services import Services
from gateway.statistics.figures import BROKER_FIGURES

NO_SAMPLES: Final = RatesQuery()
STORE_FIGURES: Final = {
    "disk_reads": "msg_store_read_count",
    "disk_writes": "msg_store_write_count",
}
MQTT_ADAPTERS: Final = ("mqtt", "mqtt_ws")  # each client has one channel


def message_stats(services: Services, query: RatesQuery = NO_SAMPLES) -> Stats:
    """Describes the traffic of the gateway."""
    statistics = services.statistics
    return broker_stats(statistics.broker, statistics.now, query)


def queue_totals(services: Services, query: RatesQuery = NO_SAMPLES) -> Stats:
    """Counts the messages in all queues."""
    statistics = services.statistics
    return lengths(statistics.broker.totals, statistics.broker, statistics.now, query)


def churn(services: Services, query: RatesQuery = NO_SAMPLES) -> Stats:
    """Tells how connections, channels and queues come and go."""
    statistics = services.statistics
    return churn_rates(statistics.broker, statistics.now, query)


def object_totals(services: Services) -> dict[str, int]:
    """Counts connections, channels, exchanges, queues and consumers."""
    manager, connections = services.manager, services.connections
    totals = dict(zip(BROKER_FIGURES, services.statistics.current_figures(), strict=True))
    clients = sum(connections.count(name) for name in MQTT_ADAPTERS)
    vhosts = list(manager.vhosts.values())
    return {
        "connections": manager.auth.present,
        "channels": totals["channel_created"] - totals["channel_closed"] + clients,
        "exchanges": sum(len(vhost.router.exchanges()) for vhost in vhosts),
        "queues": sum(len(vhost.queues) for vhost in vhosts),
        "consumers": totals["consumers"],
    }


def vhost_figures(services: Services, vhost: str, query: RatesQuery = NO_SAMPLES) -> Stats:
    """Describes the messages and the traffic of one virtual host."""
    statistics = services.statistics
    history = statistics.of_vhost(vhost)
    totals, now = history.totals, statistics.now
    return {
        **lengths(totals, history, now, query),
        "message_stats": queue_stats(totals, history, now, query),
    }


def node_figures(services: Services) -> Stats:
    """Returns the figures of a node that come from counters: churn, and use of the disk."""
    history, now = services.statistics.broker, services.statistics.now
    found = churn(services)
    for ours, name in STORE_FIGURES.items():
        index = BROKER_FIGURES.index(ours)
        found[name] = history.totals[index]
        found[f"{name}_details"] = {"rate": history.rate(index, now)}
    return found
