"""Methods and frames: every method there and back, however the bytes arrive."""

from __future__ import annotations

import pamqp.commands
import pamqp.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.amqp091.errors import Amqp091Error, ReplyCode
from protocols.amqp091.wire.codec import decode_method, encode_method, method_frame
from protocols.amqp091.wire.frames import BODY, Frame, FrameError, frame, split
from protocols.amqp091.wire.methods import (
    METHODS,
    BasicAck,
    BasicDeliver,
    BasicNack,
    BasicPublish,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionTune,
    ExchangeDeclare,
    Method,
    QueueDeclareOk,
)
from tests.unit.protocols.amqp091.strategies import error_of, methods

VECTORS = [
    pytest.param("003c0050 0000000000000007 01", BasicAck(7, multiple=True), id="ack"),
    pytest.param(
        "003c0078 0000000000000002 03", BasicNack(2, multiple=True, requeue=True), id="two bits"
    ),
    pytest.param(
        "003c0028 0000 01 78 03 612e62 01",
        BasicPublish(0, "x", "a.b", mandatory=True),
        id="publish",
    ),
    pytest.param(
        "003c003c 01 74 0000000000000001 01 00 01 71",
        BasicDeliver("t", 1, True, "", "q"),
        id="a bit between others",
    ),
    pytest.param("000a001e 07ff 00020000 003c", ConnectionTune(2047, 131072, 60), id="tune"),
    pytest.param("0032000b 01 71 00000005 00000002", QueueDeclareOk("q", 5, 2), id="declare-ok"),
    pytest.param(
        "0028000a 0000 01 78 05 746f706963 12 00000000",
        ExchangeDeclare(0, "x", "topic", durable=True, nowait=True),
        id="five bits in one octet",
    ),
]


@pytest.mark.parametrize(("wire", "method"), VECTORS)
def test_a_method_is_written_as_the_standard_says(wire: str, method: Method) -> None:
    assert encode_method(method) == bytes.fromhex(wire)


@pytest.mark.parametrize(("wire", "method"), VECTORS)
def test_a_method_is_read_as_the_standard_says(wire: str, method: Method) -> None:
    assert decode_method(bytes.fromhex(wire)) == method


@given(methods)
def test_every_method_comes_back_as_it_was(method: Method) -> None:
    assert decode_method(encode_method(method)) == method


@given(st.binary(max_size=80))
def test_any_bytes_are_a_method_or_a_protocol_error(data: bytes) -> None:
    error = error_of(decode_method, data)
    assert error is None or error.ends_connection


@given(st.sampled_from(sorted(METHODS)), st.binary(max_size=60))
def test_a_known_method_with_any_arguments_is_read_or_refused_as_a_frame_error(
    index: int, rest: bytes
) -> None:
    error = error_of(decode_method, index.to_bytes(4) + rest)
    assert error is None or error.code is ReplyCode.FRAME_ERROR


def test_a_method_with_bytes_too_many_is_a_frame_error() -> None:
    with pytest.raises(Amqp091Error, match="1 bytes too many") as caught:
        decode_method(encode_method(BasicAck(1)) + b"\0")
    assert caught.value.code is ReplyCode.FRAME_ERROR


def test_an_unknown_method_is_not_implemented() -> None:
    with pytest.raises(Amqp091Error) as caught:
        decode_method(b"\x00\x3c\x03\xe7")
    assert caught.value.code is ReplyCode.NOT_IMPLEMENTED


STRICTER = {ChannelOpen.index, ChannelOpenOk.index}  # about a field that is reserved


@pytest.mark.filterwarnings("ignore:This command is deprecated")
@pytest.mark.parametrize(
    "index", sorted(set(METHODS) & set(pamqp.commands.INDEX_MAPPING)), ids=lambda i: hex(i)
)
def test_an_independent_codec_reads_our_default_methods_and_writes_the_same_bytes(
    index: int,
) -> None:
    layout = METHODS[index]
    ours = method_frame(1, layout.kind())
    size, channel, theirs = pamqp.frame.unmarshal(ours)
    assert (size, channel) == (len(ours), 1)
    assert theirs.name.replace(".", "").lower() == layout.kind.__name__.lower()
    assert index in STRICTER or pamqp.frame.marshal(theirs, 1) == ours


def test_only_what_rabbitmq_added_is_unknown_to_the_independent_codec() -> None:
    unknown = {METHODS[i].kind.__name__ for i in set(METHODS) - set(pamqp.commands.INDEX_MAPPING)}
    assert unknown == {"AccessRequest", "AccessRequestOk"}


@given(methods, st.integers(0, 65535))
def test_a_frame_is_found_only_when_all_of_it_is_there(method: Method, channel: int) -> None:
    data = method_frame(channel, method)
    for cut in range(len(data)):
        assert split(data[:cut], 0, 1 << 20) is None
    found = split(b"xyz" + data + b"more", 3, 1 << 20)
    assert found == Frame(1, channel, 10, 3 + len(data) - 1)


def test_a_frame_is_refused_by_its_declared_size_before_its_payload_comes() -> None:
    with pytest.raises(FrameError, match="4105 bytes; 4096 is the negotiated maximum"):
        split(frame(BODY, 1, bytes(4097))[:7], 0, 4096)


@pytest.mark.parametrize("size", [4088, 4096])
def test_a_payload_up_to_the_negotiated_size_is_taken(size: int) -> None:
    """Not all clients count the 8 bytes around it, and RabbitMQ lets them."""
    assert split(frame(BODY, 1, bytes(size)), 0, 4096) == Frame(BODY, 1, 7, size + 7)


@pytest.mark.parametrize("kind", [0, 4, 7, 9, 65, 255])
def test_an_unknown_frame_type_is_refused_by_its_first_byte(kind: int) -> None:
    with pytest.raises(FrameError, match=f"unknown frame type {kind}"):
        split(bytes((kind,)), 0, 4096)


def test_a_frame_that_does_not_end_with_the_frame_end_is_an_error() -> None:
    data = frame(BODY, 1, b"abc")[:-1] + b"\0"
    with pytest.raises(FrameError, match="0x00 instead of 0xce"):
        split(data, 0, 4096)
