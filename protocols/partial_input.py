"""Pieces of a message or packet that is still coming, kept until it is whole."""

from __future__ import annotations

from typing import Final

MAX_SMALL_PIECES: Final = 64  # before they are joined
LARGE_PIECE_BYTES: Final = 64 * 1024


def add_piece(pieces: list[bytes], data: bytes) -> None:
    """Adds what has come. Small pieces are joined now and then: a list of millions of them would
    take many times the memory of their bytes. Large ones are copied once, when all is there:
    hundreds of clients may be in the middle of a message, and copy at the same moment."""
    if not data:
        return
    pieces.append(data)
    if len(pieces) > MAX_SMALL_PIECES and len(data) < LARGE_PIECE_BYTES:
        first = len(pieces)
        while first and len(pieces[first - 1]) < LARGE_PIECE_BYTES:
            first -= 1
        if len(pieces) - first > MAX_SMALL_PIECES:
            pieces[first:] = [b"".join(pieces[first:])]
