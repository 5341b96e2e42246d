"""Makes the exchanges, queues and bindings of a plan in a running gateway, by the primitives that
clients use: every limit holds, and whatever is made is committed and in use when this returns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from queue_core.definitions.items import BindingItem, Section, arguments_of
from queue_core.definitions.plan import Step
from queue_core.errors import CoreError, StoreUnavailable, VhostNotFound
from queue_core.queues.queue import Queue
from queue_core.queues.spec import QueueSpec
from queue_core.routing.bindings import ExchangeRef
from queue_core.routing.exchanges import ExchangeSpec
from queue_core.vhost import Vhost

MADE_AT_ONCE: Final = 100  # queues or bindings, whose rows share a transaction
NOT_TRIED: Final = "not tried, as the database is out of reach; import the file again"


@dataclass(frozen=True, slots=True)
class Failure:
    """A step that was planned and could not be done; what was done before stays."""

    step: Step
    reason: str


class TopologyImport:
    """Makes what a plan says, in its order. Repeating an import makes what is missing, so one that
    the database interrupted is finished by the next."""

    def __init__(self, vhosts: Mapping[str, Vhost], made_by: str | None) -> None:
        self._vhosts = vhosts
        self._made_by = made_by
        self._failures: list[Failure] = []
        self._is_away = False

    async def make(self, steps: Iterable[Step]) -> list[Failure]:
        """Makes the exchanges, then the queues, then the bindings, and returns what failed."""
        wanted = [step for step in steps if step.is_made]
        for section, of_section in groupby(wanted, key=lambda step: step.section):
            make = self._makers().get(section)
            if make is None:
                continue
            found = list(of_section)
            size = 1 if section is Section.EXCHANGES else MADE_AT_ONCE
            for at in range(0, len(found), size):
                await self._make_some(make, found[at : at + size])
        return self._failures

    def _makers(self) -> Mapping[Section, Callable[[Step], Awaitable[object]]]:
        return {
            Section.EXCHANGES: self._exchange,
            Section.QUEUES: self._queue,
            Section.BINDINGS: self._binding,
        }

    async def _make_some(
        self, make: Callable[[Step], Awaitable[object]], steps: Sequence[Step]
    ) -> None:
        if self._is_away:
            self._failures += [Failure(step, NOT_TRIED) for step in steps]
            return
        answers = await asyncio.gather(*map(make, steps), return_exceptions=True)
        for step, answer in zip(steps, answers, strict=True):
            if isinstance(answer, CoreError):
                self._failures.append(Failure(step, str(answer)))
                self._is_away = self._is_away or isinstance(answer, StoreUnavailable)
            elif isinstance(answer, BaseException):
                raise answer

    def _vhost(self, step: Step) -> Vhost:
        vhost = self._vhosts.get(step.vhost or "")
        if vhost is None:
            raise VhostNotFound(f"there is no virtual host '{step.vhost}'")
        return vhost

    async def _exchange(self, step: Step) -> None:
        assert isinstance(step.wanted, ExchangeSpec)
        await self._vhost(step).declare_exchange(step.wanted)

    async def _queue(self, step: Step) -> None:
        assert isinstance(step.wanted, QueueSpec)
        # RabbitMQ's files hold queues that it named itself (amq.gen-...) as well.
        await self._vhost(step).declare_queue(step.wanted, None, self._made_by, inside=True)

    async def _binding(self, step: Step) -> None:
        item = step.wanted
        assert isinstance(item, BindingItem)
        vhost = self._vhost(step)
        destination: Queue | ExchangeRef = (
            vhost.queue(item.destination)
            if item.destination_type == "queue"
            else ExchangeRef(item.destination)
        )
        await vhost.bind(item.source, destination, item.routing_key, arguments_of(item))
