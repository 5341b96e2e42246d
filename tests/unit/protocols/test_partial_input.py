"""Pieces of what is still coming: few in number, and large ones never copied before the end."""

from __future__ import annotations

from random import Random

from protocols.amqp091.wire.frames import BODY, frame
from protocols.partial_input import LARGE_PIECE_BYTES, MAX_SMALL_PIECES, add_piece
from tests.support.amqp091_conversation import Conversation, published


def test_all_of_it_is_there_however_it_was_cut() -> None:
    chance = Random(7)
    sent = [chance.randbytes(chance.choice((0, 1, 2, 100, LARGE_PIECE_BYTES))) for _ in range(1000)]
    pieces: list[bytes] = []
    for data in sent:
        add_piece(pieces, data)
    assert b"".join(pieces) == b"".join(sent)


def test_many_small_pieces_are_few_in_the_end() -> None:
    pieces: list[bytes] = []
    most = 0
    for _ in range(100_000):
        add_piece(pieces, b"ab")
        most = max(most, len(pieces))
    assert most <= MAX_SMALL_PIECES + 200_000 // LARGE_PIECE_BYTES + 1


def test_nothing_takes_no_memory() -> None:
    pieces: list[bytes] = []
    for _ in range(1000):
        add_piece(pieces, b"")
    assert not pieces


def test_large_pieces_are_kept_as_they_came() -> None:
    sent = [bytes(LARGE_PIECE_BYTES) for _ in range(300)]
    pieces: list[bytes] = []
    for data in sent:
        add_piece(pieces, data)
        add_piece(pieces, b"small")
    assert [id(each) for each in pieces if len(each) > 5] == [id(each) for each in sent]


async def test_a_body_in_tiny_frames_takes_as_much_memory_as_its_bytes() -> None:
    talk = await Conversation().open()
    whole = published("q", b"ab" * 5000, step=2)
    await talk.say(whole[: -len(frame(BODY, 1, b"ab"))], frame(BODY, 1, b"") * 1000)
    arrival = talk.client.channels[1].arrival
    assert arrival is not None
    assert len(arrival.chunks) <= MAX_SMALL_PIECES
    await talk.say(frame(BODY, 1, b"ab"))
    assert talk.client.channels[1].arrival is None
