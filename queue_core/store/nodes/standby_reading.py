"""What a standby reads before it is needed."""

from __future__ import annotations

import logging

import asyncpg
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from queue_core.access.accounts import Roll
from queue_core.store.primary import connect_to_primary
from queue_core.store.tables.definitions import DefinitionStore
from queue_core.store.tables.users import StoredRoll

log = logging.getLogger(__name__)


async def read_ahead(url: str) -> Roll:
    """Reads all definitions, so that whatever keeps this node from taking them over is known now,
    and statements are prepared. They are read again at the takeover: they change meanwhile.
    Returns who may come in."""

    async def connect(*_arguments: object, **_options: object) -> asyncpg.Connection:
        settings = {"application_name": "howdah gateway"}
        return await connect_to_primary(url, server_settings=settings)

    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=connect, poolclass=NullPool, hide_parameters=True
    )
    store = DefinitionStore(engine)
    try:
        found = await store.load()
        roll = await StoredRoll(engine).read()
    finally:
        await store.close()
        await engine.dispose()
    log.info(
        "definitions read: %d virtual hosts, %d exchanges, %d queues, %d bindings",
        len(found.vhosts),
        len(found.exchanges),
        len(found.queues),
        len(found.bindings),
    )
    return roll
