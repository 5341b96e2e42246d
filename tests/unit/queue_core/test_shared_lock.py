"""A lock that many may hold together, or one alone."""

from __future__ import annotations

import asyncio

import pytest

from queue_core.shared_lock import SharedLock


class Room:
    """Notes who is in, and in which order they came."""

    def __init__(self) -> None:
        self.lock = SharedLock()
        self.came: list[str] = []
        self.inside: set[str] = set()
        self.doors: dict[str, asyncio.Event] = {}

    def enter(self, name: str) -> asyncio.Task[None]:
        """Enters alone where the name says so, and stays until its door is opened."""
        self.doors[name] = asyncio.Event()
        return asyncio.create_task(self._stay(name))

    async def _stay(self, name: str) -> None:
        lock = self.lock
        async with lock.alone() if name.startswith("alone") else lock.shared():
            self.came.append(name)
            self.inside.add(name)
            if name.startswith("alone"):
                assert self.inside == {name}
            try:
                await self.doors[name].wait()
            finally:
                self.inside.discard(name)


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_many_share_it_and_one_has_it_alone() -> None:
    room = Room()
    tasks = [room.enter(name) for name in ("a", "b", "alone", "c")]
    await settled()
    assert room.inside == {"a", "b"}  # c came after one who waits to be alone
    room.doors["a"].set()
    await settled()
    assert room.inside == {"b"}
    room.doors["b"].set()
    await settled()
    assert room.inside == {"alone"}
    room.doors["alone"].set()
    room.doors["c"].set()
    await asyncio.gather(*tasks)
    assert room.came == ["a", "b", "alone", "c"]


@pytest.mark.parametrize("leaver", ["a", "alone-1", "b"])
async def test_who_is_cancelled_leaves_it_to_the_others(leaver: str) -> None:
    room = Room()
    tasks = {name: room.enter(name) for name in ("a", "alone-1", "b", "alone-2")}
    await settled()
    tasks[leaver].cancel()
    await asyncio.wait((tasks[leaver],))
    for name in tasks.keys() - {leaver}:
        room.doors[name].set()
    await asyncio.gather(*(task for name, task in tasks.items() if name != leaver))
    assert set(room.came) >= tasks.keys() - {leaver}
