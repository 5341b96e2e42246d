"""Crashes of the gateway, as its clients' history knows them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from tests.faults.history import Calm, Fault, History
from tests.support.gateway_process import GatewayProcess


async def crash(gateway: GatewayProcess, history: History) -> None:
    """Killed at once, and started again by whoever looks after it."""
    history.add(Fault("kill -9 of the gateway"))
    await asyncio.to_thread(gateway.kill)
    history.add(Fault("the gateway is gone"))
    await asyncio.to_thread(gateway.restart)
    history.add(Calm())


async def crash_while_starting(gateway: GatewayProcess, history: History, seconds: float) -> None:
    """Killed, started, killed again before or just after it serves, and started for good."""
    history.add(Fault("kill -9 of the gateway"))
    await asyncio.to_thread(gateway.kill)
    gateway.spawn()
    await asyncio.sleep(seconds)  # any moment of a start will do
    history.add(Fault("kill -9 of the gateway while it starts"))
    await crash(gateway, history)


def rounds(count: int, *, seconds: float) -> Iterator[int]:
    """So many, or fewer on a machine that takes too long for them."""
    end = time.monotonic() + seconds
    for number in range(count):
        if time.monotonic() > end:
            return
        yield number
