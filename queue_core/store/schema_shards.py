"""The tables of shards and of the journal's generations, and the column by which a row belongs to a
shard. They are part of the schema, which names all others.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Identity,
    Integer,
    SmallInteger,
    Table,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from queue_core.store.schema_columns import NOW, Timestamp, metadata, optional, required, tuned

IN_RANGE: Final = "BETWEEN 0 AND 63"  # there are 64 shards, always

shard = Table(
    "shard",
    metadata,
    Column(
        "id",
        SmallInteger,
        CheckConstraint(f"id {IN_RANGE}", name="id"),
        primary_key=True,
        autoincrement=False,
        comment="Number; see shard_of().",
    ),
    optional(
        "node_id",
        Integer,
        "Node that owns it, and alone writes what belongs to it; null: no gateway has owned it "
        "yet.",
    ),
    required("epoch", BigInteger, "Counts its owners.", server_default=text("0")),
    required(
        "generation",
        Integer,
        "Generation of the journal that counts for it: of the owner before, until the owner has "
        "adopted it.",
    ),
    comment="Parts of all that is durable, always 64: whose each is, and which generation of the "
    "journal counts for it.",
)
tuned(shard, fillfactor=50)

journal_generation = Table(
    "journal_generation",
    metadata,
    Column(
        "number",
        Integer,
        Identity(always=True),
        primary_key=True,
        comment="Number of its partitions, such as settlement_<number>; of all nodes together, and "
        "never used again.",
    ),
    optional(
        "node_id", Integer, "Node that writes it, or did; null: a gateway of a release before."
    ),
    required("opened_at", Timestamp, "When it was opened.", server_default=NOW),
    comment="Generations of the journal that have partitions; one that no shard names is dropped.",
)


def shard_column(comment: str) -> Column[Any]:
    """Makes the column that says to which shard a row belongs."""
    in_range = CheckConstraint(f"shard {IN_RANGE}", name="shard")
    return required("shard", SmallInteger, comment, in_range)


def segment_owner_columns() -> tuple[Column[Any], ...]:
    """Makes the columns that say who writes a segment, and who may need it."""
    return (
        optional(
            "node_id",
            Integer,
            "Node that writes it, or did last; null: a gateway of a release before.",
        ),
        optional(
            "needed_by",
            ARRAY(SmallInteger),
            "Shards that may have messages in it; null: it is open, and shared by those of its "
            "node.",
        ),
    )
