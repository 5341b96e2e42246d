"""The figures of queues over HTTP: what every protocol does is counted, and has a rate."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from tests.gateway.management.clients import amqp091, mqtt
from tests.support.amqp10_client import Connections, data
from tests.support.gateway_process import GatewayProcess
from tests.support.http_api import ask
from tests.support.operator import answer
from tests.support.until import wait_until

DETAILS = ("messages_details", "messages_ready_details", "messages_unacknowledged_details")


@pytest.fixture
def amqp10(own_gateway: GatewayProcess) -> Iterator[Connections]:
    connections = Connections(own_gateway)
    yield connections
    connections.close()


def show(gateway: GatewayProcess, name: str, query: str = "") -> dict[str, Any]:
    found = ask(gateway, "GET", f"/api/queues/%2F/{name}{query}")
    assert found.status == 200, found.raw
    return dict(found.value)


def stats(gateway: GatewayProcess, name: str) -> dict[str, Any]:
    found = show(gateway, name)["message_stats"]
    return {each: count for each, count in found.items() if not each.endswith("_details")}


def test_a_queue_tells_what_was_declared_and_what_is_in_it(own_gateway: GatewayProcess) -> None:
    with amqp091(own_gateway) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        arguments = {"x-max-length": 10}
        channel.queue_declare("api.figures", durable=True, arguments=arguments)
        for _ in range(3):
            channel.basic_publish("", "api.figures", b"four")
        channel.basic_get("api.figures")
        connection.process_data_events(0)
        wait_until(lambda: show(own_gateway, "api.figures")["messages_unacknowledged"] == 1)
        found = show(own_gateway, "api.figures")
        assert found["arguments"] == arguments
        assert (found["durable"], found["auto_delete"], found["exclusive"]) == (True, False, False)
        assert (found["messages"], found["messages_ready"]) == (3, 2)
        assert (found["type"], found["state"], found["consumers"]) == ("classic", "running", 0)
        assert found["message_bytes"] >= 8
        assert found["policy"] is None
        assert found["effective_policy_definition"] == {}
        assert found["user_who_performed_action"] == "guest"
        for name in DETAILS:
            assert isinstance(found[name]["rate"], float)


def test_publishes_gets_deliveries_and_acks_are_counted(own_gateway: GatewayProcess) -> None:
    with amqp091(own_gateway) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("api.counts", durable=True)
        for _ in range(6):
            channel.basic_publish("", "api.counts", b"x")
        channel.basic_get("api.counts", auto_ack=True)
        tag = channel.basic_get("api.counts")[0].delivery_tag
        channel.basic_nack(tag, requeue=True)
        for number, (method, _, _) in enumerate(channel.consume("api.counts"), 1):
            channel.basic_ack(method.delivery_tag)
            if number == 5:
                break
        channel.cancel()
        assert channel.basic_get("api.counts")[0] is None
        wait_until(lambda: stats(own_gateway, "api.counts").get("ack") == 5)
        assert stats(own_gateway, "api.counts") == {
            "publish": 6,
            "deliver_get": 7,
            "deliver": 5,
            "deliver_no_ack": 0,
            "get": 1,
            "get_no_ack": 1,
            "get_empty": 1,
            "redeliver": 1,
            "ack": 5,
        }


def test_mqtt_and_amqp_10_count_like_any_other(
    own_gateway: GatewayProcess, amqp10: Connections
) -> None:
    answer(own_gateway.run("queue", "declare", "api.mixed"))
    connection = amqp10()
    connection.create_sender("/queues/api.mixed").send(data(b"x"))
    with mqtt(own_gateway, "mixed") as client:
        client.publish("$queue/api.mixed", count=2)
    receiver = connection.create_receiver("/queues/api.mixed", credit=3)
    for _ in range(3):
        receiver.receive()
        receiver.accept()
    connection.close()  # with the last disposition
    wait_until(lambda: stats(own_gateway, "api.mixed").get("ack") == 3)
    found = stats(own_gateway, "api.mixed")
    assert (found["publish"], found["deliver"]) == (3, 3)


def test_an_mqtt_sessions_queue_is_in_the_list_with_its_traffic(
    own_gateway: GatewayProcess,
) -> None:
    with mqtt(own_gateway, "counted") as client:
        client.subscribe("api/session/#")
        client.publish("api/session/a", count=4)

        def published() -> int:
            found = ask(own_gateway, "GET", "/api/queues?name=counted").value
            return sum(each["message_stats"].get("publish", 0) for each in found)

        wait_until(lambda: published() == 4)


def test_lost_messages_are_counted_by_what_became_of_them(own_gateway: GatewayProcess) -> None:
    with amqp091(own_gateway) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("api.grave", durable=True)
        arguments = {
            "x-max-length": 2,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "api.grave",
        }
        channel.queue_declare("api.short", durable=True, arguments=arguments)
        channel.queue_declare("api.brief", durable=True, arguments={"x-message-ttl": 1})
        for _ in range(5):
            channel.basic_publish("", "api.short", b"x")
        channel.basic_publish("", "api.brief", b"x")
    wait_until(lambda: stats(own_gateway, "api.short").get("dead_lettered") == 3)
    wait_until(lambda: stats(own_gateway, "api.brief").get("expired") == 1)
    assert stats(own_gateway, "api.brief")["dropped"] == 1
    wait_until(lambda: stats(own_gateway, "api.grave").get("publish") == 3)


def test_rates_and_samples_come_and_a_queue_that_rests_says_since_when(
    own_gateway: GatewayProcess,
) -> None:
    with amqp091(own_gateway) as connection:
        channel = connection.channel()
        channel.queue_declare("api.paced", durable=True)
        show(own_gateway, "api.paced", "?msg_rates_age=600&msg_rates_incr=30")

        def rate() -> float:
            channel.basic_publish("", "api.paced", b"x")
            connection.process_data_events(0)
            found = show(own_gateway, "api.paced")["message_stats"]
            return float(found.get("publish_details", {"rate": 0})["rate"])

        wait_until(lambda: rate() > 0)
    query = "?lengths_age=60&lengths_incr=5&msg_rates_age=600&msg_rates_incr=30"
    found = show(own_gateway, "api.paced", query)
    lengths, rates = found["messages_details"], found["message_stats"]["publish_details"]
    assert len(lengths["samples"]) == 13
    assert len(rates["samples"]) == 21
    times = [each["timestamp"] for each in rates["samples"]]
    assert times == sorted(times, reverse=True)
    assert times[0] - times[1] == 30_000
    assert rates["avg_rate"] > 0
    assert lengths["avg"] > 0
    wait_until(lambda: "idle_since" in show(own_gateway, "api.paced"))
    idle = datetime.fromisoformat(show(own_gateway, "api.paced")["idle_since"])
    assert idle.tzinfo is not None


def test_lists_can_be_sorted_by_what_is_counted_and_have_reduced_rows(
    own_gateway: GatewayProcess,
) -> None:
    with amqp091(own_gateway) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for name, count in (("api.sort.a", 2), ("api.sort.b", 3), ("api.sort.c", 1)):
            channel.queue_declare(name, durable=True)
            for _ in range(count):
                channel.basic_publish("", name, b"x")
    for column in ("messages", "messages_ready", "message_stats.publish"):
        path = f"/api/queues?name=api.sort&sort={column}&sort_reverse=true&page=1"
        found = ask(own_gateway, "GET", path).value
        assert [each["name"][-1] for each in found["items"]] == ["b", "a", "c"], column
    path = "/api/queues/%2F?name=api.sort.a&disable_stats=true&enable_queue_totals=true"
    (row,) = ask(own_gateway, "GET", path).value
    assert row["messages"] == 2
    assert "message_stats" not in row
