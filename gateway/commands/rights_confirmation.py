"""Confirmation of changed rights: a change is in force when its command returns, or the command
says why it is not.

Answers for waiting for the running gateway's word. It must not know what was changed.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gateway.commands.command import CommandError
from gateway.commands.database import engine_for
from gateway.config.keys import Config

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

NO_GATEWAY = "no gateway is running: this counts from its next start"
NO_ANSWER = (
    "the change is made, but the running gateway has not confirmed it: it goes on by what it knew "
    "until it reaches its database again; see its log, and `howdah doctor`"
)


@asynccontextmanager
async def changing(config: Config, *, make: bool = False) -> AsyncIterator[AsyncEngine]:
    """Yields an engine for one change, and waits at the end until the gateway acts by it. Raises
    CommandError where it does not."""
    async with engine_for(config, make=make) as engine:
        yield engine
        from queue_core.store.tables.rights_changes import Confirmation, confirmed

        found = await confirmed(engine)
    if found is Confirmation.NO_GATEWAY:
        print(NO_GATEWAY, file=sys.stderr)
    elif found is Confirmation.NO_ANSWER:
        raise CommandError(NO_ANSWER)
