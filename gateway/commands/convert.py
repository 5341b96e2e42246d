"""`howdah convert`: shows how a message of one protocol looks in another.

The message goes through the code that serves it, so what is shown is what a consumer gets. No
database and no listener is needed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from gateway.commands.command import CommandError, Commands, add_command, add_json
from gateway.commands.output import print_json, print_table
from gateway.config.keys import Config
from gateway.message_files.document import Document, MessageFileError, parse, tagged
from gateway.message_files.protocols import PROTOCOLS, converted
from gateway.message_files.traces import Trace, traces
from queue_core.errors import CoreError

MOST_SHOWN = 60  # characters of a value in the table
MOST_BYTES = 16 * 1024 * 1024


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "convert",
        convert,
        "show what a message of one protocol becomes in another",
        "howdah convert --from mqtt5 --to amqp10 message.json\n"
        "howdah convert --from amqp091 --to mqtt5 --json - < message.json",
        "Shows each property with the place and the value that a consumer finds it under, what "
        "travels under another name, and what does not travel at all. docs/interop.md has the "
        "rules, and the format of the file.",
    )
    names = list(PROTOCOLS)
    parser.add_argument("--from", dest="source", required=True, choices=names, help="publisher's")
    parser.add_argument("--to", dest="target", required=True, choices=names, help="consumer's")
    parser.add_argument("file", metavar="FILE", help="the message as JSON; '-': standard input")
    add_json(parser)


async def convert(options: argparse.Namespace, config: Config) -> int:
    document = _read(options.file)
    try:
        print_conversion(document, options.source, options.target, as_json=options.json)
    except (MessageFileError, CoreError) as error:
        what = PROTOCOLS[options.source].title
        raise CommandError(f"{options.file}: no message of {what}: {error}") from error
    return 0


def print_conversion(document: Document, source: str, target: str, as_json: bool = False) -> None:
    """Converts a message and prints it. Raises MessageFileError and CoreError."""
    result = converted(document, source, target)
    found = traces(document, source, target)
    if as_json:
        print_json({"message": tagged(result), "properties": [_plain(each) for each in found]})
    else:
        _print(found, result, target)


def _read(name: str) -> Document:
    try:
        if name == "-":
            data = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror}") from error
    if len(data) > MOST_BYTES:
        raise CommandError(f"{name}: longer than {MOST_BYTES} bytes; leave out most of the body")
    try:
        return parse(data)
    except MessageFileError as error:
        raise CommandError(f"{name}: {error}") from error


def _plain(trace: Trace) -> dict[str, object]:
    return {
        "from": trace.source,
        "to": [{"place": place, "value": tagged(value)} for place, value in trace.found],
        "becomes": trace.verdict,
    }


def _print(found: list[Trace], result: Document, target: str) -> None:
    rows: list[tuple[object, ...]] = []
    for trace in found:
        if not trace.found:
            rows.append((trace.source, "", "", trace.verdict))
        for place, value in trace.found:
            rows.append((trace.source, place, _shown(value), trace.verdict))
    print_table(("from", "to", "value", "becomes"), rows)
    print(f"\nWhat a consumer of {PROTOCOLS[target].title} gets:")
    print_json(tagged(result))


def _shown(value: object) -> str:
    plain = tagged(value)
    text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
    text = text if text.isprintable() else json.dumps(text)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}... ({len(text)} characters)"
