"""Log lines for people and for machines."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from gateway.log import set_up_logging


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def test_a_line_for_people_has_time_level_source_and_facts() -> None:
    stream = io.StringIO()
    set_up_logging("info", "text", stream)
    logging.getLogger("protocols.mqtt").info("client %s gone", "a", extra={"reason": "timeout"})
    line = stream.getvalue()
    assert line.endswith("INFO    protocols.mqtt: client a gone (reason=timeout)\n")


def test_a_line_for_machines_is_one_object_whatever_the_message_holds() -> None:
    stream = io.StringIO()
    set_up_logging("info", "json", stream)
    logging.getLogger("x").warning('two\nlines and "quotes"', extra={"port": 1883, "who": {1}})
    (line,) = stream.getvalue().splitlines()
    entry = json.loads(line)
    assert entry["message"] == 'two\nlines and "quotes"'
    assert (entry["level"], entry["logger"], entry["port"]) == ("warning", "x", 1883)
    assert entry["time"].endswith("+00:00")


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_trace_stays_with_its_line(style: str) -> None:
    stream = io.StringIO()
    set_up_logging("info", style, stream)
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("x").exception("bug")
    assert "ValueError: broken" in stream.getvalue()


def test_what_is_below_the_level_is_not_written() -> None:
    stream = io.StringIO()
    set_up_logging("error", "text", stream)
    logging.getLogger("x").warning("not now")
    assert stream.getvalue() == ""


def test_setting_it_up_again_writes_each_line_once() -> None:
    first, second = io.StringIO(), io.StringIO()
    set_up_logging("info", "text", first)
    set_up_logging("info", "text", second)
    logging.getLogger("x").info("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1
