"""Cold statements that gather: few transactions for many, and nobody pays for another's mistake."""

from __future__ import annotations

import asyncio

import pytest

from queue_core.errors import StoreUnavailable
from queue_core.store.tables.gathered_transactions import MOST_ITEMS, Gathering
from tests.support.until import turns


class Table:
    """Takes numbers, and refuses those that are negative."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.is_reachable = True

    async def write(self, items: list[int]) -> list[str]:
        await turns()  # a database answers in a later turn
        if not self.is_reachable:
            raise StoreUnavailable("the database cannot be reached")
        if min(items) < 0:
            raise ValueError("negative")
        self.batches.append(items)
        return [f"row {item}" for item in items]


async def test_what_gathers_while_one_transaction_runs_goes_into_the_next() -> None:
    table = Table()
    gathering = Gathering(table.write)
    first = asyncio.create_task(gathering.add(1))
    await turns(2)  # its transaction runs
    assert await asyncio.gather(*(gathering.add(n) for n in (2, 3, 4))) == [
        "row 2",
        "row 3",
        "row 4",
    ]
    assert await first == "row 1"
    assert table.batches == [[1], [2, 3, 4]]
    assert await gathering.add(5) == "row 5"


async def test_one_bad_item_does_not_fail_its_neighbours() -> None:
    table = Table()
    gathering = Gathering(table.write)
    answers = await asyncio.gather(*map(gathering.add, (1, -2, 3)), return_exceptions=True)
    assert answers[0] == "row 1"
    assert isinstance(answers[1], ValueError)
    assert answers[2] == "row 3"


async def test_an_outage_is_told_to_each_and_the_next_try_may_succeed() -> None:
    table = Table()
    table.is_reachable = False
    gathering = Gathering(table.write)
    answers = await asyncio.gather(*map(gathering.add, (1, 2)), return_exceptions=True)
    assert all(isinstance(answer, StoreUnavailable) for answer in answers)
    assert answers[0] is not answers[1]
    table.is_reachable = True
    assert await gathering.add(3) == "row 3"


async def test_a_transaction_has_a_bound() -> None:
    table = Table()
    gathering = Gathering(table.write)
    await asyncio.gather(*(gathering.add(n) for n in range(MOST_ITEMS * 2 + 1)))
    assert [len(batch) for batch in table.batches] == [MOST_ITEMS, MOST_ITEMS, 1]


async def test_who_stops_waiting_does_not_stop_the_others() -> None:
    table = Table()
    gathering = Gathering(table.write)
    waiting = [asyncio.create_task(gathering.add(n)) for n in (1, 2)]
    await turns()  # both wait
    waiting[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]
    assert await waiting[1] == "row 2"
