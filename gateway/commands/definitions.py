"""`howdah definitions`: users, permissions, policies, exchanges, queues and bindings as one file,
in RabbitMQ's form.

Works on the database. Where a gateway runs, it makes the exchanges, queues and bindings itself;
where none runs, the command takes the database for the moment as a gateway without listeners.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from gateway.commands.command import (
    CommandError,
    Commands,
    add_command,
    add_family,
    add_json,
    seconds,
)
from gateway.commands.database import engine_for, operating
from gateway.commands.output import print_json, print_table
from gateway.config.keys import Config

if TYPE_CHECKING:
    from gateway.definitions import Report
    from queue_core.definitions.plan import Plan, Step
    from queue_core.definitions.present import Present

STANDARD: Final = "-"  # standard input or output
SOURCE: Final = "command"
SECRET_MODE: Final = 0o600  # a file with hashes of passwords is its owner's alone
FILE_FORM: Final = (
    "FILE has the form of RabbitMQ's definitions (rabbitmqctl export_definitions, rabbitmqadmin "
    "export, GET /api/definitions); - is standard input or output."
)
TAKES: Final = (
    "Files of RabbitMQ 3 and 4 are taken as they are, with its password hashes: clients log in "
    "with their old passwords, and the first good login replaces the hash by our own. Until then "
    "SCRAM is not possible for that user."
)
ORDER: Final = (
    "Users, virtual hosts, permissions, policies and parameters are written in one transaction, "
    "all or none. Then exchanges, queues and bindings are made, in this order, and what fails "
    "is named. Nothing is deleted. Importing the same file again makes what is missing."
)


def register(commands: Commands) -> None:
    family = add_family(commands, "definitions", "users, queues and bindings as one file")
    parser = add_command(
        family,
        "export",
        export,
        "write all definitions to a file, or those of a virtual host",
        FILE_FORM,
        "The file has hashes of passwords in it, so only its owner may read it.",
    )
    _add_file(parser)
    parser = add_command(
        family, "import", import_, "make what a file defines", FILE_FORM, TAKES, ORDER
    )
    _add_file(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="only show what would be done, and the SQL of it"
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="change nothing unless everything in the file can be taken",
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=600.0,
        metavar="SECONDS",
        help="to wait for a running gateway (default: 600)",
    )
    add_json(parser)
    parser = add_command(
        family,
        "diff",
        diff,
        "compare a file with what is there",
        FILE_FORM,
        "+ is in the file only, - is here only, ~ is different, ! cannot be taken. The exit code "
        "is 1 where they differ.",
    )
    _add_file(parser)
    add_json(parser)


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="definitions as JSON, or -")
    parser.add_argument(
        "--vhost",
        metavar="NAME",
        help="only parameters, policies, exchanges, queues and bindings of this virtual host; the "
        "file of one virtual host may go into another",
    )


# --- export


async def export(options: argparse.Namespace, config: Config) -> int:
    from gateway.definitions import exported

    present = await _present(config)
    _require_vhost(present, options.vhost)
    text = msgspec.json.format(msgspec.json.encode(exported(present, options.vhost)), indent=2)
    if options.file == STANDARD:
        print(text.decode())
        return 0
    try:
        _write(Path(options.file), text + b"\n")
    except OSError as error:
        raise CommandError(f"{options.file} cannot be written: {error.strerror}") from error
    return 0


def _write(path: Path, text: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, SECRET_MODE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)


async def _present(config: Config, *, make: bool = False) -> Present:
    from queue_core.store.tables.definitions_import import present_in_tables

    async with engine_for(config, make=make) as engine:
        return await present_in_tables(engine)


def _require_vhost(present: Present, vhost: str | None) -> None:
    if vhost is not None and vhost not in present.vhosts:
        raise CommandError(
            f"there is no virtual host '{vhost}': make it with `howdah vhost add {vhost}`"
        )


# --- import


async def import_(options: argparse.Namespace, config: Config) -> int:
    from queue_core.definitions.document import read_document
    from queue_core.definitions.planning import make_plan

    data = _read(options.file)
    document = read_document(data, options.vhost)
    present = await _present(config, make=not options.dry_run)
    _require_vhost(present, options.vhost)
    plan = make_plan(document, present, shortest_password=config.auth.min_password_length)
    if options.strict:
        plan.require_complete()
    if options.dry_run:
        _print_plan(plan, as_json=options.json)
        return 0
    report = await _carry_out(options, config, plan, data)
    _print_report(report, as_json=options.json)
    return 1 if report.failures else 0


def _read(name: str) -> bytes:
    from queue_core.definitions.document import MOST_BYTES

    try:
        if name == STANDARD:
            return sys.stdin.buffer.read(MOST_BYTES + 1)
        with Path(name).open("rb") as file:
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        raise CommandError(f"{name} cannot be read: {error.strerror}") from error


async def _carry_out(
    options: argparse.Namespace, config: Config, plan: Plan, data: bytes
) -> Report:
    async with operating(config) as operations:
        is_served = await operations.is_served()
    if is_served:
        return await _through_the_gateway(options, config, plan, data)
    return await _without_a_gateway(config, options, data)


async def _through_the_gateway(
    options: argparse.Namespace, config: Config, plan: Plan, data: bytes
) -> Report:
    """Writes the rights, and asks the running gateway for the rest."""
    from gateway.commands.rights_confirmation import changing
    from gateway.definitions import Report
    from queue_core.definitions.document_export import topology_of
    from queue_core.definitions.topology_import import Failure
    from queue_core.store.tables.definitions_import import DefinitionsImports

    async with changing(config) as engine:
        await DefinitionsImports(engine).write_rights(plan.steps)
    failures: list[Failure] = []
    async with operating(config) as operations:
        for vhost, steps in _by_vhost(plan).items():
            command = await operations.import_definitions(vhost, topology_of(steps))
            result = await operations.outcome(command, options.timeout)
            named = {step.label: step for step in steps}
            failures += [Failure(named[label], reason) for label, reason in result["not_made"]]
    report = Report(plan, tuple(failures))
    async with engine_for(config) as engine:
        await DefinitionsImports(engine).note(report.record(SOURCE, None, data))
    return report


def _by_vhost(plan: Plan) -> dict[str, list[Step]]:
    """Returns the exchanges, queues and bindings to make, by their virtual hosts."""
    from queue_core.definitions.items import TOPOLOGY

    found: dict[str, list[Step]] = {}
    for step in plan.changes:
        if step.section in TOPOLOGY and step.vhost is not None:
            found.setdefault(step.vhost, []).append(step)
    return found


async def _without_a_gateway(config: Config, options: argparse.Namespace, data: bytes) -> Report:
    """Does what the gateway would do, in this process: it owns the database meanwhile, so that no
    gateway can start beside it."""
    from gateway.adapters import FORMS, manager_settings
    from gateway.database import open_database, reaching
    from gateway.definitions import import_file
    from queue_core.manager import Manager

    async with open_database(config) as url, reaching(url):
        manager = await Manager.open(
            url, forms=FORMS, settings=manager_settings(config), policy=config.auth
        )
        try:
            return await import_file(
                manager,
                data,
                options.vhost,
                source=SOURCE,
                shortest_password=config.auth.min_password_length,
                strict=options.strict,
            )
        finally:
            await manager.close()


# --- what people see


def _print_plan(plan: Plan, *, as_json: bool) -> None:
    from queue_core.store.operator.definition_statements import statement

    if as_json:
        print_json({"steps": [_as_json(step) for step in plan.steps], "notes": plan.notes})
        return
    rows = [(step.label, step.action.value, statement(step) or None) for step in plan.steps]
    print_table(("item", "action", "sql"), rows)
    _print_complaints(plan.complaints)


def _as_json(step: Step) -> dict[str, object]:
    from queue_core.store.operator.definition_statements import statement

    return {
        "section": step.section.value,
        "vhost": step.vhost,
        "name": step.name,
        "action": step.action.value,
        "reason": step.reason,
        "notes": step.notes,
        "sql": statement(step),
    }


def _print_report(report: Report, *, as_json: bool) -> None:
    counts = report.plan.counts()
    counts["create"] -= len(report.failures)
    if as_json:
        print_json({**counts, "left_out": report.complaints})
        return
    print(
        f"{counts['create']} made, {counts['change']} changed, {counts['same']} were there already"
    )
    _print_complaints(report.complaints)


def _print_complaints(complaints: Iterable[str]) -> None:
    for number, line in enumerate(complaints):
        if number == 0:
            print("not taken, or without effect:", file=sys.stderr)
        print(f"  {line}", file=sys.stderr)


# --- diff


async def diff(options: argparse.Namespace, config: Config) -> int:
    from gateway.definitions import exported
    from queue_core.definitions.comparison import only_here
    from queue_core.definitions.document import read_document
    from queue_core.definitions.planning import make_plan

    document = read_document(_read(options.file), options.vhost)
    present = await _present(config)
    _require_vhost(present, options.vhost)
    plan = make_plan(document, present, shortest_password=config.auth.min_password_length)
    here = [
        each.label for each in only_here(document, exported(present, options.vhost), options.vhost)
    ]
    lines = [line for step in plan.steps if (line := _difference(step))]
    lines += [("-", label, "") for label in here]
    if options.json:
        print_json([dict(zip(("mark", "item", "reason"), line, strict=True)) for line in lines])
    else:
        for mark, label, reason in lines:
            print(f"{mark} {label}{f': {reason}' if reason else ''}")
    return 1 if lines else 0


def _difference(step: Step) -> tuple[str, str, str] | None:
    marks = {"create": "+", "change": "~", "conflict": "~", "unsupported": "!"}
    mark = marks.get(step.action.value)
    return None if mark is None else (mark, step.label, step.reason)
