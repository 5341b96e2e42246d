"""Connections, channels and consumers of all protocols over HTTP, with independent clients."""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import paho.mqtt.client as paho
import pika
import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from tests import certificates
from tests.gateway.management.clients import amqp091, mqtt
from tests.support.amqp10_client import ConnectionClosed, Connections, LinkDetached, data
from tests.support.gateway_process import GatewayProcess, running
from tests.support.http_api import ask
from tests.support.operator import answer
from tests.support.until import wait_until

ENDS = (("peer_host", "peer_port"), ("host", "port"))
NAME = re.compile(r"127\.0\.0\.1:\d+ -> 127\.0\.0\.1:\d+")


@pytest.fixture
def amqp10(own_gateway: GatewayProcess) -> Iterator[Connections]:
    connections = Connections(own_gateway)
    yield connections
    connections.close()


def of_client(gateway: GatewayProcess, name: str) -> dict[str, Any]:
    """The connection of the client that calls itself so."""
    found = [
        each
        for each in ask(gateway, "GET", "/api/connections").value
        if each.get("user_provided_name") == name
    ]
    assert len(found) == 1, found
    return dict(found[0])


def channels_of(gateway: GatewayProcess, connection: dict[str, Any]) -> list[dict[str, Any]]:
    path = f"/api/connections/{quote(connection['name'], safe='')}/channels"
    return list(ask(gateway, "GET", path).value)


def consumers_of(gateway: GatewayProcess, queue: str) -> list[dict[str, Any]]:
    found = ask(gateway, "GET", "/api/consumers/%2F").value
    return [each for each in found if each["queue"] == {"name": queue, "vhost": "/"}]


def add_user(gateway: GatewayProcess, name: str, tag: str) -> None:
    answer(gateway.run("user", "add", name, "--tag", tag, words="secret-enough\n"))
    login = f"{name}:secret-enough"
    wait_until(lambda: ask(gateway, "GET", "/api/queues", login=login).status == 200)


def ended_by(connection: Any) -> Any:
    """Waits for the gateway to close a connection of pika, and gives what it said."""
    try:
        while True:
            connection.process_data_events(1)
    except pika.exceptions.ConnectionClosed as ended:
        return ended


# --- what they say


def test_an_amqp_091_connection_has_rabbitmqs_name_and_the_clients_own(
    own_gateway: GatewayProcess,
) -> None:
    before = time.time() * 1000 - 1000
    with amqp091(own_gateway, "shop") as connection:
        connection.channel()
        found = of_client(own_gateway, "shop")
        assert NAME.fullmatch(found["name"])
        ends = [f"{found[host]}:{found[port]}" for host, port in ENDS]
        assert found["name"] == " -> ".join(ends)
        assert found["port"] == own_gateway.ports["amqp"]
        assert found["protocol"] == "AMQP 0-9-1"
        assert (found["user"], found["vhost"], found["state"]) == ("guest", "/", "running")
        assert found["auth_mechanism"] == "PLAIN"
        assert found["client_properties"]["product"].startswith("Pika")
        assert (found["ssl"], found["type"]) == (False, "network")
        assert found["timeout"] == 60
        assert found["channels"] == 1
        assert before < found["connected_at"] <= time.time() * 1000
        path = f"/api/connections/{quote(found['name'], safe='')}"
        assert ask(own_gateway, "GET", path).value["name"] == found["name"]
    wait_until(lambda: ask(own_gateway, "GET", path).status == 404)


@pytest.mark.parametrize(
    ("version", "protocol"),
    [(paho.MQTTv31, "MQTT 3.1"), (paho.MQTTv311, "MQTT 3.1.1"), (paho.MQTTv5, "MQTT 5.0")],
)
def test_an_mqtt_client_is_a_connection_with_one_channel(
    own_gateway: GatewayProcess, version: MQTTProtocolVersion, protocol: str
) -> None:
    name = f"sensor-{version}"
    with mqtt(own_gateway, name, version):
        found = of_client(own_gateway, name)
        assert found["protocol"] == protocol
        assert found["client_properties"]["client_id"] == name
        assert found["timeout"] == 60
        (channel,) = channels_of(own_gateway, found)
        assert channel["name"] == f"{found['name']} (1)"


def test_an_amqp_10_session_is_a_channel_with_links(
    own_gateway: GatewayProcess, amqp10: Connections
) -> None:
    own_gateway.run("queue", "declare", "api.links")
    connection = amqp10.named("container-7")
    connection.create_sender("/queues/api.links", name="in").send(data(b"x"))
    receiver = connection.create_receiver("/queues/api.links", name="out", credit=10)
    receiver.receive()
    found = of_client(own_gateway, "container-7")
    assert found["protocol"] == "AMQP 1.0"
    channels = channels_of(own_gateway, found)
    links = {link["name"]: link for channel in channels for link in channel["links"]}
    assert (links["in"]["role"], links["in"]["transfers"]) == ("sender", 1)
    assert (links["out"]["role"], links["out"]["transfers"]) == ("receiver", 1)
    (consumer,) = consumers_of(own_gateway, "api.links")
    assert consumer["consumer_tag"] == "out"
    assert consumer["protocol"] == "AMQP 1.0"
    assert consumer["messages_unacknowledged"] == 1
    receiver.accept()


def test_a_channel_tells_its_mode_prefetch_and_what_is_open(own_gateway: GatewayProcess) -> None:
    with amqp091(own_gateway, "channel-facts") as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_qos(prefetch_count=7)
        channel.queue_declare("api.channel", durable=True)
        for _ in range(3):
            channel.basic_publish("", "api.channel", b"x")
        got = [channel.basic_get("api.channel")[0] for _ in range(2)]
        channel.basic_ack(got[0].delivery_tag)
        channel.basic_get("api.channel")
        channel.basic_get("api.channel")
        connection.process_data_events(0)
        found = of_client(own_gateway, "channel-facts")
        (row,) = channels_of(own_gateway, found)
        assert (row["confirm"], row["transactional"]) == (True, False)
        assert (row["prefetch_count"], row["number"], row["vhost"]) == (7, 1, "/")
        assert row["messages_unacknowledged"] == 2
        assert row["connection_details"]["name"] == found["name"]
        stats = row["message_stats"]
        assert (stats["publish"], stats["confirm"], stats["get"]) == (3, 3, 3)
        assert (stats["ack"], stats["get_empty"], stats["deliver_get"]) == (1, 1, 3)
        path = f"/api/channels/{quote(row['name'], safe='')}"
        assert ask(own_gateway, "GET", path).value["consumer_details"] == []
        names = [each["name"] for each in ask(own_gateway, "GET", "/api/vhosts/%2F/channels").value]
        assert row["name"] in names


def test_a_consumer_tells_its_tag_prefetch_arguments_and_channel(
    own_gateway: GatewayProcess,
) -> None:
    with amqp091(own_gateway, "consumer-facts") as connection:
        channel = connection.channel()
        channel.queue_declare("api.consumer")
        channel.basic_qos(prefetch_count=5)
        channel.basic_publish("", "api.consumer", b"x")
        channel.basic_consume(
            "api.consumer",
            lambda *_: None,
            consumer_tag="tag-1",
            arguments={"x-priority": 3},
            exclusive=True,
        )
        connection.process_data_events(0)
        (found,) = consumers_of(own_gateway, "api.consumer")
        assert (found["consumer_tag"], found["prefetch_count"]) == ("tag-1", 5)
        assert (found["ack_required"], found["exclusive"], found["active"]) == (True, True, True)
        assert found["arguments"] == {"x-priority": 3}
        assert found["channel_details"]["number"] == 1
        assert NAME.fullmatch(found["channel_details"]["connection_name"])
        wait_until(
            lambda: consumers_of(own_gateway, "api.consumer")[0]["messages_unacknowledged"] == 1
        )
        queue = ask(own_gateway, "GET", "/api/queues/%2F/api.consumer").value
        assert [each["consumer_tag"] for each in queue["consumer_details"]] == ["tag-1"]
        assert queue["exclusive_consumer_tag"] == "tag-1"


def test_bytes_and_messages_have_rates_in_every_protocol(
    own_gateway: GatewayProcess, amqp10: Connections
) -> None:
    own_gateway.run("queue", "declare", "api.rates")
    sender = amqp10.named("rates-10").create_sender("/queues/api.rates")
    with (
        amqp091(own_gateway, "rates-091") as old,
        mqtt(own_gateway, "rates-mqtt") as client,
    ):
        channel = old.channel()
        seen: set[str] = set()

        def all_have_rates() -> bool:
            channel.basic_publish("", "api.rates", b"x")
            old.process_data_events(0)
            sender.send(data(b"x"))
            client.publish("api/rates")
            for name in ("rates-091", "rates-10", "rates-mqtt"):
                row = of_client(own_gateway, name)
                stats = row["message_stats"].get("publish_details", {"rate": 0.0})
                if row["recv_oct_details"]["rate"] > 0 and stats["rate"] > 0:
                    seen.add(name)
            return len(seen) == 3

        wait_until(all_have_rates, lambda: f"rates, of which there are {seen}")


def test_a_connection_by_tls_tells_its_cipher_and_its_clients_certificate(tmp_path: Path) -> None:
    tls = {
        "cert": str(certificates.SERVER),
        "key": str(certificates.SERVER_KEY),
        "ca": str(certificates.AUTHORITY),
    }
    trusting = ssl.create_default_context(cafile=certificates.AUTHORITY)
    trusting.load_cert_chain(certificates.CLIENT, certificates.CLIENT_KEY)
    with running(tmp_path / "gateway", {"listeners": {"amqp": {"tls": tls}}}) as gateway:
        parameters = pika.ConnectionParameters(
            "localhost",
            gateway.ports["amqp"],
            ssl_options=pika.SSLOptions(trusting, "localhost"),
            client_properties={"connection_name": "by-tls"},
        )
        connection = pika.BlockingConnection(parameters)
        found = of_client(gateway, "by-tls")
        connection.close()
    assert (found["ssl"], found["ssl_protocol"]) == (True, "TLSv1.3")
    assert found["ssl_cipher"].startswith("TLS_")
    assert "commonName=device-7" in found["peer_cert_subject"]
    assert found["peer_cert_validity"].endswith("GMT")


# --- who may see them


def test_a_user_sees_its_own_connections_and_monitoring_all(own_gateway: GatewayProcess) -> None:
    for user, tag in (("conn-own", "management"), ("conn-all", "monitoring")):
        add_user(own_gateway, user, tag)
    with amqp091(own_gateway, "somebody"):
        name = of_client(own_gateway, "somebody")["name"]
        path = f"/api/connections/{quote(name, safe='')}"
        own = ask(own_gateway, "GET", "/api/connections", login="conn-own:secret-enough")
        assert own.value == []
        assert ask(own_gateway, "GET", path, login="conn-own:secret-enough").status == 401
        assert ask(own_gateway, "GET", path, login="conn-all:secret-enough").status == 200
        for login in ("conn-own:secret-enough", "conn-all:secret-enough"):
            assert ask(own_gateway, "DELETE", path, login=login).error == (401, "not_authorised")
        assert ask(own_gateway, "GET", path).status == 200


# --- how they end


def end(gateway: GatewayProcess, name: str, reason: str) -> int:
    path = f"/api/connections/{quote(of_client(gateway, name)['name'], safe='')}"
    return ask(gateway, "DELETE", path, headers={"X-Reason": reason}).status


def test_an_amqp_091_client_hears_320_and_the_reason(own_gateway: GatewayProcess) -> None:
    with amqp091(own_gateway, "doomed-091") as connection:
        assert end(own_gateway, "doomed-091", "moving house") == 204
        ended = ended_by(connection)
        assert (ended.reply_code, ended.reply_text) == (320, "CONNECTION_FORCED - moving house")


def test_an_amqp_10_client_hears_that_it_is_forced_and_the_reason(
    own_gateway: GatewayProcess, amqp10: Connections
) -> None:
    connection = amqp10.named("doomed-10")
    assert end(own_gateway, "doomed-10", "moving house") == 204
    with pytest.raises(ConnectionClosed) as ended:
        connection.create_sender("/queues/nothing")
    assert "amqp:connection:forced" in str(ended.value)
    assert "moving house" in str(ended.value)


def test_an_mqtt_5_client_hears_of_an_administrative_action(own_gateway: GatewayProcess) -> None:
    with mqtt(own_gateway, "doomed-mqtt") as client:
        assert end(own_gateway, "doomed-mqtt", "moving house") == 204
        assert client.ended() == "Administrative action"


def test_all_connections_of_a_user_end_together(own_gateway: GatewayProcess) -> None:
    add_user(own_gateway, "evicted", "management")
    url = own_gateway.amqp_url("evicted", "secret-enough")
    connections = [pika.BlockingConnection(pika.URLParameters(url)) for _ in range(2)]
    path = "/api/connections/username/evicted"
    assert len(ask(own_gateway, "GET", path).value) == 2
    assert ask(own_gateway, "DELETE", path).status == 204
    for connection in connections:
        assert ended_by(connection).reply_code == 320
    wait_until(lambda: ask(own_gateway, "GET", path).value == [])


def consumer_path(gateway: GatewayProcess, queue: str) -> str:
    (found,) = consumers_of(gateway, queue)
    channel = found["channel_details"]
    parts = (channel["connection_name"], str(channel["number"]), found["consumer_tag"])
    return "/api/consumers/%2F/" + "/".join(quote(part, safe="") for part in parts)


def test_a_consumer_ends_and_its_channel_goes_on(own_gateway: GatewayProcess) -> None:
    with amqp091(own_gateway, "cancelled") as connection:
        channel = connection.channel()
        channel.queue_declare("api.cancel")
        channel.basic_consume("api.cancel", lambda *_: None)
        cancelled: list[str] = []
        channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
        path = consumer_path(own_gateway, "api.cancel")
        assert ask(own_gateway, "DELETE", path).status == 204
        while not cancelled:
            connection.process_data_events(1)
        assert consumers_of(own_gateway, "api.cancel") == []
        channel.basic_publish("", "api.cancel", b"still open")
        assert channel.basic_get("api.cancel", auto_ack=True)[2] == b"still open"
        assert ask(own_gateway, "DELETE", path).error == (404, "Object Not Found")


def test_a_receiving_link_is_detached_by_force(
    own_gateway: GatewayProcess, amqp10: Connections
) -> None:
    own_gateway.run("queue", "declare", "api.detach")
    connection = amqp10.named("detached")
    receiver = connection.create_receiver("/queues/api.detach", name="reader", credit=1)
    path = consumer_path(own_gateway, "api.detach")
    assert ask(own_gateway, "DELETE", path, headers={"X-Reason": "enough"}).status == 204
    with pytest.raises(LinkDetached, match=r"detach-forced.*enough"):
        receiver.receive(timeout=30)


def test_an_mqtt_subscription_cannot_be_cancelled_alone(own_gateway: GatewayProcess) -> None:
    with mqtt(own_gateway, "reader-mqtt") as client:
        client.subscribe("$queue/api.mqtt-consumer")
        path = consumer_path(own_gateway, "api.mqtt-consumer")
        found = ask(own_gateway, "DELETE", path)
        assert found.error == (400, "bad_request")
        assert "end its connection" in found.value["reason"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/connections/nobody", 404),
        ("DELETE", "/api/connections/nobody", 404),
        ("GET", "/api/connections/nobody/channels", 404),
        ("GET", "/api/channels/nobody%20(1)", 404),
        ("GET", "/api/channels/no-number", 404),
        ("GET", "/api/vhosts/none/connections", 404),
        ("GET", "/api/consumers/none", 404),
        ("DELETE", "/api/consumers/%2F/nobody/one/tag", 400),
        ("DELETE", "/api/consumers/%2F/nobody/1/tag", 404),
    ],
)
def test_names_that_are_not_there_are_told_apart(
    own_gateway: GatewayProcess, method: str, path: str, status: int
) -> None:
    assert ask(own_gateway, method, path).error[0] == status
