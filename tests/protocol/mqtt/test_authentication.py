"""AUTH: logging in by an authentication method in several steps, and again while connected."""

from __future__ import annotations

import pytest

from protocols.mqtt.wire.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    Publish,
    Version,
    Will,
)
from protocols.mqtt.wire.property_set import PropertySet as P
from tests.support.gateway_process import GatewayProcess
from tests.support.mqtt_raw_client import Mqtt, RawClient
from tests.support.names import fresh
from tests.support.scram_client import ScramClient

SCRAM = "SCRAM-SHA-256"
CONTINUE, AGAIN = 0x18, 0x19


def said(data: bytes | None, method: str | None = SCRAM) -> P:
    return P(authentication_method=method, authentication_data=data)


async def challenged(
    mqtt: Mqtt, scram: ScramClient, *, will: Will | None = None
) -> tuple[RawClient, bytes]:
    """A client that has sent CONNECT, and what the gateway asks it."""
    client = await mqtt.open()
    client.send(Connect(fresh(), will=will, properties=said(scram.first())))
    return client, await asked(client)


async def asked(client: RawClient) -> bytes:
    packet = await client.expect(Auth)
    assert packet.reason == CONTINUE
    assert packet.properties.authentication_method == SCRAM
    assert packet.properties.authentication_data is not None
    return packet.properties.authentication_data


async def logged_in(mqtt: Mqtt, scram: ScramClient) -> RawClient:
    client, challenge = await challenged(mqtt, scram)
    client.send(Auth(CONTINUE, said(scram.final(challenge))))
    client.connack = await client.expect(ConnAck)
    return client


async def test_mqtt_4_12_0_2_the_gateway_asks_for_more_with_auth_0x18(mqtt: Mqtt) -> None:
    scram = ScramClient("guest", "guest")
    client = await logged_in(mqtt, scram)
    assert client.connack.reason == 0
    assert scram.is_server_right(client.connack.properties.authentication_data or b"")
    topic = fresh("topic")
    await client.subscribe(topic)
    await client.publish(topic, b"x")
    assert (await client.message()).payload == b"x"


async def test_a_user_made_on_the_command_line_logs_in_by_scram(
    mqtt: Mqtt, shared_gateway: GatewayProcess
) -> None:
    name = fresh("scram-user")
    done = shared_gateway.run("user", "add", name, words="s\u00e9cret w\u00f6rd=,\n")
    assert done.returncode == 0, done.stderr
    client = await logged_in(mqtt, ScramClient(name, "s\u00e9cret w\u00f6rd=,"))
    assert client.connack.reason == 0


async def test_mqtt_4_12_0_3_an_answer_says_0x18(mqtt: Mqtt) -> None:
    for reason in (0x00, AGAIN):
        scram = ScramClient("guest", "guest")
        client, challenge = await challenged(mqtt, scram)
        client.send(Auth(reason, said(scram.final(challenge))))
        assert (await client.expect(ConnAck)).reason == 0x82
        assert await client.is_closed()


@pytest.mark.parametrize(
    ("name", "password"), [("guest", "wrong"), ("nobody", "guest"), ("anonymous", "")]
)
async def test_mqtt_4_12_0_4_a_wrong_proof_is_refused_and_closes(
    mqtt: Mqtt, name: str, password: str
) -> None:
    client = await logged_in(mqtt, ScramClient(name, password))
    assert client.connack.reason == 0x87
    assert client.connack.properties.reason_string == "wrong user name or password"
    assert await client.is_closed()


async def test_a_first_message_that_is_none_is_refused(mqtt: Mqtt) -> None:
    client = await mqtt.open()
    answer = await client.connect(Connect(fresh(), properties=said(b"nonsense")))
    assert answer.reason == 0x87
    assert await client.is_closed()


async def test_a_client_may_name_its_method_and_wait_to_be_asked(mqtt: Mqtt) -> None:
    scram = ScramClient("guest", "guest")
    client = await mqtt.open()
    client.send(Connect(fresh(), properties=said(None)))
    packet = await client.expect(Auth)
    assert (packet.reason, packet.properties) == (CONTINUE, said(None))
    client.send(Auth(CONTINUE, said(scram.first())))
    client.send(Auth(CONTINUE, said(scram.final(await asked(client)))))
    assert (await client.expect(ConnAck)).reason == 0


@pytest.mark.parametrize(("method", "reason"), [("PLAIN", 0x8C), (None, 0x82)])
async def test_mqtt_4_12_0_5_every_auth_names_the_method_of_connect(
    mqtt: Mqtt, method: str | None, reason: int
) -> None:
    scram = ScramClient("guest", "guest")
    client, challenge = await challenged(mqtt, scram)
    client.send(Auth(CONTINUE, said(scram.final(challenge), method)))
    assert (await client.expect(ConnAck)).reason == reason
    assert await client.is_closed()
    connected = await logged_in(mqtt, ScramClient("guest", "guest"))
    assert connected.connack.properties.authentication_method == SCRAM
    connected.send(Auth(AGAIN, said(scram.first(), method)))
    assert await connected.disconnected() == 0x82


async def test_mqtt_4_12_0_6_who_names_no_method_gets_no_auth(mqtt: Mqtt) -> None:
    for version in (Version.V311, Version.V5):
        client = await mqtt.open(version)
        answer = await client.connect(
            Connect(fresh(), version, username="guest", password=b"guest")
        )
        assert answer.reason == 0
        assert answer.properties.authentication_method is None
        assert await client.hears_nothing()


@pytest.mark.parametrize("packet", [PingReq(), Publish("t", b""), Connect("again")])
async def test_mqtt_3_1_2_30_only_auth_and_disconnect_come_before_connack(
    mqtt: Mqtt, packet: Packet
) -> None:
    client, _ = await challenged(mqtt, ScramClient("guest", "guest"))
    client.send(packet)
    assert (await client.expect(ConnAck)).reason == 0x82
    assert await client.is_closed()


async def test_a_client_that_gives_up_has_no_session_and_no_will(mqtt: Mqtt) -> None:
    topic = fresh("topic")
    async with mqtt.client() as subscriber:
        await subscriber.subscribe(topic)
        will = Will(topic, b"gone")
        client, _ = await challenged(mqtt, ScramClient("guest", "guest"), will=will)
        client.send(Disconnect(0x04))
        assert await client.is_closed()
        assert await subscriber.hears_nothing()


async def test_a_challenge_that_does_not_fit_the_clients_packets_is_not_sent(mqtt: Mqtt) -> None:
    scram = ScramClient("guest", "guest")
    client = await mqtt.open()
    properties = P(
        authentication_method=SCRAM, authentication_data=scram.first(), maximum_packet_size=60
    )
    answer = await client.connect(Connect(fresh(), properties=properties))
    assert answer.reason == 0x95
    assert await client.is_closed()


async def test_mqtt_4_12_1_1_a_client_authenticates_again_while_messages_flow(mqtt: Mqtt) -> None:
    client = await logged_in(mqtt, ScramClient("guest", "guest"))
    topic = fresh("topic")
    await client.subscribe(topic)
    for _ in range(2):
        scram = ScramClient("guest", "guest")
        client.send(Auth(AGAIN, said(scram.first())))
        challenge = await asked(client)
        client.send(PingReq(), Publish(topic, b"between", 1, packet_id=9))
        await client.expect(PingResp)
        assert (await client.find(PubAck)).packet_id == 9
        assert (await client.message()).payload == b"between"
        client.send(Auth(CONTINUE, said(scram.final(challenge))))
        done = await client.expect(Auth)
        assert done.reason == 0
        assert done.properties.authentication_method == SCRAM
        assert scram.is_server_right(done.properties.authentication_data or b"")


async def test_mqtt_4_12_1_2_a_failed_re_authentication_ends_the_connection(mqtt: Mqtt) -> None:
    client = await logged_in(mqtt, ScramClient("guest", "guest"))
    scram = ScramClient("guest", "wrong")
    client.send(Auth(AGAIN, said(scram.first())))
    client.send(Auth(CONTINUE, said(scram.final(await asked(client)))))
    assert await client.disconnected() == 0x87


async def test_re_authentication_is_for_the_same_user(
    mqtt: Mqtt, shared_gateway: GatewayProcess
) -> None:
    client = await logged_in(mqtt, ScramClient("guest", "guest"))
    name = fresh("other-user")
    assert shared_gateway.run("user", "add", name, words="secret word\n").returncode == 0
    scram = ScramClient(name, "secret word")
    client.send(Auth(AGAIN, said(scram.first())))
    client.send(Auth(CONTINUE, said(scram.final(await asked(client)))))
    assert await client.disconnected() == 0x87


@pytest.mark.parametrize(
    "packets",
    [
        pytest.param((Auth(CONTINUE, said(b"x")),), id="an answer to nothing"),
        pytest.param((Auth(0x00, said(b"x")),), id="a success that is ours to tell"),
        pytest.param(
            (Auth(AGAIN, said(b"n,,n=guest,r=x")), Auth(AGAIN, said(b"n,,n=guest,r=x"))),
            id="once more before the last one is over",
        ),
    ],
)
async def test_auth_out_of_turn_is_a_protocol_error(mqtt: Mqtt, packets: tuple[Auth, ...]) -> None:
    client = await logged_in(mqtt, ScramClient("guest", "guest"))
    client.send(*packets)
    assert (await client.find(Disconnect)).reason == 0x82


@pytest.mark.parametrize("version", list(Version))
@pytest.mark.parametrize("password", [None, b""])
async def test_an_empty_user_name_without_a_password_is_anonymous(
    mqtt: Mqtt, version: Version, password: bytes | None
) -> None:
    client = await mqtt.open(version)
    connack = await client.connect(Connect(fresh(), version, username="", password=password))
    assert connack.reason == 0


@pytest.mark.parametrize(("username", "password"), [("", b"x"), ("nobody", None), ("guest", b"")])
async def test_a_name_or_a_password_alone_is_a_wrong_login(
    mqtt: Mqtt, username: str, password: bytes | None
) -> None:
    client = await mqtt.open(Version.V311)
    connack = await client.connect(
        Connect(fresh(), Version.V311, username=username, password=password)
    )
    assert connack.reason in (4, 5)
