"""The policies that act on one queue or exchange: their names, and the definition that results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class AppliedPolicy:
    """The policy and the operator policy that match an object; None: none does. `definition` is
    both merged, before the arguments of the object are looked at."""

    policy: str | None = None
    operator_policy: str | None = None
    definition: Mapping[str, object] = field(default_factory=dict)


NO_POLICY: Final = AppliedPolicy()
