"""Where one rule meets another: as RabbitMQ has it, and held without one beside."""

from __future__ import annotations

import pytest

from protocols.amqp091.states import State
from protocols.amqp091.wire.content import decode_properties
from protocols.amqp091.wire.methods import (
    BasicAck,
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicQos,
    BasicRecover,
    BasicRecoverOk,
    BasicReject,
    Method,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    TxCommit,
    TxSelect,
)
from queue_core.delivery.dispatch import EXPIRY_GRACE_SECONDS
from queue_core.errors import QueueNotFound
from tests.support.amqp091_conversation import Conversation, closes, published


def bodies(heard: list[object]) -> list[object]:
    """Returns the bodies of what was delivered or got."""
    kinds = BasicDeliver | BasicGetOk
    return [heard[place + 2] for place, each in enumerate(heard) if isinstance(each, kinds)]


@pytest.mark.parametrize("again", [BasicAck(2, multiple=True), BasicNack(2, multiple=True)])
@pytest.mark.parametrize("is_whole", [True, False])
async def test_who_settles_up_to_what_was_settled_before_has_lost_count(
    again: Method, is_whole: bool
) -> None:
    talk = await Conversation().open()
    await talk.say(QueueDeclare(0, "q"), published("q") * 3, *[BasicGet(0, "q")] * 3)
    said = [BasicAck(2), again]
    heard = await talk.say(*said) if is_whole else [p for s in said for p in await talk.say(s)]
    assert closes(heard) == [(406, 60, 80 if isinstance(again, BasicAck) else 120)]
    assert talk.services.root.queue("q").counts().ready == 2


async def test_recover_is_answered_before_what_it_brings_back_comes() -> None:
    talk = await Conversation().open()
    await talk.say(QueueDeclare(0, "q"), BasicConsume(0, "q", "c"), published("q"))
    heard = await talk.say(BasicRecover(requeue=True))
    assert heard[:2] == [BasicRecoverOk(), BasicDeliver("c", 2, True, "", "q")]


async def test_one_may_get_beside_the_single_active_consumer() -> None:
    talk = await Conversation().open()
    await talk.say(
        QueueDeclare(0, "q", arguments={"x-single-active-consumer": True}),
        BasicQos(0, 1),
        BasicConsume(0, "q", "active"),
        BasicConsume(0, "q", "next"),
        *[published("q", body) for body in (b"one", b"two", b"three")],
    )
    assert bodies(await talk.say(BasicGet(0, "q"), BasicGet(0, "q", no_ack=True))) == [
        b"two",
        b"three",
    ]
    assert await talk.say(BasicGet(0, "q")) == [BasicGetEmpty()]
    assert await talk.say(BasicNack(2)) == []  # back, and nobody's turn
    assert bodies(await talk.say(BasicAck(1))) == [b"two"]
    heard = await talk.say(BasicConsume(0, "q", "alone", exclusive=True))
    assert closes(heard) == [(403, 60, 20)]


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("waits", [False, True])
async def test_a_message_without_time_is_for_those_who_wait(durable: bool, waits: bool) -> None:
    talk = await Conversation().open()
    await talk.say(QueueDeclare(0, "q", durable=durable))
    if waits:
        await talk.say(BasicQos(0, 1), BasicConsume(0, "q", "c"))
        talk.services.writer.commit()
    heard = await talk.say(published("q", b"now", expiration="0", delivery_mode=2))
    talk.services.now += 0.01  # of the commit
    talk.services.writer.commit()
    assert bodies(heard + talk.heard()) == [b"now"] * waits
    assert bodies(await talk.say(BasicGet(0, "q"))) == []


async def test_a_message_whose_time_is_long_over_when_it_is_stored_is_for_nobody() -> None:
    talk = await Conversation().open()
    await talk.say(QueueDeclare(0, "q", durable=True), BasicConsume(0, "q", "c"))
    talk.services.writer.commit()
    await talk.say(published("q", b"late", expiration="1000", delivery_mode=2))
    talk.services.now += 1 + EXPIRY_GRACE_SECONDS  # the database was away
    talk.services.writer.commit()
    assert talk.heard() == []
    assert talk.services.root.context.counters.dropped_expired == 1


async def test_dead_letters_go_where_the_copies_went() -> None:
    talk = await Conversation().open()
    letters = {"x-dead-letter-exchange": "amq.direct"}
    own = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "own"}
    await talk.say(
        QueueDeclare(0, "q", arguments=letters),
        QueueDeclare(0, "copy", arguments=own),
        QueueDeclare(0, "own"),
        *[QueueDeclare(0, f"dead-{key}") for key in ("q", "copy")],
        *[QueueBind(0, f"dead-{key}", "amq.direct", key) for key in ("q", "copy")],
        published("q", headers={"CC": ["copy"], "k": 1}),
        BasicGet(0, "q"),
        BasicReject(1, requeue=False),
        BasicGet(0, "copy"),
        BasicReject(2, requeue=False),
    )
    found = {}
    for name in ("dead-q", "dead-copy", "own"):
        _, native, _ = await talk.say(BasicGet(0, name))
        assert isinstance(native, bytes)
        found[name] = decode_properties(native)["headers"]
    for headers in found.values():
        assert isinstance(headers, dict)
        assert headers["x-death"][0]["routing-keys"] == ["q", "copy"]
    assert [headers.get("CC") for headers in found.values()] == [["copy"], ["copy"], None]  # type: ignore[attr-defined]


async def test_what_has_no_queue_any_more_at_commit_is_returned() -> None:
    talk = await Conversation().open()
    other = await Conversation(talk.services).open()
    await talk.say(QueueDeclare(0, "gone"), QueueDeclare(0, "q"), TxSelect())
    await talk.say(published("gone", b"lost", mandatory=True), published("q", mandatory=True))
    await other.say(QueueDelete(0, "gone"))
    command = talk.say(TxCommit())
    talk.services.writer.submit = lambda unit: unit.publisher.on_committed([0])  # type: ignore[method-assign, union-attr]
    _, _, body, committed = await command
    assert (body, type(committed).__name__) == (b"lost", "TxCommitOk")
    assert talk.services.root.queue("q").counts().ready == 1
    assert talk.services.root.context.counters.unroutable == 1


async def test_a_method_that_waits_while_its_channel_ends_does_not_end_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    talk = await Conversation().open()
    channel = talk.client.channels[1]

    async def late(*_: object, **__: object) -> None:
        channel.time_out()  # something else was not acknowledged in time
        raise QueueNotFound("no such queue")

    monkeypatch.setattr(talk.services.root, "get", late)
    await talk.say(QueueDeclare(0, "q"))
    assert closes(await talk.say(BasicGet(0, "q"))) == [(406, 0, 0)]
    assert talk.machine.state is State.OPEN


async def test_a_queue_that_is_not_exclusive_is_another_kind_of_queue() -> None:
    talk = await Conversation().open()
    heard = await talk.say(QueueDeclare(0, "q", exclusive=True), QueueDeclare(0, "q"))
    assert closes(heard) == [(405, 50, 10)]


async def test_the_address_of_direct_replies_is_there_for_everybody() -> None:
    talk = await Conversation().open()
    name = "amq.rabbitmq.reply-to"
    assert await talk.say(QueueDeclare(0, name, passive=True)) == [QueueDeclareOk(name, 0, 1)]
