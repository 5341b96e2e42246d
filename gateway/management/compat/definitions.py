"""Definitions as one file over HTTP: `/api/definitions`, as RabbitMQ's tools export and import
them."""

from __future__ import annotations

import asyncio
from email.message import Message as Header
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from gateway.definitions import export_file, import_file, plan_import
from gateway.management.answers import NO_CONTENT, Reply, encoded
from gateway.management.api_errors import bad_request
from gateway.management.call import Call
from gateway.management.roles import Role
from gateway.management.routes import NoQuery, Query, Route
from queue_core.definitions.document import MOST_BYTES
from queue_core.definitions.plan import Action, Plan
from queue_core.store.operator.definition_statements import statement

SOURCE: Final = "HTTP"
MULTIPART: Final = "multipart/form-data"
ROOM: Final = 64 * 1024  # for what a form has around the file


class ImportQuery(Query, frozen=True):
    strict: Annotated[bool, Meta(description="change nothing unless everything can be taken")] = (
        False
    )
    dry_run: Annotated[bool, Meta(description="change nothing, and tell what would be done")] = (
        False
    )


class ImportReport(Struct, frozen=True):
    """What an import has done. Given where something in the file was not taken; otherwise the
    answer is empty, as RabbitMQ's is."""

    created: int
    changed: int
    same: int
    left_out: list[str]


class StepRow(Struct, frozen=True):
    """What would become of one item."""

    section: str
    vhost: str | None
    name: str
    action: str
    reason: str
    notes: tuple[str, ...]
    sql: str


async def export_all(call: Call[NoQuery, None]) -> Reply:
    found = await export_file(call.manager, None)
    return Reply(200, await asyncio.to_thread(encoded, found))


async def export_vhost(call: Call[NoQuery, None]) -> Reply:
    found = await export_file(call.manager, call.vhost().name)
    return Reply(200, await asyncio.to_thread(encoded, found))


async def import_all(call: Call[ImportQuery, bytes]) -> Reply:
    return await _import(call, None)


async def import_vhost(call: Call[ImportQuery, bytes]) -> Reply:
    return await _import(call, call.vhost().name)


async def _import(call: Call[ImportQuery, bytes], vhost: str | None) -> Reply:
    data = _file_in(call)
    shortest = call.services.config.auth.min_password_length
    if call.query.dry_run:
        plan = await plan_import(call.manager, data, vhost, shortest_password=shortest)
        return Reply(200, [_row(step) for step in plan.steps])
    report = await import_file(
        call.manager,
        data,
        vhost,
        source=SOURCE,
        shortest_password=shortest,
        imported_by=call.identity.name,
        strict=call.query.strict,
    )
    if not report.complaints:
        return NO_CONTENT
    return Reply(200, _report(report.plan, len(report.failures), report.complaints))


def _row(step: Any) -> StepRow:
    return StepRow(
        section=step.section.value,
        vhost=step.vhost,
        name=step.name,
        action=step.action.value,
        reason=step.reason,
        notes=step.notes,
        sql=statement(step),
    )


def _report(plan: Plan, failures: int, complaints: list[str]) -> ImportReport:
    counts = plan.counts()
    return ImportReport(
        created=counts[Action.CREATE] - failures,
        changed=counts[Action.CHANGE],
        same=counts[Action.SAME],
        left_out=complaints,
    )


def _file_in(call: Call[Any, bytes]) -> bytes:
    """Returns the file in a body: the body itself, or the field `file` of a form that a browser
    sends. Raises 400."""
    if call.request.content_type != MULTIPART:
        return call.body
    header = Header()
    header["Content-Type"] = call.request.headers["Content-Type"]
    boundary = header.get_param("boundary")
    if not isinstance(boundary, str) or not boundary:
        raise bad_request("the form has no boundary")
    for part in call.body.split(b"--" + boundary.encode()):
        head, separator, content = part.partition(b"\r\n\r\n")
        if separator and b'name="file"' in head.replace(b"name=file", b'name="file"'):
            return content.removesuffix(b"\r\n")
    raise bad_request("the form has no field 'file'")


FORMS: Final[dict[str, Any]] = {"requestBody": {"content": {"application/json": {}, MULTIPART: {}}}}
ROUTES: Final = (
    Route(
        method="GET",
        path="/api/definitions",
        handler=export_all,
        summary="All definitions as one file",
        role=Role.ADMINISTRATOR,
        answer=dict[str, Any],
    ),
    Route(
        method="POST",
        path="/api/definitions",
        handler=import_all,
        summary="Make what a file defines; 200 tells what was not taken",
        role=Role.ADMINISTRATOR,
        query=ImportQuery,
        body=bytes,
        answer=ImportReport | list[StepRow],
        statuses=(200, 204),
        most_body_bytes=MOST_BYTES + ROOM,
        extra=FORMS,
    ),
    Route(
        method="GET",
        path="/api/definitions/{vhost}",
        handler=export_vhost,
        summary="The definitions of a virtual host as one file",
        role=Role.ADMINISTRATOR,
        answer=dict[str, Any],
    ),
    Route(
        method="POST",
        path="/api/definitions/{vhost}",
        handler=import_vhost,
        summary="Make what the file of a virtual host defines; 200 tells what was not taken",
        role=Role.ADMINISTRATOR,
        query=ImportQuery,
        body=bytes,
        answer=ImportReport | list[StepRow],
        statuses=(200, 204),
        most_body_bytes=MOST_BYTES + ROOM,
        extra=FORMS,
    ),
)
