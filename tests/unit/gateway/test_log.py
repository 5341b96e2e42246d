"""Log lines for people and for machines."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from gateway.log import LONGEST_TEXT_CHARACTERS, set_up_logging
from gateway.log_repetitions import MOST_KINDS, PERIOD_SECONDS, SAID_AT_ONCE, Repetitions
from tests.support.clock import Clock


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
    assert entry["message"] == 'two\\nlines and "quotes"'
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


FORGERY = (
    "a\n2026-01-01 00:00:00.000 INFO    gateway: user 'root' was let in\r\x1b[2J\x9b\u202e\u2028"
)


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_name_that_a_peer_chose_can_neither_begin_a_line_nor_steer_a_terminal(style: str) -> None:
    stream = io.StringIO()
    set_up_logging("info", style, stream)
    logging.getLogger("x").warning("client '%s' gone", FORGERY, extra={"topic": FORGERY})
    written = stream.getvalue()
    (line,) = written.splitlines()
    shown = json.loads(line)["message"] if style == "json" else line
    assert r"a\n2026-01-01" in shown
    assert r"\r\x1b[2J\x9b\u202e\u2028" in shown
    assert not set(written) & set("\r\x1b\x9b\u202e\u2028")


def test_what_no_file_can_hold_is_spelled_out() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    set_up_logging("info", "text", stream)
    logging.getLogger("x").warning("half of a pair: %s", "\ud83d")
    stream.seek(0)
    assert r"half of a pair: \ud83d" in stream.read()


def test_the_text_of_an_exception_cannot_pass_for_a_line_of_its_own() -> None:
    stream = io.StringIO()
    set_up_logging("info", "text", stream)
    try:
        raise ValueError(FORGERY)
    except ValueError:
        logging.getLogger("x").exception("bug")
    first, *others = stream.getvalue().splitlines()
    assert first.endswith("ERROR   x: bug")
    assert all(line.startswith("  | ") for line in others)
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize("style", ["text", "json"])
@pytest.mark.parametrize(
    "said",
    [
        pytest.param(f"Invalid header: {b'Authorization: Basic czNjcmV0'!r}", id="bytes"),
        pytest.param("Invalid header: b'Basic czNjcmV0", id="bytes that are cut"),
        pytest.param(f"got {bytearray(b'czNjcmV0')!r} there", id="bytearray"),
        pytest.param('got b"it\'s czNjcmV0" there', id="bytes in the other quotes"),
        pytest.param("cannot reach postgresql://me:czNjcmV0@db/howdah", id="url"),
        pytest.param("headers {'Authorization': 'Bearer czNjcmV0'}", id="header"),
        pytest.param("Authorization: Basic czNjcmV0", id="header line"),
        pytest.param("dsn: host=db password='czNjcmV0' dbname=x", id="dsn"),
        pytest.param(
            "invalid input for query argument $3: 'czNjcmV0 (x)' (a str is expected)", id="asyncpg"
        ),
    ],
)
def test_bytes_and_secrets_in_the_texts_of_libraries_are_left_out(style: str, said: str) -> None:
    stream = io.StringIO()
    set_up_logging("info", style, stream)
    try:
        raise ValueError(said)
    except ValueError as error:
        logging.getLogger("x").exception("it failed: %s", error, extra={"why": said})
    assert "czNjcmV0" not in stream.getvalue()


@pytest.mark.parametrize("name", ["node-b", "web", "plant/b", "queue.b"])
def test_a_name_that_ends_in_b_is_not_taken_for_bytes(name: str) -> None:
    stream = io.StringIO()
    set_up_logging("info", "text", stream)
    logging.getLogger("x").warning("node '%s' serves, and '%s' waits", name, "node-a")
    assert stream.getvalue().endswith(f"node '{name}' serves, and 'node-a' waits\n")


def test_a_line_is_cut_where_a_peer_would_fill_the_disk_with_one() -> None:
    stream = io.StringIO()
    set_up_logging("info", "text", stream)
    logging.getLogger("x").warning("topic '%s'", "a" * 65_536)
    assert len(stream.getvalue()) < LONGEST_TEXT_CHARACTERS + 200
    assert "more characters" in stream.getvalue()


HIDING = ["b", "x b", 'b"', "authorization", "authorization:", "passwd=", "x://a:", "x" * 65_535]


@pytest.mark.parametrize("name", HIDING)
@pytest.mark.parametrize("count", [1, SAID_AT_ONCE + 1])
def test_no_name_that_a_peer_chose_hides_where_it_came_from(name: str, count: int) -> None:
    stream = io.StringIO()
    set_up_logging("info", "text", stream)
    for _ in range(count):
        logging.getLogger("queue_core.access.auth").warning(
            "login of '%s' from %s refused: %s (client '%s')", name, "192.0.2.7", "wrong", "c"
        )
    handler = logging.getLogger().handlers[0]
    for each in handler.filters:
        if isinstance(each, Repetitions):
            each.end()
    assert stream.getvalue().count("from 192.0.2.7 refused: wrong (client 'c')") == count


def test_a_value_with_a_secret_in_it_is_shown_without() -> None:
    stream = io.StringIO()
    set_up_logging("info", "text", stream)
    for logger in ("gateway.x", "aiohttp.server"):
        log = logging.getLogger(logger)
        log.warning(
            "from %s: %s", "192.0.2.7", ValueError("got b'hunter2' of postgres://a:hunter2@b")
        )
        log.warning("%r and %s", b"hunter2", {"Authorization": "Basic hunter2"})
        log.warning("%(who)s says %(what)s", {"who": "a", "what": b"hunter2"})
    logging.getLogger("aiohttp.server").warning("Authorization: %s", "hunter2")
    assert "hunter2" not in stream.getvalue()
    assert stream.getvalue().count("192.0.2.7") == 2


class Written(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.clock = Clock(0.0)
        self.repetitions = Repetitions(self, clock=self.clock)
        self.addFilter(self.repetitions)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def written() -> Iterator[tuple[Written, logging.Logger]]:
    handler, logger = Written(), logging.getLogger("repeating")
    logger.propagate = False
    logger.setLevel("DEBUG")
    logger.addHandler(handler)
    yield handler, logger
    logger.removeHandler(handler)
    logger.propagate = True


def test_what_a_peer_causes_again_and_again_is_said_a_few_times_and_then_counted(
    written: tuple[Written, logging.Logger],
) -> None:
    handler, logger = written
    for number in range(10_000):
        logger.warning("login of '%s' refused", f"user-{number}")
    assert len(handler.lines) == SAID_AT_ONCE
    logger.warning("something else")
    assert handler.lines[-1] == "something else"
    handler.clock.now += PERIOD_SECONDS
    logger.warning("login of '%s' refused", "later")
    *_, summary, last = handler.lines
    assert summary.startswith(f"{10_000 - SAID_AT_ONCE} more lines like this one were left out")
    assert f"login of 'user-{SAID_AT_ONCE}' refused" in summary
    assert last == "login of 'later' refused"


def test_what_was_left_out_is_counted_aloud_at_the_end_of_the_process(
    written: tuple[Written, logging.Logger],
) -> None:
    handler, logger = written
    for _ in range(SAID_AT_ONCE + 3):
        logger.error("again")
    handler.repetitions.end()
    assert handler.lines[-1].startswith("3 more lines")


def test_what_ends_the_gateway_is_always_said(written: tuple[Written, logging.Logger]) -> None:
    handler, logger = written
    for _ in range(2 * SAID_AT_ONCE):
        logger.critical("it ends")
    assert len(handler.lines) == 2 * SAID_AT_ONCE


def test_texts_without_end_do_not_fill_the_memory(
    written: tuple[Written, logging.Logger],
) -> None:
    handler, logger = written
    for number in range(3 * MOST_KINDS):
        logger.warning(f"preformatted {number}")  # noqa: G004
    assert len(handler.lines) == MOST_KINDS + SAID_AT_ONCE
