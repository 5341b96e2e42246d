"""Sessions, retained values, groups and the database over our own API."""

from __future__ import annotations

from itertools import islice
from urllib.parse import quote

import pika
import pytest

from tests.support.gateway_process import GatewayProcess
from tests.support.http_api import ask
from tests.support.operator import answer
from tests.support.own_api import (
    V1,
    add_user,
    amqp_channel,
    get,
    mqtt_client,
    published,
    run_shown,
    subscribed,
)
from tests.support.until import until


async def test_sessions_are_listed_with_what_waits_and_can_be_ended(
    own_gateway: GatewayProcess,
) -> None:
    with mqtt_client(own_gateway, "own-away", expiry=3600) as client:
        subscribed(client, "own/away/#")
        subscribed(client, "own/second")
    with mqtt_client(own_gateway, "own-speaker") as client:
        published(client, "own/away/1", b"one")

    async def is_away() -> bool:
        found = get(own_gateway, "/sessions/%2F/own-away").value["session"]
        return bool(found["state"] == "disconnected" and found["messages"] == 1)

    await until(is_away)
    listed = get(own_gateway, "/sessions?name=own-aw").value
    assert [each["client_id"] for each in listed["items"]] == ["own-away"]
    shown = await run_shown(own_gateway, listed["sql"])
    assert [row["client_id"] for row in shown] == ["own-away"]
    found = get(own_gateway, "/sessions/%2F/own-away").value
    assert [each["filter"] for each in found["subscriptions"]] == ["own/away/#", "own/second"]
    assert found["session"]["protocol"].startswith("MQTT 5")
    queue = quote(found["session"]["queue"], safe="")
    waiting = get(own_gateway, f"/queues/%2F/{queue}/messages").value["items"]
    assert [each["payload"] for each in waiting] == ["one"]
    stranger = add_user(own_gateway, "own-stranger", "management")
    assert get(own_gateway, "/sessions", login=stranger).value["items"] == []
    assert get(own_gateway, "/sessions/%2F/own-away", login=stranger).status == 404
    assert get(own_gateway, f"/queues/%2F/{queue}/messages", login=stranger).status == 401
    monitor = add_user(own_gateway, "own-monitor", "monitoring")
    ending = ask(own_gateway, "DELETE", f"{V1}/sessions/%2F/own-away", login=monitor)
    assert ending.error == (401, "not_authorised")
    await run_shown(own_gateway, found["end_sql"])

    async def is_over() -> bool:
        return get(own_gateway, "/sessions/%2F/own-away").status == 404

    await until(is_over)


async def test_retained_values_are_listed_shown_and_cleared(own_gateway: GatewayProcess) -> None:
    with mqtt_client(own_gateway, "own-keeper") as client:
        for topic in ("own/keep/a", "own/keep/b", "own/keep/b/c"):
            published(client, topic, topic.encode(), retain=True)
    listed = get(own_gateway, "/retained/%2F?filter=own/keep/%2B").value
    assert [each["topic"] for each in listed["items"]] == ["own/keep/a", "own/keep/b"]
    shown = await run_shown(own_gateway, listed["sql"])
    assert [row["topic"] for row in shown] == ["own/keep/a", "own/keep/b"]
    page = get(own_gateway, "/retained/%2F?filter=own/keep/%23&limit=2").value
    rest = get(own_gateway, f"/retained/%2F?filter=own/keep/%23&after={page['next_after']}").value
    assert [each["topic"] for each in rest["items"]] == ["own/keep/b/c"]
    one = get(own_gateway, "/retained/%2F/own%2Fkeep%2Fa").value
    assert one["value"]["payload"] == "own/keep/a"
    assert [row["topic"] for row in await run_shown(own_gateway, one["sql"])] == ["own/keep/a"]
    assert ask(own_gateway, "DELETE", f"{V1}/retained/%2F/own%2Fkeep%2Fa").status == 204
    assert get(own_gateway, "/retained/%2F/own%2Fkeep%2Fa").status == 404
    other = get(own_gateway, "/retained/%2F/own%2Fkeep%2Fb").value
    await run_shown(own_gateway, other["clear_sql"])

    async def is_clear() -> bool:
        return get(own_gateway, "/retained/%2F/own%2Fkeep%2Fb").status == 404

    await until(is_clear)


def test_retained_values_need_rights_on_their_topics(own_gateway: GatewayProcess) -> None:
    with mqtt_client(own_gateway, "own-owner") as client:
        published(client, "own/secret/1", b"1", retain=True)
    login = add_user(own_gateway, "own-curious", "management", "--no-permissions")
    grant = ("user", "grant", "own-curious", "--configure", "^$", "--write", "^$")
    answer(own_gateway.run(*grant, "--read", "^own[.]nothing$"))
    listed = get(own_gateway, "/retained/%2F?filter=own/secret/%23", login=login).value
    assert (listed["items"], listed["hidden"]) == ([], 1)
    assert get(own_gateway, "/retained/%2F/own%2Fsecret%2F1", login=login).status == 401
    path = f"{V1}/retained/%2F/own%2Fsecret%2F1"
    assert ask(own_gateway, "DELETE", path, login=login).error == (401, "not_authorised")
    assert get(own_gateway, "/retained/%2F?filter=a/%23/b").status == 400
    assert get(own_gateway, "/retained/%2F/a%2F%23").status == 400


async def test_groups_of_a_stream_are_listed_with_their_lag(own_gateway: GatewayProcess) -> None:
    with amqp_channel(own_gateway) as channel:
        stream = {"x-queue-type": "stream"}
        channel.queue_declare("own.stream", durable=True, arguments=stream)
        for number in range(4):
            channel.basic_publish("", "own.stream", b"%d" % number)
        channel.basic_qos(prefetch_count=10)
        arguments = {"x-stream-offset": "first", "x-consumer-group": "readers"}
        deliveries = channel.consume("own.stream", arguments=arguments)
        for method, _, _ in islice(deliveries, 3):
            channel.basic_ack(method.delivery_tag)
        channel.cancel()

    async def has_group() -> bool:
        found = get(own_gateway, "/groups/%2F/own.stream").value["items"]
        return [(each["group_name"], each["lag"]) for each in found] == [("readers", 1)]

    await until(has_group)
    found = get(own_gateway, "/groups/%2F/own.stream").value
    shown = await run_shown(own_gateway, found["sql"])
    assert [(row["group_name"], row["lag"]) for row in shown] == [("readers", 1)]


async def test_segments_jobs_and_the_database_are_told_with_their_sql(
    own_gateway: GatewayProcess,
) -> None:
    with amqp_channel(own_gateway) as channel:
        channel.queue_declare("own.segment", durable=True)
        channel.basic_publish("", "own.segment", b"1", pika.BasicProperties(delivery_mode=2))
    segments = get(own_gateway, "/segments").value
    assert segments["items"][0]["disk_bytes"] > 0
    shown = await run_shown(own_gateway, segments["sql"])
    assert len(shown) == len(segments["items"])
    jobs = get(own_gateway, "/spark-jobs").value
    assert len(await run_shown(own_gateway, jobs["sql"])) == len(jobs["items"])
    found = get(own_gateway, "/database").value
    assert found["bytes"] > 0
    assert "message" in [each["table"] for each in found["tables"]]
    for sql in found["sql"]:
        assert isinstance(await run_shown(own_gateway, sql), list)
    findings = get(own_gateway, "/findings").value["items"]
    assert "OK" in {each["level"] for each in findings}
    assert [each for each in findings if each["level"] == "FAIL"] == []
    assert any("schema and grants are in place" in each["what"] for each in findings)


@pytest.mark.parametrize("path", ["/segments", "/spark-jobs", "/database", "/findings"])
def test_the_database_is_for_those_who_monitor(own_gateway: GatewayProcess, path: str) -> None:
    name = "own-plain" + path.replace("/", "-")
    login = add_user(own_gateway, name, "management")
    assert get(own_gateway, path, login=login).error == (401, "not_authorised")
