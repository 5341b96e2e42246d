"""Retained messages on their way to a new subscriber: all of them, however many there are.

They go through the session's own queues, so that window and acknowledgements hold for them, too.
Those queues drop their oldest message when they are full: so no more are put there than they have
room for, and the rest follows while the client takes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from protocols.mqtt.deliver.subscription_options import RETAINED
from protocols.mqtt.settings import Settings
from protocols.mqtt.wire.reasons import MqttError, reason_of
from queue_core.errors import CoreError
from queue_core.message.message import Message
from queue_core.routing.route import Match
from queue_core.scheduler import scheduler
from queue_core.sessions.subscription import Subscription

if TYPE_CHECKING:
    from queue_core.queues.queue import Queue
    from queue_core.sessions.retained import Retained
    from queue_core.sessions.session import Session

SYS_PREFIX: Final = "$SYS/"
STEP_MESSAGES: Final = 64  # before others get their turn
# A client that is behind is looked at again after such a pause, each twice as long.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 1.0


class SysTopics(Protocol):
    """The source of `$SYS` values, by which the gateway tells about itself."""

    def matching(self, topic_filter: str) -> list[Message]:
        """Returns the current values under that filter."""
        ...


class RetainedSending:
    """Sends retained messages to one client."""

    __slots__ = (
        "_current",
        "_fail",
        "_retained",
        "_session",
        "_settings",
        "_spawn",
        "_sys_topics",
    )

    def __init__(
        self,
        session: Session,
        retained: Retained,
        sys_topics: SysTopics,
        settings: Settings,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        fail: Callable[[CoreError], None],
    ) -> None:
        self._session = session
        self._retained = retained
        self._sys_topics = sys_topics
        self._settings = settings
        self._spawn = spawn
        self._fail = fail  # ends a client that cannot get the messages it was promised
        # By address, the subscription whose values are on their way. One that asks for them again
        # begins anew; one that does not leaves the others going.
        self._current: dict[str, Subscription] = {}

    def mark(self) -> int:
        """Returns the present, for a subscription that is made in this turn of the loop."""
        return self._retained.mark()

    def stop(self, address: str) -> None:
        """Sends no more of them, as the client has unsubscribed."""
        self._current.pop(address, None)

    async def send(self, subscription: Subscription, mark: int) -> None:
        """Sends what the filter matched at the mark, or as much of it as there is room for: nothing
        but subscriptions is read from the client until this returns, and its acknowledgements are
        what makes room. Raises MqttError."""
        if subscription.address not in self._session.subscriptions:
            return  # the subscription was taken back before its turn came
        self._current[subscription.address] = subscription
        values = self._values(subscription.filter, mark)
        try:
            is_all = await self._send_some(subscription, values)
        except CoreError as error:
            raise MqttError(reason_of(error), f"retained messages: {error}") from error
        if is_all:
            self._end(subscription)
            await values.aclose()
        else:
            self._spawn(self._send_rest(subscription, values))

    def _end(self, subscription: Subscription) -> None:
        if self._current.get(subscription.address) is subscription:
            del self._current[subscription.address]

    def _is_wanted(self, subscription: Subscription) -> bool:
        is_current = self._current.get(subscription.address) is subscription
        return is_current and self._session.is_attached

    async def _send_rest(
        self, subscription: Subscription, values: AsyncGenerator[Message, None]
    ) -> None:
        async with aclosing(values):
            try:
                while await self._has_room(subscription):
                    if await self._send_some(subscription, values):
                        self._end(subscription)
                        return
            except CoreError as error:
                self._fail(error)

    async def _send_some(
        self, subscription: Subscription, values: AsyncGenerator[Message, None]
    ) -> bool:
        """Sends as many as there is room for. False: there may be more, and no room for it."""
        session, sent, share = self._session, 0, scheduler().share()
        marked = msgspec.structs.replace(subscription, extra={RETAINED: True})
        async for message in values:
            if not self._is_wanted(subscription):
                return True
            route = tuple(Match(queue, (marked,)) for queue in self._queues())
            session.vhost.publish_to(message, route, None, 0, ())
            sent += 1
            if self._is_crowded():
                return False
            if sent % STEP_MESSAGES == 0:
                await share.turn()
                share.end()
        return True

    async def _has_room(self, subscription: Subscription) -> bool:
        """Waits for room. False: nobody waits for the rest any more."""
        pause = FIRST_PAUSE_SECONDS
        while self._is_wanted(subscription):
            if not self._is_crowded():
                return True
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        return False

    def _queues(self) -> list[Queue]:
        """Returns the session's queues, the stored one first: each message goes to one of the
        two."""
        session = self._session
        return [session.live] if session.stored is None else [session.stored, session.live]

    def _is_crowded(self) -> bool:
        """Tells whether to wait: half of a queue is for what is published meanwhile."""
        return (
            any(queue.is_half_full() for queue in self._queues())
            or self._session.vhost.writer.is_congested
        )

    async def _values(self, topic_filter: str, mark: int) -> AsyncGenerator[Message, None]:
        vhost = self._session.vhost.name
        if topic_filter.startswith(SYS_PREFIX) and vhost == self._settings.vhost:
            for message in self._sys_topics.matching(topic_filter):
                yield message
        if not self._settings.retained_messages:
            return  # values retained before stay where they are
        async for kept in self._retained.match(vhost, topic_filter, mark=mark):
            yield kept.message
