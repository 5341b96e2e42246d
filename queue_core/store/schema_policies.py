"""The tables of policies and parameters."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from queue_core.store.schema_columns import NOW, Timestamp, metadata, required, vhost_column

_KINDS: Final = "'all', 'queues', 'exchanges', 'classic_queues', 'quorum_queues', 'streams'"

policy = Table(
    "policy",
    metadata,
    vhost_column(),
    required("name", Text, "Name."),
    required(
        "is_operator",
        Boolean,
        "An operator policy: merged with the policy of a queue, and stricter than it.",
        server_default=text("false"),
    ),
    required("pattern", Text, "Regular expression that is looked for in names."),
    required(
        "apply_to",
        Text,
        "What it is for: all, queues, exchanges, classic_queues, quorum_queues or streams.",
        CheckConstraint(f"apply_to IN ({_KINDS})", name="apply_to"),
        server_default=text("'all'"),
    ),
    required(
        "priority",
        Integer,
        "Of several that match, the one with the highest acts.",
        server_default=text("0"),
    ),
    required("definition", JSONB, "Keys and values, such as max-length."),
    required("changed_at", Timestamp, "When it was last changed.", server_default=NOW),
    PrimaryKeyConstraint("vhost", "name", "is_operator"),
    comment="Policies: values for queues and exchanges whose names match a pattern.",
)

parameter = Table(
    "parameter",
    metadata,
    required("component", Text, "What it is for, such as shovel."),
    vhost_column(),
    required("name", Text, "Name."),
    required("value", JSONB, "Value, as given."),
    PrimaryKeyConstraint("component", "vhost", "name"),
    comment="Parameters of a virtual host, kept as RabbitMQ's tools set them.",
)

global_parameter = Table(
    "global_parameter",
    metadata,
    Column("name", Text, primary_key=True, comment="Name."),
    required("value", JSONB, "Value, as given."),
    comment="Parameters of all virtual hosts, kept as RabbitMQ's tools set them.",
)
