"""Every error of the core has its condition, and every condition is one of the standard's."""

from __future__ import annotations

import pytest

from protocols.amqp10.errors import CONDITIONS, INTERNAL_ERROR, NOT_FOUND, answer
from queue_core.errors import CoreError, DeliveryFailed, QueueNotFound


def subclasses(kind: type[CoreError]) -> set[type[CoreError]]:
    return {each for sub in kind.__subclasses__() for each in ({sub} | subclasses(sub))}


def own(kind: type[CoreError]) -> bool:
    return kind.__module__ == "queue_core.errors"


def test_every_error_of_the_core_has_a_row() -> None:
    assert set(filter(own, subclasses(CoreError))) == set(CONDITIONS)


@pytest.mark.parametrize("condition", sorted(set(CONDITIONS.values())))
def test_every_condition_is_named_as_the_standard_names_them(condition: str) -> None:
    assert condition.startswith("amqp:")


def test_only_a_bug_is_an_internal_error() -> None:
    assert [kind for kind, said in CONDITIONS.items() if said == INTERNAL_ERROR] == [DeliveryFailed]


def test_a_subclass_without_a_row_is_answered_as_what_it_is_a_kind_of() -> None:
    class Special(QueueNotFound):
        pass

    said = answer(Special("no queue 'q'; declare it"))
    assert (said.condition, said.text) == (NOT_FOUND, "no queue 'q'; declare it")
