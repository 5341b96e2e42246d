"""The two ways to write a topic: the slash form (`a/b/c`) of MQTT, the dot form (`a.b.c`) of AMQP.

Dots and slashes trade places between the two forms, so a dot inside a level of the one is a slash
inside a word of the other, and comes back unchanged. `+`, `#` and NUL, which no slash name can
hold, are written with a percent sign there. `slashed` and `dotted` together are one-to-one: see
docs/semantics/topics.md. Wildcards are the business of `queue_core.routing.topics`.
"""

from __future__ import annotations

import re
from typing import Final

NO_LEVELS: Final = "$empty"  # the slash form of the empty key, which has no level at all

_SWAP: Final = str.maketrans("./", "/.")
_HEX: Final = {"+": "%2B", "#": "%23", "\0": "%00"}
_CHARACTER: Final = {written: character for character, written in _HEX.items()}
# What an escape would write is itself escaped, with one `25` more at each turn. That leaves no
# string without its counterpart, and all others (`100%`, `%41`, `%2b`) as they are.
_ESCAPABLE: Final = re.compile(r"[+#\0]|%(?:25)*(?:2B|23|00)")
_ESCAPED: Final = re.compile(r"%(?:25)*(?:2B|23|00)")
_EMPTYLIKE: Final = re.compile(r"\$+empty")


def slashed(key: str) -> str:
    """Writes a dot key in slash form: a valid slash name, whatever the key is."""
    if not key or key[0] == "$":
        if not key:
            return NO_LEVELS
        if _EMPTYLIKE.fullmatch(key):
            return "$" + key
    if "%" in key or "+" in key or "#" in key or "\0" in key:
        key = escaped(key)
    # a key of five words takes 0.18 us by replace and 1.16 us by translate
    return key.translate(_SWAP) if "/" in key else key.replace(".", "/")


def dotted(topic: str) -> str:
    """Writes a slash name in dot form: the key that `slashed` would turn into that name."""
    if topic[:1] == "$" and _EMPTYLIKE.fullmatch(topic):
        return "" if topic == NO_LEVELS else topic[1:]
    if "%" in topic:
        topic = _unescaped(topic)
    return topic.translate(_SWAP) if "." in topic else topic.replace("/", ".")


def escaped(text: str) -> str:
    """Replaces the characters that no slash name can hold by escapes; dots and slashes stay."""
    return _ESCAPABLE.sub(_one_escape_more, text)


def _one_escape_more(match: re.Match[str]) -> str:
    found = match[0]
    return _HEX.get(found) or f"%25{found[1:]}"


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(_one_escape_less, text)


def _one_escape_less(match: re.Match[str]) -> str:
    found = match[0]
    return _CHARACTER.get(found) or f"%{found[3:]}"
