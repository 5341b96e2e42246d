"""The tables that tell what a database has lost: marks of commits, who owned it, losses, and where
each log ends. They are part of the schema, which names all others.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, Index, Integer, Table, Text, text

from queue_core.store.schema_columns import NOW, Timestamp, identity, metadata, optional, required

MARK_TABLE: Final = "commit_mark"  # grows by a partition with each generation of the journal

loss = Table(
    "loss",
    metadata,
    identity(BigInteger, "Row number."),
    required("noted_at", Timestamp, "When it was noticed.", server_default=NOW),
    required(
        "cause",
        Text,
        "setback: the database went back in time; unproven: it may have, and nobody can tell; "
        "torn: a table was taken away; repair: found by repair().",
    ),
    optional("vhost", Text, "Virtual host; null: it concerns no queue."),
    optional("queue", Text, "Name of the queue; null: it concerns no queue."),
    optional("queue_id", BigInteger, "Queue; null: it concerns no queue."),
    optional("first_offset", BigInteger, "First offset that has no message; null: no offsets."),
    optional("end_offset", BigInteger, "First offset behind it that may have one again."),
    required("detail", Text, "What was lost, or cannot be proven not to be, for people."),
    Index("loss_queue_idx", "queue_id", postgresql_where=text("queue_id IS NOT NULL")),
    comment="What was confirmed and is not in the tables any more: after a failover to a standby "
    "that was behind, a restore, or a partition that somebody dropped. Its offsets are not given "
    "again.",
)

log_end = Table(
    "log_end",
    metadata,
    Column("queue_id", BigInteger, primary_key=True, autoincrement=False, comment="Queue."),
    required("noted", BigInteger, "Offsets below were given to messages, for certain."),
    required("reserved", BigInteger, "Offsets from here on were given to none."),
    required("noted_at", Timestamp, "When it was written.", server_default=NOW),
    comment="How far the offsets of each queue had come, beside the partitions that hold its "
    "messages: it survives them.",
)

ownership = Table(
    "ownership",
    metadata,
    Column(
        "epoch",
        BigInteger,
        primary_key=True,
        autoincrement=False,
        comment="Counts the gateways that have owned this database.",
    ),
    required("started_at", Timestamp, "When it took over."),
    required("node", Text, "Name of the gateway."),
    required("server", Text, "System identifier of the PostgreSQL cluster; empty: unknown."),
    required("database", BigInteger, "OID of the database there."),
    required(
        "timeline",
        BigInteger,
        "Timeline of the cluster, which grows with each failover; 0: unknown.",
    ),
    required("last_commit", BigInteger, "Number of the newest commit that it found."),
    required("messages", BigInteger, "Offsets that all commits up to that one had given."),
    optional("last_commit_at", Timestamp, "When that commit was made; null: there was none."),
    comment="The gateways that have owned this database, the newest thousand: who, when, on which "
    "server and timeline, and how far the commits of those before had come.",
)

commit_mark = Table(
    MARK_TABLE,
    metadata,
    required("generation", Integer, "Generation of the journal; partition key."),
    required("number", BigInteger, "Number of the commit, given by the gateway."),
    required(
        "messages",
        BigInteger,
        "Offsets that were given to messages by all commits up to this one, of all queues "
        "together.",
    ),
    required("committed_at", Timestamp, "When the transaction began.", server_default=NOW),
    comment="One row for each commit of a gateway, of the newest two generations: a commit whose "
    "row is missing was lost. Has no index: it is written at each commit, and read after a "
    "reconnect.",
    postgresql_partition_by="LIST (generation)",
)
