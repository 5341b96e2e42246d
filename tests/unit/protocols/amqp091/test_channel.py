"""A channel's rules, without a socket: publishing, consuming, settling."""

from __future__ import annotations

from typing import Any

import pytest

from protocols.amqp091.consume.consuming import review
from protocols.amqp091.conversion.properties import FORM
from protocols.amqp091.settings import Settings
from protocols.amqp091.states import ChannelState
from protocols.amqp091.wire.codec import method_frame
from protocols.amqp091.wire.content import encode_properties
from protocols.amqp091.wire.frames import PROTOCOL_HEADER
from protocols.amqp091.wire.methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicQos,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    ExchangeDeclare,
    ExchangeDelete,
    Method,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    TxSelect,
    TxSelectOk,
)
from queue_core.access.auth import Action
from queue_core.message.message import Message
from tests.support.amqp091_conversation import (
    GREETING,
    PLAIN_PROPERTIES,
    Conversation,
    anns_gateway,
    closes,
    published,
)
from tests.support.fake_services import FakeServices

# --- publishing


async def test_both_ways_of_reading_a_publish_come_to_the_same_message() -> None:
    """The first and the one in pieces are read the general way, the second in place, the third and
    the fourth by comparing them with the one before."""
    talk = await Conversation().open()
    properties: dict[str, Any] = {
        "content_type": "text/plain",
        "headers": {"k": [1, None]},
        "priority": 4,
    }
    await talk.say(QueueDeclare(0, "q"), BasicConsume(0, "q", "c"))
    heard = await talk.say(
        published("q", b"abc", **properties) * 4 + published("q", b"abc", step=1, **properties)
    )
    assert heard == [
        part
        for tag in (1, 2, 3, 4, 5)
        for part in (BasicDeliver("c", tag, False, "", "q"), encode_properties(properties), b"abc")
    ]


def confirmed(heard: list[object]) -> dict[int, bool]:
    """Returns the answer to each publish: True for an ack."""
    told: dict[int, bool] = {}
    for each in heard:
        if isinstance(each, BasicAck):
            first = max(told, default=0) + 1 if each.multiple else each.delivery_tag
            told |= dict.fromkeys(range(first, each.delivery_tag + 1), True)
        elif isinstance(each, BasicNack):
            told[each.delivery_tag] = False
    return told


async def test_a_copy_that_falls_back_to_a_topic_needs_the_right_to_it() -> None:
    """No queue has one of the names, so each key is a topic, which a rule may forbid."""
    talk = await Conversation().open()
    talk.services.rules.forbidden_to.add(("ann", Action.WRITE, "amq.topic", "orders.a"))
    (closed,) = await talk.say(published("sensors.a", headers={"CC": ["orders.a"]}))
    assert isinstance(closed, ChannelClose)
    assert (closed.reply_code, closed.class_id) == (403, 60)


FULL = {"x-max-length": 3, "x-overflow": "reject-publish"}
BOUND = [QueueBind(0, name, "amq.fanout", "") for name in ("q", "r")]


@pytest.mark.parametrize(
    ("before", "publish"),
    [
        pytest.param([], published("q"), id="one queue"),
        pytest.param([BasicConsume(0, "q", "c")], published("q"), id="consumed"),
        pytest.param([BasicConsume(0, "q", "c", no_ack=True)], published("q"), id="no ack"),
        pytest.param([BasicQos(0, 2), BasicConsume(0, "q", "c")], published("q"), id="prefetch"),
        pytest.param([], published("nowhere", mandatory=True), id="nowhere"),
        pytest.param([], published("q", expiration="60000"), id="expiration"),
        pytest.param([], published("q", headers={"CC": ["r"]}), id="CC"),
        pytest.param(BOUND, published("", exchange="amq.fanout"), id="two queues"),
        pytest.param([QueueDeclare(0, "f", arguments=FULL)], published("f"), id="full"),
        pytest.param([], published("", exchange="no-such"), id="no exchange"),
        pytest.param([], published("q", user_id="somebody"), id="another's user id"),
    ],
)
async def test_publishes_in_a_row_end_as_they_would_one_by_one(
    before: list[Method], publish: bytes
) -> None:
    heard: list[list[object]] = []
    counts: list[list[object]] = []
    for chunks in ([publish * 9], [publish] * 9):
        talk = await Conversation().open()
        await talk.say(QueueDeclare(0, "q"), QueueDeclare(0, "r"), ConfirmSelect())
        await talk.say(*before)
        heard.append([each for chunk in chunks for each in await talk.say(chunk)])
        queues = talk.services.root.queues
        counts.append([queues[name].counts() for name in sorted(queues)])
    acks = BasicAck | BasicNack
    together, apart = ([e for e in each if not isinstance(e, acks)] for each in heard)
    assert together == apart
    assert confirmed(heard[0]) == confirmed(heard[1])
    assert counts[0] == counts[1]


async def test_a_message_without_a_body_is_a_message() -> None:
    talk = await Conversation().open()
    await talk.say(QueueDeclare(0, "q"), BasicConsume(0, "q", "c", no_ack=True))
    heard = await talk.say(published("q", b"") * 2)
    assert heard == [
        BasicDeliver("c", 1, False, "", "q"),
        PLAIN_PROPERTIES,
        BasicDeliver("c", 2, False, "", "q"),
        PLAIN_PROPERTIES,
    ]


async def test_a_body_is_delivered_in_frames_that_the_client_can_take() -> None:
    talk = Conversation()
    await talk.say(PROTOCOL_HEADER, method_frame(0, GREETING))
    await talk.say(ConnectionTuneOk(0, 4096, 0), ConnectionOpen("/"), channel=0)
    await talk.say(ChannelOpen(), QueueDeclare(0, "q"), BasicConsume(0, "q", "c"))
    heard = await talk.say(published("q", b"x" * 10_000, step=4000))
    bodies = [each for each in heard[2:] if isinstance(each, bytes)]
    assert [len(each) for each in bodies] == [4088, 4088, 1824]


async def reader_with_small_frames(services: FakeServices) -> Conversation:
    reader = Conversation(services)
    await reader.say(PROTOCOL_HEADER, method_frame(0, GREETING))
    await reader.say(ConnectionTuneOk(0, 4096, 0), ConnectionOpen("/"), channel=0)
    await reader.say(ChannelOpen(), QueueDeclare(0, "q"), BasicConsume(0, "q", "c"))
    return reader


async def test_headers_arrive_whole_whatever_frames_the_client_wanted() -> None:
    """RabbitMQ does so, too: headers cannot be divided, and a client is worse off without."""
    services = anns_gateway()
    publisher, reader = (
        await Conversation(services).open(),
        await reader_with_small_frames(services),
    )
    headers = {"h": "x" * 5000}
    await publisher.say(published("q", b"body", headers=headers, type="t") * 2)
    expected = encode_properties({"headers": headers, "type": "t"})
    assert reader.heard()[1::3] == [expected, expected]


async def test_headers_that_no_publisher_of_the_protocol_can_send_are_left_out_and_said_so() -> (
    None
):
    services = anns_gateway()
    reader = await reader_with_small_frames(services)
    native = encode_properties({"headers": {"h": "x" * 140_000}, "type": "t"})
    vhost = await services.vhost("/")
    vhost.publish(Message(b"body", "", "q", form=FORM, native=native))
    expected = encode_properties({"headers": {"x-headers-too-large": len(native)}, "type": "t"})
    assert reader.heard()[1] == expected


async def test_messages_that_are_half_here_have_a_bound() -> None:
    settings = Settings(max_message_size=1000, max_partial_size=4000)
    talk = await Conversation(settings=settings).open()
    for number in range(2, 8):
        await talk.say(ChannelOpen(), channel=number)
    half = published("q", bytes(1000), step=999, channel=1)[:-9]
    assert await talk.say(half) == []
    for number in (2, 3, 4):
        assert await talk.say(published("q", bytes(1000), step=999, channel=number)[:-9]) == []
    heard = await talk.say(published("q", bytes(1000), step=999, channel=5)[:-9])
    assert closes(heard) == [(506, 60, 40)]


async def test_a_message_that_is_complete_makes_room_for_the_next() -> None:
    talk = await Conversation(settings=Settings(max_message_size=1000)).open()
    for _ in range(20):
        assert await talk.say(published("q", bytes(1000), step=10)) == []


async def test_unroutable_and_mandatory_comes_back_before_its_confirm() -> None:
    talk = await Conversation().open()
    assert await talk.say(ConfirmSelect()) == [ConfirmSelectOk()]
    heard = await talk.say(published("k", b"lost", exchange="amq.direct", mandatory=True, type="t"))
    assert heard == [
        BasicReturn(312, "NO_ROUTE", "amq.direct", "k"),
        encode_properties({"type": "t"}),
        b"lost",
        BasicAck(1),
    ]


async def test_what_arrives_in_one_chunk_is_confirmed_with_one_ack() -> None:
    talk = await Conversation().open()
    await talk.say(QueueDeclare(0, "q"), ConfirmSelect())
    assert await talk.say(published("q") * 50) == [BasicAck(50, multiple=True)]


async def test_confirms_are_not_told_after_the_channel_was_closed() -> None:
    talk = await Conversation().open()
    await talk.say(QueueDeclare(0, "q"), ConfirmSelect())
    heard = await talk.say(published("q") * 2, ChannelClose(200, "bye"))
    assert heard == [BasicAck(2, multiple=True), ChannelCloseOk()]


async def test_a_message_larger_than_the_limit_is_refused_by_its_header() -> None:
    talk = await Conversation(settings=Settings(max_message_size=100)).open()
    await talk.say(QueueDeclare(0, "q"))
    assert await talk.say(published("q", bytes(100)) * 2) == []
    heard = await talk.say(published("q", bytes(101)))
    assert closes(heard) == [(406, 60, 40)]
    assert await talk.say(ChannelCloseOk(), ChannelOpen()) == [ChannelOpenOk()]


async def test_a_transaction_has_a_limit() -> None:
    talk = await Conversation(settings=Settings(max_transaction_size=1000)).open()
    assert await talk.say(QueueDeclare(0, "q"), TxSelect()) == [
        QueueDeclareOk("q", 0, 0),
        TxSelectOk(),
    ]
    assert closes(await talk.say(published("q", bytes(400)) * 3)) == [(406, 60, 40)]


async def test_many_empty_messages_are_too_much_for_a_transaction_as_well() -> None:
    talk = await Conversation(settings=Settings(max_transaction_size=10_000)).open()
    await talk.say(QueueDeclare(0, "q"), TxSelect())
    assert closes(await talk.say(published("q", b"") * 100)) == [(406, 60, 40)]


async def test_permission_to_publish_is_asked_for_again_when_it_may_have_changed() -> None:
    services = anns_gateway()
    talk = await Conversation(services).open()
    await talk.say(QueueDeclare(0, "q"))
    assert await talk.say(published("q") * 3) == []
    services.rules.forbidden.add((Action.WRITE, ""))
    services.auth.revision += 1
    services.auth._answers.clear()
    assert closes(await talk.say(published("q"))) == [(403, 60, 40)]


async def test_a_strict_gateway_has_no_topics_behind_the_default_exchange() -> None:
    talk = await Conversation(settings=Settings(strict=True)).open()
    assert closes(await talk.say(BasicConsume(0, "a.*", "c"))) == [(404, 60, 20)]
    await talk.say(ChannelCloseOk(), ChannelOpen())
    (returned, *_) = await talk.say(published("a.b", mandatory=True))
    assert returned == BasicReturn(312, "NO_ROUTE", "", "a.b")


@pytest.mark.parametrize("before", range(4))
async def test_whoever_publishes_can_be_held_however_it_was_read(before: int) -> None:
    talk = await Conversation().open()
    await talk.say(published("q") * before)
    talk.client.has_published = False
    await talk.say(BasicQos(0, 1))
    assert talk.client.has_published is False
    await talk.say(published("q"))
    assert talk.client.has_published is True


async def test_a_channel_that_was_closed_and_opened_again_is_another() -> None:
    talk = await Conversation().open()
    await talk.say(QueueDeclare(0, "q"), ConfirmSelect(), published("q") * 5)
    await talk.say(ChannelClose(200, "bye"), ChannelOpen())
    assert await talk.say(published("q") * 3) == []
    assert await talk.say(ConfirmSelect(), published("q")) == [ConfirmSelectOk(), BasicAck(1)]


@pytest.mark.parametrize("before", range(1, 4))
async def test_an_error_of_a_publish_closes_the_channel_that_it_came_on(before: int) -> None:
    talk = await Conversation().open()
    await talk.say(ChannelOpen(), channel=2)
    await talk.say(ExchangeDeclare(0, "x", "fanout"))
    await talk.say(published("k", exchange="x", channel=2) * before)
    await talk.say(ExchangeDelete(0, "x"))
    await talk.say(published("k", exchange="x", channel=2))
    assert list(talk.client.channels) == [1, 2]
    assert talk.client.channels[1].state is ChannelState.OPEN
    assert talk.client.channels[2].state is ChannelState.CLOSING


# --- consuming


async def test_the_answer_to_consume_comes_before_the_first_delivery() -> None:
    talk = await Conversation().open()
    await talk.say(QueueDeclare(0, "q"), published("q"))
    heard = await talk.say(BasicConsume(0, "q", "c"))
    assert heard[:2] == [BasicConsumeOk("c"), BasicDeliver("c", 1, False, "", "q")]


async def test_an_ack_of_many_frees_as_many_places_in_the_window() -> None:
    talk = await Conversation().open()
    await talk.say(QueueDeclare(0, "q"), BasicQos(0, 3), published("q") * 10)
    heard = await talk.say(BasicConsume(0, "q", "c"))
    assert [each.delivery_tag for each in heard if isinstance(each, BasicDeliver)] == [1, 2, 3]
    heard = await talk.say(BasicAck(2, multiple=True))
    assert [each.delivery_tag for each in heard if isinstance(each, BasicDeliver)] == [4, 5]


def delivered(heard: list[object]) -> list[tuple[int, bool]]:
    return [
        (each.delivery_tag, each.redelivered) for each in heard if isinstance(each, BasicDeliver)
    ]


@pytest.mark.parametrize("is_whole", [True, False])
async def test_a_nack_is_the_same_however_it_is_read(is_whole: bool) -> None:
    talk = await Conversation().open()
    await talk.say(QueueDeclare(0, "q"), BasicQos(0, 3), published("q") * 4)
    await talk.say(BasicConsume(0, "q", "c"))

    async def say(method: BasicNack) -> list[object]:
        data = method_frame(1, method)
        if not is_whole:
            await talk.receive(data[:9])
            data = data[9:]
        return await talk.say(data)

    assert delivered(await say(BasicNack(2, requeue=True))) == [(4, True)]
    assert delivered(await say(BasicNack(3, multiple=True, requeue=False))) == [(5, False)]
    assert delivered(await say(BasicNack(0, multiple=True, requeue=True))) == [(6, True), (7, True)]
    assert closes(await say(BasicNack(5))) == [(406, 60, 120)]


async def test_a_delivery_that_is_not_acknowledged_in_time_ends_its_channel() -> None:
    services = anns_gateway()
    talk = await Conversation(services).open()
    declare = QueueDeclare(0, "q", arguments={"x-consumer-timeout": 1000})
    await talk.say(declare, BasicQos(0, 2), published("q") * 3, BasicConsume(0, "q", "c"))
    services.now += 0.5
    await talk.say(BasicAck(1))
    services.now += 0.6
    services.agenda.run_due(services.now)
    assert closes(talk.heard()) == [(406, 0, 0)]
    assert talk.counters.timed_out_channels == 1
    await talk.say(ChannelCloseOk())
    heard = await talk.say(ChannelOpen(), BasicGet(0, "q"), BasicGet(0, "q"), BasicGet(0, "q"))
    got = [each for each in heard if isinstance(each, BasicGetOk | BasicGetEmpty)]
    assert [each.redelivered for each in got if isinstance(each, BasicGetOk)] == [True, True]
    assert isinstance(got[-1], BasicGetEmpty)


async def test_a_message_that_was_got_has_its_time_too() -> None:
    services = anns_gateway()
    talk = await Conversation(services).open()
    declare = QueueDeclare(0, "q", arguments={"x-consumer-timeout": 1000})
    await talk.say(declare, published("q"), BasicGet(0, "q"))
    services.now += 1.1
    services.agenda.run_due(services.now)
    assert closes(talk.heard()) == [(406, 0, 0)]


async def test_channel_flow_stops_and_starts_the_deliveries() -> None:
    talk = await Conversation().open()
    await talk.say(QueueDeclare(0, "q"), BasicConsume(0, "q", "c", no_ack=True))
    assert await talk.say(ChannelFlow(False)) == [ChannelFlowOk(False)]
    assert await talk.say(published("q")) == []
    heard = await talk.say(ChannelFlow(True))
    assert heard[:2] == [ChannelFlowOk(True), BasicDeliver("c", 1, False, "", "q")]


async def test_a_full_socket_pauses_consumers_and_nobody_else() -> None:
    services = anns_gateway()
    slow, other = await Conversation(services).open(), await Conversation(services).open()
    await slow.say(QueueDeclare(0, "q"), BasicConsume(0, "q", "slow", no_ack=True))
    await other.say(BasicConsume(0, "q", "other", no_ack=True))
    slow.machine.pause()
    heard = await other.say(published("q") * 4)
    assert sum(isinstance(each, BasicDeliver) for each in heard) == 4
    assert slow.heard() == []
    slow.machine.resume()
    await other.say(published("q") * 2)
    assert any(isinstance(each, BasicDeliver) for each in slow.heard())


async def test_a_consumer_that_comes_while_the_flow_is_stopped_waits_too() -> None:
    talk = await Conversation().open()
    await talk.say(QueueDeclare(0, "q"), published("q"), ChannelFlow(False))
    assert await talk.say(BasicConsume(0, "q", "c")) == [BasicConsumeOk("c")]
    heard = await talk.say(ChannelFlow(True))
    assert heard[1] == BasicDeliver("c", 1, False, "", "q")


async def test_an_ack_just_before_the_close_counts() -> None:
    talk = await Conversation().open()
    await talk.say(QueueDeclare(0, "q"), published("q"), BasicConsume(0, "q", "c"))
    await talk.say(BasicAck(1), ChannelClose(200, "bye"), ChannelOpen())
    assert await talk.say(BasicGet(0, "q")) == [BasicGetEmpty()]


async def test_a_cancelled_consumer_may_still_settle() -> None:
    talk = await Conversation().open()
    await talk.say(QueueDeclare(0, "q"), BasicConsume(0, "q", "c"), published("q"))
    assert await talk.say(BasicCancel("c")) == [BasicCancelOk("c")]
    assert await talk.say(BasicAck(1), BasicGet(0, "q")) == [BasicGetEmpty()]


async def test_a_deleted_queue_cancels_its_consumers() -> None:
    services = anns_gateway()
    talk, other = await Conversation(services).open(), await Conversation(services).open()
    await talk.say(QueueDeclare(0, "q"), BasicConsume(0, "q", "c"))
    assert await other.say(QueueDelete(0, "q")) == [QueueDeleteOk(0)]
    assert talk.heard() == [BasicCancel("c", nowait=True)]


# --- the end


async def test_nothing_more_is_handed_out_to_a_channel_that_ends() -> None:
    """A message that one consumer gives back makes room in the window that all share."""
    talk = await Conversation().open()
    await talk.say(QueueDeclare(0, "a"), QueueDeclare(0, "b"), BasicQos(0, 1, True))
    await talk.say(BasicConsume(0, "a", "first"), BasicConsume(0, "b", "second"))
    await talk.say(published("a"), published("b"))
    talk.machine.lost()
    for name, is_flagged in (("a", True), ("b", False)):
        delivery = await talk.services.root.get(name)
        assert delivery is not None
        assert (name, delivery.redelivered, delivery.failures) == (name, is_flagged, is_flagged)


async def test_the_loss_of_several_consumers_is_one_failure() -> None:
    """Messages of the first consumer must not go through the hands of all."""
    talk = await Conversation().open()
    consumers = [BasicConsume(0, "q", tag) for tag in ("a", "b", "c")]
    await talk.say(QueueDeclare(0, "q"), BasicQos(0, 1), *consumers, published("q"))
    await talk.say(ChannelOpen(), BasicConsume(0, "q", "d"), channel=2)
    talk.machine.lost()
    delivery = await talk.services.root.get("q")
    assert delivery is not None
    assert delivery.failures == 1


# --- permissions that change


async def test_a_client_that_is_not_told_of_the_end_of_a_consumer_loses_the_channel() -> None:
    greeting = ConnectionStartOk({}, "PLAIN", b"\0ann\0secret", "en_US")
    talk = await Conversation().open(greeting)
    await talk.say(QueueDeclare(0, "q"), BasicConsume(0, "q", "one"), BasicConsume(0, "q", "two"))
    channel = talk.client.channels[1]
    review(channel)
    assert talk.heard() == []
    talk.services.rules.forbidden.add((Action.READ, "q"))
    talk.services.auth._answers.clear()
    review(channel)
    assert closes(talk.heard()) == [(403, 0, 0)]
    assert talk.services.root.queue("q").counts().consumers == 0


async def test_a_reply_queue_needs_no_permission_to_be_read() -> None:
    talk = await Conversation().open()
    await talk.say(BasicConsume(0, "amq.rabbitmq.reply-to", "replies", no_ack=True))
    talk.services.rules.permits = lambda *_: False  # type: ignore[method-assign]
    talk.services.auth._answers.clear()
    review(talk.client.channels[1])
    assert talk.heard() == []
