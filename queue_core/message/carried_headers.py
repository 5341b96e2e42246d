"""Headers on their way through a protocol that cannot hold them all as they are.

Two headers of the gateway's own carry what is left over: `x-types` the types of values that travel
as text, `x-repeated-headers` all names and values in order when the table cannot say them (a name
is repeated, too long, or one that the protocol's reader takes for something else). On the way back
`unpacked` restores from both what `packed` was given. What somebody changed on the way counts: a
list that contradicts the table is passed over, and so is a type that does not fit its text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from queue_core.message.message import Value, type_of_id
from queue_core.message.values_as_text import (
    Dialect,
    identifier,
    json_text,
    restored,
    separated,
    typed_identifier,
)

TYPES: Final = "x-types"
REPEATED: Final = "x-repeated-headers"
PUBLISHER: Final = "x-publisher-id"  # stamped by the gateway; what a client says there is taken off
TEXT_FLAG: Final = "x-payload-format"  # see `says_utf8`: only where the content type misleads
CREATED: Final = "x-created"  # the exact time, where the protocol's own place is coarser
REPLY_ADDRESS: Final = "x-reply-address"  # as the publisher wrote it, where the key alone says less

Pair = tuple[str, Value]
Note = dict[str, object]  # name or field; type; nth: of that name; was: the true name; header


class Table(NamedTuple):
    """A protocol whose headers are a map."""

    dialect: Dialect
    is_claimed: Callable[[str, Value], bool]  # its reader takes such a header for something else
    claimable: frozenset[str]  # the names that it may say yes to, and the two of this module
    rank: Callable[[str], int] | None = None  # the order in which the reader finds them


def packed(
    headers: Sequence[Pair],
    table: Table,
    carried: Mapping[str, Value] | None = None,
    fields: Sequence[Note] = (),
) -> dict[str, Value]:
    """Packs headers into a map, beside those in which the protocol carries other properties.
    `fields` are notes about other properties."""
    found: dict[str, Value] = dict(carried) if carried else {}
    notes = list(fields)
    written: list[Pair] = []
    needs_list, last = False, 0
    dialect = table.dialect
    for name, value in headers:
        text, kind = separated(value, dialect)
        if kind is not None:
            notes.append(note_of(name, kind, written))
        written.append((name, text))
        if name in found or _is_special(name, text, table):
            needs_list = True
            continue
        if table.rank is not None:
            rank = table.rank(name)
            needs_list, last = needs_list or rank < last, rank
        found[name] = text
    if (notes and TYPES in found) or (needs_list and REPEATED in found):
        needs_list = True  # the publisher's own header of that name gives way to ours
    if needs_list:
        found[REPEATED] = [[name, value] for name, value in written]
    if notes:
        found[TYPES] = notes_text(notes)
    return found


def notes_text(notes: Sequence[Note]) -> str:
    return msgspec.json.encode(notes).decode()


def _is_special(name: str, value: Value, table: Table) -> bool:
    if name not in table.claimable:
        return not table.dialect.holds_name(name)
    if name == TYPES:
        return read_notes(value) is not None
    if name == REPEATED:
        return _list_of(value) is not None
    return table.is_claimed(name, value)


def note_of(name: str, kind: object, before: Sequence[Pair]) -> Note:
    nth = sum(other == name for other, _ in before)
    return {"name": name, "type": kind, "nth": nth} if nth else {"name": name, "type": kind}


class Unpacked(NamedTuple):
    headers: list[Pair]
    claimed: dict[str, Value]  # what the protocol carries in headers
    notes: list[Note]  # those about other properties


def unpacked(found: Mapping[str, Value], table: Table) -> Unpacked:
    """Unpacks a map: the headers and notes that `packed` was given."""
    if table.claimable.isdisjoint(found):
        return Unpacked(list(found.items()), {}, [])
    is_claimed = table.is_claimed
    claimed: dict[str, Value] = {}
    rest: list[Pair] = []
    for pair in found.items():
        if is_claimed(*pair):
            claimed[pair[0]] = pair[1]
        else:
            rest.append(pair)
    if TYPES not in found and REPEATED not in found:
        return Unpacked(rest, claimed, [])
    notes = read_notes(found.get(TYPES))
    if notes is not None:
        rest = [pair for pair in rest if pair[0] != TYPES]
    listed = _list_of(found.get(REPEATED))
    if listed is not None:
        rest = [pair for pair in rest if pair[0] != REPEATED]
        if _agrees(listed, dict(rest), claimed, table):
            names = {name for name, _ in listed}
            rest = [*listed, *(pair for pair in rest if pair[0] not in names)]
    fields = [note for note in notes or () if "field" in note]
    return Unpacked(apply_notes(rest, notes or ()), claimed, fields)


def _list_of(said: Value) -> list[Pair] | None:
    if not isinstance(said, list) or not said:
        return None
    if all(isinstance(p, list) and len(p) == 2 and isinstance(p[0], str) for p in said):
        return [(p[0], p[1]) for p in said]
    return None


def _agrees(
    listed: list[Pair], rest: Mapping[str, Value], claimed: Mapping[str, Value], table: Table
) -> bool:
    """Tells whether the map says what the list of headers says, as far as a map can say it."""
    for name, value in dict(reversed(listed)).items():
        if name in (TYPES, REPEATED) or name in claimed or _is_special(name, value, table):
            continue
        if name not in rest or rest[name] != value:
            return False
    return True


def read_notes(text: Value) -> list[Note] | None:
    """None: it is no list of notes, but somebody's own header of that name."""
    if not isinstance(text, str):
        return None
    try:
        notes = json.loads(text)
        json_text(notes).encode()  # half a surrogate pair is nothing that can be written
    except (ValueError, RecursionError):
        return None
    if not isinstance(notes, list) or not notes or not all(_is_note(note) for note in notes):
        return None
    return notes


def _is_note(note: object) -> bool:
    return (
        isinstance(note, dict)
        and isinstance(note.get("name", note.get("field")), str)
        and isinstance(note.get("nth", 0), int)
        and isinstance(note.get("was", ""), str)
    )


def apply_notes(pairs: list[Pair], notes: Sequence[Note]) -> list[Pair]:
    for note in notes:
        if "name" not in note:
            continue
        places = [i for i, (name, _) in enumerate(pairs) if name == note["name"]]
        nth = note.get("nth", 0)
        assert isinstance(nth, int)
        if not 0 <= nth < len(places):
            continue
        name, value = pairs[places[nth]]
        try:
            value = restored(value, note.get("type"))
        except ValueError:
            continue  # it was changed on the way
        pairs[places[nth]] = (name, value)
    return pairs


# --- the text flag


_CHARSET: Final = re.compile(r';\s*charset\s*=\s*"?utf-?8"?\s*(?:;|$)', re.IGNORECASE)


def says_utf8(content_type: object) -> bool:
    """Tells whether a content type says by itself that the body is text. Where it does, or where
    nobody says so, `TEXT_FLAG` is not needed; it is 1 for text of a type without a charset, 0 for
    what was said to be bytes, and false where MQTT's publisher left it open in spite of the
    charset."""
    return isinstance(content_type, str) and _CHARSET.search(content_type) is not None


# --- identifiers


def identified(text: str, field: str, notes: Sequence[Note]) -> type_of_id:
    """An id in text form, with the type that a note may give it."""
    for note in notes:
        if note.get("field") == field:
            try:
                return typed_identifier(text, note.get("type"))
            except ValueError:
                break
    return identifier(text)
