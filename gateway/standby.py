"""A node of a cluster before it serves: joins, stands by, and opens what a standby has open.

Answers for the time between the start and the moment at which this node is up. What the cluster
decides is not its business.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack

import msgspec

from gateway.acceptor import ProtocolFactory
from gateway.amqp_port import AMQP_091, AMQP_10, AMQP_10_SASL, AmqpPort
from gateway.config.keys import Config, require_safe_listeners
from gateway.database import DatabaseError, reaching
from gateway.listeners import announcement, open_listener
from gateway.management.standby import open_standby
from gateway.tls_handshakes import TlsCounters
from protocols.amqp091 import refusal as amqp091
from protocols.amqp10 import refusal as amqp10
from protocols.mqtt import refusal as mqtt
from protocols.refusing_connection import Answer, RefusingConnection
from queue_core.access.accounts import Roll
from queue_core.store.nodes.cluster_node import ClusterNode, join_cluster
from queue_core.store.nodes.rows import NodeTerms
from queue_core.store.nodes.standby_reading import read_ahead
from queue_core.store.ownership import OwnershipLost

logger = logging.getLogger(__name__)

# Sections whose keys should be the same on all nodes: what one takes, the next must take, too.
COMPARED = ("broker", "session", "mqtt", "retained", "amqp091", "amqp10")


def node_terms(config: Config) -> NodeTerms:
    """Says how the configured gateway takes part in its cluster."""
    chosen = config.cluster
    limits = {
        f"{section}.{key}": value
        for section in COMPARED
        for key, value in msgspec.to_builtins(getattr(config, section), enc_hook=str).items()
    }
    return NodeTerms(
        name=chosen.name or socket.gethostname(),
        max_message_size=config.broker.max_message_size,
        cluster=chosen.cluster_name,
        lease_ms=round(chosen.lease * 1000),
        limits=limits,
    )


async def serve_in_turn(config: Config, url: str, stack: AsyncExitStack) -> ClusterNode | None:
    """Joins the cluster and returns when it is this node's turn to serve; None where the gateway
    is in no cluster. The node leaves when the stack unwinds."""
    if not config.cluster.enabled:
        return None
    async with reaching(url):
        node = await join_cluster(url, node_terms(config))
    stack.push_async_callback(node.leave)
    async with AsyncExitStack() as waiting:
        await _open_listeners(config, node, waiting)
        roll = await _prepare(url, node)
        if not node.is_up:
            _require_fit(config, roll)
            print("standby", flush=True)
        await node.until_up()
        # Ports are free at once; nobody's last answer from the standby holds up the takeover.
        closing = asyncio.create_task(waiting.pop_all().aclose(), name="end of standby")
        stack.push_async_callback(asyncio.wait, [closing])
        await asyncio.sleep(0)
    return node


def _require_fit(config: Config, roll: Roll) -> None:
    """Raises ConfigError where this node would end when its turn comes. Users whom a definitions
    file makes may be on their way: the node that serves imports it."""
    if config.definitions.import_ is None:
        require_safe_listeners(config, has_users=roll.has_users)


async def _prepare(url: str, node: ClusterNode) -> Roll:
    """Reads and opens beforehand what a takeover needs. A database that is away just now is no
    reason to end: the node joins again."""
    try:
        async with reaching(url):
            roll = await read_ahead(url)
            await node.prepare()
    except DatabaseError as error:
        raise OwnershipLost(f"this node cannot stand by: {error}") from error
    return roll


async def _open_listeners(config: Config, node: ClusterNode, stack: AsyncExitStack) -> None:
    """Opens the management listener, and the others where they are to refuse clients."""
    factories = {"management": await open_standby(node, config.listeners.management, stack)}
    if config.cluster.standby_listeners == "refuse":
        factories |= _refusals(node)
    for name, listener in config.listeners.enabled().items():
        if name in factories:
            acceptor = await open_listener(name, listener, factories[name], TlsCounters())
            stack.callback(acceptor.close)
            print(announcement(name, listener, acceptor), flush=True)


def _refusals(node: ClusterNode) -> dict[str, ProtocolFactory]:
    """Makes what refuses clients at each listener, in each protocol's own terms."""

    def reason() -> str:
        serving = node.serving
        return "this node stands by" + (f"; node '{serving}' serves" if serving else "")

    def refusing(answer: Answer) -> Callable[[], RefusingConnection]:
        return lambda: RefusingConnection(answer, reason)

    old, new = refusing(amqp091.refusal), refusing(amqp10.refusal)
    by_header = {AMQP_091: old, AMQP_10: new, AMQP_10_SASL: new}
    return {
        "mqtt": refusing(mqtt.refusal),
        "mqtt_ws": refusing(mqtt.websocket_refusal),
        "amqp": lambda: AmqpPort(by_header),
    }
