"""The metrics of a node's part in its cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.management.metrics import counter_metrics
from queue_core.store.nodes.cluster_node import ClusterNode


class ClusterCollector(Collector):
    """Collects the metrics of a node's part in its cluster, whether it serves or stands by."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node

    def collect(self) -> Iterable[Metric]:
        yield from counter_metrics({"cluster": self._node.counters})
        yield from cluster_gauges(self._node)
        if not self._node.is_up:
            yield GaugeMetricFamily(
                "howdah_ready", "1 while durable messages can be stored.", value=0.0
            )


def cluster_gauges(node: ClusterNode) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "howdah_cluster_serving",
        "1 while this node serves, 0 while it stands by.",
        float(node.is_up),
    )
    yield GaugeMetricFamily(
        "howdah_cluster_trusted",
        "1 while this node may hand out messages of durable queues.",
        float(node.trust.is_given()),
    )
    yield GaugeMetricFamily(
        "howdah_cluster_nodes", "Nodes of the cluster that live.", 1.0 + len(node.membership.peers)
    )
