"""Durable subscriptions: whose they are, who may read them, and who may change them."""

from __future__ import annotations

import pytest

from protocols.amqp10.wire.types import Described, Symbol, UInt, ULong, encode
from queue_core.access.auth import Action
from queue_core.queues.queue import Queue
from queue_core.queues.spec import QueueSpec
from queue_core.routing.exchanges import ExchangeKind, ExchangeSpec
from tests.support.amqp10_wire import ATTACH, DETACH, frame
from tests.support.fake_services import FakeServices
from tests.unit.protocols.amqp10.conversation import Conversation, Performative, of

NEVER, SHARED, GLOBAL = Symbol("never"), Symbol("shared"), Symbol("global")
UNSETTLED_STATE = UInt(2)


def receiver(address: str | None, *capabilities: Symbol, name: str = "news") -> bytes:
    """A durable source, or with no address one that was made before."""
    said: list[object] = [address, UNSETTLED_STATE, NEVER, *[None] * 7, list(capabilities) or None]
    source, target = Described(ULong(0x28), said), Described(ULong(0x29), [])
    return frame(0, ATTACH, [name, UInt(1), True, None, None, source, target])


def refusal(heard: list[Performative]) -> tuple[str, str]:
    (detached,) = of(heard, DETACH)
    return detached[2].value[0], detached[2].value[1]


@pytest.fixture
def services() -> FakeServices:
    return FakeServices()


async def talking(services: FakeServices, user: str = "ann") -> Conversation:
    conversation = Conversation(services, user=user)
    await conversation.begin()
    return conversation


async def subscribed(services: FakeServices, said: bytes, user: str = "ann") -> None:
    """A subscription that is there, and that nobody receives from."""
    conversation = await talking(services, user)
    heard = await conversation.say(said)
    assert not of(heard, DETACH)
    await conversation.machine.lost()


def bound(services: FakeServices) -> dict[str, list[tuple[str, str]]]:
    """Returns the bindings of each subscription."""
    router = services.root.router
    return {
        name: [(each.source, each.key) for each in router.bindings_of(queue) if each.source]
        for name, queue in services.root.queues.items()
    }


MINE = "$subscription/ann/client/news"


async def test_no_other_user_finds_it_by_its_names(services: FakeServices) -> None:
    await subscribed(services, receiver("topic://a.b"))
    eve = await talking(services, "eve")
    condition, text = refusal(await eve.say(receiver(None)))
    assert condition == "amqp:not-found"
    assert "user 'eve'" in text
    assert bound(services) == {MINE: [("amq.topic", "a.b")]}


async def test_another_user_with_the_same_names_has_one_of_its_own(services: FakeServices) -> None:
    await subscribed(services, receiver("topic://a.b"))
    await subscribed(services, receiver("topic://c.d"), "eve")
    assert bound(services) == {
        MINE: [("amq.topic", "a.b")],
        "$subscription/eve/client/news": [("amq.topic", "c.d")],
    }


async def test_its_user_finds_it_again(services: FakeServices) -> None:
    await subscribed(services, receiver("topic://a.b"))
    ann = await talking(services)
    (attached,) = of(await ann.say(receiver(None)), ATTACH)
    assert attached[5].value[0] == "topic://a.b"
    assert services.root.queues[MINE].counts().consumers == 1


async def test_a_name_of_a_user_with_a_slash_is_no_name_of_another(services: FakeServices) -> None:
    await subscribed(services, receiver("topic://a.b"), "ann/client")
    assert list(bound(services)) == ["$subscription/ann%2Fclient/client/news"]


async def test_to_recover_one_its_source_must_be_readable(services: FakeServices) -> None:
    """The right to read the exchange counts, whatever kind it is."""
    services.root.router.declare_exchange(ExchangeSpec.parse("prices", ExchangeKind.FANOUT))
    await subscribed(services, receiver("/exchanges/prices"))
    services.rules.forbidden.add((Action.READ, "prices"))
    services.auth.revision += 1
    services.auth._answers.clear()  # as a change of permissions does
    ann = await talking(services)
    condition, text = refusal(await ann.say(receiver(None)))
    assert condition == "amqp:unauthorized-access"
    assert "exchange 'prices'" in text


async def test_what_a_recovered_one_is_bound_to_is_told(services: FakeServices) -> None:
    services.root.router.declare_exchange(ExchangeSpec.parse("prices", ExchangeKind.FANOUT))
    await subscribed(services, receiver("/exchanges/prices/k"))
    ann = await talking(services)
    (attached,) = of(await ann.say(receiver(None)), ATTACH)
    assert attached[5].value[0] == "/exchanges/prices/k"


async def test_a_global_shared_one_is_joined_by_users_who_may_read_it(
    services: FakeServices,
) -> None:
    await subscribed(services, receiver("topic://a.b", SHARED, GLOBAL))
    await subscribed(services, receiver("topic://a.b", SHARED, GLOBAL, name="news|2"), "bob")
    assert bound(services) == {"$subscription//news": [("amq.topic", "a.b")]}


@pytest.mark.parametrize("asked", ["topic://a.b", "topic://c.d", None])
async def test_a_global_shared_one_is_neither_read_nor_changed_by_others(
    services: FakeServices, asked: str | None
) -> None:
    await subscribed(services, receiver("topic://a.b", SHARED, GLOBAL))
    services.rules.forbidden_to.add(("eve", Action.READ, "amq.topic", "a.b"))
    eve = await talking(services, "eve")
    condition, _ = refusal(await eve.say(receiver(asked, SHARED, GLOBAL)))
    assert condition == "amqp:unauthorized-access"
    assert bound(services) == {"$subscription//news": [("amq.topic", "a.b")]}


async def test_global_alone_makes_none_that_others_may_join(services: FakeServices) -> None:
    await subscribed(services, receiver("topic://a.b", GLOBAL))
    assert list(bound(services)) == [MINE]


async def test_one_in_use_does_not_come_to_be_for_something_else(services: FakeServices) -> None:
    first, second = await talking(services), await talking(services)
    await first.say(receiver("topic://a.b", SHARED))
    condition, text = refusal(await second.say(receiver("topic://c.d", SHARED, name="news|2")))
    assert condition == "amqp:resource-locked"
    assert "end its receivers" in text
    assert bound(services) == {MINE: [("amq.topic", "a.b")]}


async def test_one_that_nobody_uses_may_become_one_for_something_else(
    services: FakeServices,
) -> None:
    await subscribed(services, receiver("topic://a.b"))
    await subscribed(services, receiver("topic://c.d"))
    assert bound(services) == {MINE: [("amq.topic", "c.d")]}


async def earlier(services: FakeServices) -> Queue:
    """A subscription from before users were part of its name."""
    spec = QueueSpec.parse("$subscription/client/news")
    queue = await services.root.declare_queue(spec, None, "ann", inside=True)
    await services.root.bind("amq.topic", queue, "a.b")
    return queue


@pytest.mark.parametrize("asked", ["topic://a.b", None])
async def test_one_from_before_is_that_of_the_user_who_made_it(
    services: FakeServices, asked: str | None
) -> None:
    queue = await earlier(services)
    ann = await talking(services)
    assert not of(await ann.say(receiver(asked)), DETACH)
    assert queue.counts().consumers == 1


async def test_one_from_before_is_no_other_users(services: FakeServices) -> None:
    queue = await earlier(services)
    eve = await talking(services, "eve")
    assert refusal(await eve.say(receiver(None)))[0] == "amqp:not-found"
    await subscribed(services, receiver("topic://c.d"), "eve")
    assert queue.counts().consumers == 0
    assert bound(services)[queue.name] == [("amq.topic", "a.b")]


@pytest.mark.parametrize(
    "address", ["/queues/%24subscription%2Fann%2Fclient%2Fnews", "$queue/" + MINE]
)
async def test_it_is_not_read_by_the_name_of_its_queue(
    services: FakeServices, address: str
) -> None:
    await subscribed(services, receiver("topic://a.b"))
    eve = await talking(services, "eve")
    said = Described(ULong(0x28), [address])
    attach = [*("r", UInt(1), True, None, None), said, Described(ULong(0x29), [])]
    condition, text = refusal(await eve.say(frame(0, ATTACH, list(attach))))
    assert condition == "amqp:not-allowed"
    assert "the gateway's own" in text


# --- what cannot be read


UNREADABLE = [
    pytest.param(b"\xa1\x02\xff\xfe", id="no UTF-8"),
    pytest.param(b"\xa3\x02\xff\xfe", id="no ASCII"),
    pytest.param(b"\x73\xff\xff\xff\xff", id="no character"),
    pytest.param(b"\xc1\x03\x02\x45\x40", id="a list as a key"),
]


@pytest.mark.parametrize("place", [5, 7, 9, 10], ids=["properties", "filter", "outcomes", "caps"])
@pytest.mark.parametrize("value", UNREADABLE)
async def test_a_field_of_a_source_that_cannot_be_read_ends_its_link_alone(
    services: FakeServices, value: bytes, place: int
) -> None:
    ann = await talking(services)
    items = [encode("topic://a.b"), *[b"\x40"] * 10]
    items[place] = value
    source = b"\x00\x53\x28\xd0" + (4 + len(b"".join(items))).to_bytes(4) + len(items).to_bytes(4)
    target = encode(Described(ULong(0x29), []))
    fields = [
        encode("r"),
        encode(UInt(1)),
        b"\x41",
        b"\x40",
        b"\x40",
        source + b"".join(items),
        target,
    ]
    body = b"".join(fields)
    performative = (
        b"\x00\x53\x12\xd0" + (4 + len(body)).to_bytes(4) + len(fields).to_bytes(4) + body
    )
    heard = await ann.say((8 + len(performative)).to_bytes(4) + b"\x02\x00\x00\x00" + performative)
    assert refusal(heard)[0] == "amqp:decode-error"
    (again,) = of(await ann.attach("topic://a.b", 2, is_receiver=True), ATTACH)
    assert again[0] == "l2"
