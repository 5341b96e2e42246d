"""Dead letters: where they lie, grouped by where and why they died, and driven back by a condition,
with a dry run first."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from gateway.management.api_errors import bad_request
from gateway.management.call import Call
from gateway.management.lists import Listing, ListQuery
from gateway.management.routes import Body, Query, Route
from gateway.management.v1.messages import Offset, readable_queue
from queue_core.access.auth import Action, Resource
from queue_core.errors import CoreError
from queue_core.message.condition import EVERYTHING, Condition, parse
from queue_core.queues.queue import Queue
from queue_core.queues.spec import QueueKind
from queue_core.routing.router import Router
from queue_core.store.operator.browsing import Chosen, Range
from queue_core.vhost import Vhost

MOST_SOURCES: Final = 100  # queues that are named as the source of a queue's dead letters


class DeadLetterQueue(Struct, frozen=True):
    """A queue that dead letters of others are routed to."""

    vhost: str
    queue: str
    kind: str
    messages: int
    dead_letters_of: list[str]


class CausesQuery(Query, frozen=True, forbid_unknown_fields=True):
    from_offset: Annotated[Offset, Meta(description="where to begin")] | None = None
    condition: str = ""


class CauseRow(Struct, frozen=True):
    """Dead letters that died in one queue for one reason, with the same words of the consumer."""

    died_in: str
    reason: str
    failure: str | None
    messages: int
    bytes: int
    first_died_at: datetime
    last_died_at: datetime
    first_offset: int
    last_offset: int
    condition: str  # that chooses these, for browsing and redriving


class CausesAnswer(Struct, frozen=True):
    """Dead letters by cause, the most frequent first. `next_offset`: the look ended there, as it
    took too long; null: it went over all."""

    vhost: str
    queue: str
    causes: list[CauseRow]
    looked_at: int
    next_offset: int | None
    sql: str


class RedriveBody(Body, frozen=True, forbid_unknown_fields=True):
    """Which dead letters go back. Without a condition, all of them."""

    condition: str = ""
    dry_run: bool = True
    # Leaves alone what came after a dry run: its answer says the offset.
    before_offset: Offset | None = None


class Target(Struct, frozen=True):
    """A queue that dead letters go back to."""

    queue: str
    messages: int
    why_not: str | None = None  # null: they can go there


class RedriveAnswer(Struct, frozen=True):
    """What was done, or would be. `next_offset`: there are more behind it; ask again."""

    dry_run: bool
    matched: int
    targets: list[Target]
    moved: int
    left: int
    before_offset: int
    next_offset: int | None
    sql: str  # that does it
    count_sql: str  # that counts them


async def list_queues(call: Call[ListQuery, None]) -> Listing[DeadLetterQueue]:
    found = [each for vhost in call.visible_vhosts() for each in _dead_letter_queues(vhost)]
    return Listing(found, lambda each: each, name=lambda each: each.queue)


def _dead_letter_queues(vhost: Vhost) -> Iterator[DeadLetterQueue]:
    """Finds the queues that dead letters of others lead to, by where those would be routed."""
    sources: dict[Queue, list[str]] = {}
    routes: dict[tuple[str, str], list[Queue]] = {}
    for queue in list(vhost.queues.values()):
        exchange = queue.spec.dead_letter_exchange
        if exchange is None:
            continue
        key = queue.spec.dead_letter_key
        place = (exchange, queue.name if key is None else key)
        if place not in routes:
            routes[place] = _routed(vhost.router, *place)
        for target in routes[place]:
            sources.setdefault(target, []).append(queue.name)
    for target, names in sources.items():
        counts = target.counts()
        yield DeadLetterQueue(
            vhost.name,
            target.name,
            target.spec.kind.value,
            counts.waiting + counts.in_flight,
            sorted(names)[:MOST_SOURCES],
        )


def _routed(router: Router[Queue], exchange: str, key: str) -> list[Queue]:
    try:
        return [match.queue for match in router.route(exchange, key, inside=True)]
    except CoreError:
        return []  # no such exchange: its dead letters are dropped


async def causes(call: Call[CausesQuery, None]) -> CausesAnswer:
    vhost, queue = _stored_queue(call)
    query = call.query
    place = Range(vhost=vhost.name, queue=queue.name, start=query.from_offset)
    found = await call.manager.inspection.browser.causes(place, _condition(query.condition))
    rows = [
        CauseRow(
            **{name: getattr(each, name) for name in CauseRow.__struct_fields__[:-1]},
            condition=_chooses(each.died_in, each.reason, each.failure),
        )
        for each in found.causes
    ]
    return CausesAnswer(vhost.name, queue.name, rows, found.looked_at, found.next_offset, found.sql)


def _chooses(died_in: str, reason: str, failure: str | None) -> str:
    said = "failure is null" if failure is None else f"failure = {_quoted(failure)}"
    return f"died_in = {_quoted(died_in)} and reason = {_quoted(reason)} and {said}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _condition(text: str) -> Condition:
    return parse(text) if text.strip() else EVERYTHING


def _stored_queue(call: Call[Any, Any]) -> tuple[Vhost, Queue]:
    vhost, queue = readable_queue(call)
    if queue.spec.kind is not QueueKind.CLASSIC:
        raise bad_request(
            f"queue '{queue.name}' is {queue.spec.kind}: dead letters are looked for in classic "
            "queues, which hold them until somebody takes them"
        )
    return vhost, queue


async def redrive(call: Call[Any, RedriveBody]) -> RedriveAnswer:
    vhost, queue = _stored_queue(call)
    body = call.body
    before = queue.next_offset if body.before_offset is None else body.before_offset
    place = Range(vhost=vhost.name, queue=queue.name)
    condition = _condition(body.condition)
    chosen = await call.manager.inspection.browser.choose(place, condition, before)
    targets = [_target(call, vhost, *each) for each in chosen.offsets.items()]
    moved = left = 0
    if not body.dry_run:
        for name in chosen.offsets:
            call.require(Action.WRITE, Resource("queue", vhost.name, name))
        wanted = sorted(offset for offsets in chosen.offsets.values() for offset in offsets)
        moved, left = await call.manager.redrive.run(vhost, queue.name, wanted)
    return _answer(body, chosen, targets, moved, left, before)


def _answer(
    body: RedriveBody, chosen: Chosen, targets: list[Target], moved: int, left: int, before: int
) -> RedriveAnswer:
    return RedriveAnswer(
        dry_run=body.dry_run,
        matched=chosen.count,
        targets=targets,
        moved=moved,
        left=left,
        before_offset=before,
        next_offset=chosen.next_offset,
        sql=chosen.redrive_sql,
        count_sql=chosen.sql,
    )


def _target(call: Call[Any, Any], vhost: Vhost, name: str, offsets: list[int]) -> Target:
    """Says how many messages go back to a queue, and what would keep them from it."""
    queue = vhost.queues.get(name)
    why_not = None
    if queue is None:
        why_not = f"there is no queue '{name}' any more; they stay where they are"
    elif not call.manager.auth.authorize(
        call.identity, Action.WRITE, Resource("queue", vhost.name, name)
    ):
        why_not = f"user '{call.identity.name}' has no write access to queue '{name}'"
    elif queue.is_full():
        why_not = f"queue '{name}' is full ({queue.spec.overflow}); some would stay, or push others"
    return Target(name, len(offsets), why_not)


PATH: Final = "/api/howdah/v1/dead-letters"
ROUTES: Final = (
    Route(
        method="GET",
        path=PATH,
        handler=list_queues,
        summary="Queues that dead letters of others are routed to",
        query=ListQuery,
        answer=DeadLetterQueue,
        is_list=True,
    ),
    Route(
        method="GET",
        path=PATH + "/{vhost}/{name}",
        handler=causes,
        summary="The dead letters in a queue, grouped by where and why they died",
        query=CausesQuery,
        answer=CausesAnswer,
    ),
    Route(
        method="POST",
        path=PATH + "/{vhost}/{name}/redrive",
        handler=redrive,
        summary="Send dead letters back to where they died; a dry run unless told otherwise",
        body=RedriveBody,
        answer=RedriveAnswer,
    ),
)
