"""The open listeners of this node, by the names that RabbitMQ has for their protocols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from gateway.management.node import node_name
from gateway.management.services import Services

# The name without and with TLS, by our name of the listener.
PROTOCOLS: Final[Mapping[str, tuple[str, str]]] = {
    "amqp": ("amqp", "amqp/ssl"),
    "mqtt": ("mqtt", "mqtt/ssl"),
    "mqtt_ws": ("http/web-mqtt", "https/web-mqtt"),
    "management": ("http", "https"),
}
# Other names for the same, as RabbitMQ's health checks take them; one port speaks all of AMQP.
ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "amqp": ("amqp091", "amqp0.9.1", "amqp-0.9.1", "amqp10", "amqp1.0", "amqp-1.0"),
    "amqp/ssl": ("amqps", "amqp091/ssl", "amqp10/ssl"),
    "mqtt/ssl": ("mqtts",),
    "http/web-mqtt": ("web-mqtt", "ws"),
    "https/web-mqtt": ("web-mqtt/ssl", "wss"),
}


class ListenerRow(Struct, frozen=True):
    """One address that the node listens on."""

    node: str
    protocol: str
    ip_address: str
    port: int
    socket_opts: dict[str, int]
    tls: bool


def listeners_of(services: Services) -> list[ListenerRow]:
    """Lists the addresses that the node listens on."""
    return [row for name in services.acceptors for row in _rows(services, name)]


def _rows(services: Services, name: str) -> Iterator[ListenerRow]:
    config = services.config.listeners.enabled().get(name)
    has_tls = config is not None and config.tls is not None
    plain, secured = PROTOCOLS.get(name, (name, f"{name}/ssl"))
    for each in services.acceptors[name].sockets:
        address = each.getsockname()
        if isinstance(address, tuple):
            protocol = secured if has_tls else plain
            yield ListenerRow(node_name(), protocol, address[0], address[1], {}, has_tls)


def names_of(protocol: str) -> tuple[str, ...]:
    """Returns all names of a protocol: RabbitMQ's and others that people write."""
    return (protocol, *ALIASES.get(protocol, ()))
