"""no-local: what came from the receiver's own connection, wherever it has been meanwhile."""

from __future__ import annotations

from protocols.amqp10.addressing.filters import ORIGINS, Filters
from protocols.amqp10.conversion.properties import FORM
from queue_core.message.message import Message

SUBJECT = b"\x00\x53\x73\xc0\x07\x04\x40\x40\x40\xa1\x01s"


def test_the_mark_of_a_connection_is_stored_with_the_message() -> None:
    mine, other = ORIGINS.new(), ORIGINS.new()
    native = ORIGINS.mark(SUBJECT, mine)
    read_back = Message(b"x", form=FORM, native=bytes(native))  # as the database gives it
    for origin, passes in ((mine, False), (other, True)):
        test = Filters(no_local=True).test(origin)
        assert test is not None
        assert test(read_back) is passes


def test_what_the_sender_wrote_stays_as_it_is() -> None:
    native = ORIGINS.mark(SUBJECT, ORIGINS.new())
    assert native.endswith(SUBJECT)
    assert FORM.properties(native).subject == "s"


def test_a_message_of_another_protocol_is_never_local() -> None:
    test = Filters(no_local=True).test(ORIGINS.new())
    assert test is not None
    assert test(Message(b"x"))
