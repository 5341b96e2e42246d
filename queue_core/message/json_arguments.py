"""Arguments of queues, exchanges and bindings as jsonb holds them, and back as they were declared:
a binding that asks for bytes or a time asks for the same after a restart."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, cast

import msgspec

from queue_core.errors import InvalidArgument
from queue_core.message.message import Scalar, Value
from queue_core.message.values_as_text import JSON, Dialect, restored, separated

log = logging.getLogger(__name__)

TYPES: Final = "x-howdah-types"  # an argument of our own: what the others' text stands for


def _jsonb_keeps(value: Scalar) -> bool:
    return JSON.keeps(value) and not (isinstance(value, str) and "\0" in value)


JSONB: Final = Dialect(_jsonb_keeps, lambda name: "\0" not in name)


def stored(arguments: Mapping[str, object]) -> dict[str, Value]:
    """Converts declared arguments to jsonb. Raises InvalidArgument for values that cannot be
    stored, and for the argument name that the gateway uses itself."""
    for name in arguments:
        if "\0" in name or name == TYPES:
            raise InvalidArgument(f"an argument cannot have the name {name!r}; choose another")
    written, types = separated(cast("Value", arguments), JSONB)
    plain = cast("dict[str, Value]", written)
    whole = plain if types is None else {**plain, TYPES: cast("Value", types)}
    try:
        msgspec.json.encode(whole)
    except UnicodeEncodeError:
        raise InvalidArgument(
            "an argument holds text that is no Unicode (half of a surrogate pair); send it as UTF-8"
        ) from None
    return whole


def declared(arguments: Mapping[str, Value]) -> dict[str, Value]:
    """Restores arguments as they were declared. Where somebody changed the values and not their
    types by hand, the values stand as text."""
    plain = {name: value for name, value in arguments.items() if name != TYPES}
    try:
        return cast("dict[str, Value]", restored(plain, arguments.get(TYPES)))
    except ValueError as error:
        log.warning("arguments %s do not fit their types, and are taken as text: %s", plain, error)
        return plain
