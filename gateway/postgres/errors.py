"""Errors of the private PostgreSQL, said with the cause and the way out.

Answers for the words only. It must not start, stop or look at a server.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_TAIL_LINES: Final = 12
_TAIL_BYTES: Final = 16 * 1024


class EmbeddedPostgresError(RuntimeError):
    """The private PostgreSQL cannot be used; the text says why and what to do."""


class DataDirInUse(EmbeddedPostgresError):
    """Another gateway holds the data directory."""


class PassingTrouble(EmbeddedPostgresError):
    """The server did not start for a reason that may be over a moment later."""


# A port lost between our choice and the server's bind; children of a killed server that still end.
_PASSING: Final = re.compile(
    r"Address already in use|pre-existing shared memory block .* is still in use"
)


# What a server says on its last lines, and what a person can do about it.
_WAYS_OUT: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (
        re.compile(r"No space left on device|Disk quota exceeded"),
        "the disk is full: free space on the file system of {data_dir} (df -h), and start again",
    ),
    (
        re.compile(r"Read-only file system"),
        "the file system of {data_dir} is read-only: remount it or choose another data_dir",
    ),
    (
        re.compile(r"could not map anonymous shared memory|Cannot allocate memory|out of memory"),
        "there is too little memory for shared_buffers: free some, or raise the container's limit",
    ),
    (
        re.compile(
            r"unrecognized configuration parameter|invalid value for parameter|outside the "
            r"valid range for parameter"
        ),
        "PostgreSQL does not know a setting or its value: correct postgres.settings",
    ),
    (
        re.compile(r"has wrong ownership|has invalid permissions|Permission denied"),
        "{data_dir} belongs to somebody else: start as the user who created it, or chown -R it",
    ),
    (
        re.compile(r"could not locate a valid checkpoint record|invalid checkpoint|PANIC"),
        "the files in {data_dir} are damaged: keep a copy of the folder and restore a backup",
    ),
    (
        re.compile(r"could not look up effective user ID|does not exist in passwd"),
        "the user id has no name: run as a user listed in /etc/passwd, or set database.url",
    ),
)
_DEFAULT_WAY_OUT: Final = "see {log} for more, or set database.url to a server of your own"


def explain(what: str, words: str, data_dir: Path, log: Path) -> EmbeddedPostgresError:
    """Makes an error of the server's last words and the way out that belongs to them."""
    kind = PassingTrouble if _PASSING.search(words) else EmbeddedPostgresError
    ways = (advice for pattern, advice in _WAYS_OUT if pattern.search(words))
    advice = next(ways, _DEFAULT_WAY_OUT).format(data_dir=data_dir, log=log)
    return kind(f"{what}: {advice}\n{_indented(words)}")


def last_words(log: Path, start: int) -> str:
    """Returns the last lines that a log got since the given position."""
    try:
        with log.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(start, size - _TAIL_BYTES))
            text = stream.read().decode("utf-8", "replace")
    except OSError as error:
        return f"({log} cannot be read: {error.strerror})"
    return tail(text) or "(the server said nothing)"


def tail(text: str) -> str:
    """Returns the last lines of a text."""
    return "\n".join(text.strip().splitlines()[-_TAIL_LINES:])


def _indented(words: str) -> str:
    return "\n".join(f"  | {line}" for line in words.splitlines())
