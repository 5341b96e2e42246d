"""The rules of topics: which names and filters are valid, and the tokens that wildcards become,
both those of MQTT's filters (`+`, `#`) and those of AMQP's patterns (`*`, `#`).

How a topic is written in either form is in `queue_core.message.topic_forms`. Nothing here knows who
is subscribed.
"""

from __future__ import annotations

from typing import Final

from queue_core.errors import InvalidTopic
from queue_core.message.topic_forms import NO_LEVELS, escaped, slashed

ONE: Final = "+"  # any one level
MANY: Final = "#"  # any number of levels, also none
# Tokens are levels in slash form, where a level that is `+` or `#` cannot be anything else: a key's
# own `+` is `%2B` there, and a filter's `*` is an ordinary level.
Tokens = tuple[str, ...]

MAX_BYTES: Final = 65_535  # the most that a slash name can have on the wire
MAX_LEVELS: Final = 256  # as many as the longest AMQP 0.9.1 routing key can have


def levels_of(topic: str, max_levels: int = MAX_LEVELS) -> list[str]:
    """Splits a slash name into its levels. Raises InvalidTopic."""
    if "+" in topic or "#" in topic:
        raise InvalidTopic(
            f"topic '{_shown(topic)}' has a wildcard in it; publish to a name without + and #"
        )
    return _split(topic, "topic", max_levels)


def filter_tokens(topic_filter: str, max_levels: int = MAX_LEVELS) -> Tokens:
    """Splits a slash filter into tokens. Raises InvalidTopic where it breaks the rules of
    filters."""
    levels = _split(topic_filter, "filter", max_levels)
    for level in levels:
        if len(level) > 1 and (ONE in level or MANY in level):
            raise InvalidTopic(
                f"filter '{_shown(topic_filter)}' mixes a wildcard with other characters in the "
                f"level '{_shown(level)}'; + and # must each be a whole level"
            )
    if MANY in levels[:-1]:
        raise InvalidTopic(
            f"filter '{_shown(topic_filter)}' goes on after #; # must be the last level"
        )
    return tuple(levels)


def pattern_tokens(pattern: str) -> Tokens:
    """Splits a dot pattern into tokens: `*` is one word, `#` any number of them wherever it
    stands."""
    words = pattern.split(".")
    if "*" not in words and "#" not in words:
        return tuple(_split(slashed(pattern), "pattern", MAX_LEVELS))
    tokens: list[str] = []
    for word in words:
        if word == "*":
            tokens.append(ONE)
        elif word != "#":
            tokens.append(escaped(word).replace("/", "."))
        elif tokens[-1:] != [MANY]:  # `#.#` says no more than `#`
            tokens.append(MANY)
    if len(tokens) > MAX_LEVELS:
        raise _too_many("pattern", pattern, len(tokens), MAX_LEVELS)
    return tuple(tokens)


def _split(text: str, noun: str, max_levels: int) -> list[str]:
    if not text:
        raise InvalidTopic(f"the {noun} is empty; it needs at least one character")
    if "\0" in text:
        raise InvalidTopic(f"{noun} '{_shown(text)}' has a NUL character in it; leave it out")
    if len(text) > MAX_BYTES // 4 and len(text.encode(errors="surrogatepass")) > MAX_BYTES:
        raise InvalidTopic(f"{noun} '{_shown(text)}' is too long; {MAX_BYTES} bytes is the most")
    levels = text.split("/")
    if len(levels) > max_levels:
        raise _too_many(noun, text, len(levels), max_levels)
    return [] if text == NO_LEVELS else levels


def _too_many(noun: str, text: str, count: int, max_levels: int) -> InvalidTopic:
    return InvalidTopic(f"{noun} '{_shown(text)}' has {count} levels; {max_levels} is the most")


def _shown(text: str) -> str:
    """Makes a text short and printable, for logs and reason strings."""
    start = text if len(text) <= 80 else text[:77] + "..."
    return start if start.isprintable() else start.encode("unicode_escape").decode()
