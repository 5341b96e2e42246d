"""Bindings as RabbitMQ lists them, and the key that tells bindings of the same ends apart."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote, quote_plus

from msgspec import Struct

from gateway.management.lists import Listing
from queue_core.message.json_arguments import stored
from queue_core.message.value_identity import identity_of, text_of
from queue_core.queues.queue import Queue
from queue_core.routing.bindings import Binding, ExchangeRef
from queue_core.vhost import Vhost

NO_KEY: Final = "~"
DIGEST_BYTES: Final = 16

Located = tuple[str, Binding[Queue]]  # with the name of its virtual host


class BindingRow(Struct, frozen=True):
    """One binding of RabbitMQ's list."""

    source: str
    vhost: str
    destination: str
    destination_type: str
    routing_key: str
    arguments: Mapping[str, Any]
    properties_key: str


def row(located: Located) -> BindingRow:
    vhost, binding = located
    arguments = binding.arguments or {}
    return BindingRow(
        source=binding.source,
        vhost=vhost,
        destination=binding.destination.name,
        destination_type=destination_type(binding),
        routing_key=binding.key,
        arguments=stored(arguments),
        properties_key=properties_key(binding.key, arguments),
    )


def destination_type(binding: Binding[Queue]) -> str:
    return "exchange" if isinstance(binding.destination, ExchangeRef) else "queue"


def properties_key(key: str, arguments: Mapping[str, object]) -> str:
    """Makes the key that names a binding between two ends: its routing key, and where it has
    arguments a digest of them."""
    if not arguments:
        return quote_plus(key).replace("~", "%7E") if key else NO_KEY
    identity = text_of(identity_of(arguments)).encode(errors="surrogatepass")
    digest = hashlib.blake2b(identity, digest_size=DIGEST_BYTES).digest()
    text = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    return f"{quote(key, safe='').replace('~', '%7E')}{NO_KEY}{text}"


def listed(vhosts: Iterable[Vhost]) -> list[Located]:
    """Returns all bindings; subscriptions of MQTT sessions are the sessions' own, and not among
    them."""
    return [
        (vhost.name, binding)
        for vhost in vhosts
        for binding in vhost.router.bindings()
        if not binding.is_filter
    ]


def listing(found: list[Located]) -> Listing[Located]:
    return Listing(found, row, name=lambda located: located[1].source)
