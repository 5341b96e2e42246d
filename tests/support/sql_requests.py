"""Requests of SQL to a running gateway: messages and commands, and what came of them."""

from __future__ import annotations

import json

import asyncpg

from tests.support.until import until_true


async def publish(db: asyncpg.Connection, queue: str, body: str, exchange: str = "") -> None:
    statement = "SELECT howdah.publish($1, $2::text, exchange => $3, mandatory => false)"
    await db.fetchval(statement, queue, body, exchange)


async def outcome(db: asyncpg.Connection, statement: str, *arguments: object) -> dict[str, object]:
    """Runs a function that asks for something, and waits for what came of it."""
    command = await db.fetchval(statement, *arguments)
    await final_state(db, command)
    row = await db.fetchrow("SELECT result, error FROM howdah.command_status($1)", command)
    assert row is not None
    if row["error"] is not None:
        return {"error": row["error"]}
    found: dict[str, object] = json.loads(row["result"])
    return found


async def final_state(db: asyncpg.Connection, command: int) -> str:
    """Waits until the gateway has done a command or failed to; returns that state."""
    await until_true(db, "SELECT state <> 'waiting' FROM howdah.command_status($1)", command)
    state: str = await db.fetchval("SELECT state FROM howdah.command_status($1)", command)
    return state
