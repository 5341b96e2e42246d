"""Exchanges, queues, bindings and messages over RabbitMQ's HTTP API, on a running gateway."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote, unquote

import pika
import pytest

from tests.support.gateway_process import GatewayProcess
from tests.support.http_api import HttpAnswer, ask
from tests.support.names import fresh
from tests.support.operator import answer
from tests.support.until import wait_until


@pytest.fixture
def api(own_gateway: GatewayProcess) -> Any:
    def call(method: str, path: str, body: Any = None, **options: Any) -> HttpAnswer:
        return ask(own_gateway, method, f"/api{path}", body, **options)

    return call


@pytest.fixture
def queue(api: Any) -> str:
    name = fresh("objects")
    assert api("PUT", f"/queues/%2F/{name}", {"durable": True}).status == 201
    return name


def test_a_queue_is_declared_found_again_and_deleted(api: Any) -> None:
    name = fresh("q /~ü")
    path = f"/queues/%2F/{quote(name, safe='')}"
    wanted = {"durable": "true", "auto_delete": "false", "arguments": {"x-max-length": 5}}
    assert api("PUT", path, wanted).status == 201
    assert api("PUT", path, wanted).status == 204
    assert api("GET", path).value["arguments"] == {"x-max-length": 5}
    refused = api("PUT", path, {**wanted, "arguments": []})
    assert refused.error == (400, "bad_request")
    assert "x-max-length" in refused.value["reason"]
    assert api("DELETE", f"{path}?if-empty=true&if-unused=true").status == 204
    assert api("DELETE", path).error == (404, "Object Not Found")


@pytest.mark.parametrize("kind", ["classic", "quorum", "stream"])
def test_the_type_of_a_queue_is_the_one_that_was_declared(api: Any, kind: str) -> None:
    path = f"/queues/%2F/{fresh('typed')}"
    wanted = {"durable": True, "arguments": {"x-queue-type": kind}}
    assert api("PUT", path, wanted).status == 201
    assert api("GET", path).value["type"] == kind
    assert api("DELETE", path).status == 204


@pytest.mark.parametrize(
    ("body", "why"),
    [
        pytest.param({"durable": "perhaps"}, "durable", id="no boolean"),
        pytest.param({"durable": 1}, "durable", id="a number"),
        pytest.param({"arguments": [1]}, "arguments", id="a list"),
        pytest.param({"arguments": {"x-max-length": "a"}}, "x-max-length", id="an argument"),
        pytest.param({"exclusive": True}, "exclusive", id="exclusive"),
        pytest.param({"arguments": {"x-queue-type": "quorum"}}, "durable", id="quorum in memory"),
    ],
)
def test_a_declaration_in_wrong_words_is_refused(api: Any, body: Any, why: str) -> None:
    refused = api("PUT", f"/queues/%2F/{fresh('wrong')}", body)
    assert refused.error == (400, "bad_request")
    assert why in refused.value["reason"]


def test_an_exchange_is_declared_listed_and_deleted(api: Any, queue: str) -> None:
    name = fresh("x")
    path = f"/exchanges/%2F/{name}"
    assert api("PUT", path, {"type": "topic", "durable": True}).status == 201
    assert api("PUT", path, {"type": "topic", "durable": True}).status == 204
    assert api("PUT", path, {"type": "fanout"}).error == (400, "bad_request")
    found = api("GET", path).value
    assert (found["name"], found["type"], found["internal"]) == (name, "topic", False)
    assert name in [each["name"] for each in api("GET", "/exchanges/%2F?columns=name").value]
    api("POST", f"/bindings/%2F/e/{name}/q/{queue}", {"routing_key": "a.#"})
    assert [b["destination"] for b in api("GET", f"{path}/bindings/source").value] == [queue]
    assert api("GET", f"{path}/bindings/destination").value == []
    assert api("DELETE", f"{path}?if-unused=true").error == (400, "bad_request")
    assert api("DELETE", path).status == 204
    assert api("GET", path).error == (404, "Object Not Found")
    assert api("GET", "/exchanges/%2F/amq.default").value["name"] == ""
    assert api("DELETE", "/exchanges/%2F/amq.topic").error == (400, "bad_request")


@pytest.mark.parametrize(
    ("key", "arguments", "properties_key"),
    [
        pytest.param("", {}, "~", id="nothing"),
        pytest.param("a.*.b~c d/e", {}, "a.%2A.b%7Ec+d%2Fe", id="as RabbitMQ writes it"),
        pytest.param("k", {"x": 1, "y": [True, {"z": "w"}]}, None, id="arguments"),
        pytest.param("", {"x": 1}, None, id="arguments alone"),
    ],
)
def test_a_binding_is_found_again_by_its_location(
    api: Any, queue: str, key: str, arguments: dict[str, Any], properties_key: str | None
) -> None:
    path = f"/bindings/%2F/e/amq.direct/q/{queue}"
    made = api("POST", path, {"routing_key": key, "arguments": arguments})
    assert made.status == 201
    location = made.headers["Location"]
    found_key = unquote(location.rpartition("/")[2])  # as Terraform's provider reads it
    found = [each for each in api("GET", path).value if each["properties_key"] == found_key]
    assert [(each["routing_key"], each["arguments"]) for each in found] == [(key, arguments)]
    if properties_key is not None:
        assert found_key == properties_key
    one = f"{path}/{location.rpartition('/')[2]}"
    assert api("GET", one).value["properties_key"] == found_key
    assert api("GET", f"/queues/%2F/{queue}/bindings").value[-1]["routing_key"] == key
    assert api("DELETE", one).status == 204
    assert api("DELETE", one).error == (404, "Object Not Found")


def test_exchanges_are_bound_to_each_other(api: Any) -> None:
    name = fresh("inner")
    api("PUT", f"/exchanges/%2F/{name}", {"type": "fanout"})
    path = f"/bindings/%2F/e/amq.topic/e/{name}"
    assert api("POST", path, {"routing_key": "a.b"}).status == 201
    assert [each["destination_type"] for each in api("GET", path).value] == ["exchange"]
    (found,) = api("GET", f"/exchanges/%2F/{name}/bindings/destination").value
    assert found["source"] == "amq.topic"
    assert name in [each["destination"] for each in api("GET", "/bindings/%2F").value]
    assert api("DELETE", f"{path}/a.b").status == 204
    api("DELETE", f"/exchanges/%2F/{name}")


def test_a_binding_without_its_ends_is_refused(api: Any, queue: str) -> None:
    assert api("POST", f"/bindings/%2F/e/amq.topic/q/{queue}-no").error[0] == 404
    assert api("POST", f"/bindings/%2F/e/nowhere/q/{queue}").error[0] == 404
    assert api("POST", f"/bindings/%2F/e/amq.topic/z/{queue}").error[0] == 404
    assert api("GET", f"/bindings/%2F/e/nowhere/q/{queue}").value == []


def published(api: Any, queue: str, body: bytes, **properties: Any) -> HttpAnswer:
    found: HttpAnswer = api(
        "POST",
        "/exchanges/%2F/amq.default/publish",
        {
            "routing_key": queue,
            "payload": base64.b64encode(body).decode(),
            "payload_encoding": "base64",
            "properties": properties,
        },
    )
    return found


def got(api: Any, queue: str, mode: str = "ack_requeue_true", **more: Any) -> list[dict[str, Any]]:
    wanted = {"count": "10", "ackmode": mode, "encoding": "auto", **more}
    found: list[dict[str, Any]] = api("POST", f"/queues/%2F/{queue}/get", wanted).value
    return found


def test_a_message_is_published_with_its_properties_and_got(api: Any, queue: str) -> None:
    properties = {
        "delivery_mode": 2,
        "content_type": "text/plain",
        "priority": 3,
        "timestamp": 1_700_000_000,
        "headers": {"k": "v", "n": [1, {"a": None}]},
    }
    assert published(api, queue, "grüße".encode(), **properties).value == {"routed": True}
    (message,) = got(api, queue)
    assert message["payload"] == "grüße"
    assert message["payload_encoding"] == "string"
    assert message["payload_bytes"] == 7
    assert message["properties"] == properties
    assert (message["exchange"], message["routing_key"]) == ("", queue)
    assert (message["redelivered"], message["message_count"]) == (False, 0)


def test_looking_at_messages_has_no_effect(api: Any, queue: str) -> None:
    for number in range(3):
        published(api, queue, b"%d" % number, delivery_mode=2)
    for _ in range(2):
        found = got(api, queue)
        assert [each["payload"] for each in found] == ["0", "1", "2"]
        assert [each["message_count"] for each in found] == [2, 1, 0]
        assert not any(each["redelivered"] for each in found)
    assert [each["payload"] for each in got(api, queue, count=1, truncate=0)] == [""]


def test_what_becomes_of_messages_that_are_got(api: Any, queue: str) -> None:
    for number in range(4):
        published(api, queue, b"%d" % number, delivery_mode=2)
    requeued = got(api, queue, "reject_requeue_true", count=2)
    assert [each["payload"] for each in requeued] == ["0", "1"]
    taken = got(api, queue, "ack_requeue_false", count=1)
    assert [(each["payload"], each["redelivered"]) for each in taken] == [("0", True)]
    assert [each["payload"] for each in got(api, queue, "reject_requeue_false", count=1)] == ["1"]
    assert [each["payload"] for each in got(api, queue)] == ["2", "3"]
    assert api("DELETE", f"/queues/%2F/{queue}/contents?count=1").status == 204
    assert [each["payload"] for each in got(api, queue)] == ["3"]
    assert api("DELETE", f"/queues/%2F/{queue}/contents").status == 204
    assert got(api, queue) == []


def test_bytes_that_are_no_text_come_as_base64(api: Any, queue: str) -> None:
    published(api, queue, b"\xff\x00")
    (message,) = got(api, queue)
    assert (message["payload"], message["payload_encoding"]) == ("/wA=", "base64")
    published(api, queue, b"text")
    assert got(api, queue, encoding="base64")[1]["payload"] == "dGV4dA=="


def test_a_stream_is_looked_at_without_a_consumer(api: Any) -> None:
    name = fresh("stream")
    arguments = {"x-queue-type": "stream"}
    api("PUT", f"/queues/%2F/{name}", {"durable": True, "arguments": arguments})
    for number in range(3):
        published(api, name, b"%d" % number)
    found = got(api, name)
    assert [(each["payload"], each["offset"]) for each in found] == [("0", 0), ("1", 1), ("2", 2)]
    wanted = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    assert api("POST", f"/queues/%2F/{name}/get", wanted).error == (400, "bad_request")


def test_a_message_for_nobody_is_not_routed(api: Any, queue: str) -> None:
    assert published(api, f"{queue}-no", b"x").value == {"routed": False}


def test_a_full_queue_refuses_as_rabbitmqs_does(api: Any) -> None:
    name = fresh("full")
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    api("PUT", f"/queues/%2F/{name}", {"durable": True, "arguments": arguments})
    published(api, name, b"1", delivery_mode=2)
    refused = published(api, name, b"2", delivery_mode=2)
    assert refused.error == (400, "rejected")
    assert refused.value["reason"].startswith("Unable to publish message. Check queue limits.")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        pytest.param({"payload_encoding": "hex"}, "payload_encoding", id="no encoding"),
        pytest.param({"payload": "!!", "payload_encoding": "base64"}, "base64", id="no base64"),
        pytest.param({"properties": {"priority": "x"}}, "priority", id="a wrong type"),
        pytest.param({"properties": {"colour": 1}}, "colour", id="no property"),
        pytest.param({"properties": {"user_id": "root"}}, "user_id", id="another's name"),
        pytest.param({"properties": {"expiration": "soon"}}, "expiration", id="no time"),
        pytest.param({"properties": {"reply_to": "amq.rabbitmq.reply-to"}}, "reply", id="reply"),
        pytest.param({"routing_key": None}, "routing_key", id="no key"),
    ],
)
def test_a_message_in_wrong_words_is_refused(
    api: Any, queue: str, changed: dict[str, Any], why: str
) -> None:
    body = {"routing_key": queue, "payload": "x", "payload_encoding": "string", **changed}
    refused = api("POST", "/exchanges/%2F/amq.default/publish", body)
    assert refused.error == (400, "bad_request")
    assert why in refused.value["reason"]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"count": 1, "encoding": "auto"}, id="no ackmode"),
        pytest.param({"count": -1, "encoding": "auto", "ackmode": "ack_requeue_true"}, id="-1"),
        pytest.param({"count": "x", "encoding": "auto", "ackmode": "ack_requeue_true"}, id="text"),
        pytest.param({"count": 1, "encoding": "hex", "ackmode": "ack_requeue_true"}, id="hex"),
        pytest.param({"count": 1, "encoding": "auto", "ackmode": "keep"}, id="no mode"),
    ],
)
def test_a_get_in_wrong_words_is_refused(api: Any, queue: str, body: dict[str, Any]) -> None:
    assert api("POST", f"/queues/%2F/{queue}/get", body).error == (400, "bad_request")


def test_the_gateway_is_alive(api: Any) -> None:
    assert api("GET", "/aliveness-test/%2F").value == {"status": "ok"}
    assert api("GET", "/aliveness-test/nowhere").error == (404, "Object Not Found")


def test_ordinary_permissions_hold_on_top_of_tags(own_gateway: GatewayProcess, api: Any) -> None:
    name, queue = fresh("tagged"), fresh("theirs")
    api("PUT", f"/queues/%2F/{queue}", {"durable": True})
    answer(own_gateway.run("user", "add", name, "--tag", "administrator", words="open sesame 1\n"))
    answer(own_gateway.run("user", "grant", name, "--configure", "", "--write", "^a", "--read", ""))
    login = f"{name}:open sesame 1"
    refused = (401, "not_authorised")
    get = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    message = {"routing_key": queue, "payload": "x", "payload_encoding": "string"}
    for method, path, body in (
        ("PUT", f"/queues/%2F/{queue}-2", {"durable": True}),
        ("DELETE", f"/queues/%2F/{queue}", None),
        ("DELETE", f"/queues/%2F/{queue}/contents", None),
        ("POST", f"/queues/%2F/{queue}/get", get),
        ("PUT", f"/exchanges/%2F/{queue}", {"type": "fanout"}),
        ("DELETE", "/exchanges/%2F/amq.fanout", None),
        ("POST", f"/bindings/%2F/e/amq.topic/q/{queue}", {"routing_key": "a"}),
        ("POST", "/exchanges/%2F/other/publish", message),
    ):
        found = api(method, path, body, login=login)
        assert found.error in (refused, (404, "Object Not Found")), (method, path, found.raw)
    default = api("POST", "/exchanges/%2F/amq.default/publish", message, login=login)
    assert default.value == {"routed": True}


def test_what_http_makes_an_amqp_client_uses(own_gateway: GatewayProcess, api: Any) -> None:
    name = fresh("both")
    api("PUT", f"/queues/%2F/{name}", {"durable": True})
    api("PUT", f"/exchanges/%2F/{name}", {"type": "topic", "durable": True})
    api("POST", f"/bindings/%2F/e/{name}/q/{name}", {"routing_key": "a.*", "arguments": {}})
    connection = pika.BlockingConnection(pika.URLParameters(own_gateway.amqp_url()))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(name, durable=True)
        channel.basic_publish(name, "a.b", b"from pika", mandatory=True)
        assert got(api, name)[0]["payload"] == "from pika"
        published(api, name, b"from http", headers={"n": 1})
        channel.basic_get(name, auto_ack=True)
        _, properties, body = channel.basic_get(name, auto_ack=True)
        assert (properties.headers, body) == ({"n": 1}, b"from http")
    finally:
        connection.close()


def test_a_queue_is_paused_and_resumed(own_gateway: GatewayProcess, api: Any, queue: str) -> None:
    published(api, queue, b"waits", delivery_mode=2)
    assert api("PUT", f"/queues/%2F/{queue}/pause").status == 204
    assert api("GET", f"/queues/%2F/{queue}").value["state"] == "paused"
    assert got(api, queue, "ack_requeue_false") == []
    assert [each["payload"] for each in got(api, queue)] == ["waits"]
    answer(own_gateway.run("queue", "resume", queue))
    assert api("GET", f"/queues/%2F/{queue}").value["state"] == "running"
    answer(own_gateway.run("queue", "pause", queue))
    assert api("PUT", f"/queues/%2F/{queue}/resume").status == 204
    assert [each["payload"] for each in got(api, queue, "ack_requeue_false")] == ["waits"]
    assert api("PUT", f"/queues/%2F/{queue}-no/pause").error == (404, "Object Not Found")


def test_messages_in_flight_are_listed_with_who_has_them(
    own_gateway: GatewayProcess, api: Any, queue: str
) -> None:
    for number in range(2):
        published(api, queue, b"%d" % number, delivery_mode=2)
    connection = pika.BlockingConnection(pika.URLParameters(own_gateway.amqp_url()))
    try:
        channel = connection.channel()
        for _ in channel.consume(queue, consumer_tag="worker-1"):
            break
        path = f"/queues/%2F/{queue}/unacked"
        wait_until(
            lambda: all(each["unacked_for_seconds"] is not None for each in api("GET", path).value),
            "times",
        )
        found = api("GET", path).value
        assert [each["offset"] for each in found] == [0, 1]
        assert {each["consumer_tag"] for each in found} == {"worker-1"}
        assert {(each["user"], each["protocol"]) for each in found} == {("guest", "AMQP 0.9.1")}
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("place", "payloads"),
    [
        pytest.param({}, ["0", "1", "2"], id="the beginning"),
        pytest.param({"offset": "first"}, ["0", "1", "2"], id="first"),
        pytest.param({"offset": 1}, ["1", "2"], id="an offset"),
        pytest.param({"offset": "2", "count": "5"}, ["2"], id="an offset in words"),
        pytest.param({"offset": "next"}, [], id="next"),
        pytest.param({"timestamp": 0}, ["0", "1", "2"], id="a time"),
        pytest.param({"count": 1}, ["0"], id="one"),
    ],
)
def test_a_stream_is_read_from_a_place_on(
    api: Any, place: dict[str, Any], payloads: list[str]
) -> None:
    name = fresh("stream")
    arguments = {"x-queue-type": "stream"}
    api("PUT", f"/queues/%2F/{name}", {"durable": True, "arguments": arguments})
    for number in range(3):
        published(api, name, b"%d" % number)
    found = api("POST", f"/queues/%2F/{name}/stream", place).value
    assert [each["payload"] for each in found] == payloads


def test_only_streams_are_read_as_such(api: Any, queue: str) -> None:
    assert api("POST", f"/queues/%2F/{queue}/stream", {}).error == (400, "bad_request")
