"""Statements that are both run and shown: one template, filled with parameters for PostgreSQL and
with literals for people, so that what is shown is what was done."""

from __future__ import annotations

from typing import NamedTuple

from queue_core.errors import InvalidArgument
from queue_core.message.condition import EVERYTHING, Condition
from queue_core.store.operator.condition_sql import Literals, Parameters, Values, compiled


class Typed(NamedTuple):
    """A value and the PostgreSQL type that it is written as."""

    value: object
    kind: str


def text(value: str | None) -> Typed:
    """Types a text. Raises InvalidArgument for one that PostgreSQL has no way to write."""
    if value is not None and "\0" in value:
        raise InvalidArgument("no name or text here has a zero character in it; leave it out")
    return Typed(value, "text")


def bigint(value: int | None) -> Typed:
    return Typed(value, "bigint")


def integer(value: int) -> Typed:
    return Typed(value, "integer")


def flag(value: bool) -> Typed:
    return Typed(value, "boolean")


def filled(template: str, values: Values, condition: Condition, **facts: Typed) -> str:
    """Fills a template; `{condition}` is the condition, every other name one of the facts."""
    written = {name: values.write(*fact) for name, fact in facts.items()}
    return template.format(condition=compiled(condition, values), **written)


def parameterised(
    template: str, condition: Condition = EVERYTHING, /, **facts: Typed
) -> tuple[str, list[object]]:
    """Returns the statement to run, and its parameters."""
    parameters = Parameters()
    return filled(template, parameters, condition, **facts), parameters.values


def shown(template: str, condition: Condition = EVERYTHING, /, **facts: Typed) -> str:
    """Returns the statement to show, in one line for each of its lines, without indentation."""
    lines = filled(template, Literals(), condition, **facts).strip().splitlines()
    return "\n".join(line.strip() for line in lines) + ";"
