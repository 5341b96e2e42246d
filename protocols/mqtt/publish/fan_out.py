"""Fan-out outside the publisher's turn: messages reach many live subscribers slice by slice.

Each publisher has a lane, in which its messages wait in order; workers go round the lanes and hand
over a bounded slice of deliveries at a time, so that everybody else gets their turn in between.
With `broker.async_fan_out` all messages for queues in memory go this way, and the publisher is
answered before it begins; without, only messages to very many subscribers do, and the publisher
waits for its end. Durable queues are given their message at once in either mode. A subscriber's
queue that holds its publishers holds a lane as well: messages that were answered already wait
there, and are not lost.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from queue_core.outcomes import Published
from queue_core.queues.live_run_consumers import take_encoded
from queue_core.queues.queue import Appends, wait_for_room

if TYPE_CHECKING:
    from queue_core.commit.unit import Publisher, Record
    from queue_core.message.message import Message
    from queue_core.message.message_run import EncodedRun
    from queue_core.queues.queue import Queue
    from queue_core.routing.route import Match, Route
    from queue_core.vhost import Vhost

log = logging.getLogger(__name__)

# A lane that has so much makes its publisher wait; so many deliveries are a few seconds of work.
MOST_MESSAGES: Final = 10_000
MOST_DELIVERIES: Final = 2_000_000
MOST_BYTES: Final = 8 * 1024 * 1024
MOST_WORKER_BYTES: Final = 64 * 1024 * 1024  # in all lanes of a worker
SLICE_SUBSCRIBERS: Final = 64  # before others get their turn: some 0.5 ms with their writes
# Messages to one subscriber that take as long as its write: handed over one by one, or copied in a
# run with identifiers of its own (QoS 1), or without.
MESSAGES_A_WRITE: Final = (6, 20, 64)
MERGED_MESSAGES: Final = 64  # one subscriber gets in a row
WIDE_SUBSCRIBERS: Final = 1000  # a message to more of them is handed over in slices


class Progress(Enum):
    """The part of its subscribers that a job has reached."""

    SOME = auto()  # there are more subscribers
    HELD = auto()  # all but some, who have no room
    ALL = auto()


class Job:
    """Messages that go to the same subscribers, and how many of those have them."""

    __slots__ = ("_left", "done", "messages", "route", "run", "size", "targets")

    def __init__(
        self,
        route: Sequence[Match[Queue]],
        messages: list[Message],
        size: int,
        run: EncodedRun | None = None,
    ) -> None:
        self.route = route
        self.targets = len(route)
        self.messages = messages
        self.run = run
        self.size = size
        self.done = 0
        self._left: list[Match[Queue]] = []  # passed over, as they hold their publishers

    def count(self) -> int:
        return len(self.messages) if self.run is None else self.run.count

    def hand_over_some(self) -> Progress:
        """Gives all messages to a slice of the route; queues that have no room are passed over."""
        if self.run is None:
            weight = 1 + len(self.messages) / MESSAGES_A_WRITE[0]
        else:
            weight = 1 + self.run.count / MESSAGES_A_WRITE[1 if self.run.is_durable else 2]
        until = self.done + max(1, int(SLICE_SUBSCRIBERS / weight))
        for match in self.route[self.done : until]:
            if not match.queue.is_deleted and not self._give(*match):
                self._left.append(match)
        self.done = until
        if until < len(self.route):
            return Progress.SOME
        if not self._left:
            return Progress.ALL
        self.route, self._left, self.done = self._left, [], 0
        return Progress.HELD

    def _give(self, queue: Queue, options: tuple[object, ...]) -> bool:
        """Gives all messages to one queue. False: the queue is full, and its publishers wait for
        it."""
        messages, run = self.messages, self.run
        if run is not None:
            if take_encoded(queue, options, run):
                return True
            messages = run.messages()
        if queue.is_held():
            return False  # a message that was answered already is not dropped
        appends: Appends = []
        for message in messages:
            queue.take(message, options, appends)  # in memory: appends nothing
        return True


class Lane:
    """The messages of one publisher that its subscribers in memory have still to get, in order.
    Bounded: a publisher whose lane is full is not read until there is room."""

    __slots__ = (
        "_has_room",
        "_jobs",
        "_split_of",
        "_split_route",
        "_vhost",
        "_worker",
        "bytes",
        "count",
        "deliveries",
        "held_by",
        "is_async",
    )

    def __init__(self, worker: Worker, vhost: Vhost, is_async: bool) -> None:
        self._worker = worker
        self._vhost = vhost
        self.is_async = is_async
        self._jobs: deque[Job] = deque()
        self.count = self.bytes = self.deliveries = 0
        self._has_room: asyncio.Future[None] | None = None
        self._split_of: Route[Queue] = ()  # the last route, and its two parts
        self._split_route: tuple[Route[Queue], Route[Queue]] = ((), ())
        self.held_by: list[Queue] = []  # subscribers' queues that have no room

    # --- what comes

    def publish_to(
        self,
        message: Message,
        route: Route[Queue],
        publisher: Publisher | None,
        token: int,
        records: tuple[Record, ...],
    ) -> Published:
        """Publishes as the virtual host does, but leaves queues in memory to the worker."""
        live, stored = self._split(route)
        if not live:
            return self._vhost.publish_to(message, stored, publisher, token, records)
        self._put_message(live, message)
        if not stored and not records:
            self._vhost.counters.published += 1
            return Published.DONE
        outcome = self._vhost.publish_to(message, stored, publisher, token, records)
        if outcome is Published.REMEMBERED:
            return Published.PENDING
        return Published.DONE if outcome is Published.NOWHERE else outcome

    def publish_run(self, run: EncodedRun, route: Route[Queue]) -> None:
        """Leaves a run to the worker, as it came."""
        self._vhost.counters.published += run.count
        self._put(Job(route, [], len(run.octets), run))

    def _split(self, route: Route[Queue]) -> tuple[Route[Queue], Route[Queue]]:
        """Splits a route into the part that ends in memory, and the rest. The same route comes
        again and again, and may be long."""
        if route is not self._split_of:
            self._split_of = route
            self._split_route = (
                tuple(match for match in route if match.queue.is_ephemeral),
                tuple(match for match in route if not match.queue.is_ephemeral),
            )
        return self._split_route

    def _put_message(self, route: Route[Queue], message: Message) -> None:
        last = self._jobs[-1] if self._jobs else None
        if (
            last is not None
            and last.route is route
            and last.run is None
            and last.done == 0
            and len(last.messages) < MERGED_MESSAGES
        ):
            size = message.size()
            last.messages.append(message)
            last.size += size
            self._count(1, size, len(route))
        else:
            self._put(Job(route, [message], message.size()))

    def _put(self, job: Job) -> None:
        if not self._jobs:
            self._worker.line_up(self)
        self._jobs.append(job)
        self._count(job.count(), job.size, job.targets)

    def _count(self, count: int, size: int, targets: int) -> None:
        self.count += count
        self.deliveries += count * targets
        self.bytes += size
        self._worker.bytes += size

    # --- what goes

    def hand_over_some(self) -> bool:
        """Hands over a slice of the first job. True: there is more to do, and nothing to wait
        for."""
        job = self._jobs[0]
        try:
            progress = job.hand_over_some()
        except Exception:
            log.exception("a bug: what a client published reaches not all of its subscribers")
            progress = Progress.ALL
        self._vhost.pressed.clear()  # the lane finds out for itself
        if progress is Progress.HELD:
            self.held_by = [queue for queue, _ in job.route]
            self._worker.wait(self)
            return False
        if progress is Progress.ALL:
            self._jobs.popleft()
            self._count(-job.count(), -job.size, job.targets)
        if self._has_room is not None and not self.must_wait:
            if not self._has_room.done():
                self._has_room.set_result(None)
            self._has_room = None
        return bool(self._jobs)

    @property
    def is_busy(self) -> bool:
        return bool(self._jobs)

    @property
    def must_wait(self) -> bool:
        """Tells whether the lane's publisher should not be read now."""
        if not self.is_async:
            return bool(self._jobs)
        if self.count >= MOST_MESSAGES or self.bytes >= MOST_BYTES:
            return True
        if self.deliveries >= MOST_DELIVERIES:
            return True
        return bool(self._jobs) and self._worker.bytes >= MOST_WORKER_BYTES

    async def room(self) -> None:
        """Returns when the publisher may go on."""
        while self.must_wait:
            if self._has_room is None:
                self._has_room = asyncio.get_running_loop().create_future()
            await self._has_room


class Worker:
    """Goes round the lanes that have something in them, and hands over a slice of each."""

    def __init__(self) -> None:
        self._lanes: deque[Lane] = deque()
        self._has_work = asyncio.Event()
        self._waiting: set[asyncio.Task[None]] = set()
        self.bytes = 0

    def wait(self, lane: Lane) -> None:
        """Lines a lane up again when the queues that hold it have room."""
        task = asyncio.get_running_loop().create_task(self._wait(lane))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _wait(self, lane: Lane) -> None:
        await wait_for_room(lane.held_by)
        lane.held_by = []
        self.line_up(lane)

    def stop(self) -> list[asyncio.Task[None]]:
        """Cancels the waits, and returns their tasks, which end now."""
        for task in self._waiting:
            task.cancel()
        return list(self._waiting)

    def line_up(self, lane: Lane) -> None:
        self._lanes.append(lane)
        self._has_work.set()

    async def run(self) -> None:
        while True:
            await self._has_work.wait()
            lane = self._lanes.popleft()
            if lane.hand_over_some():
                self._lanes.append(lane)
            if not self._lanes:
                self._has_work.clear()
            await asyncio.sleep(0)


class FanOut:
    """The workers of one gateway. `start` it before the first publish."""

    def __init__(self, workers: int = 0, *, is_async: bool = False) -> None:
        count = (workers or os.cpu_count() or 1) if is_async else 1
        self.is_async = is_async
        self._workers = [Worker() for _ in range(count)]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(worker.run()) for worker in self._workers]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        waiting = [task for worker in self._workers for task in worker.stop()]
        await asyncio.gather(*self._tasks, *waiting, return_exceptions=True)

    def lane(self, vhost: Vhost, publisher: str) -> Lane:
        """Makes a lane for a publisher, at the same worker each time."""
        worker = self._workers[hash(publisher) % len(self._workers)]
        return Lane(worker, vhost, self.is_async)
