"""The tables of the Spark jobs: how far they are, and what waits for them. They are part of the
schema, which names all others.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, PrimaryKeyConstraint, Table, Text, text

from queue_core.store.schema_columns import NOW, Timestamp, metadata, required

etl_checkpoint = Table(
    "etl_checkpoint",
    metadata,
    required("job", Text, "export or replay."),
    required("target", Text, "Where it writes to: a directory, or the name of a replay."),
    required("queue_id", BigInteger, "Queue that it reads."),
    required("offset", BigInteger, "All up to this offset is done; -1: nothing."),
    required("messages", BigInteger, "Messages done so far.", server_default=text("0")),
    required("changed_at", Timestamp, "When it last moved.", server_default=NOW),
    required("changed_by", Text, "Login that moved it.", server_default=text("CURRENT_USER")),
    PrimaryKeyConstraint("job", "target", "queue_id"),
    comment="How far each Spark job has come: one row per job, target and queue.",
)

archive_mark = Table(
    "archive_mark",
    metadata,
    Column(
        "queue_id",
        BigInteger,
        primary_key=True,
        autoincrement=False,
        comment="Stream whose segments are kept; 0: those that the classic queues share.",
    ),
    required("marked_at", Timestamp, "When it was marked.", server_default=NOW),
    required("marked_by", Text, "Login that marked it."),
    comment="Logs whose segments are kept until segment.archive says where a copy is; see "
    "keep_for_archive().",
)
