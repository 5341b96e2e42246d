"""Open messages in either direction, without a socket: windows, order, identifiers, aliases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from protocols.mqtt.deliver.send_window import ACKNOWLEDGED, MAX_ID, OWN_IDS, Flight, Outbound, Sent
from protocols.mqtt.publish.acknowledgements import MOST_ANSWERS, Inbound, Received
from protocols.mqtt.publish.topic_aliases import IncomingAliases, OutgoingAliases
from protocols.mqtt.states import RECEIVED, State, step
from protocols.mqtt.wire.encoder import encode
from protocols.mqtt.wire.packets import (
    ConnAck,
    Connect,
    Disconnect,
    PingReq,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
)
from protocols.mqtt.wire.reasons import MqttError, ReasonCode
from queue_core.errors import CoreError, QueueFull


def inbound(version: int = 5, maximum: int = 10) -> tuple[Inbound, list[bytes], list[CoreError]]:
    sent: list[bytes] = []
    refused: list[CoreError] = []
    ignore: Callable[[Any], None] = lambda _: None  # noqa: E731
    return Inbound(sent.append, version, maximum, refused.append, ignore), sent, refused


def test_mqtt_4_6_0_2_answers_keep_the_order_of_publishes() -> None:
    flow, sent, _ = inbound()
    tokens = []
    for packet_id in (1, 2, 3):
        tokens.append(flow.next_token)
        flow.expect(1, packet_id)
    flow.answer(1, 4)
    flow.on_committed([tokens[1]])
    assert sent == []
    flow.on_committed([tokens[0]])
    assert b"".join(sent) == b"".join(encode(PubAck(i), 5) for i in (1, 2))
    flow.on_committed([tokens[2]])
    assert b"".join(sent) == b"".join(encode(PubAck(i), 5) for i in (1, 2, 3, 4))


def test_tokens_go_on_after_answers_that_waited_for_nothing() -> None:
    flow, sent, _ = inbound()
    flow.answer(1, 1)
    token = flow.next_token
    flow.expect(1, 2)
    flow.on_committed([token])
    assert sent == [encode(PubAck(1), 5), encode(PubAck(2), 5)]


def test_a_refusal_is_said_in_5_and_ends_3_1_1() -> None:
    full = QueueFull("full")
    flow, sent, refused = inbound(5)
    flow.expect(1, 1)
    flow.on_refused([0], full)
    assert (sent[0][4], refused) == (0x97, [])
    flow, sent, refused = inbound(4)
    flow.expect(1, 1)
    flow.on_refused([0], full)
    assert (sent, refused) == ([], [full])


def test_a_refused_qos_2_message_frees_its_identifier() -> None:
    freed: list[int] = []
    ignore: Callable[[Any], None] = lambda _: None  # noqa: E731
    flow = Inbound(ignore, 5, 10, ignore, freed.append)
    flow.expect(2, 7)
    flow.on_refused([0], QueueFull("full"))
    assert (flow.open, freed) == ({}, [7])


def test_a_line_of_answers_that_nobody_may_ask_for_is_noticed() -> None:
    """3.x knows no maximum: more than all identifiers are in line is only for hostile ones."""
    flow, _, _ = inbound(4, 1)
    flow.expect(1, 1)
    for _ in range(MOST_ANSWERS):
        assert not flow.is_long
        flow.answer(1, 2)
    assert flow.is_long
    flow.on_committed([0])
    assert not flow.is_long


def test_a_qos_2_exchange_from_publish_to_pubcomp() -> None:
    flow, sent, _ = inbound()
    flow.expect(2, 5)
    flow.repeat(5)  # not committed: PUBREC comes when it is
    assert sent == []
    flow.on_committed([0])
    flow.repeat(5)
    assert flow.release(5)
    flow.complete(5)
    assert sent == [encode(PubRec(5), 5), encode(PubRec(5), 5), encode(PubComp(5), 5)]
    assert flow.open == {}


def test_pubrel_before_pubrec_is_a_protocol_error() -> None:
    flow, _, _ = inbound()
    flow.expect(2, 5)
    with pytest.raises(MqttError):
        flow.release(5)


def test_what_an_earlier_connection_received_is_open() -> None:
    sent: list[bytes] = []
    ignore: Callable[[Any], None] = lambda _: None  # noqa: E731
    flow = Inbound(sent.append, 5, 10, ignore, ignore, received={9: Received.RECEIVED})
    flow.repeat(9)
    assert sent == [encode(PubRec(9), 5)]


# --- to the client


class Owner:
    def on_received(self, flight: Flight, reason: int) -> None: ...
    def on_ended(self, flight: Flight, reason: int) -> None: ...
    def on_expired(self, flight: Flight) -> None: ...
    def on_launch(self, flight: Flight) -> None: ...
    def on_recorded(self, flight: Flight) -> None: ...


def flying(outbound: Outbound, state: Sent) -> Flight:
    flight = Flight(Owner(), state)
    flight.packet_id = outbound.take_id()
    outbound.in_flight[flight.packet_id] = flight
    return flight


def test_mqtt_2_2_1_4_an_identifier_in_use_is_not_given_again() -> None:
    outbound = Outbound(10)
    outbound.reserved[2] = Sent.AWAITS_PUBACK
    flying(outbound, Sent.AWAITS_PUBACK)
    assert outbound.take_id() == 3
    outbound._last_id = MAX_ID
    assert outbound.take_id() not in (1, 2)


def test_mqtt_4_4_0_1_identifiers_of_a_stored_queue_follow_from_its_offsets() -> None:
    outbound = Outbound(10, is_stored=True)
    assert [outbound.own_id(offset) for offset in (0, 1, OWN_IDS - 1)] == [1, 2, OWN_IDS]
    assert outbound.own_id(OWN_IDS) == 1  # the same again, so many messages later,
    outbound.in_flight[1] = Flight(Owner(), Sent.AWAITS_PUBACK)
    assert outbound.own_id(OWN_IDS) == 0  # unless the first one still has it
    outbound.reserved[2] = Sent.OVER
    assert outbound.own_id(1) == 0


def test_other_identifiers_of_a_stored_session_are_never_those_of_its_queue() -> None:
    outbound = Outbound(MAX_ID, is_stored=True)
    ids = [outbound.take_id() for _ in range(MAX_ID - OWN_IDS + 1)]
    assert ids[0] == ids[-1] == OWN_IDS + 1
    assert min(ids) == OWN_IDS + 1
    assert outbound.window < len(set(ids))  # one is always free


def test_identifiers_begin_again_at_1() -> None:
    outbound = Outbound(10)
    ids = [outbound.take_id() for _ in range(MAX_ID + 1)]
    assert ids[0] == ids[-1] == 1
    assert 0 not in ids


def test_qos_1_ends_with_puback() -> None:
    outbound = Outbound(10)
    flight = flying(outbound, Sent.AWAITS_PUBACK)
    assert outbound.acknowledge(PubRec(flight.packet_id)) is None
    assert outbound.acknowledge(PubAck(flight.packet_id)) is flight
    assert outbound.acknowledge(PubAck(flight.packet_id)) is None


def test_qos_2_ends_with_pubcomp() -> None:
    outbound = Outbound(10)
    flight = flying(outbound, Sent.AWAITS_PUBREC)
    assert outbound.acknowledge(PubComp(flight.packet_id)) is None
    assert outbound.acknowledge(PubRec(flight.packet_id)) is flight
    assert flight.state is Sent.AWAITS_PUBCOMP
    assert outbound.acknowledge(PubRec(flight.packet_id)) is flight
    assert outbound.acknowledge(PubComp(flight.packet_id)) is flight
    assert outbound.in_flight == {}


def test_a_pubrec_that_refuses_is_the_end() -> None:
    outbound = Outbound(10)
    flight = flying(outbound, Sent.AWAITS_PUBREC)
    assert outbound.acknowledge(PubRec(flight.packet_id, 0x97)) is flight
    assert flight.state is Sent.OVER
    assert outbound.in_flight == {}


def test_what_waits_goes_when_the_window_has_room_and_not_before() -> None:
    outbound = Outbound(1)
    flight = flying(outbound, Sent.AWAITS_PUBACK)
    waiting = Flight(Owner(), Sent.AWAITS_PUBACK)
    assert not outbound.has_room
    outbound.pending.append(waiting)
    assert outbound.next_pending() is None
    outbound.acknowledge(PubAck(flight.packet_id))
    assert not outbound.has_room  # nobody overtakes what waits
    assert outbound.next_pending() is waiting


def test_every_acknowledgement_has_its_place() -> None:
    assert {kind for _, kind in ACKNOWLEDGED} == {PubAck, PubRec, PubComp}


# --- aliases


def test_an_alias_means_what_it_was_last_given() -> None:
    aliases = IncomingAliases(2)
    assert aliases.resolve(1, "a") == "a"
    assert aliases.resolve(1, "") == "a"
    assert aliases.resolve(1, "b") == "b"
    assert aliases.resolve(1, "") == "b"
    for wrong in (0, 3):
        with pytest.raises(MqttError) as caught:
            aliases.resolve(wrong, "a")
        assert caught.value.reason is ReasonCode.TOPIC_ALIAS_INVALID


def test_an_alias_of_a_packet_that_was_not_sent_is_taken_back() -> None:
    aliases = OutgoingAliases(1)
    aliases.write("a")
    aliases.take_back("a")
    topic, alias = aliases.write("b")
    assert (topic, alias) == (b"\0\1b", b"\x23\0\1")
    assert aliases.write("b") == (b"\0\0", b"\x23\0\1")
    assert aliases.write("c") == (b"\0\1c", b"")


# --- states


def test_mqtt_3_1_0_1_only_connect_comes_first() -> None:
    assert step(RECEIVED, State.AWAITING_CONNECT, Connect("c")) is State.CONNECTING
    with pytest.raises(MqttError):
        step(RECEIVED, State.AWAITING_CONNECT, PingReq())


@pytest.mark.parametrize("packet", [Connect("c"), ConnAck()])
def test_mqtt_3_1_0_2_connect_comes_once(packet: Any) -> None:
    with pytest.raises(MqttError) as caught:
        step(RECEIVED, State.CONNECTED, packet)
    assert caught.value.reason is ReasonCode.PROTOCOL_ERROR


def test_nothing_is_legal_after_disconnect() -> None:
    assert step(RECEIVED, State.CONNECTED, Disconnect()) is State.CLOSED
    for packet in (Publish("a"), PubRel(1), PingReq()):
        with pytest.raises(MqttError):
            step(RECEIVED, State.CLOSED, packet)
