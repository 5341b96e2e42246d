"""Every line of SQL in the DBA guide runs as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

import asyncpg

from migrations.statements import split
from tests.support.postgres import on_stock_too
from tests.support.seed import append, change, death, make_queue, make_segment

pytestmark = on_stock_too

GUIDE = Path(__file__).parents[2] / "docs" / "dba.md"
SQL = re.compile(r"^```sql\n(.*?)^```$", re.MULTILINE | re.DOTALL)


async def test_every_example_in_the_dba_guide_runs(db: asyncpg.Connection) -> None:
    """In one transaction that is rolled back: logins belong to the whole server."""
    for name in ("orders", "orders.dead", "audit"):
        queue, segment = await make_queue(db, name), await make_segment(db)
        await append(db, segment, queue, range(3))
        await change(
            db, queue, 1, deaths=[death("orders")], body=b'{"id": 1}', headers={"region": "eu"},
            content_type="application/json",
        )  # fmt: skip
    examples = SQL.findall(GUIDE.read_text(encoding="utf-8"))
    assert len(examples) >= 15
    transaction = db.transaction()
    await transaction.start()
    for example in examples:
        for statement in split(example):
            if statement not in ("BEGIN", "COMMIT"):
                await db.execute(statement)
    published = "SELECT array_agg(routing_key ORDER BY id) FROM howdah.outbox"
    assert await db.fetchval(published) == [
        "orders",
        "orders",
        "invoice.created",
        "plant.7.setpoint",
        "orders",
        "amq.gen-answers",
    ]
    kinds = "SELECT array_agg(kind ORDER BY id) FROM howdah.command"
    assert await db.fetchval(kinds) == [
        "declare_queue",
        "bind",
        "bind",
        "unbind",
        "redrive",
    ]
    await transaction.rollback()


async def test_the_guide_names_every_table_view_role_and_public_function(
    db: asyncpg.Connection,
) -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    rows = await db.fetch(
        "SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'howdah'::regnamespace "
        "AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition "
        "UNION SELECT p.proname FROM pg_proc p JOIN LATERAL aclexplode(p.proacl) a ON true "
        "WHERE p.pronamespace = 'howdah'::regnamespace "
        "AND a.grantee IN ('howdah_operator'::regrole, 'howdah_publisher'::regrole) "
        "AND obj_description(p.oid, 'pg_proc') NOT LIKE '%Internal%' "
        "UNION SELECT rolname FROM pg_roles WHERE rolname LIKE 'howdah\\_%'"
    )
    assert [name for (name,) in rows if not re.search(rf"\b{name}\b", guide)] == []
