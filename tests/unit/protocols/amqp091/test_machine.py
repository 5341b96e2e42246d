"""The connection's rules, without a socket."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.amqp091.counters import Amqp091Counters
from protocols.amqp091.errors import ReplyCode
from protocols.amqp091.settings import Settings
from protocols.amqp091.states import State
from protocols.amqp091.wire.codec import method_frame
from protocols.amqp091.wire.frames import HEARTBEAT_FRAME, PROTOCOL_HEADER, frame, split
from protocols.amqp091.wire.methods import (
    BasicAck,
    BasicConsume,
    BasicGet,
    BasicGetOk,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUnblocked,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    ExchangeDeclare,
    Method,
    QueueDeclare,
    QueueDeclareOk,
    TxSelect,
)
from queue_core.queues.spec import QueueSpec
from queue_core.routing.exchanges import ExchangeKind, ExchangeSpec
from tests.support.amqp091_conversation import (
    GREETING,
    Conversation,
    closes,
    published,
)

# --- the handshake


async def test_a_client_is_led_from_the_header_to_an_open_channel() -> None:
    talk = Conversation()
    (start,) = await talk.say(PROTOCOL_HEADER)
    assert isinstance(start, ConnectionStart)
    assert (start.mechanisms, start.locales) == (b"PLAIN AMQPLAIN", b"en_US")
    assert await talk.say(GREETING, channel=0) == [ConnectionTune(2047, 131_072, 60)]
    opened = await talk.say(ConnectionTuneOk(100, 8192, 30), ConnectionOpen("/"), channel=0)
    assert opened == [ConnectionOpenOk()]
    assert talk.machine.tuning.frame_max == 8192
    assert await talk.say(ChannelOpen()) == [ChannelOpenOk()]


async def test_a_client_may_say_everything_before_it_hears_anything() -> None:
    talk = Conversation()
    heard = await talk.say(
        PROTOCOL_HEADER,
        method_frame(0, GREETING),
        method_frame(0, ConnectionTuneOk(0, 0, 0)),
        method_frame(0, ConnectionOpen("/")),
        ChannelOpen(),
        QueueDeclare(0, "q"),
        published("q"),
        BasicGet(0, "q", no_ack=True),
    )
    assert [type(each) for each in heard] == [
        ConnectionStart,
        ConnectionTune,
        ConnectionOpenOk,
        ChannelOpenOk,
        QueueDeclareOk,
        BasicGetOk,
        bytes,
        bytes,
    ]


async def test_a_conversation_is_the_same_however_its_bytes_arrive() -> None:
    said = b"".join(
        [
            PROTOCOL_HEADER,
            method_frame(0, GREETING),
            method_frame(0, ConnectionTuneOk(0, 0, 0)),
            method_frame(0, ConnectionOpen("/")),
            method_frame(1, ChannelOpen()),
            method_frame(1, QueueDeclare(0, "q")),
            method_frame(1, ConfirmSelect()),
            published("q", b"one") * 5,
            published("q", b"another length") * 3,
            published("q", b"another key", exchange="amq.fanout") * 3,
            published("q", b"two", type="t") * 3,
            published("nowhere", b"two", exchange="amq.direct", mandatory=True),
            published("q", b"a body in pieces", step=3),
            published("q", b""),
            HEARTBEAT_FRAME,
            method_frame(1, BasicConsume(0, "q", "tag")),
            method_frame(1, BasicAck(2, multiple=True)),
            method_frame(1, BasicAck(3)),
            method_frame(1, BasicNack(4, requeue=True)),
        ]
    )
    whole = Conversation()
    await whole.receive(said)
    expected = whole.heard()
    assert len(expected) > 20
    for step in (1, 2, 3, 7, 20, 64):
        talk = Conversation()
        for start in range(0, len(said), step):
            await talk.receive(said[start : start + step])
        assert talk.heard() == expected, step


async def test_another_protocol_is_answered_with_our_header() -> None:
    talk = Conversation()
    assert await talk.say(b"HTTP/1.1") == [PROTOCOL_HEADER]
    assert talk.machine.state is State.CLOSED


async def test_a_wrong_password_is_refused_with_403_to_clients_that_understand_it() -> None:
    talk = Conversation()
    wrong = ConnectionStartOk(GREETING.client_properties, "PLAIN", b"\0ann\0guess", "en_US")
    heard = await talk.say(PROTOCOL_HEADER, method_frame(0, wrong))
    assert closes(heard) == [(403, 10, 11)]


async def test_an_old_client_with_a_wrong_password_is_cut_off() -> None:
    talk = Conversation()
    wrong = ConnectionStartOk({}, "PLAIN", b"\0ann\0guess", "en_US")
    heard = await talk.say(PROTOCOL_HEADER, method_frame(0, wrong))
    assert closes(heard) == []
    assert talk.machine.state is State.CLOSED


async def test_amqplain_is_plain_in_other_words() -> None:
    fields = b"\x05LOGINS\x00\x00\x00\x03ann\x08PASSWORDS\x00\x00\x00\x06secret"
    answer = ConnectionStartOk(GREETING.client_properties, "AMQPLAIN", fields, "en_US")
    talk = Conversation()
    heard = await talk.say(PROTOCOL_HEADER, method_frame(0, answer))
    assert isinstance(heard[-1], ConnectionTune)


@pytest.mark.parametrize("mechanism", ["EXTERNAL", "SCRAM-SHA-256", ""])
async def test_a_mechanism_that_was_not_offered_is_refused(mechanism: str) -> None:
    talk = Conversation()
    answer = ConnectionStartOk(GREETING.client_properties, mechanism, b"", "en_US")
    assert closes(await talk.say(PROTOCOL_HEADER, method_frame(0, answer))) == [(403, 10, 11)]


@pytest.mark.parametrize(
    "answer",
    [
        ConnectionTuneOk(0, 4095, 0),
        ConnectionTuneOk(0, 131_073, 0),
        ConnectionTuneOk(2048, 0, 0),
    ],
)
async def test_a_client_may_not_tune_beyond_what_was_offered(answer: ConnectionTuneOk) -> None:
    talk = Conversation()
    heard = await talk.say(PROTOCOL_HEADER, method_frame(0, GREETING), method_frame(0, answer))
    assert closes(heard) == [(530, 10, 31)]


async def test_an_unknown_vhost_is_not_allowed() -> None:
    talk = Conversation()
    await talk.say(PROTOCOL_HEADER, method_frame(0, GREETING))
    heard = await talk.say(ConnectionTuneOk(0, 0, 0), ConnectionOpen("other"), channel=0)
    assert closes(heard) == [(530, 10, 40)]


async def test_a_channel_before_open_is_an_error() -> None:
    talk = Conversation()
    heard = await talk.say(PROTOCOL_HEADER, ChannelOpen())
    assert closes(heard) == [(504, 20, 10)]


async def test_any_new_secret_is_taken_and_changes_nothing() -> None:
    """A login does not expire: there is nothing to check a new secret for, and nothing to gain."""
    talk = await Conversation().open()
    identity = talk.machine.identity
    for secret in (b"secret", b"no"):
        said = ConnectionUpdateSecret(secret, "new")
        assert await talk.say(said, channel=0) == [ConnectionUpdateSecretOk()]
    assert talk.machine.identity is identity


async def test_an_exchange_that_is_declared_anew_is_judged_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    talk = await Conversation().open()
    await talk.say(ExchangeDeclare(0, "x", "direct"))
    for _ in range(3):  # also by the quickest way, which looks at nothing but bytes
        assert await talk.say(published("secret", exchange="x")) == []
    rules = talk.services.rules
    monkeypatch.setattr(rules, "permits", lambda _who, _what, found: found.kind != "topic")
    router = talk.services.root.router
    router.delete_exchange("x")
    router.declare_exchange(ExchangeSpec("x", ExchangeKind.TOPIC))
    assert closes(await talk.say(published("secret", exchange="x"))) == [(403, 60, 40)]


async def test_publishing_to_an_exchange_that_was_deleted_is_refused() -> None:
    talk = await Conversation().open()
    await talk.say(ExchangeDeclare(0, "x", "direct"))
    assert await talk.say(published("k", exchange="x")) == []
    talk.services.root.router.delete_exchange("x")
    assert closes(await talk.say(published("k", exchange="x"))) == [(404, 60, 40)]


# --- errors


ILLEGAL = [
    pytest.param(QueueDeclareOk("q", 0, 0), 503, id="a server's answer"),
    pytest.param(ChannelOpen(), 504, id="open twice"),
    pytest.param(BasicPublish(0, "", "k", immediate=True), 540, id="immediate"),
    pytest.param(BasicQos(1, 0), 540, id="prefetch by size"),
    pytest.param(BasicConsume(0, "q", "c", no_local=True), 540, id="no-local"),
]


@pytest.mark.parametrize(("method", "code"), ILLEGAL)
async def test_what_the_protocol_forbids_ends_the_connection(method: Method, code: int) -> None:
    talk = await Conversation().open()
    heard = await talk.say(method, QueueDeclare(0, "ignored"))
    assert closes(heard) == [(code, *type(method).ids())]
    assert not talk.client.channels
    assert await talk.say(ConnectionCloseOk(), channel=0) == []
    assert talk.machine.state is State.CLOSED


BAD_FRAMES = [
    pytest.param(frame(1, 1, b"")[:-1] + b"\0", 501, id="wrong end"),
    pytest.param(b"\x09\0\0", 501, id="unknown type"),
    pytest.param(b"\x03\0\x01\xff\xff\xff\xff", 501, id="too large"),
    pytest.param(frame(1, 1, b"\0\x32"), 501, id="half a method id"),
    pytest.param(frame(1, 1, bytes.fromhex("0032000a00")), 501, id="half a method"),
    pytest.param(frame(1, 1, bytes.fromhex("00630001")), 540, id="unknown class"),
    pytest.param(frame(2, 1, bytes(14)), 505, id="header nobody announced"),
    pytest.param(frame(3, 1, b"x"), 505, id="body nobody announced"),
    pytest.param(frame(3, 7, b"x"), 505, id="body on a closed channel"),
    pytest.param(frame(3, 0, b"x"), 505, id="content on channel 0"),
    pytest.param(frame(8, 1, b""), 505, id="heartbeat on a channel"),
    pytest.param(frame(8, 0, b"x"), 501, id="heartbeat with a payload"),
    pytest.param(
        method_frame(1, BasicPublish(0, "", "q")) + frame(2, 1, bytes(14)), 505, id="wrong class"
    ),
    pytest.param(
        method_frame(1, BasicPublish(0, "", "q"))
        + frame(2, 1, bytes.fromhex("003c000100000000000000000000")),
        505,
        id="a weight",
    ),
    pytest.param(
        method_frame(1, BasicPublish(0, "", "q")) + frame(2, 1, bytes(4)), 501, id="half a header"
    ),
    pytest.param(
        method_frame(1, BasicPublish(0, "", "q"))
        + frame(2, 1, bytes.fromhex("003c00000000000000000003ffff")),
        502,
        id="malformed properties",
    ),
    pytest.param(
        method_frame(1, BasicPublish(0, "", "q"))
        + frame(2, 1, bytes.fromhex("003c000000000000000000030000"))
        + frame(3, 1, b"four"),
        505,
        id="more body than announced",
    ),
]


@pytest.mark.parametrize(("data", "code"), BAD_FRAMES)
async def test_broken_input_ends_the_connection_with_the_right_code(data: bytes, code: int) -> None:
    talk = await Conversation().open()
    heard = await talk.say(data)
    assert [each.reply_code for each in heard if isinstance(each, ConnectionClose)] == [code]


async def test_a_method_in_the_middle_of_a_publish_is_blamed_on_the_publish() -> None:
    talk = await Conversation().open()
    heard = await talk.say(BasicPublish(0, "", "q"), QueueDeclare(0, "q"))
    assert closes(heard) == [(505, 60, 40)]


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("broken", range(3), ids=["method", "header", "body"])
async def test_a_publish_with_a_wrong_frame_end_is_never_a_message(
    broken: int, before: int
) -> None:
    talk = await Conversation().open()
    await talk.say(QueueDeclare(0, "q"), published("q") * before)
    data, position = bytearray(published("q")), 0
    for _ in range(broken + 1):
        found = split(bytes(data), position, 4096)
        assert found is not None
        position = found.end + 1
    data[position - 1] = 0
    heard = await talk.say(bytes(data))
    assert [each.reply_code for each in heard if isinstance(each, ConnectionClose)] == [501]


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
async def test_no_bytes_break_the_machine(data: bytes) -> None:
    talk = await Conversation().open()
    await talk.say(data)
    assert talk.machine.state in (State.OPEN, State.CLOSING, State.CLOSED)


async def test_after_a_channel_error_the_rest_of_that_channel_is_ignored_until_close_ok() -> None:
    talk = await Conversation().open()
    heard = await talk.say(
        QueueDeclare(0, "no-such", passive=True),
        QueueDeclare(0, "ignored"),
        published("ignored"),
        BasicAck(7),
    )
    assert closes(heard) == [(404, 50, 10)]
    assert len(heard) == 1
    assert await talk.say(ChannelCloseOk(), ChannelOpen()) == [ChannelOpenOk()]
    assert "ignored" not in talk.services.root.queues


async def test_a_channel_error_gives_back_what_the_channel_had() -> None:
    talk = await Conversation().open()
    await talk.say(QueueDeclare(0, "q"), published("q"), BasicGet(0, "q"))
    await talk.say(BasicAck(99))
    await talk.say(ChannelOpen(), channel=2)
    (got, *_) = await talk.say(BasicGet(0, "q"), channel=2)
    assert got == BasicGetOk(1, True, "", "q", 0)


async def test_a_lost_connection_takes_its_exclusive_queues_along() -> None:
    talk = await Conversation().open()
    await talk.say(QueueDeclare(0, "mine", exclusive=True))
    talk.machine.lost()
    assert not talk.services.root.queues


async def test_a_client_that_wants_to_know_is_told_of_blocking() -> None:
    talk = Conversation()
    wants = ConnectionStartOk(
        {"capabilities": {"connection.blocked": True}}, "PLAIN", b"\0ann\0secret", "en_US"
    )
    await talk.say(PROTOCOL_HEADER, method_frame(0, wants))
    await talk.say(ConnectionTuneOk(0, 0, 0), ConnectionOpen("/"), channel=0)
    talk.machine.block("full")
    talk.machine.unblock()
    assert talk.heard() == [ConnectionBlocked("full"), ConnectionUnblocked()]


async def test_a_polite_end_names_the_reason() -> None:
    talk = await Conversation().open()
    talk.machine.fail(ReplyCode.CONNECTION_FORCED, "the gateway stops")
    (goodbye,) = talk.heard()
    assert goodbye == ConnectionClose(320, "CONNECTION_FORCED - the gateway stops", 0, 0)


async def test_both_sides_may_close_at_once() -> None:
    talk = await Conversation().open()
    talk.machine.fail(ReplyCode.CONNECTION_FORCED, "the gateway stops")
    talk.heard()
    assert await talk.say(ConnectionClose(200, "bye"), channel=0) == [ConnectionCloseOk()]
    assert talk.machine.state is State.CLOSED


async def test_a_clean_close_is_answered_and_ends_everything() -> None:
    talk = await Conversation().open()
    assert await talk.say(ConnectionClose(200, "bye"), channel=0) == [ConnectionCloseOk()]
    assert talk.machine.state is State.CLOSED
    assert await talk.say(BasicQos(0, 1)) == []


async def test_prefetch_is_answered() -> None:
    talk = await Conversation().open()
    assert await talk.say(BasicQos(0, 10), BasicQos(0, 10, True)) == [BasicQosOk(), BasicQosOk()]


async def test_what_goes_wrong_is_counted() -> None:
    talk = await Conversation().open()
    await talk.say(ConfirmSelect(), published("k", exchange="amq.direct", mandatory=True))
    await talk.say(QueueDeclare(0, "no-such", passive=True))
    await talk.say(frame(3, 7, b"x"))
    assert talk.counters == Amqp091Counters(
        connections=1,
        channels_opened=1,
        channels_closed=1,
        returned_messages=1,
        channel_errors=1,
        connection_errors=1,
    )


async def test_a_refused_login_is_counted() -> None:
    talk = Conversation()
    wrong = ConnectionStartOk(GREETING.client_properties, "PLAIN", b"\0ann\0guess", "en_US")
    await talk.say(PROTOCOL_HEADER, method_frame(0, wrong))
    assert talk.counters == Amqp091Counters(refused_connections=1)


@pytest.mark.parametrize(
    "one",
    [
        published("k", b"x", exchange="amq.fanout"),
        published("k", b"x", exchange="amq.fanout", expiration="60000"),
        published("k", b"x", exchange="amq.fanout", headers={"CC": ["b"]}),
    ],
    ids=["plain", "expiring", "with two keys"],
)
async def test_publishes_that_go_far_give_way_before_all_are_through(one: bytes) -> None:
    talk = await Conversation().open()
    vhost = talk.services.root
    for number in range(200):
        spec = QueueSpec.parse(f"q{number}", durable=False)
        await vhost.bind("amq.fanout", await vhost.declare_queue(spec))
    await talk.say(ConfirmSelect(), one * 2)
    talk.machine.receive(one * 60, lambda: True)
    assert vhost.queue("q0").counts().ready < 10
    assert talk.machine.is_unfinished
    heard = talk.heard()
    await talk.receive(b"")
    assert vhost.queue("q0").counts().ready == 62
    acks = [each for each in heard + talk.heard() if isinstance(each, BasicAck)]
    assert acks[-1].delivery_tag == 62


async def test_publishes_that_are_compared_with_many_headers_give_way() -> None:
    talk = await Conversation().open()
    vhost = talk.services.root
    queue = await vhost.declare_queue(QueueSpec.parse("q", durable=False))
    for number in range(2000):
        await vhost.bind("amq.headers", queue, "", {"a": number})
    one = published("", b"x", exchange="amq.headers", headers={"a": 7})
    await talk.say(one)
    talk.machine.receive(one * 60, lambda: True)
    assert queue.counts().ready < 10
    await talk.receive(b"")
    assert queue.counts().ready == 61


async def test_a_transaction_counts_every_queue_that_its_messages_go_to() -> None:
    talk = await Conversation(settings=Settings(max_transaction_size=300_000)).open()
    vhost = talk.services.root
    for number in range(200):
        spec = QueueSpec.parse(f"q{number}", durable=False)
        await vhost.bind("amq.fanout", await vhost.declare_queue(spec))
    one = published("k", b"x", exchange="amq.fanout")
    assert not closes(await talk.say(TxSelect(), one, one))
    assert closes(await talk.say(one, one)) == [(406, 60, 40)]
