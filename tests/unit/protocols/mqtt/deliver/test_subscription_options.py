"""Subscriptions that matched a message, and what they ask for together."""

from __future__ import annotations

import pytest

from protocols.mqtt.conversion.properties import MQTT5, native_of
from protocols.mqtt.deliver.subscription_options import RETAINED, Plan, plan_of
from queue_core.message.message import Message
from queue_core.sessions.subscription import Subscription


def message(qos: int = 2, *, retain: bool = False, publisher: str = "other") -> Message:
    native = native_of(b"", qos, retain)
    return Message(b"", topic="t", durable=qos > 0, form=MQTT5, native=native, publisher=publisher)


@pytest.mark.parametrize(
    ("published", "subscribed", "sent"), [(0, 2, 0), (1, 2, 1), (2, 1, 1), (2, 0, 0), (2, 2, 2)]
)
def test_the_lower_qos_counts(published: int, subscribed: int, sent: int) -> None:
    assert plan_of(message(published), (Subscription("t", subscribed),), "me") == Plan(sent)


def test_of_several_subscriptions_the_highest_qos_and_all_identifiers_count() -> None:
    options = (Subscription("t", 1, identifier=7), Subscription("#", 2), Subscription("+", 0))
    assert plan_of(message(), options, "me") == Plan(2, False, (7,))


def test_mqtt_3_8_3_3_ones_own_message_comes_only_by_subscriptions_that_want_it() -> None:
    own = message(publisher="me")
    quiet, loud = Subscription("t", 2, no_local=True), Subscription("#", 1)
    assert plan_of(own, (quiet,), "me") is None
    assert plan_of(own, (quiet, loud), "me") == Plan(1)
    assert plan_of(message(), (quiet,), "me") == Plan(2)


def test_a_publisher_of_another_protocol_with_the_same_name_is_somebody_else() -> None:
    foreign = Message(b"", topic="t", publisher="me")
    assert plan_of(foreign, (Subscription("t", 1, no_local=True),), "me") == Plan(1)


def test_the_retain_flag_is_kept_as_published_or_because_it_was_retained() -> None:
    kept = message(retain=True)
    assert plan_of(kept, (Subscription("t", 2),), "me") == Plan(2)
    assert plan_of(kept, (Subscription("t", 2, retain_as_published=True),), "me") == Plan(2, True)
    marked = Subscription("t", 2, extra={RETAINED: True})
    assert plan_of(message(), (marked,), "me") == Plan(2, True)


def test_what_was_put_into_a_sessions_queue_by_its_name_is_not_lost() -> None:
    assert plan_of(message(1), (), "me") == Plan(1)
