"""The topic tree: `/api/howdah/v1/topics/{vhost}`. The first question begins the watch, and the
watch ends some time after the last one."""

from __future__ import annotations

from datetime import UTC, datetime
from heapq import nlargest
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from gateway.management.api_errors import not_found
from gateway.management.call import Call
from gateway.management.routes import Query, Route
from gateway.management.v1.live_feed import FEED
from gateway.management.v1.payloads import Encoding, payload
from gateway.management.v1.topic_tree import MOST_VALUE_BYTES, TopicNode
from queue_core.access.auth import Action, Resource
from queue_core.message.message import TOPIC_EXCHANGE
from queue_core.message.topic_forms import dotted

MOST_ROWS: Final = 1000


class TopicQuery(Query, frozen=True, forbid_unknown_fields=True):
    below: Annotated[str, Meta(description="the levels below this one; none: the first ones")] = ""
    limit: Annotated[int, Meta(ge=1, le=MOST_ROWS)] = 200
    encoding: Encoding = "auto"


class TopicRow(Struct, frozen=True):
    """One level of the tree. `topic` is null where nothing was published to exactly this one; the
    payload is null for whoever may not read it."""

    level: str
    path: str
    topic: str | None
    messages: int
    last_at: datetime | None
    payload: str | None
    payload_encoding: str | None
    payload_bytes: int
    topics_below: int
    messages_below: int


class TopicLevel(Struct, frozen=True):
    """The levels below one, those with most messages first."""

    items: list[TopicRow]
    item_count: int
    since: datetime  # when the watch began
    messages: int  # seen since then
    topics: int
    forgotten: int  # topics that gave way to others
    is_sampled: bool  # there were so many messages that only some seconds were looked at


async def show(call: Call[TopicQuery, None]) -> TopicLevel:
    vhost, query = call.vhost(), call.query
    watch = call.request.app[FEED].watches.look(vhost)
    tree = watch.tree
    parent = tree.find(query.below or None)
    if parent is None:
        raise not_found(f"nothing was published below '{query.below}' since the watch began")
    children = list(parent.children.values())
    share = call.services.loop_share
    counted = await share.all(children, _counted)
    chosen = nlargest(query.limit, counted, key=lambda each: each[2] + each[0].messages)
    items = [_row(call, query, *each) for each in chosen]
    return TopicLevel(
        items=items,
        item_count=len(children),
        since=_time(tree.since),
        messages=tree.messages,
        topics=len(tree),
        forgotten=tree.forgotten,
        is_sampled=watch.is_sampled,
    )


def _counted(node: TopicNode) -> tuple[TopicNode, int, int]:
    """Counts the topics below a node, and their messages."""
    topics = messages = 0
    for each in node.below():
        topics += 1
        messages += each.messages
    return node, topics, messages


def _row(
    call: Call[Any, None], query: TopicQuery, node: TopicNode, topics: int, messages: int
) -> TopicRow:
    text = used = None
    if node.topic is not None and _may_read(call, node.topic):
        is_cut = node.size > MOST_VALUE_BYTES
        text, used = payload(node.value, query.encoding, is_cut=is_cut)
    return TopicRow(
        level=node.level,
        path=f"{query.below}/{node.level}" if query.below else node.level,
        topic=node.topic,
        messages=node.messages,
        last_at=_time(node.at) if node.topic is not None else None,
        payload=text,
        payload_encoding=used,
        payload_bytes=node.size if node.topic is not None else 0,
        topics_below=topics,
        messages_below=messages,
    )


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _may_read(call: Call[Any, None], topic: str) -> bool:
    vhost = call.path["vhost"]
    right = Resource("topic", vhost, TOPIC_EXCHANGE, dotted(topic))
    auth = call.manager.auth
    return auth.may_enter(call.identity, vhost) and auth.authorize(
        call.identity, Action.READ, right
    )


ROUTES: Final = (
    Route(
        method="GET",
        path="/api/howdah/v1/topics/{vhost}",
        handler=show,
        summary="The tree of topics that are published to while somebody looks",
        query=TopicQuery,
        answer=TopicLevel,
    ),
)
