"""Prints answers on standard output: tables for people, JSON for machines.

Knows how values look, not what they mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

MOST_BODY_CHARACTERS = 200


def print_json(value: object) -> None:
    text = msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2)
    print(text.decode())


def print_json_line(value: object) -> None:
    """Prints one object on a line, and flushes: somebody may be reading along."""
    print(msgspec.json.encode(value, enc_hook=str).decode(), flush=True)


def print_table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints columns as wide as their widest value; numbers to the right."""
    values = [list(row) for row in rows]
    cells = [[shown(value) for value in row] for row in values]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    are_numbers = [
        bool(column) and all(isinstance(value, int | type(None)) for value in column)
        for column in (zip(*values, strict=True) if values else [()] * len(names))
    ]
    for row in ([name.upper() for name in names], *cells):
        padded = (
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(row, widths, are_numbers, strict=True)
        )
        print("  ".join(padded).rstrip())


def shown(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case timedelta():
            return shown_age(value)
        case datetime():
            return value.strftime("%Y-%m-%d %H:%M:%S%z")
        case _:
            return str(value)


def shown_age(age: timedelta) -> str:
    seconds = int(age.total_seconds())
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def shown_bytes(size: int) -> str:
    number = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def shown_body(body: bytes, limit: int | None = MOST_BODY_CHARACTERS) -> str:
    """Shows a body as text where it is text, else in hexadecimal; shortened, and saying so."""
    try:
        text = body.decode()
        is_text = text.isprintable() or not any(c < " " and c not in "\t\r\n" for c in text)
    except UnicodeDecodeError:
        is_text = False
    if not is_text:
        text = "\\x" + body.hex()
    if limit is not None and len(text) > limit:
        return f"{text[:limit]}... ({len(body)} bytes)"
    return text
