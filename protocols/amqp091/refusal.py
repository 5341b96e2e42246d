"""The refusal of an AMQP 0.9.1 client by a node that does not serve: connection.close with
CONNECTION_FORCED in the place of connection.tune."""

from __future__ import annotations

from typing import Final

from protocols.amqp091.wire.codec import method_frame
from protocols.amqp091.wire.frames import FRAME_MIN_SIZE, PROTOCOL_HEADER, split
from protocols.amqp091.wire.methods import ConnectionClose, ConnectionStart

CONNECTION_FORCED: Final = 320
# Clients tell a refusal from a login that failed where the server says that it closes for both.
CAPABILITIES: Final = {"capabilities": {"authentication_failure_close": True}}
LONGEST_TEXT: Final = 255


def refusal(received: bytes, reason: str) -> tuple[bytes, bool]:
    """Says what a client hears after these bytes, and whether it is the last word."""
    if len(received) < len(PROTOCOL_HEADER):
        return b"", False
    words = method_frame(0, ConnectionStart(0, 9, CAPABILITIES, b"PLAIN EXTERNAL", b"en_US"))
    if split(received, len(PROTOCOL_HEADER), 16 * FRAME_MIN_SIZE) is None:
        return words, False
    text = f"CONNECTION_FORCED - {reason}".encode()[:LONGEST_TEXT].decode(errors="ignore")
    return words + method_frame(0, ConnectionClose(CONNECTION_FORCED, text)), True
