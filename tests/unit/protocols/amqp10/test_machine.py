"""The machine without a socket: when what is said, and what is not said before its time."""

from __future__ import annotations

from typing import Any

import pytest

from protocols.amqp10.conversion.properties import FORM, section
from protocols.amqp10.engine.proton import Engine
from protocols.amqp10.errors import FORCED
from protocols.amqp10.settings import Settings
from protocols.amqp10.wire import delivery_sections
from protocols.amqp10.wire.sasl import AMQP_HEADER
from protocols.amqp10.wire.sections import ANNOTATIONS
from protocols.amqp10.wire.types import Described, Symbol, UInt, ULong, encode
from queue_core.access.auth import Action
from queue_core.errors import StoreUnavailable
from queue_core.message.message import Message
from queue_core.queues.spec import QueueSpec
from queue_core.routing.exchanges import ExchangeKind, ExchangeSpec
from tests.support.amqp10_wire import (
    ATTACH,
    CLOSE,
    DETACH,
    DISPOSITION,
    FLOW,
    OPEN,
    TRANSFER,
    attach,
    frame,
    transfer,
)
from tests.support.fake_services import FakeServices
from tests.unit.protocols.amqp10.conversation import Conversation, of

DATA = b"\x00\x53\x75\xa0\x01x"


@pytest.fixture
async def talk() -> Conversation:
    conversation = Conversation()
    await conversation.begin()
    return conversation


def flow(handle: int, credit: int, *, delivery_count: int = 0, drain: bool = False) -> bytes:
    fields: list[object] = [
        UInt(0), UInt(1000), UInt(0), UInt(1000), UInt(handle), UInt(delivery_count), UInt(credit),
        None, drain,
    ]  # fmt: skip
    return frame(0, FLOW, fields)


def disposition(first: int, last: int, state: int | None, *, settled: bool = True) -> bytes:
    said = None if state is None else Described(ULong(state), [])
    return frame(0, DISPOSITION, [True, UInt(first), UInt(last), settled, said])


def state_of(fields: list[Any]) -> int:
    assert isinstance(fields[4], Described)
    assert isinstance(fields[4].descriptor, int)
    return fields[4].descriptor


async def test_accepted_leaves_after_the_commit_and_not_before(talk: Conversation) -> None:
    await talk.attach("queue://q", 0, is_receiver=False)
    heard = await talk.say(*(transfer(0, number, DATA) for number in range(3)))
    assert not of(heard, DISPOSITION)
    talk.services.writer.commit()
    (answer,) = of(talk.heard(), DISPOSITION)
    assert (answer[1], answer[2], answer[3], state_of(answer)) == (0, 2, True, 0x24)


async def test_what_the_database_refuses_is_rejected_with_its_reason(talk: Conversation) -> None:
    await talk.attach("queue://q", 0, is_receiver=False)
    await talk.say(transfer(0, 0, DATA))
    talk.services.writer.refuse(StoreUnavailable("the database is away; try again later"))
    (answer,) = of(talk.heard(), DISPOSITION)
    assert state_of(answer) == 0x25
    assert answer[4].value[0].value[1] == "the database is away; try again later"
    assert talk.counters.rejected_transfers == 1


async def test_credit_comes_back_with_the_commits(talk: Conversation) -> None:
    settings = Settings(link_credit=10)
    talk = Conversation(settings=settings)
    await talk.begin()
    heard = await talk.attach("queue://q", 0, is_receiver=False)
    assert of(heard, FLOW)[0][6] == 10
    heard = await talk.say(*(transfer(0, number, DATA) for number in range(10)))
    assert not of(heard, FLOW)
    talk.services.writer.commit()
    assert of(talk.heard(), FLOW)[-1][6] == 10


async def test_a_link_that_used_up_its_credit_before_another_attached_gets_more() -> None:
    talk = Conversation(settings=Settings(link_credit=10))
    await talk.begin()
    await talk.attach("topic://t", 0, is_receiver=False)
    fields: list[object] = [UInt(0), UInt(0), b"t", UInt(0), True]
    sent = [frame(0, TRANSFER, [UInt(0), UInt(n), b"%d" % n, *fields[3:]], DATA) for n in range(10)]
    heard = await talk.say(*sent, attach("topic://t", 1, "other", is_receiver=False))
    assert [said[6] for said in of(heard, FLOW) if said[4] == 0][-1] == 10


async def test_a_congested_database_gives_no_credit_until_it_has_caught_up() -> None:
    talk = Conversation(settings=Settings(link_credit=10))
    await talk.begin()
    await talk.attach("queue://q", 0, is_receiver=False)
    await talk.say(*(transfer(0, number, DATA) for number in range(10)))
    talk.services.writer.is_congested = True
    talk.services.writer.commit()
    assert not of(talk.heard(), FLOW)
    talk.services.writer.is_congested = False
    talk.client.feed()
    assert of(talk.heard(), FLOW)[0][6] == 10


async def test_a_receiver_gets_what_its_credit_allows_and_no_more(talk: Conversation) -> None:
    await talk.attach("queue://q", 0, is_receiver=False)
    await talk.attach("queue://q", 1, is_receiver=True)
    await talk.say(*(transfer(0, number, DATA) for number in range(5)))
    talk.services.writer.commit()
    assert not of(talk.heard(), TRANSFER)
    assert len(of(await talk.say(flow(1, 2)), TRANSFER)) == 2
    assert not of(await talk.say(disposition(0, 1, 0x24)), TRANSFER)
    assert len(of(await talk.say(flow(1, 9, delivery_count=2)), TRANSFER)) == 3


async def test_draining_says_that_nothing_is_left_of_the_credit(talk: Conversation) -> None:
    await talk.attach("queue://q", 0, is_receiver=False)
    await talk.attach("queue://q", 1, is_receiver=True)
    await talk.say(transfer(0, 0, DATA))
    talk.services.writer.commit()
    heard = await talk.say(flow(1, 10, drain=True))
    assert len(of(heard, TRANSFER)) == 1
    answer = of(heard, FLOW)[-1]
    assert (answer[5], answer[6], answer[8]) == (10, 0, True)


async def test_with_settle_mode_second_nothing_is_settled_before_it_is_committed(
    talk: Conversation,
) -> None:
    await talk.attach("queue://q", 0, is_receiver=False)
    source = Described(ULong(0x28), ["queue://q"])
    target = Described(ULong(0x29), [])
    await talk.say(frame(0, ATTACH, ["r", UInt(1), True, None, 1, source, target]))
    await talk.say(transfer(0, 0, DATA), flow(1, 1))
    talk.services.writer.commit()
    assert of(talk.heard(), TRANSFER)
    assert not of(await talk.say(disposition(0, 0, 0x24, settled=False)), DISPOSITION)
    talk.services.writer.commit()
    (answer,) = of(talk.heard(), DISPOSITION)
    assert (answer[0], answer[3]) == (False, True)


async def test_settling_without_an_outcome_is_a_release(talk: Conversation) -> None:
    await talk.attach("queue://q", 0, is_receiver=False)
    await talk.attach("queue://q", 1, is_receiver=True)
    await talk.say(transfer(0, 0, DATA), flow(1, 1))
    talk.services.writer.commit()
    talk.heard()
    await talk.say(disposition(0, 0, None))
    heard = await talk.say(flow(1, 1, delivery_count=1))
    assert len(of(heard, TRANSFER)) == 1


async def test_a_link_that_is_gone_hears_nothing_of_its_commits(talk: Conversation) -> None:
    await talk.attach("queue://q", 0, is_receiver=False)
    await talk.say(transfer(0, 0, DATA))
    heard = await talk.say(frame(0, DETACH, [UInt(0), True]))
    assert of(heard, DETACH)
    talk.services.writer.commit()
    assert talk.heard() == []


async def consume_one(talk: Conversation) -> None:
    """Lets the client have a message that it has not settled."""
    await talk.attach("queue://q", 0, is_receiver=False)
    await talk.attach("queue://q", 1, is_receiver=True)
    await talk.say(transfer(0, 0, DATA), flow(1, 1))
    talk.services.writer.commit()
    talk.heard()


async def header_of_next(services: FakeServices) -> bytes:
    """Gives the header of the message that came back, as another client gets it."""
    other = Conversation(services)
    await other.begin()
    await other.attach("queue://q", 0, is_receiver=True)
    ((_, _, payload),) = [one for one in await other.say(flow(0, 1)) if one[0] == TRANSFER]
    return payload.removesuffix(DATA)


COUNTED = b"\x00\x53\x70\xc0\x07\x05\x42\x40\x40\x42\x52\x01"  # a delivery-count of 1


async def test_what_a_lost_connection_had_comes_back_counted(talk: Conversation) -> None:
    await consume_one(talk)
    await talk.machine.lost()
    assert (await header_of_next(talk.services)).startswith(COUNTED)


async def test_what_a_silent_client_had_comes_back_counted(talk: Conversation) -> None:
    """A client that says nothing for longer than it may is as good as lost."""
    await consume_one(talk)
    talk.machine.tick(1, 60_000)
    talk.machine.tick(60_002, 60_000)
    assert of(talk.heard(), CLOSE)
    assert talk.machine.is_over
    await talk.machine.lost()
    assert (await header_of_next(talk.services)).startswith(COUNTED)


async def test_what_a_client_had_that_closed_comes_back_as_it_was(talk: Conversation) -> None:
    """Whether the client still heard our answer does not matter."""
    await consume_one(talk)
    talk.machine.receive(frame(0, CLOSE, []))
    await talk.machine.lost()
    assert not (await header_of_next(talk.services)).startswith(COUNTED)


@pytest.mark.parametrize(
    ("action", "name", "is_receiver"),
    [(Action.WRITE, "", False), (Action.READ, "q", True), (Action.CONFIGURE, "q", True)],
)
async def test_who_may_not_is_refused_and_the_log_says_who(
    action: Action, name: str, is_receiver: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    services = FakeServices()
    services.rules.forbidden.add((action, name))
    talk = Conversation(services)
    await talk.begin()
    heard = await talk.attach("queue://q", 0, is_receiver=is_receiver)
    (detached,) = of(heard, DETACH)
    assert detached[2].value[0] == "amqp:unauthorized-access"
    assert talk.counters.link_errors == 1
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("127.0.0.1 of user 'ann': link '")
    assert "amqp:unauthorized-access" in line


@pytest.mark.parametrize("is_relay", [False, True])
async def test_an_exchange_that_is_declared_anew_is_judged_anew(
    talk: Conversation, monkeypatch: pytest.MonkeyPatch, is_relay: bool
) -> None:
    router, rules = talk.services.root.router, talk.services.rules
    router.declare_exchange(ExchangeSpec("x", ExchangeKind.FANOUT))
    address = "/exchanges/x/key"
    to = encode(Described(ULong(0x73), [None, None, address])) if is_relay else b""
    data = to + DATA
    await talk.attach(None if is_relay else address, 0, is_receiver=False)
    (answer,) = of(await talk.say(transfer(0, 0, data)), DISPOSITION)
    assert state_of(answer) == 0x26  # released: nobody listens
    monkeypatch.setattr(rules, "permits", lambda _who, _what, found: found.kind != "topic")
    router.delete_exchange("x")
    router.declare_exchange(ExchangeSpec("x", ExchangeKind.TOPIC))
    (answer,) = of(await talk.say(transfer(0, 1, data)), DISPOSITION)
    assert state_of(answer) == 0x25  # rejected


async def test_links_have_a_limit() -> None:
    talk = Conversation(settings=Settings(max_links=2))
    await talk.begin()
    for handle in range(2):
        await talk.attach("queue://q", handle, is_receiver=False)
    (detached,) = of(await talk.attach("queue://q", 2, is_receiver=False), DETACH)
    assert detached[2].value[0] == "amqp:resource-limit-exceeded"


async def test_a_slow_subscriber_costs_its_own_messages_and_refuses_nobody(
    talk: Conversation,
) -> None:
    await talk.attach("topic://news", 0, is_receiver=True)
    await talk.attach("topic://news", 1, is_receiver=False)
    (queue,) = talk.services.root.queues.values()
    assert queue.spec.max_bytes == 64 << 20
    body = b"\x00\x53\x75\xb0" + (1 << 20).to_bytes(4) + bytes(1 << 20)
    pieces = [body[start : start + 60_000] for start in range(0, len(body), 60_000)]
    for number in range(66):
        for piece in pieces:
            said = transfer(1, number, piece, more=piece is not pieces[-1])
            heard = await talk.say(said)
        (answer,) = of(heard, DISPOSITION)
        assert state_of(answer) == 0x24
    assert talk.services.root.context.counters.dropped_overflow > 0


async def test_unfinished_messages_have_a_limit_over_all_links() -> None:
    settings = Settings(max_message_size=3000, max_partial_size=5000)
    talk = Conversation(settings=settings)
    await talk.begin()
    for handle in range(3):
        await talk.attach("queue://q", handle, is_receiver=False)
    for handle in range(2):
        heard = await talk.say(transfer(handle, handle, bytes(2000), more=True))
        assert not of(heard, DETACH)
    (detached,) = of(await talk.say(transfer(2, 2, bytes(2000), more=True)), DETACH)
    assert detached[2].value[0] == "amqp:resource-limit-exceeded"
    await talk.say(frame(0, DETACH, [UInt(0), True]))
    assert talk.machine.partial_bytes == 2000


async def test_goodbye_is_a_close_that_says_why(talk: Conversation) -> None:
    talk.machine.fail(FORCED, "the gateway stops")
    (closed,) = of(talk.heard(), CLOSE)
    assert closed[0].value[:2] == ["amqp:connection:forced", "the gateway stops"]


# --- time


def opened(idle_ms: int, peers_idle_ms: int | None) -> Engine:
    engine = Engine("gateway", 65_536, 255, idle_ms)
    fields: list[object] = ["client", None, UInt(65_536), None]
    fields += [None if peers_idle_ms is None else UInt(peers_idle_ms)]
    engine.push(AMQP_HEADER + frame(0, OPEN, fields), 0)
    engine.open((), {})
    engine.take_output()
    return engine


def test_a_silent_peer_is_given_up_after_the_idle_time() -> None:
    engine = opened(60_000, None)
    engine.tick(1)
    engine.tick(59_000)
    assert not engine.take_output()
    engine.tick(60_002)
    assert b"resource-limit-exceeded" in engine.take_output()
    engine.free()


def test_a_peer_with_an_idle_time_hears_from_us_in_time() -> None:
    engine = opened(0, 1000)
    when = engine.tick(1)
    assert 0 < when <= 501
    engine.tick(when)
    assert engine.take_output() == b"\x00\x00\x00\x08\x02\x00\x00\x00"
    engine.free()


async def test_what_was_accepted_before_a_link_failed_stays_accepted(talk: Conversation) -> None:
    await talk.attach("queue://q", 0, is_receiver=False)
    await talk.say(*(transfer(0, number, DATA) for number in range(3)))
    talk.services.writer.commit()
    await talk.attach("queue://q", 1, is_receiver=True)
    heard = await talk.say(flow(1, 3))
    assert len(of(heard, TRANSFER)) == 3
    nowhere = Described(ULong(0x34), [b"no such transaction"])
    heard = await talk.say(
        disposition(0, 0, 0x24),
        frame(0, DISPOSITION, [True, UInt(1), UInt(1), True, nowhere]),
        disposition(2, 2, 0x24),
    )
    assert of(heard, DETACH)
    counts = talk.services.root.queues["q"].counts()
    assert (counts.ready, counts.in_flight) == (2, 0)


async def test_a_key_is_no_longer_than_in_other_protocols(talk: Conversation) -> None:
    long = "k" * 65_536
    heard = await talk.attach(f"/exchanges/amq.fanout/{long}", 0, is_receiver=False)
    assert "65535" in of(heard, DETACH)[0][2].value[1]
    heard = await talk.attach(f"/exchanges/amq.fanout/{long[1:]}", 1, is_receiver=False)
    assert not of(heard, DETACH)


def test_long_keys_are_not_kept() -> None:
    before = len(delivery_sections._annotations), len(delivery_sections._merged)
    own = section(ANNOTATIONS, {Symbol("x-own"): 1})
    for native in (b"", own):
        message = Message(b"", "amq.fanout", "k" * 60_000, form=FORM, native=native)
        assert b"k" * 60_000 in delivery_sections.whole(message, b"", None)
    assert (len(delivery_sections._annotations), len(delivery_sections._merged)) == before


async def test_many_empty_messages_are_too_much_for_a_transaction() -> None:
    talk = Conversation(settings=Settings(max_transaction_size=10_000))
    await talk.begin()
    await talk.attach("queue://q", 0, is_receiver=False)
    state = Described(ULong(0x34), [talk.client.coordinator.declare(talk)])
    empty = b"\x00\x53\x75\xa0\x00"
    heard = await talk.say(
        *(
            frame(
                0,
                TRANSFER,
                [UInt(0), UInt(n), n.to_bytes(4), UInt(0), False, False, None, state],
                empty,
            )
            for n in range(50)
        )
    )
    states = {state_of(fields) for fields in of(heard, DISPOSITION)}
    assert states == {0x34, 0x25}  # some are in it, the rest is rejected


async def test_the_loss_of_several_links_is_one_failure(talk: Conversation) -> None:
    """Messages of the first link must not go through the hands of all."""
    await talk.attach("queue://q", 0, is_receiver=False)
    await talk.say(transfer(0, 0, DATA))
    talk.services.writer.commit()
    for handle in range(1, 4):
        await talk.attach("queue://q", handle, is_receiver=True)
        await talk.say(flow(handle, 5))
    await talk.machine.lost()
    delivery = await talk.services.root.get("q")
    assert delivery is not None
    assert delivery.failures == 1


async def test_messages_that_go_far_give_way_before_all_are_through(talk: Conversation) -> None:
    vhost = talk.services.root
    for number in range(200):
        spec = QueueSpec.parse(f"q{number}", durable=False)
        await vhost.bind("amq.fanout", await vhost.declare_queue(spec))
    await talk.attach("/exchanges/amq.fanout/k", 0, is_receiver=False)
    transfers = b"".join(transfer(0, number, DATA) for number in range(60))
    assert talk.machine.receive(transfers, lambda: True) is None
    assert vhost.queue("q0").counts().ready < 10
    assert talk.machine.is_unfinished
    await talk.say(b"")
    assert vhost.queue("q0").counts().ready == 60


async def test_a_transaction_counts_every_queue_that_its_messages_go_to() -> None:
    talk = Conversation(settings=Settings(max_transaction_size=300_000))
    await talk.begin()
    vhost = talk.services.root
    for number in range(200):
        spec = QueueSpec.parse(f"q{number}", durable=False)
        await vhost.bind("amq.fanout", await vhost.declare_queue(spec))
    await talk.attach("/exchanges/amq.fanout/k", 0, is_receiver=False)
    state = Described(ULong(0x34), [talk.client.coordinator.declare(talk)])
    heard = await talk.say(
        *(
            frame(
                0,
                TRANSFER,
                [UInt(0), UInt(n), n.to_bytes(4), UInt(0), False, False, None, state],
                DATA,
            )
            for n in range(5)
        )
    )
    states = [state_of(fields) for fields in of(heard, DISPOSITION)]
    assert states.count(0x25) >= 1
    assert states[0] == 0x34
