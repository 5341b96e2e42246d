"""Every client says and hears every property of MQTT 5.0 that its own interface knows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from protocols.mqtt.wire.packets import PingReq, Publish, Will
from protocols.mqtt.wire.property_set import PacketType
from protocols.mqtt.wire.property_set import PropertySet as Properties
from tests.interop.mqtt.mosquitto_peer import acted_on
from tests.interop.mqtt.peers import Peers
from tests.interop.mqtt.plans import Plan, Refused, ScramSeat
from tests.interop.mqtt.proving import Case, proves
from tests.interop.mqtt.rows import CLIENT, heard, said
from tests.support.gateway_process import GatewayProcess
from tests.support.limited_gateway import (
    ALIASES,
    ELSEWHERE,
    KEEP_ALIVE,
    MAX_PACKET,
    MAX_QOS,
    MAX_SESSIONS,
    RECEIVE_MAXIMUM,
    SESSION_EXPIRY,
)
from tests.support.names import fresh
from tests.support.postgres import fetch_value
from tests.support.until import wait_until

P = PacketType

CONTENT = Properties(
    payload_format=1,
    message_expiry=100,
    content_type="text/plain",
    response_topic="answers/here",
    correlation_data=b"number-7",
    user=(("a", "1"), ("a", "2"), ("b", "3")),
)
CONTENT_FIELDS = (
    "payload_format",
    "message_expiry",
    "content_type",
    "response_topic",
    "correlation_data",
    "user",
)
HEARD_CONTENT = {
    "payload_format": 1,
    "message_expiry": lambda seconds: 50 <= seconds <= 100,
    "content_type": "text/plain",
    "response_topic": "answers/here",
    "correlation_data": b"number-7",
    "user": (("a", "1"), ("a", "2"), ("b", "3")),
}
WHY = Properties(user=(("why", "test"),))


# --- messages


@proves(
    said(P.PUBLISH, *CONTENT_FIELDS),
    heard(P.PUBLISH, *CONTENT_FIELDS, "subscription_identifiers"),
    said(P.SUBSCRIBE),
    said(P.UNSUBSCRIBE),
)
def test_every_property_of_a_message_comes_through(case: Case) -> None:
    topic = fresh("properties")
    seat = case.listen(
        Plan(
            filters=(topic,),
            qos=1,
            subscribe=Properties(subscription_identifiers=(268_435_455,), user=WHY.user),
            unsubscribe_from="nothing",
            unsubscribe=WHY,
        )
    )
    case.publish(Publish(topic, b"text", 1, properties=CONTENT))
    message = seat.message()
    assert (message.topic, message.payload) == (topic, b"text")
    case.hears(
        P.PUBLISH,
        message.properties,
        **HEARD_CONTENT,
        subscription_identifiers=(268_435_455,),
    )


@proves(said(P.WILL))
def test_every_property_of_a_will_comes_through(case: Case) -> None:
    topic = fresh("will")
    witness = case.listen(Plan(filters=(topic,), qos=1))
    fields = {name: getattr(CONTENT, name) for name in CONTENT_FIELDS}
    will = Will(topic, b"gone", 1, properties=Properties(**fields, will_delay=1))
    lasting = Properties(session_expiry=60)
    case.lose(case.listen(Plan(will=will, connect=lasting, filters=("nothing",))))
    message = witness.message()
    assert (message.topic, message.payload) == (topic, b"gone")
    for name, value in HEARD_CONTENT.items():
        shown = message.properties[name]
        assert value(shown) if callable(value) else shown == value, name


@proves(said(P.PUBLISH, "topic_alias"))
def test_an_alias_of_the_client_stands_for_its_topic(case: Case) -> None:
    topic, alias = fresh("alias"), Properties(topic_alias=3)
    seat = case.listen(Plan(filters=(topic,), qos=1))
    named = Publish(topic, b"message", 1, properties=alias)
    unnamed = Publish("", b"message", 1, properties=alias)
    # mosquitto_pub says a message twice, the second time without the topic
    case.publish(*([named] if case.column.client == "mosquitto" else [named, unnamed]))
    assert [seat.message()[:2] for _ in range(2)] == [(topic, b"message")] * 2


@proves(said(P.CONNECT, "topic_alias_maximum"), heard(P.PUBLISH, "topic_alias"))
def test_an_alias_of_the_gateway_stands_for_its_topic(case: Case) -> None:
    topic = fresh("alias")
    seat = case.listen(Plan(filters=(topic,), qos=1, connect=Properties(topic_alias_maximum=5)))
    case.publish(Publish(topic, b"named", 1))
    message = seat.message()
    assert message[:2] == (topic, b"named")
    case.hears(P.PUBLISH, message.properties, topic_alias=1)
    if case.column.client == "mosquitto":
        return  # libmosquitto 2.0.11 takes a PUBLISH without a topic for a protocol error
    case.publish(Publish(topic, b"by alias", 1))
    message = seat.message()
    assert message.payload == b"by alias"
    # paho leaves it to its user to look the alias up
    assert message.topic == ("" if case.column.client == "paho" else topic)
    case.hears(P.PUBLISH, message.properties, topic_alias=1)


@proves(said(P.PUBACK), said(P.PUBREC), said(P.PUBREL), said(P.PUBCOMP))
def test_acknowledgements_may_say_more_than_that(case: Case) -> None:
    topic, more = fresh("acknowledged"), Properties(reason_string="taken", user=WHY.user)
    seat = case.listen(Plan(filters=(topic,), qos=2, acknowledgements=more))
    for qos in (1, 2, 1):
        case.publish(Publish(topic, b"%d" % qos, qos), plan=Plan(acknowledgements=more))
    # MQTT.js shows a message of QoS 2 when PUBREL came, and others meanwhile
    assert sorted(seat.message().payload for _ in range(3)) == [b"1", b"1", b"2"]


# --- CONNECT, CONNACK, DISCONNECT


@proves(
    said(
        P.CONNECT,
        "session_expiry",
        "receive_maximum",
        "maximum_packet_size",
        "request_response",
        "request_problem",
        "user",
    ),
    said(P.DISCONNECT),
)
def test_what_connect_asks_for_is_granted(case: Case, shared_gateway: GatewayProcess) -> None:
    asked = Properties(
        session_expiry=30,
        receive_maximum=2,
        maximum_packet_size=500,
        request_response=1,
        request_problem=1,
        user=WHY.user,
    )
    goodbye = Properties(session_expiry=0, reason_string="done", user=WHY.user)
    topic = fresh("agreement")
    name = fresh("client")
    seat = case.listen(Plan(client_id=name, connect=asked, filters=(topic,), qos=1))
    case.publish(Publish(topic, b"x" * 1000, 1))  # more than it takes
    for number in range(3):
        case.publish(Publish(topic, b"%d" % number, 1))
    assert [seat.message().payload for _ in range(3)] == [b"0", b"1", b"2"]
    case.leave(seat)
    plan = Plan(client_id=name, connect=asked, disconnect=goodbye, is_clean=False)
    case.publish(Publish(topic, b"the end", 1), plan=plan)
    until_forgotten(name, shared_gateway)  # though it had 30 s left


def until_forgotten(name: str, gateway: GatewayProcess) -> None:
    """Waits until a session is gone: it ends with its connection, some time after the client."""
    query = f"SELECT count(*) FROM howdah.session WHERE client_id = '{name}'"
    wait_until(lambda: fetch_value(gateway.database_url, query) == 0, f"no session of '{name}'")


@proves(
    heard(P.CONNACK)
    - heard(
        P.CONNACK,
        "reason_string",
        "server_reference",
        "authentication_method",
        "authentication_data",
        "user",
    ),
)
def test_connack_tells_every_limit(limited_case: Case) -> None:
    case = limited_case
    asked = Properties(session_expiry=300, request_response=1)
    seat = case.listen(Plan(connect=asked, disconnect=Properties(session_expiry=0), filters=("a",)))
    connack = seat.heard.connack
    if case.column.client == "mosquitto":
        case.waits_for(CLIENT, PingReq)  # long before the keep alive that it asked for
        connack = connack | acted_on(case.wire.port, MAX_PACKET)
        connack["server_keep_alive"] = KEEP_ALIVE
    case.hears(
        P.CONNACK,
        connack,
        session_expiry=SESSION_EXPIRY,
        receive_maximum=RECEIVE_MAXIMUM,
        maximum_qos=MAX_QOS,
        retain_available=0,
        maximum_packet_size=MAX_PACKET,
        assigned_client_id=lambda name: name.startswith("auto-"),
        topic_alias_maximum=ALIASES,
        wildcard_available=0,
        identifiers_available=0,
        shared_available=0,
        server_keep_alive=KEEP_ALIVE,
        response_information=lambda prefix: prefix.startswith("responses/"),
    )
    case.leave(seat)


@proves(
    said(P.CONNECT, "authentication_method", "authentication_data"),
    heard(P.CONNACK, "authentication_method"),
)
def test_a_client_logs_in_by_a_method_of_one_step(case: Case) -> None:
    asked = Properties(authentication_method="ANONYMOUS", authentication_data=b"trace")
    seat = case.listen(Plan(connect=asked, filters=("a",)))
    case.hears(P.CONNACK, seat.heard.connack, authentication_method="ANONYMOUS")


@proves(
    said(P.AUTH),
    heard(P.AUTH, "authentication_method", "authentication_data"),
    heard(P.CONNACK, "authentication_data"),
)
def test_a_client_logs_in_by_a_method_of_several_steps(case: Case) -> None:
    auth = Properties(reason_string="as asked", user=WHY.user)
    seat = case.listen(Plan(scram=True, auth=auth, filters=("a",)))
    assert isinstance(seat, ScramSeat)
    case.hears(
        P.AUTH,
        seat.challenge,
        authentication_method="SCRAM-SHA-256",
        authentication_data=lambda challenge: challenge.startswith(b"r="),
    )
    case.hears(P.CONNACK, seat.heard.connack, authentication_data=seat.is_server_right)


# --- refusals and the end


@pytest.fixture
def full_gateway(limited_gateway: GatewayProcess, peers: Peers) -> Iterator[GatewayProcess]:
    """One that has no room for another session."""
    port, paho, names = limited_gateway.ports["mqtt"], peers.of("paho"), []
    expiry = Properties(session_expiry=60)
    for name in (fresh("lasting") for _ in range(MAX_SESSIONS + 1)):
        try:
            paho.listen(port, "tcp", Plan(client_id=name, connect=expiry)).leave()
        except Refused:
            break
        names.append(name)
    yield limited_gateway
    for name in names:
        paho.listen(port, "tcp", Plan(client_id=name)).leave()  # a clean one ends it


@proves(heard(P.CONNACK, "reason_string", "server_reference"))
def test_a_client_that_finds_no_room_hears_why_and_where_else(
    full_gateway: GatewayProcess, limited_case: Case
) -> None:
    lasting = Plan(connect=Properties(session_expiry=60), filters=("a",))
    with pytest.raises(Refused) as caught:
        limited_case.listen(lasting)
    answer = caught.value.answer
    assert answer.reason == 0x9C
    limited_case.hears(
        P.CONNACK,
        answer.properties,
        reason_string=lambda text: "limit" in text,
        server_reference=ELSEWHERE,
    )


@proves(heard(P.SUBACK, "reason_string"), heard(P.UNSUBACK, "reason_string"))
def test_a_client_hears_what_is_wrong_with_its_subscription(case: Case) -> None:
    seat = case.listen(Plan(filters=("a", fresh("$queue/q")), unsubscribe_from="nothing"))
    assert seat.heard.suback.reason >= 0x80
    case.hears(P.SUBACK, seat.heard.suback.properties, reason_string=lambda text: "QoS 1" in text)
    case.hears(
        P.UNSUBACK,
        seat.heard.unsuback.properties,
        reason_string="there was no subscription to 'nothing'",
    )


@proves(
    heard(P.PUBACK, "reason_string"),
    heard(P.PUBREC, "reason_string"),
    heard(P.PUBCOMP, "reason_string"),
)
def test_a_client_hears_what_is_wrong_with_its_message(case: Case) -> None:
    why = "topics under $SYS are the gateway's own"
    for qos, packet in ((1, P.PUBACK), (2, P.PUBREC)):
        answers = case.publish(Publish("$SYS/mine", b"x", qos))
        facts = answers[0].properties if answers else {}
        case.hears(packet, facts, reason_string=why)
    # paho ends an exchange that was refused with PUBREL all the same
    case.hears(P.PUBCOMP, facts, reason_string=lambda text: "no message" in text)


@proves(heard(P.DISCONNECT, "reason_string"))
def test_a_client_that_is_taken_over_hears_why(case: Case) -> None:
    plan = Plan(client_id=fresh("twice"), filters=("a",))
    first = case.listen(plan)
    second = case.listen(plan)
    answer = first.ended()
    assert answer.reason == 0x8E
    case.hears(
        P.DISCONNECT, answer.properties, reason_string="another connection has this client id"
    )
    case.leave(second)


@proves(heard(P.DISCONNECT, "server_reference"), at_once=True)
def test_a_gateway_that_shuts_down_names_another_server(
    limited_gateway: GatewayProcess, limited_cases: list[Case]
) -> None:
    seats = [case.listen(Plan(filters=("a",))) for case in limited_cases]
    limited_gateway.restart()
    for case, seat in zip(limited_cases, seats, strict=True):
        answer = seat.ended()
        assert answer.reason == 0x9C, case.column.name
        case.hears(P.DISCONNECT, answer.properties, server_reference=ELSEWHERE)
