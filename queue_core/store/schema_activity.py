"""Tables of what only a running gateway's memory knows, noted for people: see `drop_segments` and
`consumer_status`."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Integer, Table, Text
from sqlalchemy.dialects.postgresql import ARRAY, INT8MULTIRANGE, JSONB

from queue_core.store.schema_columns import Timestamp, cascade, metadata, optional, required, tuned

queue_activity = Table(
    "queue_activity",
    metadata,
    required("queue_id", BigInteger, "Queue.", cascade("queue.id"), primary_key=True),
    required("in_flight", BigInteger, "Delivered, not settled yet."),
    required("consumers", Integer, "Consumers attached."),
    required("noted_at", Timestamp, "When the gateway noted this."),
    comment="What only the gateway's memory knows of a queue, noted every few seconds.",
)

consumer = Table(
    "consumer",
    metadata,
    Column(
        "number",
        BigInteger,
        primary_key=True,
        autoincrement=False,
        comment="Tells consumers of one gateway apart.",
    ),
    required("epoch", BigInteger, "Epoch of the gateway that noted it; others do not count."),
    required("queue_id", BigInteger, "Queue."),
    optional(
        "group_name",
        Text,
        "Consumer group of a stream, empty for a classic queue; null: a position of its own.",
    ),
    required("tag", Text, "Consumer tag, link name or subscription."),
    required("state", Text, "active, waiting, paused or cancelled."),
    required("protocol", Text, "Protocol and version."),
    required("user_name", Text, "User of the gateway."),
    required("client", Text, "Name that the client has for itself."),
    required("address", Text, "Where it is connected from."),
    required("arguments", JSONB, "Arguments as given, word for word."),
    optional("prefetch", Integer, "Messages that it takes at once; null: no limit of its own."),
    optional("credit", Integer, "Messages that it would take now; null: no limit."),
    required("priority", Integer, "Those with a higher one are served first."),
    required("is_exclusive", Boolean, "It is the only one, by its own wish."),
    required("auto_settle", Boolean, "Messages are settled by being delivered."),
    required("since", Timestamp, "When it began."),
    required("in_flight", BigInteger, "Messages delivered to it and not settled."),
    required("held", ARRAY(INT8MULTIRANGE), "Offsets of the oldest of them."),
    required("held_since", ARRAY(Timestamp), "Since when those at the same place are there."),
    required("noted_at", Timestamp, "When the gateway noted this."),
    comment="Consumers of durable queues, as the running gateway notes them; see consumer_status "
    "and in_flight.",
    prefixes=["UNLOGGED"],
)
# Always updated in place; room on the page keeps its index out of it.
for _table in (queue_activity, consumer):
    tuned(_table, fillfactor=50)
