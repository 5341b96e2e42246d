"""What the gateway says of itself over HTTP."""

from __future__ import annotations

import asyncio

import aiohttp

from tests.support.gateway_process import GatewayProcess


async def readiness(gateway: GatewayProcess) -> tuple[int, str]:
    """The status of /health/ready, and its words."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(gateway.http_url("/health/ready")) as answer,
    ):
        return answer.status, await answer.text()


async def until_ready(gateway: GatewayProcess, status: int = 200, seconds: float = 20) -> str:
    """Waits until it answers with that status; its words."""
    found, words = 0, ""
    try:
        async with asyncio.timeout(seconds):
            while found != status:
                found, words = await readiness(gateway)
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(
            f"/health/ready is {found}, not {status}, after {seconds} s:\n{gateway.said()}"
        ) from None
    return words


async def until_said(gateway: GatewayProcess, words: str, seconds: float = 20) -> None:
    """Waits until its log has these words."""
    said = ""
    try:
        async with asyncio.timeout(seconds):
            while True:
                said = gateway.log()
                if words in said:
                    return
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"it did not say '{words}' in {seconds} s:\n{said}") from None


async def depths(gateway: GatewayProcess) -> dict[str, int]:
    """How many messages each queue has, in flight or not."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(gateway.http_url("/api/queues")) as answer,
    ):
        return {
            queue["name"]: queue["ready"] + queue["in_flight"] + queue["delayed"]
            for queue in await answer.json()
        }


async def until_empty(gateway: GatewayProcess, seconds: float = 30) -> None:
    """Waits until every message has left its queue."""
    found: dict[str, int] = {}
    try:
        async with asyncio.timeout(seconds):
            while True:
                found = await depths(gateway)
                if not any(found.values()):
                    return
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"after {seconds} s there is {found}:\n{gateway.said()}") from None
