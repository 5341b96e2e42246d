"""How many messages a client may have open at once, and what counts as one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocols.mqtt.publish.acknowledgements import Inbound, Received
from protocols.mqtt.wire.reasons import MqttError, ReasonCode
from queue_core.errors import QueueFull


def ignore(_: object) -> None:
    """Takes what this test does not look at."""


def inbound(version: int, maximum: int, send: Callable[[bytes], None] = ignore) -> Inbound:
    return Inbound(send, version, maximum, ignore, ignore)


def test_mqtt_3_3_4_7_the_receive_maximum_counts_all_that_is_open() -> None:
    flow = inbound(5, 3)
    flow.answer(2, 1)
    flow.answer(2, 2)
    flow.expect(1, 3)
    with pytest.raises(MqttError) as caught:
        flow.window.check_room()
    assert caught.value.reason is ReasonCode.RECEIVE_MAXIMUM_EXCEEDED
    flow.release(1)
    flow.complete(1)
    flow.window.check_room()


def test_mqtt_3_3_4_7_each_open_message_counts_once() -> None:
    """One of QoS 2 that is on its way to the store waits for its PUBREC, and for its PUBREL."""
    sent: list[bytes] = []
    flow = inbound(5, 4, sent.append)
    for packet_id in (1, 2):
        flow.expect(2, packet_id)
    flow.answer(2, 3)  # waits for nothing but its turn
    flow.answer(2, 4, ReasonCode.NO_MATCHING_SUBSCRIBERS)
    assert flow.window.room(10) == 0
    flow.on_refused([0], QueueFull("full"))
    assert flow.window.room(10) == 1
    flow.on_committed([1])
    assert b"".join(sent).count(b"\x50") == 4
    assert flow.window.room(10) == 1
    for packet_id in (2, 3, 4):
        assert flow.release(packet_id)
        flow.complete(packet_id)
    assert flow.window.room(10) == 4


def test_mqtt_4_9_0_1_what_an_earlier_connection_left_does_not_count_until_it_is_published() -> (
    None
):
    left = dict.fromkeys((7, 8, 9), Received.RECEIVED)
    flow = Inbound(ignore, 5, 3, ignore, ignore, received=left)
    assert flow.window.room(10) == 3
    flow.repeat(7)
    assert flow.window.room(10) == 2
    assert flow.release(8)
    flow.complete(8)
    assert flow.window.room(10) == 2
    assert flow.release(7)
    flow.complete(7)
    assert flow.window.room(10) == 3


def test_3_1_1_knows_no_receive_maximum() -> None:
    flow = inbound(4, 1)
    flow.answer(2, 1)
    flow.answer(2, 2)
    flow.window.check_room()
