"""The gateway's word of itself over HTTP: readiness, depths of queues, its log."""

from __future__ import annotations

import aiohttp

from tests.support.gateway_process import GatewayProcess
from tests.support.until import PATIENCE_SECONDS, until

TIMEOUT = aiohttp.ClientTimeout(PATIENCE_SECONDS)


async def readiness(gateway: GatewayProcess) -> tuple[int, str]:
    """The status of /health/ready, and its words."""
    async with (
        aiohttp.ClientSession(timeout=TIMEOUT) as session,
        session.get(gateway.http_url("/health/ready")) as answer,
    ):
        return answer.status, await answer.text()


async def until_ready(gateway: GatewayProcess, status: int = 200) -> str:
    """Waits until it answers with that status; its words."""
    found, words = 0, ""

    async def is_so() -> bool:
        nonlocal found, words
        found, words = await readiness(gateway)
        return found == status

    await until(is_so, lambda: f"/health/ready is {status}: it is {found}\n{gateway.said()}")
    return words


async def until_said(gateway: GatewayProcess, words: str) -> None:
    """Waits until its log has these words."""
    await until(lambda: words in gateway.log(), lambda: f"'{words}' is in\n{gateway.log()}")


async def depths(gateway: GatewayProcess) -> dict[str, int]:
    """How many messages each queue has, in flight or not."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(gateway.http_url("/api/queues")) as answer,
    ):
        return {queue["name"]: queue["messages"] for queue in await answer.json()}


async def until_empty(gateway: GatewayProcess, seconds: float = PATIENCE_SECONDS) -> None:
    """Waits until every message has left its queue."""
    found: dict[str, int] = {}

    async def is_empty() -> bool:
        nonlocal found
        found = await depths(gateway)
        return not any(found.values())

    await until(
        is_empty, lambda: f"every queue is empty: there is {found}\n{gateway.said()}", seconds
    )
