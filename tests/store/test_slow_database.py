"""A database that is slow, and one that is silent: only of the second it is said that it does not
answer."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from queue_core.store import background_work
from queue_core.store.background_work import BackgroundWork
from tests.support.managers import House
from tests.support.until import PATIENCE_SECONDS, turns

SILENCE = "the database has not answered"


class Questions:
    """Questions to the database that are asked while a look at the outbox takes long."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, are_answered: bool) -> None:
        self.asked: asyncio.Queue[bool] = asyncio.Queue()
        self.answer = BackgroundWork._answers
        self.are_answered = are_answered
        monkeypatch.setattr(BackgroundWork, "_answers", lambda each: self.ask(each))

    async def ask(self, asking: BackgroundWork) -> bool:
        is_answered = self.are_answered and await self.answer(asking)
        self.asked.put_nowait(is_answered)
        return is_answered


@pytest.mark.parametrize("are_answered", [True, False])
async def test_a_look_that_waits_for_a_lock_is_no_silence_of_the_database(
    house: House,
    db: asyncpg.Connection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    are_answered: bool,
) -> None:
    questions = Questions(monkeypatch, are_answered=are_answered)
    async with db.transaction():
        await db.execute("LOCK TABLE howdah.outbox IN ACCESS EXCLUSIVE MODE")
        monkeypatch.setattr(background_work, "ANSWER_SECONDS", 1.0)
        async with asyncio.timeout(PATIENCE_SECONDS):
            for _ in range(2 if are_answered else 1):
                assert await questions.asked.get() is are_answered
        await turns()  # what follows from the answer does so in this turn
    assert (SILENCE in caplog.text) is not are_answered
    await house.until(lambda: house.manager.is_ready)
