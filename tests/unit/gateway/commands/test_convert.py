"""`howdah convert`: what a message becomes, and what is wrong with a file."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.main import main
from gateway.message_files.protocols import PROTOCOLS
from tools import interop

MESSAGE = {
    "topic": "a/b",
    "payload": "hello",
    "properties": {"content-type": "text/plain", "user-properties": [["n", "1"], ["n", "2"]]},
}


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """The command line sets up logging for its process, which is ours here."""
    loggers = [logging.getLogger(name) for name in (None, "alembic", "asyncpg.pool", "gmqtt")]
    before = [(logger.level, logger.handlers[:], logger.disabled) for logger in loggers]
    yield
    for logger, (level, handlers, is_disabled) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers[:] = handlers
        logger.disabled = is_disabled
    logging.captureWarnings(False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "message.json"
    path.write_text(json.dumps(MESSAGE))
    return path


def run(*words: str) -> int:
    return main(["convert", *words])


def test_the_example_of_the_page_says_what_the_page_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = interop.PAGE.read_text()
    example = re.search(r"```json\n(.*?)```\n\nit says:\n\n```\n(.*?)```", page, re.DOTALL)
    assert example is not None
    command = re.search(r"`(howdah convert .*?)` shows", page)
    assert command is not None
    monkeypatch.chdir(tmp_path)
    Path("message.json").write_text(example[1])
    assert main(command[1].split()[1:]) == 0
    assert capsys.readouterr().out == example[2]


@pytest.mark.parametrize("source", PROTOCOLS)
@pytest.mark.parametrize("target", PROTOCOLS)
def test_every_pair_of_protocols_can_be_asked_for(
    source: str, target: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    body = "payload" if source.startswith("mqtt") else "body"
    text = io.TextIOWrapper(io.BytesIO(json.dumps({body: "hello"}).encode()))
    monkeypatch.setattr("sys.stdin", text)
    assert run("--from", source, "--to", target, "--json", "-") == 0
    said = json.loads(capsys.readouterr().out)
    got = said["message"]["payload" if target.startswith("mqtt") else "body"]
    assert got in ("hello", {"data": "hello"})
    assert [each["from"] for each in said["properties"]] == [body]


def traced(file: Path, target: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run("--from", "mqtt5", "--to", target, "--json", str(file)) == 0
    said = json.loads(capsys.readouterr().out)
    return {each["from"]: each for each in said["properties"]}


def test_what_travels_under_another_name_is_named(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = traced(file, "amqp091", capsys)
    assert found["topic"]["to"] == [{"place": "routing-key", "value": "a.b"}]
    assert found["topic"]["becomes"] == "another name"
    assert found["properties.content-type"]["becomes"] == "the same name"


def test_what_does_not_travel_is_said_so(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = traced(file, "mqtt311", capsys)
    assert found["properties.content-type"] == {
        "from": "properties.content-type",
        "to": [],
        "becomes": "does not travel",
    }


def test_people_get_a_table_and_the_message(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--from", "mqtt5", "--to", "amqp10", str(file)) == 0
    table, _, message = capsys.readouterr().out.partition("\n\n")
    assert table.splitlines()[0].split() == ["FROM", "TO", "VALUE", "BECOMES"]
    assert message.startswith("What a consumer of AMQP 1.0 gets:\n{")


@pytest.mark.parametrize(
    ("source", "text", "complaint"),
    [
        ("mqtt5", "{", "not JSON"),
        ("mqtt5", "[]", "a message is a JSON object"),
        ("mqtt5", '{"topc": "a"}', "topc: there is no such key here; did you mean 'topic'?"),
        ("mqtt311", '{"properties": {}}', "properties: there is no such key here"),
        ("mqtt5", '{"topic": "a/#"}', "has a wildcard in it"),
        ("mqtt5", '{"topic": 5}', "topic: expected text, got 5"),
        ("mqtt5", '{"qos": 3}', "qos: expected a number from 0 to 2"),
        ("mqtt5", '{"properties": {"user-properties": [1]}}', "expected an object of texts"),
        ("mqtt5", '{"properties": {"response-topic": "#"}}', "response topic with a wildcard"),
        ("mqtt5", '{"properties": {"user-properties": 0}}', "expected an object of texts"),
        ("mqtt5", '{"topic": "\\ud800"}', 'topic: "\\ud800" is half a character'),
        ("amqp091", '{"properties": {"headers": {"\\ud800": 1}}}', "is half a character"),
        ("mqtt5", '{"payload": {"$binary": "?"}}', 'payload: "?" is no $binary'),
        ("mqtt5", '{"payload": {"$bytes": "?"}}', "$bytes is no type; there are $binary"),
        ("amqp091", '{"properties": {"priority": 256}}', "properties.priority: expected a number"),
        ("amqp091", '{"properties": {"expiration": "soon"}}', "invalid expiration 'soon'"),
        ("amqp091", '{"properties": {"headers": 1}}', "properties.headers: expected an object"),
        ("amqp091", '{"properties": {"timestamp": "now"}}', "properties.timestamp: expected"),
        (
            "amqp091",
            '{"properties": {"timestamp": 9223372036854775808}}',
            "properties.timestamp: expected",
        ),
        ("amqp10", '{"properties": {"message-id": -1}}', "properties.message-id: a number there"),
        (
            "amqp10",
            '{"properties": {"message-id": 18446744073709551616}}',
            "properties.message-id: 18446744073709551616 has more than 64 bits",
        ),
        ("sql", '{"headers": {"a": [18446744073709551616]}}', "headers.a[0]: 18446744073709551616"),
        ("sql", '{"expires_in": -1}', "expires_in: expected a number of seconds from 0 on"),
        ("sql", '{"expires_in": NaN}', "expires_in: expected a number of seconds from 0 on"),
        ("amqp10", '{"body": {"text": "a"}}', "body.text: there is no such key here"),
        ("amqp10", '{"address": "/exchanges/a/b/c"}', "write a slash in a name as %2F"),
        ("amqp10", '{"properties": {"creation-time": 5}}', "properties.creation-time: expected"),
        ("amqp10", '{"properties": {"message-id": true}}', "properties.message-id: expected"),
        ("sql", '{"headers": []}', "headers: expected an object"),
        ("sql", '{"expires_in": "1h"}', "expires_in: expected a number of seconds"),
        ("sql", '{"created_at": "now"}', "created_at: expected"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place_and_what_was_expected(
    source: str, text: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.json"
    file.write_text(text)
    assert run("--from", source, "--to", "amqp10", str(file)) == 1
    said = capsys.readouterr()
    assert said.err.startswith(f"howdah: {file}: ")
    assert complaint in said.err
    assert said.out == ""


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--from", "sql", "--to", "mqtt5", "/no/such/file") == 1
    assert "/no/such/file: No such file" in capsys.readouterr().err
