"""Server-sent events: `/api/howdah/v1/events?topics=overview,queues:/,queue:/:orders`."""

from __future__ import annotations

from typing import Annotated, Final

from aiohttp import web
from msgspec import Meta

from gateway.management.call import Call
from gateway.management.routes import Query, Route
from gateway.management.v1.live_feed import FEED, SUBJECTS, parse_subjects

HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx would hold events back
}
RESPONSES: Final = {
    "200": {
        "description": "Events until the viewer goes.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    },
    "400": {"description": "There is nothing of that name to watch."},
    "401": {"description": "The login failed, or the user may not see this."},
    "404": {"description": "There is no such virtual host or queue."},
    "503": {"description": "Too many streams of events are open."},
}
RETRY_MS: Final = 3000  # before a browser comes back


class EventsQuery(Query, frozen=True, forbid_unknown_fields=True):
    topics: Annotated[str, Meta(description=f"what to watch, by commas: {SUBJECTS}")] = ""


async def stream(call: Call[EventsQuery, None]) -> web.StreamResponse:
    """Writes events until the viewer goes, is too slow, or loses its rights."""
    feed = call.request.app[FEED]
    viewer = feed.open(call.caller, parse_subjects(call.query.topics))
    try:
        response = web.StreamResponse(headers=HEADERS)
        await response.prepare(call.request)
        if call.request.method == "HEAD":
            return response
        await response.write(b"retry: %d\n\n" % RETRY_MS)
        while not viewer.is_over:
            if events := await viewer.waiting.get():
                await response.write(events)
        await response.write(viewer.last_words)
        await response.write_eof()
        return response
    finally:
        feed.close(viewer)


ROUTES: Final = (
    Route(
        method="GET",
        path="/api/howdah/v1/events",
        handler=stream,
        summary="Live figures as server-sent events, once a second",
        query=EventsQuery,
        answer=str,
        extra={"responses": RESPONSES},
    ),
)
