"""Plans how a message is written for one subscriber: what its subscriptions ask for, together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from protocols.mqtt.conversion.properties import FORMS, published_qos, was_retained

if TYPE_CHECKING:
    from queue_core.message.message import Message
    from queue_core.sessions.subscription import Subscription

RETAINED: Final = "retained"  # in a subscription's extra: sent because it was retained


class Plan(NamedTuple):
    """The way in which a message is written for one subscriber."""

    qos: int
    retain: bool = False
    identifiers: tuple[int, ...] = ()
    user: bytes = b""  # user properties that the gateway adds
    topic: str | None = None  # where it is not the message's own


def plan_of(message: Message, options: Sequence[Subscription], client_id: str) -> Plan | None:
    """Joins the wishes of the subscriptions that matched: their highest QoS, and the identifiers of
    all [MQTT-3.3.4-2] [MQTT-3.3.4-3]. None: the message is the client's own, and all of them are
    no-local [MQTT-3.8.3-3]. A message without options was put into the queue by its name."""
    if not options:
        return Plan(published_qos(message))
    qos, retain, identifiers, is_wanted = 0, False, [], False
    is_own = message.publisher == client_id and message.form in FORMS
    for option in options:
        if option.no_local and is_own:
            continue
        is_wanted = True
        qos = max(qos, option.qos)
        if option.identifier is not None:
            identifiers.append(option.identifier)
        if (option.retain_as_published and was_retained(message)) or (
            option.extra is not None and option.extra.get(RETAINED)
        ):
            retain = True  # [MQTT-3.3.1-13], and what was retained
    if not is_wanted:
        return None
    if qos:
        qos = min(qos, published_qos(message))
    return Plan(qos, retain, tuple(identifiers))
