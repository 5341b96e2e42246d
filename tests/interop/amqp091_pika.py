"""pika's blocking client: connections that end with their test, and waiting for messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pika
import pika.exceptions
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.until import PATIENCE_SECONDS

Connect = Callable[[], pika.BlockingConnection]


@contextmanager
def connections(url: str) -> Iterator[Connect]:
    """A function that makes them; all are closed in the end."""
    made: list[pika.BlockingConnection] = []

    def connect() -> pika.BlockingConnection:
        made.append(pika.BlockingConnection(pika.URLParameters(url)))
        return made[-1]

    try:
        yield connect
    finally:
        for each in made:
            if each.is_open:
                with suppress(OSError, pika.exceptions.AMQPError, ValueError):
                    each.close()


def get_until(channel: BlockingChannel, queue: str, seconds: float = 10, **options: Any) -> Any:
    """basic.get until there is something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = channel.basic_get(queue, **options)
        if found[0] is not None:
            return found
        channel.connection.process_data_events(0.02)
    raise AssertionError(f"nothing came to {queue}")


def take(channel: BlockingChannel, queue: str, count: int, **options: Any) -> list[Any]:
    """So many deliveries, unacknowledged unless `auto_ack`."""
    found: list[Any] = []
    for method, properties, body in channel.consume(
        queue, inactivity_timeout=PATIENCE_SECONDS, **options
    ):
        assert method is not None, f"only {len(found)} of {count} came"
        found.append((method, properties, body))
        if len(found) == count:
            break
    return found
