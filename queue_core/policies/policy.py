"""One policy: a pattern of names, the kinds of objects that it is for, and the values it gives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from queue_core.access.permission_patterns import PatternTooSlow, compiled, pattern_in_time
from queue_core.errors import InvalidArgument
from queue_core.policies.policy_keys import check_definition
from queue_core.queues.spec import is_storable

LONGEST_NAME_BYTES: Final = 255
LONGEST_PATTERN_CHARACTERS: Final = 2000
LARGEST_PRIORITY: Final = 2**31 - 1
MOST_COMPILED_PATTERNS: Final = 10_000


@lru_cache(maxsize=MOST_COMPILED_PATTERNS)
def regex_of(pattern: str) -> re.Pattern[str]:
    """Compiles a pattern that was checked before, once: a long one takes a millisecond."""
    return compiled(pattern)


class ApplyTo(StrEnum):
    ALL = "all"
    QUEUES = "queues"
    EXCHANGES = "exchanges"
    CLASSIC_QUEUES = "classic_queues"
    QUORUM_QUEUES = "quorum_queues"
    STREAMS = "streams"


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy of one virtual host. `is_operator`: merged with the ordinary policy of a queue, and
    stricter than it."""

    name: str
    pattern: str
    definition: Mapping[str, object]
    apply_to: ApplyTo = ApplyTo.ALL
    priority: int = 0
    is_operator: bool = False

    @classmethod
    def parse(
        cls,
        name: str,
        pattern: object,
        definition: object,
        *,
        apply_to: object = ApplyTo.ALL.value,
        priority: object = 0,
        is_operator: bool = False,
    ) -> Policy:
        """Reads a policy from anybody's words. Raises InvalidArgument or UnsupportedArgument."""
        if not 0 < len(name.encode(errors="surrogatepass")) <= LONGEST_NAME_BYTES or not (
            is_storable(name)
        ):
            raise InvalidArgument(
                f"the name of a policy is text of 1 to {LONGEST_NAME_BYTES} bytes, without NUL"
            )
        subject = f"operator policy '{name}'" if is_operator else f"policy '{name}'"
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise InvalidArgument(f"{subject}: its priority must be a whole number")
        if abs(priority) > LARGEST_PRIORITY:
            raise InvalidArgument(
                f"{subject}: its priority is from -{LARGEST_PRIORITY} to {LARGEST_PRIORITY}"
            )
        if not isinstance(definition, Mapping):
            raise InvalidArgument(f"{subject}: its definition must be an object of keys and values")
        check_definition(subject, definition, is_operator=is_operator)
        return cls(
            name,
            _checked_pattern(subject, pattern),
            dict(definition),
            _apply_to(subject, apply_to),
            priority,
            is_operator,
        )

    @property
    def order(self) -> tuple[int, str]:
        """Sorts policies into the order in which they are tried: the highest priority first, and
        by name where two have the same."""
        return -self.priority, self.name


def _apply_to(subject: str, word: object) -> ApplyTo:
    try:
        return ApplyTo(str(word))
    except ValueError:
        raise InvalidArgument(
            f"{subject}: apply-to is '{word}'; use one of {', '.join(ApplyTo)}"
        ) from None


def _checked_pattern(subject: str, pattern: object) -> str:
    if not isinstance(pattern, str) or not is_storable(pattern):
        raise InvalidArgument(f"{subject}: its pattern must be text without NUL")
    if len(pattern) > LONGEST_PATTERN_CHARACTERS:
        raise InvalidArgument(
            f"{subject}: its pattern has {len(pattern)} characters, and may have "
            f"{LONGEST_PATTERN_CHARACTERS}"
        )
    try:
        pattern_in_time(pattern, ignore_case=False)
        regex_of(pattern)
    except ValueError as error:
        raise InvalidArgument(
            f"{subject}: pattern '{pattern}' is not a regular expression: {error}"
        ) from error
    except PatternTooSlow:
        raise InvalidArgument(
            f"{subject}: pattern '{pattern}' takes too long to read; write a shorter one"
        ) from None
    return pattern
