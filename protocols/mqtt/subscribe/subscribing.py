"""SUBSCRIBE and UNSUBSCRIBE: filters read, allowed, granted, and served with retained messages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final

from protocols.mqtt.conversion.properties import QUEUE_PREFIX
from protocols.mqtt.deliver.retained_sending import RetainedSending
from protocols.mqtt.queue_topics.queue_topics import QueueTopics
from protocols.mqtt.settings import Settings
from protocols.mqtt.subscribe.read_rights import right_of, topic_right
from protocols.mqtt.wire.packets import SubAck, Subscribe, SubscribeRequest, UnsubAck, Unsubscribe
from protocols.mqtt.wire.property_set import NO_PROPERTIES, PropertySet
from protocols.mqtt.wire.reasons import MqttError, ReasonCode, subscribe_refusal
from queue_core.access.auth import Action
from queue_core.errors import (
    CoreError,
    InvalidTopic,
    LimitExceeded,
    NotSupported,
    SessionNotFound,
)
from queue_core.queues.reserved_names import SHARE_PREFIX
from queue_core.routing.topics import MAX_LEVELS, filter_tokens
from queue_core.sessions.subscription import Subscription

if TYPE_CHECKING:
    from protocols.mqtt.negotiated_terms import Terms
    from queue_core.sessions.subscription_changes import Change

log = logging.getLogger(__name__)

# A filter has so many on average, where a session has as many filters as it may.
FILTER_LEVELS: Final = 16
FILTER_CHARACTERS: Final = 256
LONGEST_FILTER_CHARACTERS: Final = 65_536  # a session may have one such filter in any case
RETAIN_NEVER, RETAIN_IF_NEW = 2, 1  # values of retain handling; 0: always


class Subscribing:
    __slots__ = (
        "_auth",
        "_counters",
        "_has_complained",
        "_identity",
        "_is_5",
        "_on_changed",
        "_queue_topics",
        "_retained",
        "_session",
        "_settings",
        "_tells_reasons",
    )

    def __init__(
        self,
        terms: Terms,
        retained: RetainedSending,
        queue_topics: QueueTopics,
        on_changed: Callable[[], None],
    ) -> None:
        self._session = terms.session
        self._identity = terms.identity
        self._auth = terms.auth
        self._retained = retained
        self._queue_topics = queue_topics
        self._settings = terms.settings
        self._counters = terms.counters
        self._on_changed = on_changed  # has the client look through its consumers again
        self._is_5 = terms.is_5
        self._tells_reasons = terms.agreement.tells_reasons
        self._has_complained = False

    # --- SUBSCRIBE

    def subscribe(
        self, packet: Subscribe, answer: Callable[[SubAck], None]
    ) -> Coroutine[Any, Any, None]:
        """Lets topic filters route from now on. The returned work takes time: writing them down,
        competing on queues, SUBACK with one reason for each filter, in order [MQTT-3.8.4-6], and
        retained messages. Raises MqttError, now or then."""
        if self._is_5:
            self._check_announced(packet)
        asked = _Asked(packet, self._session.change(), self._retained.mark())
        room = _Room(self._session.subscriptions, self._settings)
        for at, request in enumerate(packet.requests):
            try:
                room.take(request.filter)
                subscription = self._parse(request, packet.properties)
                if subscription.queue is None:
                    asked.is_new[at] = asked.change.put(subscription)
            except CoreError as error:
                self._note_refusal(asked, at, error)
            else:
                asked.granted[at] = subscription
        self._on_changed()
        return self._finish(asked, answer)

    async def _finish(self, asked: _Asked, answer: Callable[[SubAck], None]) -> None:
        is_settled = True  # nothing has changed since the packet came
        for at, subscription in list(asked.granted.items()):
            if subscription.queue is not None:
                is_settled = False
                try:
                    await self._queue_topics.provide(subscription)
                    await self._queue_topics.line_up(subscription)
                    asked.change.put(subscription)
                except CoreError as error:
                    self._note_refusal(asked, at, error)
        try:
            await asked.change.commit()
        except CoreError as error:
            is_settled = False
            for at in list(asked.granted):
                self._note_refusal(asked, at, error)
            self._queue_topics.stand_back()
        self._queue_topics.step_in()
        if not is_settled:
            self._on_changed()
        packet = asked.packet
        reasons = [asked.reason(at) for at in range(len(packet.requests))]
        answer(SubAck(packet.packet_id, tuple(reasons), self._said(asked.problem)))
        for at, subscription in asked.granted.items():
            if subscription.queue is not None:
                self._queue_topics.wake(subscription.address)
            elif subscription.share is None:
                await self._send_retained(subscription, asked.is_new[at], asked.mark)

    def _note_refusal(self, asked: _Asked, at: int, error: CoreError) -> None:
        asked.granted.pop(at, None)
        asked.refused[at] = self._refused(asked.packet.requests[at].filter, error)
        asked.problem = str(error)

    def _check_announced(self, packet: Subscribe) -> None:
        """Raises MqttError for a wish that CONNACK has ruled out: whoever asks for it all the same
        broke the protocol (sections 3.2.2.3.11 to 3.2.2.3.13)."""
        if (
            packet.properties.subscription_identifiers
            and not self._settings.subscription_identifiers
        ):
            raise MqttError(
                ReasonCode.SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED,
                "there are no subscription identifiers here",
            )
        for request in packet.requests:
            missing = self._missing(request.filter)
            if missing is not None:
                raise MqttError(*missing)

    def _missing(self, written: str) -> tuple[ReasonCode, str] | None:
        """Names the feature that a filter needs and the operator does not offer; None: nothing is
        missing."""
        settings = self._settings
        if written.startswith(SHARE_PREFIX) and not settings.shared_subscriptions:
            return (
                ReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
                f"'{written[:80]}': there are no shared subscriptions here",
            )
        if ("+" in written or "#" in written) and not settings.wildcard_subscriptions:
            return (
                ReasonCode.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
                f"'{written[:80]}': filters without wildcards only here",
            )
        return None

    def _parse(self, request: SubscribeRequest, properties: PropertySet) -> Subscription:
        """Reads what one filter asks for. Raises CoreError."""
        qos = min(request.qos, self._settings.max_qos)
        identifier = next(iter(properties.subscription_identifiers), None)
        if request.filter.startswith(QUEUE_PREFIX):
            user = dict(reversed(properties.user))
            return self._queue_topics.parse(request.filter, qos, identifier, user)
        missing = self._missing(request.filter)  # [MQTT-3.8.3-2] of 3.1.1
        if missing is not None:
            raise NotSupported(missing[1])
        share, topic_filter = parse_filter(request.filter)
        self._check_allowed(topic_filter)
        return Subscription(
            topic_filter,
            qos,
            request.no_local,
            request.retain_as_published,
            request.retain_handling,
            identifier,
            share,
        )

    def _check_allowed(self, topic_filter: str) -> None:
        filter_tokens(topic_filter, self._settings.max_topic_levels)
        right = topic_right(self._session.vhost.name, topic_filter)
        self._auth.require(self._identity, Action.READ, right)

    def losses(self) -> dict[str, CoreError]:
        """Returns the subscriptions to what the user may not read any more, and why."""
        vhost = self._session.vhost.name
        found = {
            address: self._auth.loss(self._identity, right_of(vhost, subscription))
            for address, subscription in self._session.subscriptions.items()
        }
        return {address: loss for address, loss in found.items() if loss is not None}

    async def take_back(self, addresses: list[str]) -> None:
        """Ends subscriptions, in the database too. Raises CoreError."""
        await self._session.unsubscribe_all(addresses)
        for address in addresses:
            self._queue_topics.cancel(address, is_clean=True)
        self._on_changed()

    def _refused(self, topic_filter: str, error: CoreError) -> ReasonCode:
        self._counters.refused_subscriptions += 1
        if not self._has_complained:
            self._has_complained = True
            log.warning(
                "subscription of '%s' to '%s' refused (more are counted only): %s",
                self._session.client_id,
                topic_filter[:200],
                error,
            )
        return subscribe_refusal(error)

    def _said(self, problem: str | None) -> PropertySet:
        if problem is None or not self._tells_reasons:
            return NO_PROPERTIES
        return PropertySet(reason_string=problem[:1024])

    async def _send_retained(self, subscription: Subscription, is_new: bool, mark: int) -> None:
        handling = subscription.retain_handling
        if handling != RETAIN_NEVER and (handling != RETAIN_IF_NEW or is_new):
            await self._retained.send(subscription, mark)

    # --- UNSUBSCRIBE

    def unsubscribe(
        self, packet: Unsubscribe, answer: Callable[[UnsubAck], None]
    ) -> Coroutine[Any, Any, None]:
        """Lets topic filters route nothing more from now on [MQTT-3.10.4-2]. The returned work
        takes time: writing that down, leaving queues, and UNSUBACK."""
        change = self._session.change()
        were_there: dict[int, bool] = {}
        for at, written in enumerate(packet.filters):
            if not written.startswith(QUEUE_PREFIX):
                were_there[at] = self._drop(change, written)
        self._on_changed()
        return self._finish_unsubscribe(packet, change, were_there, answer)

    def _drop(self, change: Change, address: str) -> bool:
        self._retained.stop(address)
        try:
            return change.drop(address)
        except SessionNotFound:  # another connection has it, and nobody waits for this answer
            return False

    async def _finish_unsubscribe(
        self,
        packet: Unsubscribe,
        change: Change,
        were_there: dict[int, bool],
        answer: Callable[[UnsubAck], None],
    ) -> None:
        for at, written in enumerate(packet.filters):
            if written.startswith(QUEUE_PREFIX):
                were_there[at] = self._drop(change, written)
        try:
            await change.commit()
        except CoreError as error:
            self._on_changed()
            refusal = self._refused(packet.filters[0], error)
            reasons = tuple(refusal for _ in packet.filters)
            answer(UnsubAck(packet.packet_id, reasons, self._said(str(error))))
            return
        for topic_filter in packet.filters:
            self._queue_topics.cancel(topic_filter, is_clean=True)
        self._on_changed()
        reasons = tuple(
            ReasonCode.SUCCESS if were_there[at] else ReasonCode.NO_SUBSCRIPTION_EXISTED
            for at in range(len(packet.filters))
        )
        unknown = [
            f"'{topic_filter[:80]}'"
            for at, topic_filter in enumerate(packet.filters)
            if not were_there[at]
        ]
        problem = f"there was no subscription to {', '.join(unknown[:8])}" if unknown else None
        answer(UnsubAck(packet.packet_id, reasons, self._said(problem)))


class _Asked:
    """A SUBSCRIBE under way: what became of each of its filters, by its place in the packet."""

    def __init__(self, packet: Subscribe, change: Change, mark: int) -> None:
        self.packet = packet
        self.change = change
        self.mark = mark  # when the packet came: messages retained before are sent
        self.granted: dict[int, Subscription] = {}
        self.is_new: dict[int, bool] = {}
        self.refused: dict[int, ReasonCode] = {}
        self.problem: str | None = None

    def reason(self, at: int) -> int:
        subscription = self.granted.get(at)
        return self.refused[at] if subscription is None else subscription.qos


class _Room:
    """Counts how many more subscriptions a session may have. Each level and each character of a
    filter takes memory, so they are counted, too: a filter of a hundred levels is no more welcome
    than a hundred filters."""

    def __init__(self, held: Mapping[str, Subscription], settings: Settings) -> None:
        self._held = held
        self._most = settings.max_subscriptions
        self._taken = len(held)
        self._levels = sum(address.count("/") + 1 for address in held)
        self._characters = sum(map(len, held))

    def take(self, topic_filter: str) -> None:
        """Counts one more filter. Raises LimitExceeded."""
        if topic_filter in self._held:
            return
        if self._taken >= self._most:
            raise LimitExceeded(
                f"a session has {self._most} subscriptions at most; take some back, use a "
                "wildcard, or raise session.max_subscriptions"
            )
        levels = topic_filter.count("/") + 1
        if levels > MAX_LEVELS:
            return  # this is no filter at all, and refused as such
        if self._levels + levels > self._most * FILTER_LEVELS:
            raise LimitExceeded(
                f"the filters of a session have {self._most * FILTER_LEVELS} levels at most, all "
                "together; use shorter ones, or raise session.max_subscriptions"
            )
        most = max(self._most * FILTER_CHARACTERS, LONGEST_FILTER_CHARACTERS)
        if self._characters + len(topic_filter) > most:
            raise LimitExceeded(
                f"the filters of a session have {most} characters at most, all together; use "
                "shorter ones, or raise session.max_subscriptions"
            )
        self._taken += 1
        self._levels += levels
        self._characters += len(topic_filter)


def parse_filter(written: str) -> tuple[str | None, str]:
    """Returns the group of a shared subscription, or None, and the filter. Raises InvalidTopic."""
    if not written.startswith(SHARE_PREFIX):
        return None, written
    share, _, topic_filter = written[len(SHARE_PREFIX) :].partition("/")
    if not share or "+" in share or "#" in share:  # [MQTT-4.8.2-1], [MQTT-4.8.2-2]
        raise InvalidTopic(f"'{written[:80]}' names no group; write $share/<group>/<filter>")
    if not topic_filter:
        raise InvalidTopic(f"'{written[:80]}' has no filter; write $share/<group>/<filter>")
    if topic_filter.startswith((QUEUE_PREFIX, SHARE_PREFIX)):
        raise InvalidTopic(
            f"'{written[:80]}' shares what is shared already; subscribe to "
            f"'{topic_filter[:80]}' itself"
        )
    return share, topic_filter
