"""The part that all models share: a manager driven one step at a time, and how long they run.

The suite runs a few examples, the same ones each time. HOWDAH_MODEL_EXAMPLES asks for more, chosen
at random, and tells each step: for whoever has changed how queues work. What fails is not made
smaller: examples share a database, and each is a manager's life, which takes its time.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from queue_core.delivery import dispatch, lease, ready
from queue_core.delivery import ready_by_priority as priorities
from queue_core.message.message import CANONICAL, Properties
from queue_core.store.write import batch, journal_generation
from queue_core.store.write.segments import SegmentLimits
from tests.support.managers import BRISK, House
from tests.support.until import PATIENCE_SECONDS

T = TypeVar("T")

_LONG_RUN = int(os.environ.get("HOWDAH_MODEL_EXAMPLES", "0"))
in_time = pytest.mark.timeout(0 if _LONG_RUN else 300)


class Machine(RuleBasedStateMachine):
    """Each example is a manager's life on a database that the examples before it have used."""

    url = ""
    house_settings = BRISK
    most_lives = 4  # a start takes as long as some hundred steps

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.house = House(self.url, settings=self.house_settings)
        self.run(self.house.open())
        for name in list(self.house.vhost.queues):  # of an example that was given up
            self.run(self.house.vhost.delete_queue(name))
        self.lives = self.most_lives

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, PATIENCE_SECONDS))

    def call(self, work: Callable[[], T]) -> T:
        """In the loop, as an adapter would."""

        async def turn() -> T:
            return work()

        return self.run(turn())

    @property
    def now(self) -> float:
        return self.house.clock()

    def quiet(self) -> None:
        """Returns when the manager has done all it can do at this time."""
        self.run(self._quiet())

    async def _quiet(self) -> None:
        database, agenda = self.house.manager._database, self.house.manager.agenda
        turns = 0
        while turns < 2:
            when = agenda.next_time()
            tasks = [*database.reader._tasks, *database.definitions._tasks]
            is_busy = bool(tasks) or (when is not None and when <= self.now)
            await self.house.later(0)
            if tasks:
                await asyncio.gather(*tasks, return_exceptions=True)
            turns = 0 if is_busy else turns + 1

    def compare_what_is_left(self) -> None:
        """The last look, at an example that found nothing wrong until then."""

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:
                self.compare_what_is_left()
        finally:
            self.run(self.house.close())
            self.loop.close()


def examine(machine: type[Machine], url: str, examples: int, steps: int) -> None:
    machine.url = url
    is_long = _LONG_RUN > 0
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=_LONG_RUN or examples,
            stateful_step_count=steps,
            derandomize=not is_long,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.debug if is_long else Verbosity.normal,
        ),
    )


def written(message_id: str | None) -> dict[str, Any]:
    """Returns the properties of a message with an id, as adapters have them."""
    if message_id is None:
        return {}
    return {"form": CANONICAL, "native": CANONICAL.encode(Properties(message_id=message_id))}


def make_tight(patch: pytest.MonkeyPatch, machine: type[Machine]) -> None:
    """Everything that has a bound comes to it: hardly any memory, small chunks and turns, short
    leases, segments of a few messages, and a journal that starts again all the time."""
    for module in (ready, priorities):
        patch.setattr(module, "LEAST_ENTRIES", 1)
    patch.setattr(ready, "CHUNK_ENTRIES", 2)
    patch.setattr(ready, "LOW_ENTRIES", 1)
    patch.setattr(ready, "SLACK_MARKS", 1)
    patch.setattr(ready, "PASSED_MARKS", 2)
    patch.setattr(lease, "LEASE_OFFSETS", 3)
    patch.setattr(dispatch, "BATCH_DELIVERIES", 2)
    patch.setattr(batch, "MOST_FULL_ROW_RANGES", 1)
    patch.setattr(batch, "FULL_ROW_INTERVAL_ROWS", 3)
    patch.setattr(journal_generation, "GENERATION_ROWS", 20)
    store = replace(BRISK.store, segments=SegmentLimits(bytes=40, age=60.0))
    patch.setattr(machine, "house_settings", replace(BRISK, cache_bytes=2_000, store=store))
