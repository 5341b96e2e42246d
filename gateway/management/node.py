"""The name of this node, as RabbitMQ's tools expect one: `howdah@HOST`."""

from __future__ import annotations

import socket
from functools import cache


@cache
def node_name() -> str:
    """Names this gateway. The part before the @ is the product, as it is in RabbitMQ."""
    return f"howdah@{socket.gethostname().partition('.')[0]}"
