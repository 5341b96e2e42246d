"""Message annotations as bytes: more are added to what a sender wrote, which stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from protocols.amqp10.wire.sections import ANNOTATIONS, section_at
from protocols.amqp10.wire.types import Malformed, decode, encode, skip

OPENING: Final = b"\x00\x53\x72"
MAP8, MAP32 = 0xC1, 0xD1

Pairs = dict[str, bytes]  # by name: key and value, encoded


def merged(sections: bytes, facts: Mapping[object, object]) -> bytes:
    """The sections with more annotations; one of the same name gives way."""
    return with_pairs(
        sections, {str(name): encode(name) + encode(value) for name, value in facts.items()}
    )


def with_pairs(sections: bytes, added: Pairs) -> bytes:
    """Adds pairs to annotations that are encoded already."""
    pairs: Pairs = {}
    if sections:
        code, value = section_at(sections, 0)
        if code == ANNOTATIONS:
            end = skip(sections, value)
            pairs = pairs_of(sections[:end], value)
            sections = sections[end:]
    kept = [pair for name, pair in pairs.items() if name not in added]
    return OPENING + encode_pairs([*kept, *added.values()]) + sections


def pairs_of(data: bytes, position: int = 0) -> Pairs:
    """Reads the pairs of a map that begins there and ends with the data. Raises Malformed."""
    if data[position : position + 1] not in (b"\xc1", b"\xd1"):
        raise Malformed("annotations that are no map")
    position += 3 if data[position] == MAP8 else 9
    found: Pairs = {}
    while position < len(data):
        name, middle = decode(data, position)
        end = skip(data, middle)
        found[str(name)] = data[position:end]
        position = end
    return found


def encode_pairs(pairs: list[bytes]) -> bytes:
    content, count = b"".join(pairs), 2 * len(pairs)
    if len(content) < 255 and count < 256:
        return bytes((MAP8, len(content) + 1, count)) + content
    return bytes((MAP32,)) + (len(content) + 4).to_bytes(4) + count.to_bytes(4) + content
