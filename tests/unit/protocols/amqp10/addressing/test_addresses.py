"""The table of addresses, row by row."""

from __future__ import annotations

import pytest

from protocols.amqp10.addressing.addresses import (
    ExchangeAddress,
    NameAddress,
    QueueAddress,
    check_publishable,
    parse,
    queue_address,
    reply_key,
    topic,
)
from protocols.amqp10.errors import Amqp10Error
from queue_core.errors import InvalidTopic

ROWS = [
    pytest.param("/queues/q", (), QueueAddress("q"), id="v2 queue"),
    pytest.param("/queues/a%2Fb%20c", (), QueueAddress("a/b c"), id="percent-encoded"),
    pytest.param("/exchanges/x", (), ExchangeAddress("x", ""), id="v2 exchange"),
    pytest.param("/exchanges/x%2Fy/a.b", (), ExchangeAddress("x/y", "a.b"), id="exchange, key"),
    pytest.param("$queue/q", (), QueueAddress("q", may_make=True), id="MQTT's queue topic"),
    pytest.param("queue://q", (), QueueAddress("q", may_make=True), id="queue scheme"),
    pytest.param("topic://a.b", (), ExchangeAddress("amq.topic", "a.b"), id="topic scheme"),
    pytest.param("q", ("queue",), QueueAddress("q", may_make=True), id="capability queue"),
    pytest.param("a/b", ("topic",), ExchangeAddress("amq.topic", "a.b"), id="capability topic"),
    pytest.param("q", (), NameAddress("q"), id="bare name"),
    pytest.param("q", ("other",), NameAddress("q"), id="a capability that says nothing"),
]


@pytest.mark.parametrize(("address", "capabilities", "expected"), ROWS)
def test_an_address_means_what_the_table_says(
    address: str, capabilities: tuple[str, ...], expected: object
) -> None:
    assert parse(address, capabilities) == expected


@pytest.mark.parametrize("address", ["", "/queues/", "/exchanges/", "/exchanges/a/b/c", "queue://"])
def test_an_address_without_a_name_is_refused(address: str) -> None:
    with pytest.raises(Amqp10Error):
        parse(address)


@pytest.mark.parametrize(
    ("written", "pattern"),
    [
        ("a.*.#", "a.*.#"),
        ("a/+/#", "a.*.#"),
        ("a.b/c", "a/b.c"),
        ("a/*/c", "a.*.c"),
        ("plain", "plain"),
    ],
)
def test_a_topic_with_a_slash_is_written_as_mqtt_does(written: str, pattern: str) -> None:
    assert topic(written).key == pattern


def test_one_cannot_publish_to_a_filter() -> None:
    with pytest.raises(InvalidTopic):
        check_publishable(topic("a/+"), "a/+")


def test_a_queues_address_leads_back_to_it() -> None:
    for name in ("q", "a/b", "ü %", "100%"):
        assert parse(queue_address(name)) == QueueAddress(name)


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("/queues/a%20b", "a b"),
        ("queue://q", "q"),
        ("topic://a/b", "a.b"),
        ("a/b", "a.b"),
        ("q", "q"),
        ("/exchanges/x/k", "/exchanges/x/k"),
    ],
)
def test_a_reply_address_becomes_a_key_of_the_default_exchange(address: str, key: str) -> None:
    assert reply_key(address) == key
