"""Formats logs: lines for people, or JSON objects for machines.

Answers for the shape of a line and where it goes (standard error: standard output is for the
listeners and `ready`), for what no line may hold (control characters that a peer chose, bytes,
passwords), and, with `gateway.log_repetitions`, for how many lines of a kind there are. It must not
decide what is worth a line.
"""

from __future__ import annotations

import atexit
import logging
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TextIO

import msgspec

from gateway.log_repetitions import Repetitions

_STANDARD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_ENCODER: Final = msgspec.json.Encoder(enc_hook=str)

OURS: Final = frozenset(("gateway", "protocols", "queue_core", "spark_etl", "migrations"))
LONGEST_TEXT_CHARACTERS: Final = 4096  # of a message, or of one fact
LONGEST_PART_CHARACTERS: Final = 1024  # of one value in a message
LONGEST_TRACE_CHARACTERS: Final = 32_768
TRACE_MARGIN: Final = "  | "  # no line of a trace can be taken for a line of the log

# Control characters, line separators, marks that turn the direction of writing or are not seen,
# and halves of surrogate pairs, which no terminal or file can take.
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
_SHORT_ESCAPES: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
# A net below the rule that no code of ours logs a peer's bytes or a secret: libraries' texts.
# A name that ends in b, such as 'node-b', begins no bytes with its closing quote.
_SECRETS: Final = (
    (re.compile(r"(?<![\w./-])b'(?:[^'\\\n]|\\.)*(?:'|$)", re.M), "<bytes left out>"),
    (re.compile(r'(?<![\w./-])b"(?:[^"\\\n]|\\.)*(?:"|$)', re.M), "<bytes left out>"),
    (re.compile(r"(invalid input for query argument \$\d+: ).*(?= \()"), r"\1a value"),
    (re.compile(r"(\b\w+://[^\s:/@]*):[^\s@]*@"), r"\1:***@"),
    (re.compile(r"(?i)\b(authorization\b\W{1,6}(?:\w+ +)?)[^\s'\",)]+"), r"\1***"),
    (re.compile(r"(?i)\b(passw(?:or)?d\s*=\s*)('[^'\n]*'|\"[^\"\n]*\"|[^\s,)]+)"), r"\1***"),
)


def escaped(text: str) -> str:
    """Puts the text on one line, as a terminal shows it: what would move the cursor, begin a line
    or hide something is spelled out."""
    return _UNPRINTABLE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    code = ord(character)
    return _SHORT_ESCAPES.get(character) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def without_secrets(text: str) -> str:
    """Removes byte strings, passwords in URLs, and `Authorization` from a text."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


class Clean(str):
    """Text without secrets, which need not be searched for them again."""

    __slots__ = ()


class _Part:
    """A value that a log line names. It is searched for secrets, and cut, by itself: a name that a
    peer chose, which looks like the begin of a secret or is very long, must not hide what the line
    says next, such as the client's address."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return _cut(str(self._value), LONGEST_PART_CHARACTERS)

    def __repr__(self) -> str:
        return _cut(repr(self._value), LONGEST_PART_CHARACTERS)


def _part(value: object) -> object:
    return value if isinstance(value, int | float | Clean) else _Part(value)


def message_of(record: logging.LogRecord) -> Clean:
    """Returns a record's message without secrets. Libraries' lines are searched as a whole."""
    template, values = record.msg, record.args
    if not values or record.name.partition(".")[0] not in OURS:
        return Clean(without_secrets(record.getMessage()))
    if isinstance(values, Mapping):
        return Clean(str(template) % {name: _part(value) for name, value in values.items()})
    return Clean(str(template) % tuple(_part(value) for value in values))


def _shown(value: object) -> str:
    if isinstance(value, Clean) and len(value) <= LONGEST_TEXT_CHARACTERS:
        return escaped(value)
    return escaped(_cut(str(value), LONGEST_TEXT_CHARACTERS))


def _cut(text: str, longest: int) -> str:
    rest = len(text) - longest
    shown = without_secrets(text[:longest])
    return shown if rest <= 0 else f"{shown}... ({rest} more characters)"


class TextFormatter(logging.Formatter):
    """Writes 2026-01-31 12:00:00.123 INFO protocols.mqtt: client gone (client_id=a,
    reason=timeout)"""

    def format(self, record: logging.LogRecord) -> str:
        moment = _moment(record).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        facts = ", ".join(f"{name}={_shown(value)}" for name, value in _facts(record).items())
        message = _shown(message_of(record)) + (f" ({facts})" if facts else "")
        line = f"{moment} {record.levelname:<7} {record.name}: {message}"
        return "\n".join((line, *(TRACE_MARGIN + each for each in _trace(self, record))))


class JsonFormatter(logging.Formatter):
    """Writes one JSON object a line: time, level, logger, message, the record's own facts, the
    trace."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": _moment(record).isoformat(timespec="microseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _shown(message_of(record)),
            **{name: _fact(value) for name, value in _facts(record).items()},
        }
        trace = _trace(self, record)
        if trace:
            entry["trace"] = "\n".join(trace)
        return _ENCODER.encode(entry).decode()


_FORMATTERS: Final[dict[str, type[logging.Formatter]]] = {
    "text": TextFormatter,
    "json": JsonFormatter,
}


def set_up_logging(level: str, style: str, stream: TextIO | None = None) -> None:
    """Sends every log line of this process to one stream, in one style."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(_FORMATTERS[style]())
    repetitions = Repetitions(handler, message_of)
    handler.addFilter(repetitions)
    atexit.register(repetitions.end)
    root = logging.getLogger()
    for earlier in root.handlers[:]:
        root.removeHandler(earlier)
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.captureWarnings(True)


def _moment(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _facts(record: logging.LogRecord) -> dict[str, object]:
    """Returns the fields that the caller gave as `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}


def _fact(value: object) -> object:
    return value if value is None or isinstance(value, bool | int | float) else _shown(value)


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    """Returns the lines of a trace. Its frames matter most: of one that is too long, the middle
    goes."""
    parts = []
    if record.exc_info:
        parts.append(formatter.formatException(record.exc_info))
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    text = "\n".join(parts)
    if len(text) > LONGEST_TRACE_CHARACTERS:
        half = LONGEST_TRACE_CHARACTERS // 2
        left_out = len(text) - LONGEST_TRACE_CHARACTERS
        text = f"{text[:half]}\n... {left_out} characters ...\n{text[-half:]}"
    return [escaped(line) for line in without_secrets(text).split("\n")] if text else []
