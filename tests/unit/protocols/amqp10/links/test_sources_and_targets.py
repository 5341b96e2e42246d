"""Sources and targets, beside their address: outcomes, expiry, the lifetime of a node."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from protocols.amqp10.errors import FORCED
from protocols.amqp10.links import dynamic_nodes as lifetimes
from protocols.amqp10.links.dynamic_nodes import nodes_of
from protocols.amqp10.wire.types import Described, Symbol, UInt, ULong
from queue_core.access.auth import Action, Auth, Identity, Resource
from tests.support.amqp10_wire import (
    ATTACH,
    BEGIN,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    TRANSFER,
    frame,
    transfer,
)
from tests.support.fake_services import Everything, FakeServices
from tests.support.until import PATIENCE_SECONDS
from tests.unit.protocols.amqp10.conversation import Conversation, of
from tests.unit.protocols.amqp10.test_machine import DATA, disposition, flow

ACCEPTED, REJECTED, RELEASED, MODIFIED = 0x24, 0x25, 0x26, 0x27
CLOSE, NO_LINKS, NO_MESSAGES, NO_LINKS_OR_MESSAGES = 0x2B, 0x2C, 0x2D, 0x2E
LINK_DETACH, SESSION_END = Symbol("link-detach"), Symbol("session-end")
CONNECTION_CLOSE, NEVER = Symbol("connection-close"), Symbol("never")


@pytest.fixture
async def talk() -> Conversation:
    conversation = Conversation()
    await conversation.begin()
    return conversation


def receiver(handle: int, *source: object, name: str = "r", channel: int = 0) -> bytes:
    said = Described(ULong(0x28), list(source))
    target = Described(ULong(0x29), [])
    return frame(channel, ATTACH, [name, UInt(handle), True, None, None, said, target])


def source_of(heard: list[Any]) -> list[Any]:
    (attached,) = of(heard, ATTACH)
    assert isinstance(attached[5], Described)
    assert isinstance(attached[5].value, list)
    return [*attached[5].value, *([None] * 12)]


async def test_a_name_that_only_the_gateway_hands_out_is_refused(talk: Conversation) -> None:
    wanted = [Symbol("queue")]
    source = ["queue://amq.mine", *[None] * 9, wanted]
    (detached,) = of(await talk.say(receiver(1, *source)), DETACH)
    assert detached[2].value[0] == "amqp:not-allowed"
    assert "reserved prefix 'amq.*'" in detached[2].value[1]


# --- default-outcome


def with_default(handle: int, outcome: object) -> bytes:
    return receiver(handle, "queue://q", None, None, None, None, None, None, None, outcome)


async def deliver_one(talk: Conversation, attach: bytes) -> None:
    await talk.attach("queue://q", 0, is_receiver=False)
    await talk.say(attach)
    await talk.say(transfer(0, 0, DATA), flow(1, 1))
    talk.services.writer.commit()
    assert of(talk.heard(), TRANSFER)


async def is_there_again(talk: Conversation) -> bool:
    await talk.say(receiver(5, "queue://q", name="again"))
    return bool(of(await talk.say(flow(5, 1)), TRANSFER))


@pytest.mark.parametrize(
    ("outcome", "comes_back"), [(ACCEPTED, False), (REJECTED, False), (RELEASED, True)]
)
async def test_what_is_settled_without_an_outcome_gets_the_default_one(
    talk: Conversation, outcome: int, comes_back: bool
) -> None:
    await deliver_one(talk, with_default(1, Described(ULong(outcome), [])))
    await talk.say(disposition(0, 0, None))
    assert await is_there_again(talk) is comes_back


@pytest.mark.parametrize(("outcome", "comes_back"), [(ACCEPTED, False), (MODIFIED, True)])
async def test_what_a_link_leaves_behind_gets_the_default_outcome(
    talk: Conversation, outcome: int, comes_back: bool
) -> None:
    await deliver_one(talk, with_default(1, Described(ULong(outcome), [True])))
    await talk.say(frame(0, DETACH, [UInt(1), True]))
    assert await is_there_again(talk) is comes_back


async def test_a_default_outcome_that_is_none_is_refused(talk: Conversation) -> None:
    (detached,) = of(await talk.say(with_default(1, Described(ULong(0x34), []))), DETACH)
    assert detached[2].value[0] == "amqp:invalid-field"


async def test_a_default_outcome_is_read_however_the_bytes_arrive(talk: Conversation) -> None:
    await talk.attach("queue://q", 0, is_receiver=False)
    attach = with_default(1, Described(ULong(ACCEPTED), []))
    for position in range(len(attach)):
        await talk.say(attach[position : position + 1])
    await talk.say(transfer(0, 0, DATA), flow(1, 1))
    talk.services.writer.commit()
    talk.heard()
    await talk.say(disposition(0, 0, None))
    assert not await is_there_again(talk)


# --- expiry


def subscription(handle: int, expiry: Symbol | None, timeout: int = 0, channel: int = 0) -> bytes:
    said = UInt(timeout)
    return receiver(handle, "topic://t", UInt(0), expiry, said, channel=channel)


def live_queues(talk: Conversation) -> list[str]:
    return [name for name in talk.services.root.queues if name != "q"]


async def test_a_detached_subscription_ends_with_its_link_when_it_says_so(
    talk: Conversation,
) -> None:
    source = source_of(await talk.say(subscription(1, LINK_DETACH)))
    assert source[2] in (LINK_DETACH, "link-detach")
    assert live_queues(talk)
    await talk.say(frame(0, DETACH, [UInt(1), False]))
    assert not live_queues(talk)


async def test_a_detached_subscription_waits_for_its_session_to_end(talk: Conversation) -> None:
    await talk.attach("topic://t", 0, is_receiver=False)
    await talk.say(subscription(1, None))
    await talk.say(frame(0, DETACH, [UInt(1), False]))
    await talk.say(transfer(0, 0, DATA))  # it is still there, and takes this
    await talk.say(subscription(1, None))
    assert len(of(await talk.say(flow(1, 1)), TRANSFER)) == 1
    await talk.say(frame(0, DETACH, [UInt(1), False]))
    assert live_queues(talk)
    await talk.say(frame(0, END, []))
    assert not live_queues(talk)


async def test_a_detached_subscription_is_not_taken_up_by_who_may_not_read_it_any_more(
    talk: Conversation,
) -> None:
    await talk.say(subscription(1, None))
    await talk.say(frame(0, DETACH, [UInt(1), False]))
    talk.services.rules.forbidden.add((Action.READ, "amq.topic"))
    talk.services.auth._answers.clear()
    (detached,) = of(await talk.say(subscription(1, None)), DETACH)
    assert detached[2].value[0] == "amqp:unauthorized-access"
    assert not live_queues(talk)


async def test_one_that_waits_for_the_connection_survives_its_session(talk: Conversation) -> None:
    await talk.say(frame(1, BEGIN, [None, UInt(0), UInt(1000), UInt(1000)]))
    await talk.say(subscription(1, CONNECTION_CLOSE, channel=1))
    (queue,) = live_queues(talk)
    await talk.say(frame(1, END, []))
    assert live_queues(talk) == [queue]
    await talk.say(subscription(1, CONNECTION_CLOSE))
    assert live_queues(talk) == [queue]
    talk.machine.fail(FORCED, "the gateway stops")
    await talk.machine.lost()
    assert not live_queues(talk)


async def test_a_closed_link_ends_its_subscription_whatever_the_policy(talk: Conversation) -> None:
    for expiry in (SESSION_END, CONNECTION_CLOSE, NEVER):
        await talk.say(subscription(1, expiry))
        assert live_queues(talk)
        await talk.say(frame(0, DETACH, [UInt(1), True]))
        assert not live_queues(talk)


async def test_a_timeout_is_how_long_the_queue_waits_for_its_receiver(talk: Conversation) -> None:
    source = source_of(await talk.say(subscription(1, SESSION_END, 60)))
    assert (str(source[2]), source[3]) == ("link-detach", 60)  # what it will be, not what was asked
    (name,) = live_queues(talk)
    assert talk.services.root.queues[name].spec.expires == 60
    await talk.machine.lost()
    assert live_queues(talk) == [name]
    other = Conversation(talk.services)
    await other.begin()
    await other.say(subscription(1, SESSION_END, 60))
    assert live_queues(talk) == [name]


async def test_one_that_never_expires_is_kept_without_being_durable(talk: Conversation) -> None:
    source = source_of(await talk.say(subscription(1, NEVER)))
    assert str(source[2]) == "never"
    (name,) = live_queues(talk)
    talk.machine.fail(FORCED, "the gateway stops")
    await talk.machine.lost()
    assert live_queues(talk) == [name]
    assert not talk.services.root.queues[name].spec.durable


# --- lifetimes of dynamic nodes


def dynamic(handle: int, policy: int | None) -> bytes:
    said = {} if policy is None else {Symbol("lifetime-policy"): Described(ULong(policy), [])}
    return receiver(handle, None, None, None, None, True, said, name=f"d{handle}")


async def made(talk: Conversation, policy: int | None) -> str:
    source = source_of(await talk.say(dynamic(1, policy)))
    assert source[5]["lifetime-policy"].descriptor == (policy or CLOSE)
    return str(source[0])


async def end(talk: Conversation, handle: int) -> None:
    await talk.say(frame(0, DETACH, [UInt(handle), True]))


@pytest.mark.parametrize("policy", [None, CLOSE, NO_LINKS, NO_MESSAGES, NO_LINKS_OR_MESSAGES])
async def test_a_node_that_nothing_keeps_goes_with_its_link(
    talk: Conversation, policy: int | None
) -> None:
    await made(talk, policy)
    assert live_queues(talk)
    await end(talk, 1)
    assert not live_queues(talk)


async def test_links_keep_a_node_that_waits_for_them(talk: Conversation) -> None:
    address = await made(talk, NO_LINKS)
    other = Conversation(talk.services)
    await other.begin()
    await other.attach(address, 0, is_receiver=False)
    await other.attach(address, 1, is_receiver=True)
    await end(talk, 1)
    assert live_queues(talk)
    await end(other, 0)
    assert live_queues(talk)
    await end(other, 1)
    assert not live_queues(talk)


@pytest.mark.parametrize("policy", [NO_MESSAGES, NO_LINKS_OR_MESSAGES])
async def test_messages_keep_a_node_that_waits_for_them(talk: Conversation, policy: int) -> None:
    address = await made(talk, policy)
    await talk.attach(address, 0, is_receiver=False)
    await talk.say(transfer(0, 0, DATA))
    await end(talk, 0)
    await end(talk, 1)
    (name,) = live_queues(talk)
    await talk.say(receiver(2, address, name="last"))
    await talk.say(flow(2, 1))
    await talk.say(disposition(0, 0, ACCEPTED))
    if policy == NO_LINKS_OR_MESSAGES:
        await nodes_of(talk.services.root).end(name)
        assert live_queues(talk)
    await end(talk, 2)
    assert not live_queues(talk)


async def test_a_node_goes_by_itself_when_its_last_message_has_gone(
    talk: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifetimes, "LOOK_AGAIN_SECONDS", 0.001)
    address = await made(talk, NO_MESSAGES)
    await talk.attach(address, 0, is_receiver=False)
    await talk.say(transfer(0, 0, DATA))
    await end(talk, 1)
    (name,) = live_queues(talk)
    root, is_gone = talk.services.root, asyncio.Event()
    delete = root.delete_queue

    async def deleted(name: str) -> int:
        count = await delete(name)
        is_gone.set()
        return count

    monkeypatch.setattr(root, "delete_queue", deleted)
    await root.purge_queue(name)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await is_gone.wait()
    assert not live_queues(talk)


async def test_without_messages_links_do_not_keep_a_node_that_waits_for_messages(
    talk: Conversation,
) -> None:
    address = await made(talk, NO_MESSAGES)
    await talk.attach(address, 0, is_receiver=False)
    await end(talk, 1)
    assert not live_queues(talk)


async def test_an_unknown_lifetime_is_refused_with_those_that_are_known(
    talk: Conversation,
) -> None:
    (detached,) = of(await talk.say(dynamic(1, 0x77)), DETACH)
    assert detached[2].value[0] == "amqp:not-implemented"
    assert "delete-on-no-links" in detached[2].value[1]


class Configuring(Everything):
    """Permits a user to configure what has a name of that pattern, and all else."""

    def __init__(self, pattern: str) -> None:
        super().__init__()
        self._pattern = pattern

    def permits(self, identity: Identity, action: Action, resource: Resource) -> bool:
        return action is not Action.CONFIGURE or re.search(self._pattern, resource.name) is not None


def dynamic_sender(handle: int) -> bytes:
    target = Described(ULong(0x29), [None, None, None, None, True])
    source = Described(ULong(0x28), [])
    return frame(0, ATTACH, [f"s{handle}", UInt(handle), False, None, None, source, target])


@pytest.mark.parametrize("ask", [partial(dynamic, policy=None), dynamic_sender])
@pytest.mark.parametrize(
    ("pattern", "is_made"), [("^$", False), ("^app-", False), (r"^amq\.dynamic-", True)]
)
async def test_a_node_is_made_for_a_user_who_may_configure_its_name_alone(
    ask: Callable[[int], bytes], pattern: str, is_made: bool
) -> None:
    services = FakeServices()
    services.rules = Configuring(pattern)
    services.auth = Auth((), [services.rules])
    talk = Conversation(services)
    await talk.begin()
    refusals = of(await talk.say(ask(1)), DETACH)
    assert bool(live_queues(talk)) is is_made
    assert [str(each[2].value[0]) for each in refusals] == (
        [] if is_made else ["amqp:unauthorized-access"]
    )


async def test_a_sender_that_may_not_write_leaves_no_node_behind(talk: Conversation) -> None:
    talk.services.rules.forbidden.add((Action.WRITE, ""))
    (detached,) = of(await talk.say(dynamic_sender(1)), DETACH)
    assert detached[2].value[0] == "amqp:unauthorized-access"
    assert not live_queues(talk)


@pytest.mark.parametrize("policy", [CLOSE, NO_LINKS, NO_MESSAGES, NO_LINKS_OR_MESSAGES])
async def test_a_receiver_whose_filter_is_refused_leaves_no_node_behind(
    talk: Conversation, policy: int
) -> None:
    lifetime = {Symbol("lifetime-policy"): Described(ULong(policy), [])}
    name = Symbol("apache.org:selector-filter:string")
    wanted = {name: Described(name, "a = ")}
    source = [None, None, None, None, True, lifetime, None, wanted]
    (detached,) = of(await talk.say(receiver(1, *source)), DETACH)
    assert detached[2].value[0] == "amqp:invalid-field"
    assert not live_queues(talk)


# --- echo


def echoing(handle: int, credit: int, *, delivery_count: int = 0, outgoing: int = 0) -> bytes:
    fields: list[object] = [
        UInt(0), UInt(1000), UInt(outgoing), UInt(1000), UInt(handle), UInt(delivery_count),
        UInt(credit), None, False, True,
    ]  # fmt: skip
    return frame(0, FLOW, fields)


async def test_a_receiver_that_asks_for_an_echo_hears_the_state_of_the_link(
    talk: Conversation,
) -> None:
    await talk.attach("queue://q", 0, is_receiver=False)
    await talk.attach("queue://q", 1, is_receiver=True)
    await talk.say(*(transfer(0, number, DATA) for number in range(3)))
    talk.services.writer.commit()
    talk.heard()
    heard = await talk.say(echoing(1, 10, outgoing=3))
    assert [kind for kind, _, _ in heard] == [TRANSFER] * 3 + [FLOW]
    (said,) = of(heard, FLOW)
    assert said[0] == 3  # its transfers
    assert said[2] == 3  # ours
    assert (said[5], said[6], said[8], said[9]) == (3, 7, False, False)
    assert not of(await talk.say(flow(1, 7, delivery_count=3)), FLOW)  # not asked for


async def test_frames_of_large_messages_are_counted_in_an_echo(talk: Conversation) -> None:
    await talk.attach("queue://q", 0, is_receiver=False)
    await talk.attach("queue://q", 1, is_receiver=True)
    body = b"\x00\x53\x75\xb0" + (150_000).to_bytes(4) + bytes(150_000)
    pieces = [body[start : start + 60_000] for start in range(0, len(body), 60_000)]
    for piece in pieces:
        await talk.say(transfer(0, 0, piece, more=piece is not pieces[-1]))
    talk.services.writer.commit()
    sent = of(await talk.say(flow(1, 5)), TRANSFER)
    assert len(sent) > 1
    (said,) = of(await talk.say(echoing(1, 4, delivery_count=1, outgoing=3)), FLOW)
    assert (said[2], said[5], said[6]) == (len(sent), 1, 4)


async def test_a_sender_that_asks_for_an_echo_hears_its_credit(talk: Conversation) -> None:
    await talk.attach("queue://q", 0, is_receiver=False)
    await talk.say(transfer(0, 0, DATA))
    (said,) = of(await talk.say(echoing(0, 0, delivery_count=1, outgoing=1)), FLOW)
    assert (said[0], said[5], said[6]) == (1, 1, 999)


async def test_an_echo_is_heard_however_the_bytes_arrive(talk: Conversation) -> None:
    await talk.attach("queue://q", 0, is_receiver=True)
    answers = 0
    for byte in echoing(0, 10):
        answers += len(of(await talk.say(bytes((byte,))), FLOW))
    assert answers == 1


async def test_a_drained_credit_is_part_of_the_count_in_an_echo(talk: Conversation) -> None:
    await talk.attach("queue://q", 0, is_receiver=True)
    await talk.say(flow(0, 5, drain=True))
    (said,) = of(await talk.say(echoing(0, 2, delivery_count=5)), FLOW)
    assert (said[5], said[6]) == (5, 2)
    assert not of(await talk.say(disposition(0, 0, ACCEPTED)), DISPOSITION)
