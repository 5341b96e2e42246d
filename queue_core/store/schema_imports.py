"""The table of imports of definitions files. It is part of the schema, which names all others."""

from __future__ import annotations

from sqlalchemy import BigInteger, Integer, Table, Text
from sqlalchemy.dialects.postgresql import JSONB

from queue_core.store.schema_columns import NOW, Timestamp, identity, metadata, optional, required

definitions_import = Table(
    "definitions_import",
    metadata,
    identity(BigInteger, "Row number."),
    required("imported_at", Timestamp, "When it was imported.", server_default=NOW),
    required("source", Text, "Where it came from: start, HTTP or command."),
    optional("imported_by", Text, "User who imported it; null: the operating system knows."),
    required("sha256", Text, "SHA-256 of the file, in hexadecimal."),
    required("made", Integer, "Items that were new."),
    required("changed", Integer, "Items that were changed."),
    required("left_out", JSONB, "What was not taken, and why, a text for each."),
    comment="Imports of definitions files, the newest thousand. A file that is unchanged since the "
    "last start is not imported again.",
)
