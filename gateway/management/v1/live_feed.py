"""Live figures for those who look: one snapshot a second of each subject that somebody watches,
encoded once for all of its viewers.

Answers for what a subject is, who may see it, and what becomes of a viewer that is too slow or has
lost its rights. There is no task while nobody looks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from aiohttp import web

from gateway.management.answers import encoded
from gateway.management.api_errors import ApiError, bad_request, not_authorised, not_found
from gateway.management.roles import Caller, Role
from gateway.management.services import Services
from gateway.management.v1.snapshots import Snapshots
from gateway.management.v1.topic_watch import TopicWatches
from queue_core.access.auth import Identity

logger = logging.getLogger(__name__)

TICK_SECONDS: Final = 1.0
MOST_VIEWERS: Final = 200
MOST_SUBJECTS: Final = 20  # of one viewer
MOST_WAITING: Final = 4  # snapshots that a viewer may be behind by
SUBJECTS: Final = "overview, queues:VHOST, queue:VHOST:NAME, topics:VHOST"


@dataclass(frozen=True, slots=True)
class Subject:
    """Something to watch: its kind, and the virtual host and queue that it is about."""

    text: str  # as the viewer wrote it: the name of its events
    kind: str
    vhost: str = ""
    name: str = ""


@dataclass(eq=False, slots=True)
class Viewer:
    """One stream of events. `waiting` are events that are not written yet."""

    caller: Caller
    subjects: tuple[Subject, ...]
    waiting: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue(MOST_WAITING))
    is_over: bool = False
    last_words: bytes = b""

    def end(self, reason: str) -> None:
        """Tells the viewer why its stream ends, in the place of what it has not read."""
        self.is_over = True
        while not self.waiting.empty():
            self.waiting.get_nowait()
        self.last_words = event("end", encoded({"reason": reason}))
        self.waiting.put_nowait(b"")


def event(name: str, data: bytes, number: int | None = None) -> bytes:
    """Writes one server-sent event. JSON has no line breaks of its own."""
    head = b"" if number is None else b"id: %d\n" % number
    return head + b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


def parse_subjects(text: str) -> tuple[Subject, ...]:
    """Reads what somebody wants to watch. Raises 400."""
    found = [_subject(each.strip()) for each in text.split(",") if each.strip()]
    if not found:
        raise bad_request(f"name what to watch in topics: {SUBJECTS}")
    if len(found) > MOST_SUBJECTS:
        raise bad_request(f"one stream watches {MOST_SUBJECTS} things at most")
    return tuple(dict.fromkeys(found))


def _subject(text: str) -> Subject:
    kind, *parts = text.split(":", 2)
    names = [unquote(part) for part in parts]
    wanted = {"overview": 0, "queues": 1, "queue": 2, "topics": 1}.get(kind)
    if wanted is None or len(names) != wanted or "\n" in text or "\r" in text:
        raise bad_request(
            f"'{text[:80]}' cannot be watched; there is {SUBJECTS}, with %3A, %2C and %25 for "
            "colons, commas and percents in names"
        )
    return Subject(text, kind, *names)


class LiveFeed:
    """All viewers of one gateway, and the snapshots that they share."""

    def __init__(self, services: Services) -> None:
        self._manager = services.manager
        self.watches = TopicWatches(services.manager.clock)
        self._snapshots = Snapshots(services, self.watches)
        self._viewers: set[Viewer] = set()
        self._task: asyncio.Task[None] | None = None
        self._number = 0
        self._judged_revision = services.manager.auth.revision
        self.dropped = 0  # viewers that were too slow

    # --- coming and going

    def open(self, caller: Caller, subjects: tuple[Subject, ...]) -> Viewer:
        """Lets a viewer in. Raises 401, 404 or 503."""
        if len(self._viewers) >= MOST_VIEWERS:
            raise ApiError(
                503, "unavailable", f"{MOST_VIEWERS} streams of events are open; close some"
            )
        for subject in subjects:
            self._require(caller, subject)
        viewer = Viewer(caller, subjects)
        self._viewers.add(viewer)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="live feed")
        return viewer

    def close(self, viewer: Viewer) -> None:
        self._viewers.discard(viewer)

    async def stop(self) -> None:
        """Ends all streams: the gateway stops."""
        for viewer in list(self._viewers):
            viewer.end("the gateway is shutting down")
        self.watches.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # --- rights

    def _require(self, caller: Caller, subject: Subject) -> None:
        if subject.kind == "overview":
            if not caller.has(Role.MONITORING):
                raise not_authorised("overview is for users with the tag monitoring")
            return
        vhost = self._manager.vhosts.get(subject.vhost)
        if vhost is None:
            raise not_found(f"there is no virtual host '{subject.vhost}'")
        may_see = caller.has(Role.MONITORING) or self._manager.auth.may_enter(
            caller.identity, vhost.name
        )
        if not may_see:
            raise not_authorised(
                f"user '{caller.identity.name}' may not use virtual host '{vhost.name}'"
            )
        if subject.kind == "queue" and subject.name not in vhost.queues:
            raise not_found(f"there is no queue '{subject.name}' in virtual host '{vhost.name}'")

    def _review(self) -> None:
        """Ends the streams of those who have lost a right since the last look."""
        revision = self._manager.auth.revision
        if revision == self._judged_revision:
            return
        self._judged_revision = revision
        for viewer in list(self._viewers):
            try:
                caller = self._as_of_now(viewer.caller)
                for subject in viewer.subjects:
                    self._require(caller, subject)
            except ApiError as error:
                if error.status == 401:
                    self._drop(viewer, str(error))

    def _as_of_now(self, caller: Caller) -> Caller:
        """The caller with the tags that its user has now. Raises 401 where the user is gone, or
        where the configuration would not let it in any more."""
        identity, accounts = caller.identity, self._manager.auth.accounts
        user = accounts.roll.users.get(identity.name)
        if identity.is_anonymous or identity.is_built_in:
            admits = accounts.admits_anonymous if identity.is_anonymous else accounts.admits_guest
            is_replaced = identity.is_built_in and user is not None
            if is_replaced or not admits(is_loopback=caller.peer.is_loopback):
                raise not_authorised(f"'{identity.name}' is not let in any more: there are users")
            if identity.is_built_in:
                return caller
        tags = frozenset[str]() if user is None else user.tags
        now = Caller(Identity(identity.name, tags, identity.is_anonymous), caller.peer)
        if not now.has(Role.MANAGEMENT):
            raise not_authorised(f"user '{identity.name}' may not use the management API any more")
        return now

    def _drop(self, viewer: Viewer, reason: str) -> None:
        self._viewers.discard(viewer)
        viewer.end(reason)

    # --- snapshots

    async def _run(self) -> None:
        while self._viewers:
            try:
                self._review()
                await self._tick()
            except Exception:
                logger.exception("a bug: the live feed could not be made; it goes on")
            await asyncio.sleep(TICK_SECONDS)
        self._snapshots.forget()
        self._task = None

    async def _tick(self) -> None:
        """Makes one snapshot of each subject that somebody watches, and hands it to all who do."""
        wanted = {subject: None for viewer in self._viewers for subject in viewer.subjects}
        self._number += 1
        made: dict[Subject, bytes] = {}
        for subject in wanted:
            value = await self._snapshots.of(subject.kind, subject.vhost, subject.name)
            data = encoded(value)
            made[subject] = event(subject.text, data, self._number)
        for viewer in list(self._viewers):
            self._hand(viewer, [made[each] for each in viewer.subjects if each in made])

    def _hand(self, viewer: Viewer, events: Iterable[bytes]) -> None:
        try:
            viewer.waiting.put_nowait(b"".join(events))
        except asyncio.QueueFull:
            self.dropped += 1
            self._drop(viewer, "too slow: it did not read its events; come back for new ones")


FEED: Final = web.AppKey("feed", LiveFeed)
