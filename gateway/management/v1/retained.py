"""Retained values: what topics keep for whoever subscribes. Read permission on a topic opens its
value, write permission clears it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from gateway.management.answers import NO_CONTENT, Reply
from gateway.management.api_errors import not_found
from gateway.management.call import Call
from gateway.management.routes import Query, Route
from gateway.management.v1.payloads import Encoding, payload
from queue_core.access.auth import Action, Resource
from queue_core.message.message import TOPIC_EXCHANGE, Message
from queue_core.message.topic_forms import dotted
from queue_core.routing.topics import filter_tokens, levels_of
from queue_core.store.operator.condition_sql import quoted
from queue_core.vhost import Vhost

MOST_ROWS: Final = 500
MOST_BODY_BYTES: Final = 256 * 1024


class RetainedQuery(Query, frozen=True, forbid_unknown_fields=True):
    filter: Annotated[str, Meta(description="MQTT filter, such as plant/+/temperature")] = "#"
    after: Annotated[str, Meta(description="go on behind this topic")] | None = None
    limit: Annotated[int, Meta(ge=1, le=MOST_ROWS)] = 100
    truncate: Annotated[int, Meta(ge=0, le=MOST_BODY_BYTES)] = 4096
    encoding: Encoding = "auto"


class ValueQuery(Query, frozen=True, forbid_unknown_fields=True):
    truncate: Annotated[int, Meta(ge=0, le=MOST_BODY_BYTES)] = MOST_BODY_BYTES
    encoding: Encoding = "auto"


class RetainedValue(Struct, frozen=True):
    topic: str
    qos: int
    retained_at: datetime
    expires_at: datetime | None
    content_type: str | None
    content_encoding: str | None
    correlation_id: str | None
    reply_to: str | None
    headers: dict[str, Any] | None
    publisher: str | None
    protocol: str | None
    payload: str
    payload_encoding: str
    payload_bytes: int
    is_truncated: bool


class RetainedList(Struct, frozen=True):
    """Values in order of their topics. `next_after` goes on; null: there are no more. Topics that
    the user may not read are left out, and counted."""

    items: list[RetainedValue]
    hidden: int
    next_after: str | None
    sql: str


class OneValue(Struct, frozen=True):
    value: RetainedValue
    sql: str
    clear_sql: str


def _may_read(call: Call[Any, Any], vhost: Vhost, topic: str) -> bool:
    right = Resource("topic", vhost.name, TOPIC_EXCHANGE, dotted(topic))
    return call.manager.auth.authorize(call.identity, Action.READ, right)


def _value(row: dict[str, Any], encoding: Encoding) -> RetainedValue:
    facts = dict(row)
    body, size = facts.pop("body") or b"", facts.pop("body_bytes") or 0
    text, used = payload(body, encoding, is_cut=size > len(body))
    return RetainedValue(
        **facts,
        payload=text,
        payload_encoding=used,
        payload_bytes=size,
        is_truncated=size > len(body),
    )


async def list_values(call: Call[RetainedQuery, None]) -> RetainedList:
    vhost, query = call.own_vhost(), call.query
    filter_tokens(query.filter)
    found = await call.manager.inspection.lists.retained(
        vhost.name, query.filter, query.after, query.limit, query.truncate
    )
    seen = [row for row in found.rows if _may_read(call, vhost, row["topic"])]
    is_more = len(found.rows) == query.limit
    return RetainedList(
        [_value(row, query.encoding) for row in seen],
        len(found.rows) - len(seen),
        found.rows[-1]["topic"] if is_more else None,
        found.sql,
    )


async def show(call: Call[ValueQuery, None]) -> OneValue:
    vhost, topic = call.own_vhost(), call.path["topic"]
    levels_of(topic)
    call.require(Action.READ, Resource("topic", vhost.name, TOPIC_EXCHANGE, dotted(topic)))
    found = await call.manager.inspection.lists.retained_value(
        vhost.name, topic, call.query.truncate
    )
    if not found.rows:
        raise not_found(f"topic '{topic}' keeps no value")
    clear = f"SELECT howdah.publish_topic({quoted(topic)}, ''::bytea, retain => true, vhost => "
    return OneValue(
        _value(found.rows[0], call.query.encoding), found.sql, f"{clear}{quoted(vhost.name)});"
    )


async def clear(call: Call[Any, None]) -> Reply:
    vhost, topic = call.own_vhost(), call.path["topic"]
    levels_of(topic)
    call.require(Action.WRITE, Resource("topic", vhost.name, TOPIC_EXCHANGE, dotted(topic)))
    message = Message(b"", topic=topic, durable=True, publisher=call.identity.name, retain=True)
    record = call.manager.sessions.retained.record(vhost.name, message, 1)
    vhost.publish(message, records=(record,))
    await vhost.writer.flushed()
    return NO_CONTENT


PATH: Final = "/api/howdah/v1/retained/{vhost}"
ROUTES: Final = (
    Route(
        method="GET",
        path=PATH,
        handler=list_values,
        summary="Retained values whose topics match a filter",
        query=RetainedQuery,
        answer=RetainedList,
    ),
    Route(
        method="GET",
        path=PATH + "/{topic}",
        handler=show,
        summary="The retained value of a topic",
        query=ValueQuery,
        answer=OneValue,
    ),
    Route(
        method="DELETE",
        path=PATH + "/{topic}",
        handler=clear,
        summary="Clear the retained value of a topic, as an empty retained message does",
    ),
)
