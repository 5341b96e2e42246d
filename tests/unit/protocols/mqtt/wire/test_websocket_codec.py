"""RFC 6455 as far as MQTT needs it: the upgrade, frames in any pieces, and what is refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.mqtt.wire.primitives import varint
from protocols.mqtt.wire.websocket_codec import (
    CloseCode,
    Opcode,
    Receiver,
    UpgradeRefused,
    WebSocketError,
    answer_upgrade,
    frame,
    masked,
    packet_frames,
)

MASK = b"\x01\x02\x03\x04"
REQUEST = (
    "GET /mqtt HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Protocol: chat, mqtt"
)


def sent(opcode: int, payload: bytes, *, is_final: bool = True, mask: bytes = MASK) -> bytes:
    """A frame as a client sends it."""
    size = len(payload)
    first = (0x80 if is_final else 0) | opcode
    if size < 126:
        head = bytes((first, 0x80 | size))
    elif size < 65_536:
        head = bytes((first, 0x80 | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((first, 0x80 | 127)) + size.to_bytes(8, "big")
    return head + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))


def anybody(origin: str | None, host: str | None) -> bool:
    return True


def test_a_page_that_is_not_admitted_is_refused_by_its_origin() -> None:
    asked: list[tuple[str | None, str | None]] = []

    def nobody(origin: str | None, host: str | None) -> bool:
        asked.append((origin, host))
        return False

    with_origin = REQUEST.replace("Host: h", "Host: h\r\nOrigin: https://evil.example")
    for request in (REQUEST, with_origin):
        with pytest.raises(UpgradeRefused, match=r"listeners\.mqtt_ws\.allowed_origins") as caught:
            answer_upgrade(request.encode(), "/mqtt", nobody)
        assert caught.value.answer.startswith(b"HTTP/1.1 403 ")
    assert asked == [(None, "h"), ("https://evil.example", "h")]


def test_mqtt_6_0_0_4_the_upgrade_is_answered_with_the_subprotocol() -> None:
    answer = answer_upgrade(REQUEST.encode(), "/mqtt", anybody).decode()
    assert answer.startswith("HTTP/1.1 101 ")
    assert "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in answer  # RFC 6455, 1.3
    assert "Sec-WebSocket-Protocol: mqtt\r\n" in answer


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (("GET", "POST"), 405),
        (("/mqtt", "/other"), 404),
        (("mqtt HTTP/1.1", "mqtt HTTP/1.0"), 405),
        (("Upgrade: websocket\r\n", ""), 426),
        (("Version: 13", "Version: 8"), 426),
        (("dGhlIHNhbXBsZSBub25jZQ==", "short"), 400),
        (("chat, mqtt", "chat"), 400),
        (("Host: h", "nonsense"), 400),
        (("GET /mqtt HTTP/1.1", "nonsense"), 400),
    ],
)
def test_another_request_is_refused_with_its_status(change: tuple[str, str], status: int) -> None:
    with pytest.raises(UpgradeRefused) as caught:
        answer_upgrade(REQUEST.replace(*change).encode(), "/mqtt", anybody)
    assert caught.value.answer.startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536])
def test_a_frame_of_every_kind_of_length(size: int) -> None:
    payload = bytes(i % 251 for i in range(size))
    assert Receiver().receive(sent(Opcode.BINARY, payload)) == payload
    made = frame(Opcode.BINARY, payload)
    assert made.endswith(payload)
    assert made[0] == 0x82


@given(
    st.lists(st.binary(max_size=200), min_size=1, max_size=5),
    st.lists(st.integers(1, 40), min_size=1),
)
def test_mqtt_6_0_0_2_payload_comes_through_whatever_the_frames_and_the_cuts(
    parts: list[bytes], cuts: list[int]
) -> None:
    """Fragments of one message, with a ping between them, in pieces of any size."""
    last = len(parts) - 1
    stream = b"".join(
        sent(Opcode.BINARY if i == 0 else 0, part, is_final=i == last)
        + sent(Opcode.PING, b"%d" % i)
        for i, part in enumerate(parts)
    )
    receiver, received, position, turn = Receiver(), b"", 0, 0
    while position < len(stream):
        step = cuts[turn % len(cuts)]
        received += receiver.receive(stream[position : position + step])
        position, turn = position + step, turn + 1
    assert received == b"".join(parts)
    assert receiver.answers == [frame(Opcode.PONG, b"%d" % i) for i in range(len(parts))]


LENGTHS = st.sampled_from((0, 2, 3, 123, 124, 127, 128, 256, 384, 16_383, 16_384, 70_000))


@given(st.lists(st.tuples(LENGTHS, st.sampled_from((1, 2, 5, 300)))))
def test_each_packet_has_a_frame_of_its_own_in_one_write(rows: list[tuple[int, int]]) -> None:
    """Some clients read the first packet of a frame only."""
    packets = [
        b"\x30" + varint(length) + bytes((length & 0x7F,)) * length
        for length, count in rows
        for _ in range(count if length < 1000 else 1)
    ]
    written = packet_frames(b"".join(packets))
    assert written == b"".join(frame(Opcode.BINARY, packet) for packet in packets)


def test_a_close_is_answered_with_its_code() -> None:
    receiver = Receiver()
    receiver.receive(sent(Opcode.CLOSE, b"\x03\xe8bye"))
    assert receiver.is_closed
    assert receiver.answers == [frame(Opcode.CLOSE, b"\x03\xe8")]


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        pytest.param(sent(Opcode.TEXT, b"x"), CloseCode.UNSUPPORTED_DATA, id="[MQTT-6.0.0-1]"),
        pytest.param(b"\x82\x01x", CloseCode.PROTOCOL_ERROR, id="no mask"),
        pytest.param(sent(0x42, b"x"), CloseCode.PROTOCOL_ERROR, id="reserved bits"),
        pytest.param(sent(3, b"x"), CloseCode.PROTOCOL_ERROR, id="unknown opcode"),
        pytest.param(sent(0, b"x"), CloseCode.PROTOCOL_ERROR, id="continues nothing"),
        pytest.param(
            sent(2, b"x", is_final=False) + sent(2, b"y"), CloseCode.PROTOCOL_ERROR, id="two begun"
        ),
        pytest.param(sent(9, b"x" * 126), CloseCode.PROTOCOL_ERROR, id="long ping"),
        pytest.param(sent(9, b"x", is_final=False), CloseCode.PROTOCOL_ERROR, id="cut ping"),
    ],
)
def test_what_rfc_6455_forbids_ends_with_its_code(raw: bytes, code: CloseCode) -> None:
    with pytest.raises(WebSocketError) as caught:
        Receiver().receive(raw)
    assert caught.value.code is code


@given(st.binary(max_size=300))
def test_any_bytes_are_taken_or_refused(raw: bytes) -> None:
    with contextlib.suppress(WebSocketError):
        Receiver().receive(raw)
    with contextlib.suppress(UpgradeRefused):
        answer_upgrade(raw, "/mqtt", anybody)


@given(st.binary(max_size=100), st.binary(min_size=4, max_size=4), st.integers(0, 9))
def test_masking_twice_is_nothing(payload: bytes, mask: bytes, offset: int) -> None:
    assert masked(masked(payload, mask, offset), mask, offset) == payload
