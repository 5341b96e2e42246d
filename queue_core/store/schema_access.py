"""The tables of virtual hosts, users and their permissions, and of what is secret."""

from __future__ import annotations

from typing import Final

from sqlalchemy import CheckConstraint, Column, Integer, PrimaryKeyConstraint, Table, Text, text
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA, JSONB, UUID

from queue_core.store.schema_columns import (
    NOW,
    Timestamp,
    cascade,
    metadata,
    optional,
    required,
    vhost_column,
)

vhost = Table(
    "vhost",
    metadata,
    Column("name", Text, primary_key=True, comment="Name, such as /."),
    required("created_at", Timestamp, "When it was made.", server_default=NOW),
    required("description", Text, "What it is for, in people's words.", server_default=text("''")),
    required("tags", ARRAY(Text), "Words to find it by.", server_default=text("'{}'")),
    optional(
        "default_queue_type",
        Text,
        "Type of durable queues that are declared without one: classic, quorum or stream; null: "
        "classic.",
        CheckConstraint(
            "default_queue_type IN ('classic', 'quorum', 'stream')", name="default_queue_type"
        ),
    ),
    required(
        "metadata", JSONB, "Anything else that tools keep with it.", server_default=text("'{}'")
    ),
    optional(
        "max_connections", Integer, "Connections that it may have; null or negative: any number."
    ),
    optional("max_queues", Integer, "Queues that it may have; null or negative: any number."),
    comment="Virtual hosts: names of exchanges and queues in one do not meet those of another.",
)

user = Table(
    "user",
    metadata,
    Column("name", Text, primary_key=True, comment="Login name."),
    optional(
        "password_hash",
        Text,
        "Argon2 hash, or until the first login one from RabbitMQ (rabbit_sha256$...); null: no "
        "login by password.",
    ),
    required(
        "tags",
        ARRAY(Text),
        "What it may do beside its permissions: impersonator, to publish in another user's name. "
        "Others are kept, and mean nothing.",
        server_default=text("'{}'"),
    ),
    required("created_at", Timestamp, "When it was made.", server_default=NOW),
    required("changed_at", Timestamp, "When it was last changed.", server_default=NOW),
    optional(
        "scram_verifier",
        Text,
        "SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey; null: no login by SCRAM.",
    ),
    optional(
        "max_connections", Integer, "Connections that it may have; null or negative: any number."
    ),
    optional(
        "max_channels",
        Integer,
        "Channels and sessions that it may have in all its connections; null or negative: any "
        "number.",
    ),
    comment="Who may log in to the gateway. Not a PostgreSQL role.",
)

secret = Table(
    "secret",
    metadata,
    Column("name", Text, primary_key=True, comment="What it is for."),
    required("value", BYTEA, "To be known to the gateway only."),
    comment="Random bytes that stay the same for as long as the database lives.",
)

view_key = Table(
    "view_key",
    metadata,
    Column(
        "value",
        UUID,
        primary_key=True,
        comment="To be known to the views only: grant this table to nobody.",
    ),
    comment="Opens the functions that the views call. One row.",
)

_USER: Final = "User that is allowed."

permission = Table(
    "permission",
    metadata,
    required("user_name", Text, _USER, cascade("user.name")),
    vhost_column(),
    required("configure", Text, "Regular expression of what it may declare and delete."),
    required("write", Text, "Regular expression of what it may publish to."),
    required("read", Text, "Regular expression of what it may consume from."),
    PrimaryKeyConstraint("user_name", "vhost"),
    comment="What a user may do in a virtual host, by names of exchanges and queues.",
)

topic_permission = Table(
    "topic_permission",
    metadata,
    required("user_name", Text, _USER, cascade("user.name")),
    vhost_column(),
    required("exchange", Text, "Topic exchange that the rule is for."),
    required("write", Text, "Regular expression of routing keys it may publish with."),
    required("read", Text, "Regular expression of routing keys it may bind with."),
    PrimaryKeyConstraint("user_name", "vhost", "exchange"),
    comment="What a user may do on a topic exchange, by routing key.",
)
