"""Logs: lines for people, or JSON objects for machines.

Answers for the shape of a line and where it goes (standard error: standard output is for the
listeners and `ready`). It must not decide what is worth a line.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Final, TextIO

import msgspec

_STANDARD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_ENCODER: Final = msgspec.json.Encoder(enc_hook=str)


class TextFormatter(logging.Formatter):
    """2026-01-31 12:00:00.123 INFO    protocols.mqtt: client gone (client_id=a, reason=timeout)"""

    def format(self, record: logging.LogRecord) -> str:
        moment = _moment(record).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        facts = ", ".join(f"{name}={value}" for name, value in _facts(record).items())
        message = record.getMessage() + (f" ({facts})" if facts else "")
        line = f"{moment} {record.levelname:<7} {record.name}: {message}"
        trace = _trace(self, record)
        return f"{line}\n{trace}" if trace else line


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, message, the record's own facts, the trace."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": _moment(record).isoformat(timespec="microseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_facts(record),
        }
        trace = _trace(self, record)
        if trace:
            entry["trace"] = trace
        return _ENCODER.encode(entry).decode()


_FORMATTERS: Final[dict[str, type[logging.Formatter]]] = {
    "text": TextFormatter,
    "json": JsonFormatter,
}


def set_up_logging(level: str, style: str, stream: TextIO | None = None) -> None:
    """Send every log line of this process to one stream, in one style."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(_FORMATTERS[style]())
    root = logging.getLogger()
    for earlier in root.handlers[:]:
        root.removeHandler(earlier)
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.captureWarnings(True)


def _moment(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _facts(record: logging.LogRecord) -> dict[str, object]:
    """What the caller gave as `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = []
    if record.exc_info:
        parts.append(formatter.formatException(record.exc_info))
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    return "\n".join(parts)
