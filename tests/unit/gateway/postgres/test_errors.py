"""A server that does not start names its cause and the way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.postgres.errors import EmbeddedPostgresError, PassingTrouble, explain, last_words, tail

DATA_DIR = Path("/srv/howdah")
LOG = DATA_DIR / "postgres.log"

WAYS_OUT = [
    pytest.param("FATAL: could not write: No space left on device", "free space", id="disk full"),
    pytest.param("FATAL: could not open: Read-only file system", "remount", id="read-only"),
    pytest.param("could not map anonymous shared memory", "too little memory", id="memory"),
    pytest.param('unrecognized configuration parameter "a"', "postgres.settings", id="setting"),
    pytest.param("data directory has wrong ownership", "chown -R", id="ownership"),
    pytest.param("could not locate a valid checkpoint record", "restore a backup", id="damaged"),
    pytest.param("could not look up effective user ID 7", "/etc/passwd", id="nameless user"),
    pytest.param("something new", f"see {LOG}", id="anything else"),
]


@pytest.mark.parametrize(("words", "way_out"), WAYS_OUT)
def test_the_last_words_lead_to_a_way_out(words: str, way_out: str) -> None:
    error = explain("PostgreSQL did not start", words, DATA_DIR, LOG)
    assert type(error) is EmbeddedPostgresError
    assert way_out in str(error)
    assert f"  | {words}" in str(error)


@pytest.mark.parametrize(
    "words",
    [
        'could not bind IPv4 address "127.0.0.1": Address already in use',
        "pre-existing shared memory block (key 1, ID 2) is still in use",
    ],
)
def test_what_passes_by_itself_is_told_apart(words: str) -> None:
    assert isinstance(explain("no start", words, DATA_DIR, LOG), PassingTrouble)


def test_only_this_starts_lines_are_quoted(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("an old failure\n")
    start = log.stat().st_size
    assert last_words(log, start) == "(the server said nothing)"
    with log.open("a") as stream:
        stream.write("".join(f"line {number}\n" for number in range(50)))
    assert last_words(log, start).splitlines()[-1] == "line 49"
    assert "an old failure" not in last_words(log, start)
    assert len(tail(log.read_text()).splitlines()) == 12
