"""The schema of the store: every table and column of `howdah`, once, with what each is for.

The comments here are those in the database. Functions, views and roles are SQL files elsewhere.
"""

from __future__ import annotations

import re
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Index,
    Integer,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA, INT8MULTIRANGE, JSONB, UUID

from queue_core.store.schema_access import (
    permission,
    secret,
    topic_permission,
    user,
    vhost,
    view_key,
)
from queue_core.store.schema_activity import consumer, queue_activity
from queue_core.store.schema_columns import (
    NOW,
    SCHEMA,
    Timestamp,
    cascade,
    delayed_index,
    identity,
    metadata,
    optional,
    required,
    stored_as_is,
    tuned,
    vhost_column,
)
from queue_core.store.schema_etl import archive_mark, etl_checkpoint
from queue_core.store.schema_imports import definitions_import
from queue_core.store.schema_losses import MARK_TABLE, commit_mark, log_end, loss, ownership
from queue_core.store.schema_nodes import node
from queue_core.store.schema_policies import global_parameter, parameter, policy
from queue_core.store.schema_shards import (
    journal_generation,
    segment_owner_columns,
    shard,
    shard_column,
)

__all__ = [
    "SCHEMA",
    "VERSION_TABLE",
    "Timestamp",
    "archive_mark",
    "commit_mark",
    "consumer",
    "definitions_import",
    "etl_checkpoint",
    "global_parameter",
    "journal_generation",
    "log_end",
    "loss",
    "metadata",
    "node",
    "ownership",
    "parameter",
    "permission",
    "policy",
    "queue_activity",
    "secret",
    "shard",
    "topic_permission",
    "user",
    "vhost",
    "view_key",
]

VERSION_TABLE: Final = "alembic_version"

# Tables that grow by whole partitions: leaves are named <table>_<number>.
LOG_TABLES: Final = ("message", "message_body")
JOURNAL_TABLES: Final = ("settlement", "redelivery", "deduplication", "packet")
_LEAF: Final = re.compile(rf"({'|'.join((*LOG_TABLES, *JOURNAL_TABLES, MARK_TABLE))})_[0-9]+")


def is_leaf(table_name: str) -> bool:
    """Tells whether a table is a partition, made and dropped while the gateway runs."""
    return _LEAF.fullmatch(table_name) is not None


def content_columns() -> list[Column[Any]]:
    """Makes the columns of what a message says, wherever one is kept: log, outbox, will,
    retained."""
    return [
        optional("expires_at", Timestamp, "When it is worth nothing any more; null: never."),
        optional("priority", SmallInteger, "0 to 255 as published; null: none given."),
        required("durable", Boolean, "Publisher asked for it to survive a restart."),
        required("exchange", Text, "Exchange published to; empty: the default exchange."),
        required("routing_key", Text, "Routing key in dot form; the MQTT topic, rewritten."),
        optional("content_type", Text, "MIME type of the body."),
        optional("content_encoding", Text, "Encoding of the body, such as gzip."),
        optional("message_id", Text, "Identifier given by the publisher, as text."),
        optional("correlation_id", Text, "What the message answers or belongs to, as text."),
        optional("reply_to", Text, "Where to send the answer."),
        optional("subject", Text, "Subject (AMQP 1.0) or type (AMQP 0.9.1)."),
        optional("app_id", Text, "Application that published, by its own word."),
        optional("user_id", Text, "User that published, checked against the login."),
        optional("group_id", Text, "Group that the message belongs to."),
        optional("created_at", Timestamp, "When the publisher says it made the message."),
        optional("headers", JSONB, "Application headers by name; the first of a repeated name."),
        optional("publisher", Text, "Who published, stamped by the gateway; cannot be forged."),
        required(
            "form",
            SmallInteger,
            "Encoding of native: 0 none, 1 MQTT 3.x, 2 MQTT 5, 3 AMQP 0.9.1, 4 AMQP 1.0; "
            "see protocol_name().",
            server_default=text("0"),
        ),
        optional(
            "native",
            BYTEA,
            "Properties as the publisher encoded them: a consumer of the same protocol gets them "
            "byte for byte.",
        ),
        optional("body", BYTEA, "The payload."),
    ]


# ------------------------------------------------------------------------------- definitions

gateway = Table(
    "gateway",
    metadata,
    Column(
        "id",
        Integer,
        CheckConstraint("id = 1", name="only_row"),
        primary_key=True,
        autoincrement=False,
        comment="Always 1.",
    ),
    required("epoch", BigInteger, "Counts the gateways that have owned this database."),
    optional("node", Text, "Name of the gateway that owns it now, or did last."),
    optional("started_at", Timestamp, "When the owner took over."),
    optional(
        "max_message_size",
        BigInteger,
        "Largest message in bytes that the owner takes; null: no gateway has said so yet.",
    ),
    optional(
        "lineage",
        UUID,
        "Names this database and its copies, whatever their server; null: no gateway has owned it "
        "yet.",
    ),
    comment="The gateway that owns this database: one row.",
)

exchange = Table(
    "exchange",
    metadata,
    vhost_column(),
    required("name", Text, "Name; the amq.* exchanges need no row."),
    required(
        "kind",
        Text,
        "How it routes: direct, topic, fanout, headers, or an x- type such as x-delayed-message.",
    ),
    required("auto_delete", Boolean, "Goes with its last binding."),
    required("internal", Boolean, "Takes messages from other exchanges only."),
    required(
        "arguments", JSONB, "Arguments as declared, word for word.", server_default=text("'{}'")
    ),
    required("created_at", Timestamp, "When it was declared.", server_default=NOW),
    PrimaryKeyConstraint("vhost", "name"),
    comment="Durable exchanges.",
)

queue = Table(
    "queue",
    metadata,
    identity(BigInteger, "Names the queue in the log and the journal; never used again."),
    vhost_column(),
    required("name", Text, "Name."),
    required(
        "kind",
        Text,
        "classic: each message to one consumer; stream: a log that many read.",
        CheckConstraint("kind IN ('classic', 'stream')", name="kind"),
    ),
    required(
        "arguments", JSONB, "Arguments as declared, word for word.", server_default=text("'{}'")
    ),
    optional("created_by", Text, "User that declared it."),
    required("created_at", Timestamp, "When it was declared.", server_default=NOW),
    optional(
        "paused_at", Timestamp, "Since when nothing is delivered from it; null: it is not paused."
    ),
    shard_column("Shard that it belongs to, with its messages and its journal."),
    UniqueConstraint("vhost", "name"),
    comment="Durable queues.",
)

binding = Table(
    "binding",
    metadata,
    identity(BigInteger, "Row number."),
    vhost_column(),
    required("source", Text, "Exchange that messages come from."),
    required(
        "destination_kind",
        Text,
        "queue or exchange.",
        CheckConstraint("destination_kind IN ('queue', 'exchange')", name="destination_kind"),
    ),
    required("destination", Text, "Queue or exchange that they go to."),
    required("routing_key", Text, "Key or pattern in dot form."),
    required("arguments", JSONB, "Arguments of the binding.", server_default=text("'{}'")),
    optional("options", JSONB, "What a subscriber's protocol asked for, such as granted QoS."),
    # A routing key may be longer than an index entry, so its digest stands in for it.
    Index(
        "binding_key",
        "vhost",
        "source",
        "destination_kind",
        "destination",
        text("md5(routing_key)"),
        text("md5(arguments::text)"),
        unique=True,
    ),
    Index("binding_destination_idx", "vhost", "destination_kind", "destination"),
    comment="Which exchanges feed which queues and exchanges.",
)

session = Table(
    "session",
    metadata,
    identity(BigInteger, "Names the session in packet; never used again."),
    vhost_column(),
    required("client_id", Text, "Client identifier, or container and link name."),
    optional("user_name", Text, "User that owns the session."),
    required("protocol", Text, "Protocol that it was opened with."),
    optional("expiry_seconds", BigInteger, "How long it outlives its connection; null: forever."),
    optional("queue_name", Text, "Queue that keeps messages while the client is away."),
    required(
        "state",
        Text,
        "connected or disconnected.",
        CheckConstraint("state IN ('connected', 'disconnected')", name="state"),
    ),
    optional("connected_at", Timestamp, "When it was last connected."),
    optional("disconnected_at", Timestamp, "When it was last disconnected; expiry counts from it."),
    shard_column("Shard that it belongs to, as its queue and its will."),
    UniqueConstraint("vhost", "client_id"),
    comment="Sessions that outlive their connection.",
)

subscription = Table(
    "subscription",
    metadata,
    required("session_id", BigInteger, "Session that subscribed.", cascade("session.id")),
    required("filter", Text, "Topic filter as subscribed."),
    required("qos", SmallInteger, "Granted QoS."),
    required("no_local", Boolean, "Not to the client that published."),
    required("retain_as_published", Boolean, "Retain flag is passed on."),
    required("retain_handling", SmallInteger, "When retained messages are sent: 0, 1 or 2."),
    optional("identifier", Integer, "Subscription identifier."),
    optional("options", JSONB, "Everything else the subscriber asked for."),
    required("created_at", Timestamp, "When it was made.", server_default=NOW),
    PrimaryKeyConstraint("session_id", "filter"),
    comment="Subscriptions of sessions that outlive their connection.",
)

will = Table(
    "will",
    metadata,
    vhost_column(),
    required("client_id", Text, "Client whose will it is."),
    required("delay_seconds", BigInteger, "How long after the connection is lost."),
    optional("due_at", Timestamp, "When to publish it; null while the client is connected."),
    required("retain", Boolean, "Published as a retained message."),
    required("qos", SmallInteger, "Published with this QoS."),
    optional("lifetime_seconds", BigInteger, "Expires so long after publishing; null: never."),
    *content_columns(),
    optional("user_name", Text, "User whose will it is; null: nobody's, it is dropped."),
    optional("is_built_in", Boolean, "User is guest or anonymous by the configuration."),
    shard_column("Shard that it belongs to, as the session of its client."),
    PrimaryKeyConstraint("vhost", "client_id"),
    comment="Messages to publish when a client is lost.",
)

retained = Table(
    "retained",
    metadata,
    vhost_column(),
    required("topic", Text, "Topic in slash form."),
    required("qos", SmallInteger, "QoS that it was published with."),
    required("retained_at", Timestamp, "When it became the topic's last value."),
    *content_columns(),
    shard_column("Shard that it belongs to."),
    PrimaryKeyConstraint("vhost", "topic"),
    comment="Last message of each topic, for those who subscribe later.",
)

# --------------------------------------------------------------------------------------- log

segment = Table(
    "segment",
    metadata,
    identity(Integer, "Number of the partitions message_<id> and message_body_<id>."),
    optional("queue_id", BigInteger, "Stream that owns it; null: shared by all classic queues."),
    required("created_at", Timestamp, "When it was opened.", server_default=NOW),
    optional("sealed_at", Timestamp, "When it was closed for writing; null: still open."),
    required("messages", BigInteger, "Rows in it, known when sealed.", server_default=text("0")),
    required("bytes", BigInteger, "Bytes in it, known when sealed.", server_default=text("0")),
    optional("newest_at", Timestamp, "Time of its newest message, known when sealed."),
    optional(
        "retired_at",
        Timestamp,
        "Since when nobody needs it, while a reader keeps it from being dropped; null: needed, "
        "or dropped at once.",
    ),
    optional("archive", Text, "Where a copy was archived; null: nowhere."),
    *segment_owner_columns(),
    comment="Segments of the log: one partition of message and one of message_body each.",
)

message = Table(
    "message",
    metadata,
    required("segment_id", Integer, "Segment that it lies in; partition key."),
    required("queue_id", BigInteger, "Queue that it is in."),
    required("offset", BigInteger, "Place in the queue: without gaps, in order of commit."),
    required("enqueued_at", Timestamp, "When it entered this queue."),
    optional("not_before", Timestamp, "Not delivered before; null: at once."),
    optional(
        "deaths",
        JSONB,
        "Where it was dead-lettered, newest first: queue, reason, count, time (Unix seconds), "
        "exchange, routing_keys.",
    ),
    optional("delivery", JSONB, "What the subscriber's protocol needs for this copy."),
    optional("body_id", BigInteger, "The body is in message_body; null: it is here."),
    *content_columns(),
    PrimaryKeyConstraint("queue_id", "offset", "segment_id"),
    delayed_index("message"),
    comment="The log: every message in every durable queue. Inserted, never updated; segments are "
    "dropped whole. What is settled says settlement; see ready_messages.",
    postgresql_partition_by="LIST (segment_id)",
)

message_body = Table(
    "message_body",
    metadata,
    required("segment_id", Integer, "Segment that it lies in; partition key."),
    required("id", BigInteger, "What message.body_id refers to."),
    required("body", BYTEA, "The payload."),
    PrimaryKeyConstraint("id", "segment_id"),
    comment="Large bodies routed to several queues, once a segment.",
    postgresql_partition_by="LIST (segment_id)",
)

# ----------------------------------------------------------------------------------- journal


def _journal(name: str, *columns: Any, comment: str, owner: str = "queue") -> Table:
    generation = f"Generation; partition key. Only that of the {owner}'s shard counts."
    return Table(
        name,
        metadata,
        required("generation", Integer, generation),
        *columns,
        comment=comment,
        postgresql_partition_by="LIST (generation)",
    )


def _written_at() -> Column[Any]:
    return required("written_at", Timestamp, "When the row was written.", server_default=NOW)


settlement = _journal(
    "settlement",
    required("seq", BigInteger, "Order of the rows, numbered by the gateway."),
    required("queue_id", BigInteger, "Queue."),
    required("group_name", Text, "Consumer group of a stream; empty for a classic queue."),
    required("floor", BigInteger, "All offsets below are settled."),
    required(
        "acked",
        INT8MULTIRANGE,
        "Offsets settled above the floor, since the row before or, if is_full, in all.",
        server_default=text("'{}'"),
    ),
    required("is_full", Boolean, "Rows before this one do not count any more."),
    required(
        "handed_out",
        BigInteger,
        "Offsets below may have been delivered; after a crash they are flagged as redelivered.",
        server_default=text("0"),
    ),
    _written_at(),
    PrimaryKeyConstraint("queue_id", "group_name", "seq", "generation"),
    comment="What is settled, one row per group and flush. State of a group: from its newest full "
    "row on, the highest floor and the union of acked; see settlement_state.",
)

redelivery = _journal(
    "redelivery",
    required("queue_id", BigInteger, "Queue."),
    required("offset", BigInteger, "Message whose delivery failed."),
    required("count", Integer, "How often it failed; the highest row counts."),
    optional("not_before", Timestamp, "Not delivered again before; null: at once."),
    optional("reason", Text, "Why the delivery failed."),
    _written_at(),
    required(
        "amended",
        Integer,
        "Tells rows of the same count apart: one more each time a consumer adds something to the "
        "message, or releases it for a later time.",
        server_default=text("0"),
    ),
    optional(
        "amendment",
        BYTEA,
        "All that consumers added to the message; null: nothing. The row with the highest "
        "amended counts.",
    ),
    PrimaryKeyConstraint("queue_id", "offset", "count", "amended", "generation"),
    delayed_index("redelivery"),
    comment="Deliveries that failed.",
)

deduplication = _journal(
    "deduplication",
    required("queue_id", BigInteger, "Queue."),
    required("message_id", Text, "Message identifier that was taken."),
    required("seen_at", Timestamp, "When it was taken."),
    PrimaryKeyConstraint("queue_id", "message_id", "seen_at", "generation"),
    comment="Message identifiers that a queue has seen within its window.",
)

packet = _journal(
    "packet",
    required("seq", BigInteger, "Order of the rows, numbered by the gateway."),
    required("session_id", BigInteger, "Session."),
    required("direction", SmallInteger, "0: from the client, 1: to the client."),
    required("packet_id", Integer, "MQTT packet identifier."),
    required("state", SmallInteger, "Where the exchange stands; the newest row counts."),
    optional("queue_id", BigInteger, "Queue of the message in flight."),
    optional("offset", BigInteger, "Offset of the message in flight."),
    _written_at(),
    PrimaryKeyConstraint("session_id", "direction", "packet_id", "seq", "generation"),
    comment="MQTT packet identifiers in flight, so that QoS 2 survives a restart.",
    owner="session",
)

# ------------------------------------------------------------------------------ work from SQL

outbox = Table(
    "outbox",
    metadata,
    identity(BigInteger, "What publish() returned."),
    required("vhost", Text, "Virtual host to publish in."),
    optional("not_before", Timestamp, "Not delivered before; null: at once."),
    required(
        "retain",
        Boolean,
        "Becomes the last value of its topic as well.",
        server_default=text("false"),
    ),
    required("requested_by", Text, "Login that called publish()."),
    required("inserted_at", Timestamp, "When it was inserted.", server_default=NOW),
    *content_columns(),
    optional(
        "waiting_for",
        ARRAY(Text),
        "Full queues that it still has to enter; null: the gateway has not looked at it yet.",
    ),
    Index("outbox_waiting_idx", "id", postgresql_where=text("waiting_for IS NOT NULL")),
    comment="Messages published from SQL; the gateway takes committed rows away, exactly once.",
)

command = Table(
    "command",
    metadata,
    identity(BigInteger, "What the function that asked for it returned."),
    required("kind", Text, "What is asked for, such as purge or redrive."),
    required("vhost", Text, "Virtual host of the queue."),
    required("queue", Text, "Queue that it is about."),
    required("argument", JSONB, "What else the gateway must know.", server_default=text("'{}'")),
    required("requested_by", Text, "Login that asked for it."),
    required("requested_at", Timestamp, "When it was asked for.", server_default=NOW),
    optional("done_at", Timestamp, "When it was done or had failed; null: not yet."),
    optional("result", JSONB, "What came of it."),
    optional("error", Text, "Why it failed; null: it did not."),
    Index("command_open_idx", "id", postgresql_where=text("done_at IS NULL")),
    comment="What people asked the gateway to do, through purge(), redrive() and their like.",
)

for _table in (message, message_body, will, retained, outbox):
    stored_as_is(_table)
# Rows here live for milliseconds; a small table must not wait for a fifth of it to be dead.
tuned(outbox, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000)
