"""The table of gateways that use the database. It is part of the schema, which names all others."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Integer, Table, Text, text
from sqlalchemy.dialects.postgresql import JSONB

from queue_core.store.schema_columns import Timestamp, identity, metadata, optional, required, tuned

node = Table(
    "node",
    metadata,
    identity(Integer, "Names one life of a gateway; never used again."),
    optional("cluster", Text, "Name of its cluster; null: it serves alone."),
    required("name", Text, "Name of the gateway; the next life of it has the same."),
    required("host", Text, "Machine that it runs on."),
    optional("address", Text, "Address that its session came from; null: a Unix socket."),
    required(
        "link_version",
        Integer,
        "Version of the protocol between nodes that it speaks; 0: none.",
    ),
    required("schema_version", Text, "Revision of the schema that it was made for."),
    required(
        "state",
        Text,
        "joining: waits, and serves nobody; up: serves; leaving: ends its work in order; gone: "
        "commits nothing any more.",
        CheckConstraint("state IN ('joining', 'up', 'leaving', 'gone')", name="state"),
    ),
    required(
        "beat",
        BigInteger,
        "Counts its signs of life; nobody reads a clock in it.",
        server_default=text("0"),
    ),
    required(
        "lease_ms",
        Integer,
        "Milliseconds of silence after which others take it for dead; 0: it gives no signs of "
        "life.",
    ),
    required("max_message_size", BigInteger, "Largest message in bytes that it takes."),
    required(
        "limits",
        JSONB,
        "Limits that it is configured with, to compare with those of other nodes.",
        server_default=text("'{}'"),
    ),
    required(
        "started_at",
        Timestamp,
        "When it joined; with the id, the name of this life even in a database that went back in "
        "time.",
        server_default=text("clock_timestamp()"),
    ),
    optional("gone_at", Timestamp, "When it left or was fenced; null: it is not gone."),
    optional("gone_because", Text, "Why it is gone, for people; null: it is not gone."),
    optional(
        "fenced_by", Integer, "Node that took it for dead; null: it is not gone, or left in order."
    ),
    comment="Gateways that use this database, one row for each life of one; the newest thousand of "
    "those that are gone stay.",
)
tuned(node, fillfactor=50)
