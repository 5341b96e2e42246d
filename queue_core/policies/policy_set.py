"""The policies of one virtual host together: which of them acts on a queue or an exchange.

One policy acts on an object, and one operator policy beside it: the first in order whose pattern is
found in the name and whose apply-to fits. A pattern that takes too long for one name matches
nothing any more, until the policies are changed: the loop has better things to do.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from queue_core.access.permission_patterns import PatternTooSlow, found_in_time
from queue_core.policies.policy import ApplyTo, Policy, regex_of
from queue_core.policies.policy_keys import (
    CLASSIC_QUEUES,
    QUORUM_QUEUES,
    STREAMS,
    is_applicable,
    merged,
)
from queue_core.queues.applied_policy import NO_POLICY, AppliedPolicy

if TYPE_CHECKING:
    from queue_core.queues.spec import QueueSpec

log = logging.getLogger(__name__)

QUEUE_TYPES: Final = {
    "classic": CLASSIC_QUEUES,
    "quorum": QUORUM_QUEUES,
    "stream": STREAMS,
}


class PolicySet:
    """All policies of one virtual host, as of one moment."""

    def __init__(self, policies: Iterable[Policy] = ()) -> None:
        self.all = tuple(sorted(policies, key=lambda policy: policy.order))
        self._ordinary = [
            (each, regex_of(each.pattern)) for each in self.all if not each.is_operator
        ]
        self._operator = [(each, regex_of(each.pattern)) for each in self.all if each.is_operator]
        self._too_slow: set[tuple[str, bool]] = set()

    def of_queue(self, spec: QueueSpec) -> AppliedPolicy:
        """Finds what acts on a queue."""
        if not self.all:
            return NO_POLICY
        queue_type = QUEUE_TYPES[spec.queue_type]

        def fits(policy: Policy) -> bool:
            is_meant = policy.apply_to in (ApplyTo.ALL, ApplyTo.QUEUES, queue_type)
            return is_meant and is_applicable(policy.definition, queue_type, policy.apply_to)

        return _applied(
            self._first(self._ordinary, spec.name, fits),
            self._first(self._operator, spec.name, fits),
        )

    def of_exchange(self, name: str) -> AppliedPolicy:
        """Finds what acts on an exchange; nothing does on the default exchange, which has no
        name."""
        if not self.all or not name:
            return NO_POLICY

        def fits(policy: Policy) -> bool:
            return policy.apply_to in (ApplyTo.ALL, ApplyTo.EXCHANGES)

        return _applied(
            self._first(self._ordinary, name, fits), self._first(self._operator, name, fits)
        )

    def _first(
        self,
        policies: list[tuple[Policy, re.Pattern[str]]],
        name: str,
        fits: Callable[[Policy], bool],
    ) -> Policy | None:
        for policy, pattern in policies:
            if fits(policy) and self._is_found(policy, pattern, name):
                return policy
        return None

    def _is_found(self, policy: Policy, pattern: re.Pattern[str], name: str) -> bool:
        key = (policy.name, policy.is_operator)
        if key in self._too_slow:
            return False
        try:
            return found_in_time(pattern, name)
        except PatternTooSlow:
            self._too_slow.add(key)
            log.warning(
                "policy '%s' matches nothing from now on: its pattern takes too long for a name of "
                "%d characters; write it without repetitions of what may be repeated inside",
                policy.name,
                len(name),
            )
            return False


def _applied(policy: Policy | None, operator: Policy | None) -> AppliedPolicy:
    if policy is None and operator is None:
        return NO_POLICY
    return AppliedPolicy(
        None if policy is None else policy.name,
        None if operator is None else operator.name,
        merged(
            {} if policy is None else policy.definition,
            {} if operator is None else operator.definition,
        ),
    )


NO_POLICIES: Final = PolicySet()
