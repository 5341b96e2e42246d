"""Errors: every error of the core has its answer."""

from __future__ import annotations

import pytest

from protocols.amqp091.errors import ANSWERS, Amqp091Error, ReplyCode, answer, reply_text
from queue_core.errors import CoreError, QueueNotFound


def every(kind: type[CoreError]) -> set[type[CoreError]]:
    return {kind, *(below for child in kind.__subclasses__() for below in every(child))}


def test_every_error_of_the_core_has_a_row() -> None:
    own = {kind for kind in every(CoreError) if kind.__module__ == "queue_core.errors"}
    assert set(ANSWERS) == own - {CoreError}


def test_a_more_special_error_is_answered_as_its_kind() -> None:
    class Gone(QueueNotFound):
        pass

    found = answer(Gone("no queue 'q'"))
    assert (found.code, found.text) == (ReplyCode.NOT_FOUND, "no queue 'q'")


@pytest.mark.parametrize(
    ("code", "ends"),
    [
        (ReplyCode.NOT_FOUND, False),
        (ReplyCode.ACCESS_REFUSED, False),
        (ReplyCode.RESOURCE_LOCKED, False),
        (ReplyCode.PRECONDITION_FAILED, False),
        (ReplyCode.FRAME_ERROR, True),
        (ReplyCode.SYNTAX_ERROR, True),
        (ReplyCode.COMMAND_INVALID, True),
        (ReplyCode.CHANNEL_ERROR, True),
        (ReplyCode.UNEXPECTED_FRAME, True),
        (ReplyCode.NOT_ALLOWED, True),
        (ReplyCode.NOT_IMPLEMENTED, True),
        (ReplyCode.INTERNAL_ERROR, True),
    ],
)
def test_the_standard_decides_which_errors_end_the_connection(code: ReplyCode, ends: bool) -> None:
    assert Amqp091Error(code, "").ends_connection is ends


def test_a_long_text_is_cut_to_what_a_short_string_holds() -> None:
    text = reply_text(ReplyCode.NOT_FOUND, "ü" * 300)
    assert text.startswith("NOT_FOUND - üüü")
    assert text.endswith("...")
    assert len(text.encode()) <= 255
