"""Messages of a queue or stream, looked at without side effects.

Reading a body needs read permission on the queue, whatever the tags. A queue of the gateway's own,
such as a session's, holds what one user may read: only administrators look into it.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from gateway.management.api_errors import bad_request, not_found
from gateway.management.call import Call, whole_number
from gateway.management.roles import Role
from gateway.management.routes import Query, Route
from gateway.management.v1.conversion import Conversion, conversions_of
from gateway.management.v1.memory_rows import is_chosen, row_of
from gateway.management.v1.payloads import Encoding, payload
from queue_core.access.auth import Action, Resource
from queue_core.message.condition import (
    EVERYTHING,
    Comparison,
    Condition,
    all_of,
    field_named,
    parse,
    time_in,
)
from queue_core.queues.competing import CompetingQueue
from queue_core.queues.queue import Queue
from queue_core.queues.reserved_names import is_own
from queue_core.store.operator.browsing import BrowsedMessage, Page, Range
from queue_core.vhost import Vhost

MOST_ROWS: Final = 500
MOST_BODY_BYTES: Final = 1024 * 1024
MOST_HOLDERS: Final = 1_000  # consumers that are asked what they have in hand
MOST_IN_MEMORY: Final = 10_000  # messages of a queue in memory that one look goes over
LARGEST_OFFSET: Final = 2**62

Offset = Annotated[int, Meta(ge=0, le=LARGEST_OFFSET)]


class BrowseQuery(Query, frozen=True, forbid_unknown_fields=True):
    """Which messages, in which order, and how much of each."""

    from_offset: Annotated[Offset, Meta(description="where to begin")] | None = None
    from_time: (
        Annotated[str, Meta(description="begin at what came then or later; ISO 8601")] | None
    ) = None
    order: Literal["oldest", "newest"] = "oldest"
    key: Annotated[str, Meta(description="only messages with this routing key")] | None = None
    header: Annotated[str, Meta(description="only those with this header: name=value")] | None = (
        None
    )
    condition: Annotated[
        str, Meta(description="only those for which it holds, such as priority > 3")
    ] = ""
    settled: Annotated[bool, Meta(description="also those that are settled and still stored")] = (
        False
    )
    limit: Annotated[int, Meta(ge=1, le=MOST_ROWS)] = 50
    truncate: Annotated[int, Meta(ge=0, le=MOST_BODY_BYTES, description="bytes of each body")] = (
        50_000
    )
    encoding: Encoding = "auto"


class OneQuery(Query, frozen=True, forbid_unknown_fields=True):
    """How much of the body, and how."""

    truncate: Annotated[int, Meta(ge=0, le=MOST_BODY_BYTES)] = MOST_BODY_BYTES
    encoding: Encoding = "auto"


class MessageRow(Struct, frozen=True):
    """A message as it lies in its queue."""

    offset: int
    state: str
    enqueued_at: datetime | None
    not_before: datetime | None
    expires_at: datetime | None
    delivery_count: int
    failed_because: str | None
    priority: int | None
    durable: bool
    exchange: str
    routing_key: str
    topic: str | None
    content_type: str | None
    content_encoding: str | None
    message_id: str | None
    correlation_id: str | None
    reply_to: str | None
    subject: str | None
    app_id: str | None
    user_id: str | None
    group_id: str | None
    created_at: datetime | None
    headers: dict[str, Any] | None
    publisher: str | None
    protocol: str | None
    deaths: list[dict[str, Any]] | None
    failure: str | None
    payload: str
    payload_encoding: str
    payload_bytes: int
    is_truncated: bool


class MessagePage(Struct, frozen=True):
    """One page. `next_offset` begins the next one; null: there are no more."""

    items: list[MessageRow]
    looked_at: int
    next_offset: int | None
    sql: str | None  # null: the queue is in memory, and no table has it


class OneMessage(Struct, frozen=True):
    """One message, also as a consumer of each protocol would get it."""

    message: MessageRow
    conversions: list[Conversion]
    sql: str | None


class LifeEvent(Struct, frozen=True):
    at: datetime | None
    event: str
    detail: dict[str, Any]


class Life(Struct, frozen=True):
    """What log and journal know of one message, in order."""

    events: list[LifeEvent]
    sql: str


def readable_queue(call: Call[Any, Any]) -> tuple[Vhost, Queue]:
    """Finds the queue in the path, for a caller who may read its messages. Raises 404 or 401."""
    vhost = call.own_vhost()
    name = call.path["name"]
    queue = vhost.queues.get(name)
    if queue is None:
        raise not_found(f"there is no queue '{name}' in virtual host '{vhost.name}'")
    if is_own(name):
        call.require_role(Role.ADMINISTRATOR)
    call.require(Action.READ, Resource("queue", vhost.name, name))
    return vhost, queue


async def browse(call: Call[BrowseQuery, None]) -> MessagePage:
    vhost, queue = readable_queue(call)
    query = call.query
    condition = _condition(query)
    if queue.is_stored:
        page = await _stored(call, vhost, queue, condition)
        rows, next_offset, sql = page.messages, page.next_offset, page.sql
        looked_at = page.looked_at
    else:
        rows, looked_at, next_offset = await _in_memory(call, vhost, queue, condition)
        sql = None
    held = offsets_in_flight(queue, {each.offset for each in rows})
    items = [row(each, query.encoding, query.truncate, held) for each in rows]
    return MessagePage(items, looked_at, next_offset, sql)


def _condition(query: BrowseQuery) -> Condition:
    """Joins everything that the query asks of a message. Raises InvalidCondition."""
    parts: list[Condition] = []
    if query.key is not None:
        parts.append(Comparison(field_named("routing_key"), "=", _storable(query.key)))
    if query.header is not None:
        name, is_there, value = query.header.partition("=")
        if not is_there or not name:
            raise bad_request("write header=NAME=VALUE; a condition can ask for more")
        parts.append(Comparison(field_named("header", _storable(name)), "=", _storable(value)))
    if query.condition.strip():
        parts.append(parse(query.condition))
    return all_of(*parts) if parts else EVERYTHING


def _storable(text: str) -> str:
    if "\0" in text:
        raise bad_request("PostgreSQL's texts have no zero characters; no message has one there")
    return text


async def _stored(
    call: Call[BrowseQuery, None], vhost: Vhost, queue: Queue, condition: Condition
) -> Page:
    query, browser = call.query, call.manager.inspection.browser
    start = query.from_offset
    if query.from_time is not None:
        if start is not None:
            raise bad_request("give from_offset or from_time, not both")
        start = await browser.offset_at(vhost.name, queue.name, time_of(query.from_time))
        if query.order == "newest":
            start = max(start - 1, 0)
    place = Range(
        vhost=vhost.name,
        queue=queue.name,
        start=start,
        newest_first=query.order == "newest",
        with_settled=query.settled,
    )
    return await browser.browse(place, condition, query.limit, query.truncate)


async def _in_memory(
    call: Call[BrowseQuery, None], vhost: Vhost, queue: Queue, condition: Condition
) -> tuple[list[BrowsedMessage], int, int | None]:
    query = call.query
    if query.from_time is not None or query.order == "newest" or query.settled:
        raise bad_request(
            f"queue '{queue.name}' is in memory: it is browsed by offset, the oldest first, and "
            "what was settled is gone"
        )
    entries = await vhost.browse(queue.name, query.from_offset or 0, MOST_IN_MEMORY)
    now = call.manager.clock()
    found: list[BrowsedMessage] = []
    looked_at = 0
    async for part in call.services.loop_share.slices(entries, lambda each: row_of(each, now)):
        for each in part:
            looked_at += 1
            if is_chosen(each, condition):
                found.append(each)
                if len(found) == query.limit:
                    return found, looked_at, each.offset + 1
    is_more = len(entries) == MOST_IN_MEMORY
    return found, looked_at, entries[-1].offset + 1 if is_more else None


def time_of(text: str) -> datetime:
    """Reads a time of a query; without an offset it is UTC. Raises 400."""
    try:
        return time_in(text.replace(" ", "+"))
    except ValueError:
        raise bad_request(f"'{text}' is no time; write it as 2026-01-31T12:00:00Z") from None


def offsets_in_flight(queue: Queue, offsets: set[int]) -> set[int]:
    """Tells which of these messages consumers have in hand now: the tables do not."""
    if not isinstance(queue, CompetingQueue):
        return set()
    held: set[int] = set()
    for consumer in islice(queue.cursor.consumer_set.holders(), MOST_HOLDERS):
        held |= offsets & consumer.unsettled.keys()
    return held


def row(each: BrowsedMessage, encoding: Encoding, truncate: int, in_flight: set[int]) -> MessageRow:
    """Writes a message for JSON."""
    facts = asdict(each)
    if each.offset in in_flight:
        facts["state"] = "in flight"
    size, body = facts.pop("body_bytes"), facts.pop("body")[:truncate]
    text, used = payload(body, encoding, is_cut=size > len(body))
    return MessageRow(
        **facts,
        payload=text,
        payload_encoding=used,
        payload_bytes=size,
        is_truncated=size > len(body),
    )


async def show(call: Call[OneQuery, None]) -> OneMessage:
    vhost, queue = readable_queue(call)
    offset, query = offset_in_path(call), call.query
    sql: str | None = None
    entries = await vhost.browse(queue.name, offset, 1)
    entry = entries[0] if entries and entries[0].offset == offset else None
    if queue.is_stored:
        place = Range(vhost=vhost.name, queue=queue.name, start=offset, with_settled=True)
        wanted = Comparison(field_named("offset"), "=", offset)
        page = await call.manager.inspection.browser.browse(place, wanted, 1, query.truncate)
        rows, sql = page.messages, page.sql
    else:
        rows = [row_of(entry, call.manager.clock())] if entry is not None else []
    if not rows:
        raise not_found(f"queue '{queue.name}' has no message at offset {offset} any more")
    now = call.manager.clock()
    converted = [] if entry is None else conversions_of(entry.message, now, query.truncate)
    held = offsets_in_flight(queue, {offset})
    return OneMessage(row(rows[0], query.encoding, query.truncate, held), converted, sql)


async def life(call: Call[Any, None]) -> Life:
    vhost, queue = readable_queue(call)
    if not queue.is_stored:
        raise bad_request(f"queue '{queue.name}' is in memory: nothing is written down of it")
    offset = offset_in_path(call)
    events, sql = await call.manager.inspection.browser.life(vhost.name, queue.name, offset)
    if not events:
        raise not_found(f"nothing is known of offset {offset} of queue '{queue.name}'")
    return Life([LifeEvent(each.at, each.event, each.detail) for each in events], sql)


def offset_in_path(call: Call[Any, Any]) -> int:
    text = call.path["offset"]
    offset = whole_number(text, LARGEST_OFFSET)
    if offset is None:
        raise bad_request(f"'{text[:40]}' is no offset: it is a number from 0 on")
    return offset


PATH: Final = "/api/howdah/v1/queues/{vhost}/{name}/messages"
ROUTES: Final = (
    Route(
        method="GET",
        path=PATH,
        handler=browse,
        summary="Messages by offset, time, key, header or condition, without side effects",
        query=BrowseQuery,
        answer=MessagePage,
    ),
    Route(
        method="GET",
        path=PATH + "/{offset}",
        handler=show,
        summary="One message, and as a consumer of each protocol would get it",
        query=OneQuery,
        answer=OneMessage,
    ),
    Route(
        method="GET",
        path=PATH + "/{offset}/life",
        handler=life,
        summary="What log and journal know of one message",
        answer=Life,
    ),
)
