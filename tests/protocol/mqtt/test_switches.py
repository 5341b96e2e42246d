"""Features that an operator switches off or bounds: CONNACK tells them, and they hold."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from protocols.mqtt.wire.packets import (
    Connect,
    Publish,
    Subscribe,
    SubscribeRequest,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
)
from protocols.mqtt.wire.property_set import PropertySet as P
from tests.support.gateway_process import GatewayProcess, running
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
from tests.support.mqtt_raw_client import Mqtt, lasting
from tests.support.names import fresh
from tests.support.postgres import fetch_value
from tests.support.until import until


@pytest.fixture
async def limited(limited_gateway: GatewayProcess) -> AsyncIterator[Mqtt]:
    mqtt = Mqtt(limited_gateway.ports["mqtt"])
    yield mqtt
    await mqtt.close()


async def test_connack_says_everything_that_is_limited(limited: Mqtt) -> None:
    client = await limited.connected("", keep_alive=60, properties=lasting(300))
    said = client.connack.properties
    assert said == P(
        session_expiry=SESSION_EXPIRY,
        receive_maximum=RECEIVE_MAXIMUM,
        maximum_qos=MAX_QOS,
        retain_available=0,
        maximum_packet_size=MAX_PACKET,
        assigned_client_id=said.assigned_client_id,
        topic_alias_maximum=ALIASES,
        wildcard_available=0,
        identifiers_available=0,
        shared_available=0,
        server_keep_alive=KEEP_ALIVE,
    )
    await client.disconnect(properties=P(session_expiry=0))


async def test_a_retained_message_ends_the_connection_where_nothing_is_retained(
    limited: Mqtt,
) -> None:
    topic = fresh("t")
    client = await limited.connected()
    client.send(Publish(topic, b"kept", 1, retain=True, packet_id=1))
    assert await client.disconnected() == 0x9A
    old = await limited.connected(version=Version.V311)
    old.send(Publish(topic, b"kept", 0, retain=True))
    assert await old.is_closed()
    subscriber = await limited.connected()
    await subscriber.subscribe(topic, 1)
    assert await subscriber.hears_nothing()


async def test_what_was_retained_before_stays_and_is_not_sent(tmp_path: Path) -> None:
    async def hears_nothing(gateway: GatewayProcess, retained: bytes | None) -> bool:
        mqtt = Mqtt(gateway.ports["mqtt"])
        async with mqtt.client() as client:
            if retained is not None:
                await client.publish("t", retained, 1, retain=True)
            await client.subscribe("t", 1)
            return await client.hears_nothing()

    with running(tmp_path / "gateway") as gateway:
        assert not await hears_nothing(gateway, b"kept")
        gateway.terminate()
    with running(tmp_path / "gateway", {"mqtt": {"retained_messages": False}}) as gateway:
        assert await hears_nothing(gateway, None)
        assert fetch_value(gateway.database_url, "SELECT count(*) FROM howdah.retained") == 1


async def test_mqtt_3_2_2_13_a_retained_will_is_refused_where_nothing_is_retained(
    limited: Mqtt,
) -> None:
    client = await limited.open()
    answer = await client.connect(Connect(fresh(), will=Will("t", b"", retain=True)))
    assert answer.reason == 0x9A
    assert await client.is_closed()


@pytest.mark.parametrize(
    ("topic_filter", "properties", "reason"),
    [
        ("a/+", P(), 0xA2),
        ("a/#", P(), 0xA2),
        ("$share/group/a", P(), 0x9E),
        ("a", P(subscription_identifiers=(1,)), 0xA1),
    ],
)
async def test_a_subscription_of_a_kind_that_connack_denied_ends_the_connection(
    limited: Mqtt, topic_filter: str, properties: P, reason: int
) -> None:
    client = await limited.connected()
    client.send(
        Subscribe(1, (SubscribeRequest("good"), SubscribeRequest(topic_filter)), properties)
    )
    assert await client.disconnected() == reason


async def test_mqtt_3_8_3_2_of_3_1_1_such_a_subscription_is_refused(limited: Mqtt) -> None:
    client = await limited.connected(version=Version.V311)
    filters = ("a/+", "a/#", "$share/group/a", "a")
    answer = await client.subscribe_all(tuple(map(SubscribeRequest, filters)))
    assert answer.reasons == (0x80, 0x80, 0x80, 0)


async def test_the_keep_alive_of_connack_counts_and_3_1_1_has_its_own(limited: Mqtt) -> None:
    old = await limited.connected(version=Version.V311, keep_alive=60)
    for asked in (0, 60):
        client = await limited.connected(keep_alive=asked)
        assert client.connack.properties.server_keep_alive == KEEP_ALIVE
    modest = await limited.connected(keep_alive=KEEP_ALIVE - 1)
    assert modest.connack.properties.server_keep_alive is None
    assert await client.disconnected() == 0x8D
    assert await old.hears_nothing()  # and is still there


async def test_a_session_lives_no_longer_than_the_operator_says(
    limited: Mqtt, limited_gateway: GatewayProcess
) -> None:
    name = fresh("lasting")
    client = await limited.connected(name, properties=lasting(10))
    assert client.connack.properties.session_expiry is None
    await client.disconnect(properties=P(session_expiry=0xFFFF_FFFF))
    assert await expiry_of(name, "disconnected", limited_gateway) == SESSION_EXPIRY
    client = await limited.connected(name, Version.V311, clean=False)
    assert client.connack.session_present
    assert await expiry_of(name, "connected", limited_gateway) == SESSION_EXPIRY
    await limited.connected(name)  # a clean one ends it


async def expiry_of(name: str, state: str, gateway: GatewayProcess) -> object:
    """The stored expiry of a session, once the session is in that state."""
    where = f"FROM howdah.session WHERE client_id = '{name}' AND state = '{state}'"

    def is_so() -> bool:
        return bool(fetch_value(gateway.database_url, f"SELECT count(*) {where}"))

    await until(is_so, f"'{name}' is {state}")
    return fetch_value(gateway.database_url, f"SELECT expiry_seconds {where}")


async def test_whoever_finds_no_room_is_sent_to_the_other_server(limited: Mqtt) -> None:
    names = []
    for name in (fresh("lasting") for _ in range(MAX_SESSIONS + 1)):
        client = await limited.open()
        answer = await client.connect(Connect(name, properties=lasting()))
        if answer.reason:
            break
        names.append(name)
    assert (answer.reason, answer.properties.server_reference) == (0x9C, ELSEWHERE)
    assert "limit" in (answer.properties.reason_string or "")
    small = await limited.open()
    wish = P(session_expiry=10, maximum_packet_size=100)
    assert (await small.connect(Connect(fresh(), properties=wish))).reason == 0x97
    old = await limited.open(Version.V311)
    assert (await old.connect(Connect(fresh(), Version.V311, clean_start=False))).reason == 3
    for name in names:
        await limited.connected(name)  # a clean one ends it


async def test_other_refusals_name_no_other_server(limited: Mqtt) -> None:
    client = await limited.open()
    answer = await client.connect(Connect(fresh(), username="guest", password=b"wrong"))
    assert (answer.reason, answer.properties.server_reference) == (0x86, None)


async def test_unsuback_says_which_subscription_there_was_not(limited: Mqtt) -> None:
    client = await limited.connected()
    await client.subscribe("here")
    client.send(Unsubscribe(7, ("here", "missing")))
    answer = await client.expect(UnsubAck)
    assert answer.reasons == (0, 0x11)
    assert answer.properties.reason_string == "there was no subscription to 'missing'"
