"""The application of policies: the queues and exchanges of one virtual host are kept to them, those
that are there when policies change and those that are made later."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final

from queue_core.policies.policy_keys import ALTERNATE_EXCHANGE, inert_keys
from queue_core.policies.policy_set import NO_POLICIES, PolicySet

if TYPE_CHECKING:
    from queue_core.commit.ports import Keeper
    from queue_core.queues.applied_policy import AppliedPolicy
    from queue_core.queues.ports import StoredQueues
    from queue_core.queues.queue import Queue
    from queue_core.routing.router import Router

log = logging.getLogger(__name__)

SLICE_SECONDS: Final = 0.002  # of work on queues and exchanges, before others get their turn


class PolicyApplication:
    """Keeps the queues and exchanges of a virtual host to its policies."""

    def __init__(
        self,
        router: Router[Queue],
        queues: Mapping[str, Queue],
        stored: StoredQueues,
        keeper: Keeper,
    ) -> None:
        self._router = router
        self._queues = queues
        self._stored = stored
        self._keeper = keeper
        self.current = NO_POLICIES

    async def change(self, policies: PolicySet) -> None:
        """Takes other policies, and applies them to everything that is there. What is made while
        this goes on gets them at once."""
        self._tell_inert(policies)
        self.current = policies
        began = perf_counter()
        works: list[Callable[[], None]] = [
            partial(self.apply_to_queue, queue) for queue in self._queues.values()
        ]
        works += [partial(self.apply_to_exchange, spec.name) for spec in self._router.exchanges()]
        for work in works:
            work()
            if perf_counter() - began > SLICE_SECONDS:
                await asyncio.sleep(0)
                began = perf_counter()

    def _tell_inert(self, policies: PolicySet) -> None:
        """Tells people of keys that have no effect, once for each policy that has them."""
        for policy in policies.all:
            if policy not in self.current.all:
                for key in inert_keys(policy.definition):
                    log.warning(
                        "policy '%s': key '%s' is kept and shown, and has no effect here",
                        *(policy.name, key),
                    )

    def apply_to_queue(self, queue: Queue) -> None:
        """Applies the policies to one queue. One whose values fail to act keeps those it had; the
        others are not to suffer."""
        if queue.is_memory or queue.is_deleted:
            return
        applied = self.current.of_queue(queue.spec)
        if applied == queue.spec.policy:
            return
        try:
            queue.apply(queue.spec.under(applied))
        except Exception:
            log.exception("queue '%s': its policy could not be applied", queue.name)
        if queue.lacks_bytes:
            self._keeper.later(self._stored.count_bytes(queue))

    def of_exchange(self, name: str) -> AppliedPolicy:
        """Finds what acts on an exchange."""
        return self.current.of_exchange(name)

    def apply_to_exchange(self, name: str) -> None:
        """Gives an exchange the alternate exchange that was declared for it, or else its
        policy's."""
        if not name or not self._router.has_exchange(name):
            return  # the default exchange has none, as in RabbitMQ
        declared = self._router.exchange(name).spec.alternate
        given = self.of_exchange(name).definition.get(ALTERNATE_EXCHANGE)
        self._router.set_alternate(
            name, declared if declared is not None or given is None else str(given)
        )
