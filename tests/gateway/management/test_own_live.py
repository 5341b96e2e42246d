"""Live figures and the topic tree over our own API, on a running gateway with real clients."""

from __future__ import annotations

import pika
import pytest

from tests.support.event_streams import watching
from tests.support.gateway_process import GatewayProcess
from tests.support.http_api import ask
from tests.support.operator import answer
from tests.support.own_api import (
    add_user,
    amqp_channel,
    get,
    mqtt_client,
    post,
    published,
)
from tests.support.until import until


def test_a_viewer_hears_of_what_it_watches_and_of_nothing_else(
    own_gateway: GatewayProcess,
) -> None:
    with amqp_channel(own_gateway) as channel:
        channel.queue_declare("live.orders", durable=True)
        with watching(own_gateway, "overview,queue:/:live.orders,queues:%252F") as stream:
            before = stream.until("queue:/:live.orders")
            assert (before["messages"], before["rates"]["publish"]) == (0, 0.0)
            for number in range(5):
                channel.basic_publish("", "live.orders", b"%d" % number)
            while stream.until("queue:/:live.orders")["messages"] != 5:
                pass
            seen = stream.until("overview")
            assert seen["is_ready"] is True
            assert seen["queues"] >= 1
            listed = stream.until("queues:%2F")
            assert "live.orders" in [each["name"] for each in listed["items"]]
            names = {(stream.next() or ("", 0))[0] for _ in range(6)}
            assert names == {"overview", "queue:/:live.orders", "queues:%2F"}


def test_a_queue_that_is_deleted_while_one_looks_is_said_to_be_gone(
    own_gateway: GatewayProcess,
) -> None:
    with amqp_channel(own_gateway) as channel:
        channel.queue_declare("live.short", durable=True)
        with watching(own_gateway, "queue:/:live.short") as stream:
            stream.until("queue:/:live.short")
            channel.queue_delete("live.short")
            while "is_gone" not in stream.until("queue:/:live.short"):
                pass


def test_a_viewer_whose_rights_go_is_told_and_ended(own_gateway: GatewayProcess) -> None:
    login = add_user(own_gateway, "live-viewer", "monitoring")
    with watching(own_gateway, "overview", login) as stream:
        stream.until("overview")
        answer(own_gateway.run("user", "remove", "live-viewer"))
        assert "may not use the management API any more" in stream.until("end")["reason"]
        assert stream.next() is None


@pytest.mark.parametrize(
    ("topics", "status"),
    [
        ("", 400),
        ("nonsense", 400),
        ("queue:/", 400),
        ("overview:x", 400),
        ("queue:/:live.nowhere", 404),
        ("queues:nowhere", 404),
        ("overview%0Adata", 400),
        (",".join(f"queues:{number}" for number in range(21)), 400),
    ],
)
def test_what_cannot_be_watched_is_refused(
    own_gateway: GatewayProcess, topics: str, status: int
) -> None:
    assert get(own_gateway, f"/events?topics={topics}").error[0] == status


def test_the_overview_is_for_those_who_monitor_and_vhosts_for_their_users(
    own_gateway: GatewayProcess,
) -> None:
    login = add_user(own_gateway, "live-plain", "management", "--no-permissions")
    for topics in ("overview", "queues:/", "topics:/"):
        found = get(own_gateway, f"/events?topics={topics}", login=login)
        assert found.error == (401, "not_authorised")


async def test_the_topic_tree_grows_while_somebody_looks(own_gateway: GatewayProcess) -> None:
    first = get(own_gateway, "/topics/%2F").value
    assert first["since"]
    with mqtt_client(own_gateway, "live-plant") as client:
        for number in range(3):
            published(client, f"live/plant/{number}/temperature", b"%d" % number)
        published(client, "live/plant/0/temperature", b"99")
        published(client, "live/plant", b"all")

    async def are_seen() -> bool:
        found = get(own_gateway, "/topics/%2F?below=live")
        return found.status == 200 and found.value["items"][0]["messages_below"] == 4

    await until(are_seen)
    (plant,) = get(own_gateway, "/topics/%2F?below=live").value["items"]
    assert (plant["level"], plant["topic"], plant["payload"]) == ("plant", "live/plant", "all")
    assert (plant["messages"], plant["topics_below"]) == (1, 3)
    below = get(own_gateway, "/topics/%2F?below=live/plant/0").value["items"]
    assert [(each["path"], each["messages"], each["payload"]) for each in below] == [
        ("live/plant/0/temperature", 2, "99")
    ]
    assert get(own_gateway, "/topics/%2F?below=live/nowhere").status == 404
    login = add_user(own_gateway, "live-nosy", "monitoring", "--no-permissions")
    hidden = get(own_gateway, "/topics/%2F?below=live", login=login).value["items"][0]
    assert (hidden["level"], hidden["payload"]) == ("plant", None)
    with watching(own_gateway, "topics:/") as stream:
        assert stream.until("topics:/")["topics"] >= 4


def test_a_watch_is_no_queue_that_anybody_sees(own_gateway: GatewayProcess) -> None:
    get(own_gateway, "/topics/%2F")
    listed = ask(own_gateway, "GET", "/api/queues").value
    assert not [each for each in listed if each["name"].startswith("$live/topics")]
    body = {"topic": "live/watched"}
    found = post(own_gateway, "/routing/%2F", body).value
    assert found["verdict"] == "unroutable"


async def test_a_message_that_only_the_watch_sees_has_nowhere_to_go(
    own_gateway: GatewayProcess,
) -> None:
    get(own_gateway, "/topics/%2F")
    with amqp_channel(own_gateway) as channel, pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("amq.topic", "live.nobody", b"1", mandatory=True)

    async def is_seen() -> bool:
        return get(own_gateway, "/topics/%2F?below=live/nobody").status == 200

    await until(is_seen)
