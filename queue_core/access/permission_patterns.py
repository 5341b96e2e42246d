"""Regular expressions of permissions, matched against names that clients choose, in bounded time.

Whoever writes a rule such as `^(\\w+\\.?)*$` does not see that a name of thirty letters and a `!`
keeps Python's matcher busy for hours, and everybody with it. The matcher looks for signals now and
then: a timer of the process's own running time ends it. What takes too long does not match.
"""

from __future__ import annotations

import logging
import re
import signal
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Final, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

MOST_SECONDS: Final = 0.02  # of running time for one match; an honest one takes microseconds
MATCH_TRIES: Final = 2  # others' threads run in the same time, too
SHOWN_PATTERN_CHARACTERS: Final = 200  # of a pattern in the log
MAX_NAMES_CHARACTERS: Final = 4096  # that stand in one pattern: to compile them takes time
PLACES: Final = ("{username}", "{vhost}", "{client_id}")  # that a rule may have for names
NOTHING: Final = re.compile(r"(?!)")  # found nowhere


_LEADING: Final = re.compile(r"(?:\.\*)+(?![*+?{])(?=.)", re.S)


def compiled(text: str) -> re.Pattern[str]:
    """Raises re.error. What is looked for anywhere need not begin with `.*`, which makes the time
    grow with the square of the name."""
    return re.compile(_LEADING.sub("", text, count=1) if text.startswith(".*") else text)


def pattern_for(rule: str, names: tuple[str, ...]) -> re.Pattern[str]:
    """Compiles a rule with the client's names in its places. A rule that cannot be compiled
    matches nothing, and so does an empty one, as '^$' does."""
    try:
        return compiled(_filled(rule, names) or r"\A\Z")
    except re.error:
        return NOTHING


def _filled(rule: str, names: tuple[str, ...]) -> str:
    """Puts the names, as plain letters, in the places that a rule has for them. A name that the
    client does not have, or that is too long, is found nowhere: left out, it would be everywhere.
    """
    left = MAX_NAMES_CHARACTERS
    for place, name in zip(PLACES, names, strict=False):
        left -= len(name) * rule.count(place)
        letters = re.escape(name) if name and left >= 0 else NOTHING.pattern
        rule = rule.replace(place, letters)
    return rule


class PatternTooSlow(Exception):
    """A pattern has had its time."""


class _Watch:
    """The timer of the one match that is under way."""

    def __init__(self) -> None:
        self.is_matching = False
        self.is_set_up = False

    def set_up(self) -> None:
        signal.signal(signal.SIGVTALRM, self._on_time)
        self.is_set_up = True

    def _on_time(self, number: int, frame: FrameType | None) -> None:
        if self.is_matching:
            raise PatternTooSlow


_watch: Final = _Watch()


def matches(pattern: re.Pattern[str], name: str) -> bool:
    """Tells whether a permission's pattern is found in the name; one that takes too long is not."""
    try:
        return found_in_time(pattern, name)
    except PatternTooSlow:
        log.warning(
            "a permission's pattern takes too long for a name of %d characters, which is refused; "
            "write it without repetitions of what may be repeated inside: %s",
            len(name),
            pattern.pattern[:SHOWN_PATTERN_CHARACTERS],
        )
        return False


def found_in_time(pattern: re.Pattern[str], name: str) -> bool:
    """Tells whether the pattern is found in the name. Outside of the main thread, where no signal
    comes, there is no bound. Raises PatternTooSlow."""
    if threading.current_thread() is not threading.main_thread():
        return pattern.search(name) is not None
    if not _watch.is_set_up:
        _watch.set_up()
    for _ in range(MATCH_TRIES - 1):
        try:
            return _searched(pattern, name)
        except PatternTooSlow:
            continue
    return _searched(pattern, name)


def pattern_in_time(text: str, *, ignore_case: bool) -> re.Pattern[str]:
    """Compiles a pattern that anybody may send: some classes of characters take a second. Raises
    PatternTooSlow, and ValueError for what is no regular expression."""
    flags = re.IGNORECASE if ignore_case else re.NOFLAG
    try:
        return _in_time(lambda: re.compile(text, flags))
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None


def found_in(pattern: re.Pattern[str], names: Sequence[str]) -> list[bool]:
    """Tells for each name whether the pattern is found in it, in the time that one permission has.
    Raises PatternTooSlow."""
    return _in_time(lambda: [pattern.search(name) is not None for name in names])


def _in_time(work: Callable[[], T]) -> T:
    if threading.current_thread() is not threading.main_thread():
        return work()
    if not _watch.is_set_up:
        _watch.set_up()
    return _timed(work)


def _searched(pattern: re.Pattern[str], name: str) -> bool:
    return _timed(lambda: pattern.search(name) is not None)


def _timed(work: Callable[[], T]) -> T:
    _watch.is_matching = True
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS)
        return work()
    finally:
        _watch.is_matching = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
