"""Messages browsed over our own API, on a running gateway with real clients."""

from __future__ import annotations

import base64
from typing import Any

import pika
import pytest

from tests.support.gateway_process import GatewayProcess
from tests.support.operator import answer
from tests.support.own_api import (
    add_user,
    amqp_channel,
    get,
    messages,
    post,
    run_shown,
)
from tests.support.until import until


@pytest.fixture(scope="module")
def orders(own_gateway: GatewayProcess) -> str:
    """A queue with five messages of pika's."""
    name = "own.orders"
    with amqp_channel(own_gateway) as channel:
        channel.queue_declare(name, durable=True)
        for number in range(5):
            properties = pika.BasicProperties(
                delivery_mode=2,
                content_type="application/json",
                headers={"region": "eu" if number % 2 else "us", "number": number},
                message_id=f"m{number}",
            )
            channel.basic_publish("", name, b'{"id": %d}' % number, properties)
    return name


def test_a_queue_is_browsed_in_pages_and_stays_as_it_is(
    own_gateway: GatewayProcess, orders: str
) -> None:
    first = messages(own_gateway, orders, limit=3)
    assert [each["offset"] for each in first["items"]] == [0, 1, 2]
    assert first["items"][0]["payload"] == '{"id": 0}'
    assert first["items"][0]["headers"] == {"region": "us", "number": 0}
    rest = messages(own_gateway, orders, from_offset=first["next_offset"])
    assert [each["offset"] for each in rest["items"]] == [3, 4]
    assert rest["next_offset"] is None
    with amqp_channel(own_gateway) as channel:
        method, _, _ = channel.basic_get(orders)
        assert method is not None
        assert (method.redelivered, method.message_count) == (False, 4)
        states = [each["state"] for each in messages(own_gateway, orders)["items"]]
        assert states == ["in flight", "ready", "ready", "ready", "ready"]
        channel.basic_nack(method.delivery_tag, requeue=True)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"header": "region=eu"}, [1, 3]),
        ({"condition": "header.number >= 3"}, [3, 4]),
        ({"condition": "json.id in (0, 4) and message_id like 'm%'"}, [0, 4]),
        ({"key": "own.orders", "limit": 1}, [0]),
        ({"key": "another"}, []),
        ({"order": "newest", "limit": 2}, [4, 3]),
        ({"from_time": "2000-01-01T00:00:00Z"}, [0, 1, 2, 3, 4]),
        ({"from_time": "2999-01-01T00:00:00+01:00"}, []),
    ],
)
async def test_messages_are_chosen_and_the_shown_sql_chooses_the_same(
    own_gateway: GatewayProcess, orders: str, query: dict[str, Any], expected: list[int]
) -> None:
    found = messages(own_gateway, orders, **query)
    assert [each["offset"] for each in found["items"]] == expected
    shown = await run_shown(own_gateway, found["sql"])
    assert [row["offset"] for row in shown] == expected
    assert [row["body"].decode() for row in shown] == [each["payload"] for each in found["items"]]


def test_bodies_are_text_base64_or_cut(own_gateway: GatewayProcess) -> None:
    with amqp_channel(own_gateway) as channel:
        channel.queue_declare("own.bodies", durable=True)
        for body in (b"\xff\x00binary", "größe".encode(), b"x" * 1000):
            channel.basic_publish("", "own.bodies", body, pika.BasicProperties(delivery_mode=2))
    binary, text, long = messages(own_gateway, "own.bodies", truncate=10)["items"]
    assert binary["payload_encoding"] == "base64"
    assert base64.b64decode(binary["payload"]) == b"\xff\x00binary"
    assert (text["payload"], text["payload_encoding"]) == ("größe", "string")
    assert (long["payload"], long["payload_bytes"], long["is_truncated"]) == ("x" * 10, 1000, True)
    cut = messages(own_gateway, "own.bodies", truncate=3, from_offset=1, limit=1)["items"][0]
    assert cut["payload"] == "gr"  # the third byte is half a character
    encoded = messages(own_gateway, "own.bodies", encoding="base64")["items"]
    assert {each["payload_encoding"] for each in encoded} == {"base64"}


def test_a_queue_in_memory_is_browsed_too_without_sql(own_gateway: GatewayProcess) -> None:
    with amqp_channel(own_gateway) as channel:
        channel.queue_declare("own.memory", durable=False)
        for number in range(3):
            channel.basic_publish(
                "", "own.memory", b"%d" % number, pika.BasicProperties(headers={"n": number})
            )
        found = messages(own_gateway, "own.memory", condition="header.n > 0")
        assert [each["payload"] for each in found["items"]] == ["1", "2"]
        assert found["sql"] is None
        newest = get(own_gateway, "/queues/%2F/own.memory/messages?order=newest")
        assert newest.error == (400, "bad_request")
        channel.queue_delete("own.memory")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("condition=nonsense%20%3D%201", "there is no field 'nonsense'"),
        ("condition=offset%20%3D%20'x'", "offset is a number"),
        ("condition=1%3D1;drop%20table", "cannot be read, at 4"),
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("truncate=99999999", "truncate"),
        ("from_offset=-1", "from_offset"),
        ("from_time=yesterday", "is no time"),
        ("from_time=2026-01-01&from_offset=1", "not both"),
        ("encoding=hex", "encoding"),
        ("header=region", "NAME=VALUE"),
        ("header=a%3D%00", "zero characters"),
        ("unknown=1", "unknown"),
    ],
)
def test_a_wrong_question_is_refused_with_the_reason(
    own_gateway: GatewayProcess, orders: str, query: str, said: str
) -> None:
    found = get(own_gateway, f"/queues/%2F/{orders}/messages?{query}")
    assert found.status == 400, found.raw
    assert said in found.value["reason"]


@pytest.mark.parametrize(
    "path",
    [
        "/queues/%2F/own.nowhere/messages",
        "/queues/nowhere/q/messages",
        "/queues/%2F/own.orders/messages/99",
        "/queues/%2F/own.orders/messages/99/life",
        "/sessions/%2F/own.nobody",
        "/retained/%2F/own%2Fnothing",
        "/groups/%2F/own.nowhere",
        "/dead-letters/%2F/own.nowhere",
    ],
)
@pytest.mark.usefixtures("orders")
def test_what_does_not_exist_is_not_found(own_gateway: GatewayProcess, path: str) -> None:
    assert get(own_gateway, path).error == (404, "Object Not Found")


@pytest.mark.parametrize("offset", ["x", "-1", "1.5", "9" * 30])
def test_what_is_no_offset_is_refused(
    own_gateway: GatewayProcess, orders: str, offset: str
) -> None:
    for end in ("", "/life"):
        found = get(own_gateway, f"/queues/%2F/{orders}/messages/{offset}{end}")
        assert found.error == (400, "bad_request")


def test_bodies_need_read_permission_whatever_the_tags(
    own_gateway: GatewayProcess, orders: str
) -> None:
    watcher = add_user(own_gateway, "own-watcher", "monitoring", "--no-permissions")
    path = f"/queues/%2F/{orders}/messages"
    assert get(own_gateway, path, login=watcher).error == (401, "not_authorised")
    reader = add_user(own_gateway, "own-reader", "management", "--no-permissions")
    grant = ("user", "grant", "own-reader", "--configure", "^$", "--write", "^$")
    answer(own_gateway.run(*grant, "--read", "^own[.]orders$"))
    assert get(own_gateway, path, login=reader).status == 200
    other = get(own_gateway, "/queues/%2F/own.bodies/messages", login=reader)
    assert other.error == (401, "not_authorised")
    dry = post(own_gateway, f"/dead-letters/%2F/{orders}/redrive", {}, login=reader)
    assert dry.status == 200


async def test_one_message_is_shown_as_each_protocol_would_see_it(
    own_gateway: GatewayProcess, orders: str
) -> None:
    found = get(own_gateway, f"/queues/%2F/{orders}/messages/1").value
    assert found["message"]["message_id"] == "m1"
    seen = {each["protocol"]: each for each in found["conversions"]}
    assert seen["amqp091"]["message"]["properties"]["message-id"] == "m1"
    assert seen["amqp091"]["losses"] == []
    assert seen["amqp10"]["message"]["application-properties"]["region"] == "eu"
    assert ["region", "eu"] in seen["mqtt5"]["message"]["properties"]["user-properties"]
    assert "properties.headers.region" in seen["mqtt311"]["losses"]
    assert (await run_shown(own_gateway, found["sql"]))[0]["message_id"] == "m1"


async def test_the_life_of_a_message_ends_when_it_is_settled(own_gateway: GatewayProcess) -> None:
    with amqp_channel(own_gateway) as channel:
        channel.queue_declare("own.life", durable=True)
        channel.basic_publish("", "own.life", b"1", pika.BasicProperties(delivery_mode=2))
        path = "/queues/%2F/own.life/messages/0/life"
        assert [each["event"] for each in get(own_gateway, path).value["events"]] == ["enqueued"]
        method, _, _ = channel.basic_get("own.life")
        assert method is not None
        channel.basic_ack(method.delivery_tag)

        async def is_settled() -> bool:
            return bool(get(own_gateway, path).value["events"][-1]["event"] == "settled")

        await until(is_settled)
    found = get(own_gateway, path).value
    shown = await run_shown(own_gateway, found["sql"])
    assert [row["event"] for row in shown] == [each["event"] for each in found["events"]]
