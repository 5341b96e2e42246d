"""Subscriptions act in the order in which packets arrive; the disk only delays their answers."""

from __future__ import annotations

import pytest

from protocols.mqtt.subscribe.pending_writes import MOST_PENDING_WRITES
from protocols.mqtt.wire.packets import (
    PingReq,
    PingResp,
    Publish,
    SubAck,
    Subscribe,
    SubscribeRequest,
    UnsubAck,
    Unsubscribe,
)
from protocols.mqtt.wire.property_set import PropertySet
from tests.unit.protocols.mqtt.wired import Broking

WAYS = pytest.mark.parametrize(
    ("expiry", "prefix"),
    [(None, ""), (300, ""), (None, "$share/g/"), (300, "$share/g/")],
    ids=["clean", "stored", "clean shared", "stored shared"],
)


def subscribe(packet_id: int, *filters: str, qos: int = 1, identifier: int = 0) -> Subscribe:
    requests = tuple(SubscribeRequest(each, qos) for each in filters)
    said = PropertySet(subscription_identifiers=(identifier,) if identifier else ())
    return Subscribe(packet_id, requests, said)


@WAYS
async def test_a_publish_that_arrives_after_a_subscribe_is_routed_by_it(
    expiry: int | None, prefix: str
) -> None:
    here = Broking()
    subscriber, publisher = await here.client("s", expiry=expiry), await here.client("p")
    here.world.outage.answers.clear()
    subscriber.gets(subscribe(1, f"{prefix}a/+"))
    publisher.gets(Publish("a/b", b"1"))
    await subscriber.when(lambda: subscriber.bodies == [b"1"])
    await here.settle()
    assert bool(subscriber.of(SubAck)) is (expiry is None), "before it is stored, or never"
    here.world.outage.answers.set()
    await subscriber.when(lambda: bool(subscriber.of(SubAck)))
    assert subscriber.of(SubAck)[0].reasons == (1,)
    assert subscriber.bodies == [b"1"]


@WAYS
async def test_the_second_of_two_subscribes_does_not_wait_for_the_first_to_be_stored(
    expiry: int | None, prefix: str
) -> None:
    here = Broking()
    subscriber, publisher = await here.client("s", expiry=expiry), await here.client("p")
    here.world.outage.answers.clear()
    subscriber.gets(subscribe(1, f"{prefix}a"))
    subscriber.gets(subscribe(2, f"{prefix}b"))
    publisher.gets(Publish("b", b"1"))
    await subscriber.when(lambda: subscriber.bodies == [b"1"])
    here.world.outage.answers.set()
    await subscriber.when(lambda: len(subscriber.of(SubAck)) == 2)
    assert [each.packet_id for each in subscriber.of(SubAck)] == [1, 2]


@WAYS
async def test_a_publish_that_arrives_after_an_unsubscribe_is_not_routed_any_more(
    expiry: int | None, prefix: str
) -> None:
    here = Broking()
    subscriber, publisher = await here.client("s", expiry=expiry), await here.client("p")
    subscriber.gets(subscribe(1, f"{prefix}a"))
    await subscriber.until(SubAck)
    here.world.outage.answers.clear()
    subscriber.gets(Unsubscribe(2, (f"{prefix}a",)))
    publisher.gets(Publish("a", b"1"))
    await here.settle()
    assert bool(subscriber.of(UnsubAck)) is (expiry is None)
    here.world.outage.answers.set()
    await subscriber.until(UnsubAck)
    assert subscriber.of(UnsubAck)[0].reasons == (0,)
    assert subscriber.bodies == []


@pytest.mark.parametrize("prefix", ["", "$share/g/"])
async def test_a_subscription_that_cannot_be_stored_is_undone_and_refused(prefix: str) -> None:
    here = Broking()
    subscriber, publisher = await here.client("s", expiry=300), await here.client("p")
    subscriber.gets(subscribe(1, f"{prefix}old", qos=0))
    await subscriber.until(SubAck)
    here.world.outage.is_on = True
    subscriber.gets(subscribe(2, f"{prefix}old", f"{prefix}new", qos=1))
    await subscriber.when(lambda: len(subscriber.of(SubAck)) == 2)
    assert all(reason >= 0x80 for reason in subscriber.of(SubAck)[1].reasons)
    publisher.gets(Publish("new", b"1"), Publish("old", b"2"))
    await subscriber.until(Publish)
    assert subscriber.bodies == [b"2"]
    session = here.world.sessions._attached["/", "s"]
    assert {each.address: each.qos for each in session.subscriptions.values()} == {
        f"{prefix}old": 0
    }


async def test_an_unsubscription_that_cannot_be_stored_is_undone_and_refused() -> None:
    here = Broking()
    subscriber, publisher = await here.client("s", expiry=300), await here.client("p")
    filters = ("a", "$share/g/b")
    subscriber.gets(subscribe(1, *filters))
    await subscriber.until(SubAck)
    here.world.outage.is_on = True
    subscriber.gets(Unsubscribe(2, filters))
    await subscriber.until(UnsubAck)
    assert all(reason >= 0x80 for reason in subscriber.of(UnsubAck)[0].reasons)
    publisher.gets(Publish("a", b"1"), Publish("b", b"2"))
    await subscriber.when(lambda: sorted(subscriber.bodies) == [b"1", b"2"])


async def test_a_subscription_that_fails_takes_no_later_one_with_it() -> None:
    """The second stands on the first, which is undone under it; then the second fails, too."""
    here = Broking()
    subscriber, publisher = await here.client("s", expiry=300), await here.client("p")
    here.world.outage.answers.clear()
    subscriber.gets(subscribe(1, "a", identifier=1))
    subscriber.gets(subscribe(2, "a", identifier=2))
    here.world.outage.is_on = True
    here.world.outage.answers.set()
    await subscriber.when(lambda: len(subscriber.of(SubAck)) == 2)
    publisher.gets(Publish("a", b"1"))
    subscriber.gets(PingReq())
    await subscriber.until(PingResp)
    assert subscriber.bodies == []
    assert here.world.sessions._attached["/", "s"].subscriptions == {}


@pytest.mark.parametrize("clean", [True, False])
async def test_what_a_client_that_was_taken_over_asked_for_last_hurts_nobody(clean: bool) -> None:
    here = Broking()
    first, publisher = await here.client("s", expiry=300), await here.client("p")
    here.world.outage.answers.clear()
    first.gets(subscribe(1, "a", "$share/g/b"))
    here.world.outage.answers.set()
    second = await here.client("s", expiry=300, clean=clean)
    await first.when(lambda: not first.is_open)
    if clean:
        second.gets(subscribe(1, "a", "$share/g/b"))
        await second.until(SubAck)
    publisher.gets(Publish("a", b"1"), Publish("b", b"2"))
    await second.when(lambda: sorted(second.bodies) == [b"1", b"2"])


async def test_what_is_no_subscription_waits_for_those_before_it() -> None:
    here = Broking()
    subscriber = await here.client("s", expiry=300)
    here.world.outage.answers.clear()
    subscriber.gets(subscribe(1, "a"), PingReq(), subscribe(2, "b"))
    await here.settle()
    assert len(subscriber.heard) == 1
    here.world.outage.answers.set()
    await subscriber.when(lambda: len(subscriber.of(SubAck)) == 2)
    assert [type(each) for each in subscriber.heard[1:]] == [SubAck, PingResp, SubAck]


async def test_no_more_subscriptions_are_taken_ahead_of_the_disk_than_a_bound() -> None:
    here = Broking()
    subscriber, publisher = await here.client("s", expiry=300), await here.client("p")
    here.world.outage.answers.clear()
    many = MOST_PENDING_WRITES + 20
    subscriber.gets(*(subscribe(number, f"t/{number}") for number in range(1, many + 1)))
    await here.settle()  # a chunk of so many may take more than one turn
    publisher.gets(*(Publish(f"t/{number}", b"%d" % number) for number in range(1, many + 1)))
    await here.settle()
    assert len(subscriber.bodies) == MOST_PENDING_WRITES
    here.world.outage.answers.set()
    await subscriber.when(lambda: len(subscriber.of(SubAck)) == many)


async def test_a_connection_that_ends_leaves_what_it_asked_for_to_be_stored() -> None:
    here = Broking()
    subscriber = await here.client("s", expiry=300)
    here.world.outage.answers.clear()
    subscriber.gets(subscribe(1, "a"))
    subscriber.gets(subscribe(2, "b"))
    subscriber.close()
    await here.settle()
    here.world.outage.answers.set()
    await subscriber.when(lambda: here.world.outage.calls.count("subscribe 1") == 2)
    second = await here.client("s", clean=False, expiry=300)
    publisher = await here.client("p")
    publisher.gets(Publish("a", b"1"), Publish("b", b"2"))
    await second.when(lambda: second.bodies == [b"1", b"2"])
