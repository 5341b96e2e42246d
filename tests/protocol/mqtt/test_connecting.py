"""CONNECT, CONNACK, keep alive, takeover: how connections begin and end."""

from __future__ import annotations

import pytest

from protocols.mqtt.wire.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    PingReq,
    PingResp,
    PubAck,
    Publish,
    SubAck,
    SubscribeRequest,
    Version,
    Will,
)
from protocols.mqtt.wire.property_set import NO_PROPERTIES, PropertySet
from tests.support.gateway_process import GatewayProcess
from tests.support.mqtt_raw_client import Mqtt, lasting
from tests.support.names import fresh

VERSIONS = list(Version)
P = PropertySet


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_client_of_every_version_is_let_in_on_one_port(
    mqtt: Mqtt, version: Version
) -> None:
    async with mqtt.client(version=version) as client:
        assert not client.connack.session_present
        client.send(PingReq())
        await client.expect(PingResp)


async def test_mqtt_3_1_0_1_the_first_packet_must_be_connect(mqtt: Mqtt) -> None:
    client = await mqtt.open(Version.V311)
    client.send(PingReq())
    assert await client.is_closed()


STRANGERS = {
    b"AMQP\x00\x00\x09\x01": "a client at 127.0.0.1 ends: it speaks AMQP",
    b"\x16\x03\x01\x02\x00": "a client at 127.0.0.1 ends: it speaks TLS",
    b"GET / HTTP/1.1\r\n\r\n": "a client at 127.0.0.1 ends: it speaks HTTP",
    b"\x30": "a client at 127.0.0.1 ends: the first packet is no CONNECT",
}


async def test_the_log_says_what_a_client_speaks_and_who_is_refused(
    gateway: GatewayProcess,
) -> None:
    """On a gateway of its own: of what is said by the dozen, some is only counted."""
    mqtt = Mqtt(gateway.ports["mqtt"])
    for start, words in STRANGERS.items():
        client = await mqtt.open()
        client.send_bytes(start)
        assert await client.is_closed()  # it does not wait for the rest
        assert f"connection of {words}" in gateway.log()
    client = await mqtt.open()
    client.send(Connect("a-guesser", username="guest", password=b"wrong"))
    await client.expect(ConnAck)
    assert await client.is_closed()
    [line] = [each for each in gateway.log().splitlines() if "a-guesser" in each]
    assert "login of 'guest' from 127.0.0.1 refused: wrong user" in line
    await mqtt.close()


async def test_mqtt_3_1_0_2_a_second_connect_is_a_protocol_error(mqtt: Mqtt) -> None:
    async with mqtt.client() as client:
        client.send(Connect(fresh()))
        assert await client.disconnected() == 0x82


@pytest.mark.parametrize("packet", [ConnAck(), SubAck(1, (0,)), PingResp()])
async def test_what_only_a_server_sends_is_a_protocol_error(
    mqtt: Mqtt, packet: ConnAck | SubAck | PingResp
) -> None:
    async with mqtt.client() as client:
        client.send(packet)
        assert await client.disconnected() == 0x82


async def test_mqtt_3_1_2_1_another_protocol_name_is_closed(mqtt: Mqtt) -> None:
    client = await mqtt.open()
    client.send_bytes(bytes.fromhex("100e00044d51545505020000000000026964")[:16])
    assert await client.is_closed()


async def test_mqtt_3_1_2_2_an_unknown_level_is_told_which_code_fits_it(mqtt: Mqtt) -> None:
    client = await mqtt.open()
    client.send_bytes(bytes.fromhex("100d00044d5154540602000000000000"[:30]))
    answer = await client.expect(ConnAck)
    assert answer.reason == 0x84
    assert await client.is_closed()


async def test_a_malformed_connect_of_5_hears_why(mqtt: Mqtt) -> None:
    client = await mqtt.open()
    client.send_bytes(bytes.fromhex("100d00044d5154540503000000000000"[:30]))
    assert (await client.expect(ConnAck)).reason == 0x81


async def test_mqtt_3_1_3_6_a_client_without_a_name_gets_one(mqtt: Mqtt) -> None:
    async with mqtt.client("") as client:
        assert client.connack.properties.assigned_client_id


async def test_mqtt_3_1_3_8_in_3_1_1_only_a_clean_session_may_have_no_name(mqtt: Mqtt) -> None:
    async with mqtt.client("", Version.V311) as client:
        assert client.connack.reason == 0
    refused = await mqtt.open(Version.V311)
    answer = await refused.connect(Connect("", Version.V311, clean_start=False))
    assert answer.reason == 2
    assert await refused.is_closed()


async def test_connack_says_what_the_gateway_takes(mqtt: Mqtt) -> None:
    async with mqtt.client() as client:
        said = client.connack.properties
        assert said.receive_maximum == 1000
        assert said.maximum_packet_size == 16 * 1024 * 1024
        assert said.topic_alias_maximum
        assert said.maximum_qos is None
        assert said.assigned_client_id is None


async def test_response_information_is_given_to_who_asks(mqtt: Mqtt) -> None:
    name = fresh()
    async with mqtt.client(name, properties=P(request_response=1)) as client:
        assert client.connack.properties.response_information == f"responses/{name}/"
    async with mqtt.client(name) as client:
        assert client.connack.properties.response_information is None


async def test_a_wrong_password_is_refused_in_the_words_of_the_version(mqtt: Mqtt) -> None:
    for version, reason in ((Version.V311, 4), (Version.V5, 0x86)):
        client = await mqtt.open(version)
        packet = Connect(fresh(), version, username="guest", password=b"wrong")
        assert (await client.connect(packet)).reason == reason
        assert await client.is_closed()


async def test_guest_is_let_in_from_loopback(mqtt: Mqtt) -> None:
    async with mqtt.client(username="guest", password=b"guest") as client:
        assert client.connack.reason == 0


async def test_mqtt_4_12_0_1_an_unknown_authentication_method_is_refused(mqtt: Mqtt) -> None:
    client = await mqtt.open()
    packet = Connect(fresh(), properties=P(authentication_method="NONSENSE"))
    assert (await client.connect(packet)).reason == 0x8C


async def test_a_client_may_authenticate_by_method_and_again(mqtt: Mqtt) -> None:
    proof = P(authentication_method="PLAIN", authentication_data=b"\0guest\0guest")
    async with mqtt.client(properties=proof) as client:
        assert client.connack.properties.authentication_method == "PLAIN"
        client.send(Auth(0x19, proof))
        assert (await client.expect(Auth)).reason == 0
        wrong = P(authentication_method="PLAIN", authentication_data=b"\0guest\0wrong")
        client.send(Auth(0x19, wrong))
        assert await client.disconnected() == 0x87


async def test_mqtt_3_1_4_3_a_second_connection_takes_the_session_over(mqtt: Mqtt) -> None:
    name = fresh()
    async with mqtt.client(name) as first, mqtt.client(name) as second:
        assert await first.disconnected() == 0x8E
        second.send(PingReq())
        await second.expect(PingResp)


async def test_a_3_1_1_client_that_is_taken_over_is_closed(mqtt: Mqtt) -> None:
    name = fresh()
    async with mqtt.client(name, Version.V311) as first, mqtt.client(name, Version.V311):
        assert await first.is_closed()


async def test_mqtt_3_1_2_22_silence_of_one_and_a_half_keep_alives_ends_it(mqtt: Mqtt) -> None:
    async with mqtt.client(keep_alive=1) as client:
        assert await client.disconnected() == 0x8D


async def test_keep_alive_0_is_no_keep_alive(mqtt: Mqtt) -> None:
    async with mqtt.client(keep_alive=0) as client:
        client.send(PingReq())
        await client.expect(PingResp)


async def test_disconnect_cannot_turn_a_passing_session_into_a_lasting_one(
    mqtt: Mqtt,
) -> None:
    async with mqtt.client() as client:
        client.send(Disconnect(0, P(session_expiry=10)))
        assert await client.disconnected() == 0x82


async def test_a_client_may_publish_before_it_has_seen_connack(mqtt: Mqtt) -> None:
    topic = fresh("topic")
    async with mqtt.client() as subscriber:
        await subscriber.subscribe(topic)
        hasty = await mqtt.open()
        hasty.send(Connect(fresh()), Publish(topic, b"early"))
        assert (await subscriber.message()).payload == b"early"
        hasty.abort()


async def test_every_cut_of_a_conversation_is_understood(mqtt: Mqtt) -> None:
    from protocols.mqtt.wire.encoder import encode

    topic = fresh("topic")
    async with mqtt.client() as subscriber:
        await subscriber.subscribe(topic)
        raw = encode(Connect(fresh()), 5) + encode(Publish(topic, b"x" * 200), 5)
        for cut in (1, 2, 5, len(raw) - 150, len(raw) - 1):
            client = await mqtt.open()
            client.send_bytes(raw[:cut])
            client.send_bytes(raw[cut:])
            assert (await subscriber.message()).payload == b"x" * 200
            client.abort()


async def test_the_last_will_is_not_published_when_connect_is_refused(mqtt: Mqtt) -> None:
    topic = fresh("topic")
    async with mqtt.client() as subscriber:
        await subscriber.subscribe(topic)
        refused = await mqtt.open()
        packet = Connect(fresh(), username="guest", password=b"no", will=Will(topic, b"gone"))
        assert (await refused.connect(packet)).reason == 0x86
        assert await subscriber.hears_nothing()


async def test_a_will_is_held_to_what_it_says_of_its_payload(mqtt: Mqtt) -> None:
    for payload, reason in ((b"\xff", 0x99), ("\u00fc".encode(), 0)):
        client = await mqtt.open()
        will = Will(fresh("t"), payload, properties=PropertySet(payload_format=1))
        assert (await client.connect(Connect(fresh(), will=will))).reason == reason


async def test_a_session_belongs_to_its_user(mqtt: Mqtt) -> None:
    """Another user with the same client id has one of its own, and takes over none."""
    name = fresh()
    async with mqtt.client(
        name, properties=lasting(), username="guest", password=b"guest"
    ) as client:
        stranger = await mqtt.open()
        answer = await stranger.connect(Connect(name, clean_start=False))
        assert (answer.reason, answer.session_present) == (0, False)
        assert await client.hears_nothing()


async def test_mqtt_3_1_2_29_reason_strings_only_for_those_who_want_them(mqtt: Mqtt) -> None:
    refused = SubscribeRequest("$queue/")
    forbidden = Publish("$SYS/x", b"", 1, packet_id=5)
    async with mqtt.client() as client:
        assert (await client.subscribe_all((refused,))).properties.reason_string
        client.send(forbidden)
        assert (await client.expect(PubAck)).properties.reason_string
    for wish in (P(request_problem=0), P(maximum_packet_size=100)):
        async with mqtt.client(properties=wish) as client:
            assert (await client.subscribe_all((refused,))).properties == NO_PROPERTIES
            client.send(forbidden)
            assert await client.expect(PubAck) == PubAck(5, 0x87)


async def test_mqtt_3_1_2_24_connack_fits_into_the_clients_packets(mqtt: Mqtt) -> None:
    name = fresh("a-client-with-a-name-that-takes-room")
    asked = P(request_response=1, maximum_packet_size=40)
    async with mqtt.client(name, properties=asked) as client:
        said = client.connack.properties
        assert (said.receive_maximum, said.response_information) == (1000, None)
    refused = await mqtt.open()
    answer = await refused.connect(Connect(name, properties=P(maximum_packet_size=10)))
    assert answer == ConnAck(False, 0x95)
    assert await refused.is_closed()


async def test_mqtt_4_12_0_7_auth_without_a_method_is_a_protocol_error(mqtt: Mqtt) -> None:
    async with mqtt.client() as client:
        client.send(Auth(0x19, P(authentication_method="PLAIN")))
        assert await client.disconnected() == 0x82
