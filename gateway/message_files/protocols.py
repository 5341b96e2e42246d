"""The protocols of `howdah convert`, by the names that it knows them by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from gateway.message_files import amqp091, amqp10, mqtt, sql
from gateway.message_files.document import Document
from queue_core.message.message import Message


class Ends(NamedTuple):
    """The reader and the writer of one protocol's messages."""

    title: str
    read: Callable[[Document, float], Message]  # what a publisher sends
    write: Callable[[Message, float], Document]  # what a consumer gets


PROTOCOLS: Final = {
    "mqtt311": Ends("MQTT 3.1.1", mqtt.read_3, mqtt.write_3),
    "mqtt5": Ends("MQTT 5", mqtt.read_5, mqtt.write_5),
    "amqp091": Ends("AMQP 0.9.1", amqp091.read, amqp091.write),
    "amqp10": Ends("AMQP 1.0", amqp10.read, amqp10.write),
    "sql": Ends("SQL", sql.read, sql.write),
}


def converted(found: Document, source: str, target: str) -> Document:
    """Converts a message of the protocol `source` to what a consumer of `target` gets. Raises
    MessageFileError."""
    now = 0.0  # seconds since the epoch; a message file has lifetimes and delays, and no date
    return PROTOCOLS[target].write(PROTOCOLS[source].read(found, now), now)
