"""`howdah definitions` and `definitions.import`: a file of RabbitMQ's form, on a running gateway,
on a database without one, and at the start."""

from __future__ import annotations

import json
import os
import stat
from functools import partial
from pathlib import Path
from typing import Any

import pika
import pytest

from queue_core.access.rabbitmq_passwords import SHA256, rabbitmq_hash
from tests.support.gateway_process import SHARED, GatewayProcess, howdah, running
from tests.support.names import fresh
from tests.support.operator import answer, refusal
from tests.support.postgres import fetch_value
from tests.support.until import wait_until


def file_of(prefix: str) -> dict[str, Any]:
    """A small world, with something in it that cannot be taken."""
    vhost, user, exchange, queue = (f"{prefix}-{each}" for each in ("v", "u", "x", "q"))
    place = {"vhost": vhost}
    durable = {"durable": True, "auto_delete": False}
    return {
        "rabbitmq_version": "3.13.7",
        "users": [
            {
                "name": user,
                "password_hash": rabbitmq_hash(b"open sesame"),
                "hashing_algorithm": SHA256,
                "tags": ["management"],
                "limits": {},
            }
        ],
        "vhosts": [{"name": vhost}],
        "permissions": [{"user": user, **place, "configure": "", "write": ".*", "read": ".*"}],
        "topic_permissions": [],
        "exchanges": [
            {"name": exchange, **place, "type": "topic", **durable, "arguments": {}},
            {"name": f"{prefix}-jms", **place, "type": "x-jms-topic", **durable, "arguments": {}},
        ],
        "queues": [
            {"name": queue, **place, **durable, "arguments": {"x-max-length": 10}},
            {"name": f"{prefix}-passing", **place, "durable": False, "arguments": {}},
        ],
        "bindings": [
            {
                "source": exchange,
                **place,
                "destination": queue,
                "destination_type": "queue",
                "routing_key": "a.*",
                "arguments": {},
            }
        ],
    }


def only(found: dict[str, Any], prefix: str) -> dict[str, Any]:
    """What of a file has the prefix in its names."""
    names = ("name", "user", "source")
    return {
        key: [each for each in value if any(prefix in str(each.get(name)) for name in names)]
        for key, value in found.items()
        if isinstance(value, list)
    }


def written(folder: Path, found: object) -> str:
    path = folder / "definitions.json"
    path.write_text(json.dumps(found))
    return str(path)


def is_done(gateway: GatewayProcess, command: object) -> bool:
    state = f"SELECT state FROM howdah.command_status({command})"
    return fetch_value(gateway.database_url, state) == "done"


def arrives(gateway: GatewayProcess, prefix: str) -> None:
    """The imported user logs in with its old password, and the topology routes."""
    url = gateway.amqp_url(f"{prefix}-u", "open%20sesame", f"{prefix}-v")
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish(f"{prefix}-x", "a.b", b"hello", mandatory=True)
        _, _, body = channel.basic_get(f"{prefix}-q", auto_ack=True)
        assert body == b"hello"
    finally:
        connection.close()


def test_an_import_into_a_running_gateway_counts_when_it_returns(
    shared_gateway: GatewayProcess, tmp_path: Path
) -> None:
    prefix = fresh("import")
    path = written(tmp_path, file_of(prefix))
    done = shared_gateway.run("definitions", "import", path)
    assert answer(done) == "6 made, 0 changed, 0 were there already\n"
    assert f"exchange '{prefix}-jms' in '{prefix}-v': unsupported" in done.stderr
    assert f"queue '{prefix}-passing' in '{prefix}-v': unsupported" in done.stderr
    arrives(shared_gateway, prefix)
    again = shared_gateway.run("definitions", "import", path, "--json")
    # the login has replaced the hash, and the file's own counts again
    counts = json.loads(answer(again))
    assert (counts["create"], counts["conflict"], counts["unsupported"]) == (0, 0, 2)


def test_strict_changes_nothing_unless_all_can_be_taken(
    shared_gateway: GatewayProcess, tmp_path: Path
) -> None:
    prefix = fresh("strict")
    path = written(tmp_path, file_of(prefix))
    said = refusal(shared_gateway.run("definitions", "import", path, "--strict"))
    assert "nothing is imported" in said
    assert f"{prefix}-jms" in said
    statement = f"SELECT count(*) FROM howdah.vhost WHERE name LIKE '{prefix}%'"
    assert fetch_value(shared_gateway.database_url, statement) == 0


def test_a_dry_run_shows_each_item_with_its_action_and_sql_and_changes_nothing(
    shared_gateway: GatewayProcess, tmp_path: Path
) -> None:
    prefix = fresh("dry")
    found = file_of(prefix)
    path = written(tmp_path, found)
    done = shared_gateway.run("definitions", "import", path, "--dry-run")
    lines = answer(done).splitlines()
    queue = next(line for line in lines if f"queue '{prefix}-q'" in line)
    assert "create" in queue
    assert f"SELECT howdah.declare_queue('{prefix}-q', '{{\"x-max-length\":10}}'" in queue
    assert found["users"][0]["password_hash"] not in done.stdout
    diff = shared_gateway.run("definitions", "diff", path)
    assert diff.returncode == 1
    assert f"+ queue '{prefix}-q' in '{prefix}-v'" in diff.stdout
    assert f"! exchange '{prefix}-jms' in '{prefix}-v'" in diff.stdout


def test_sql_of_a_dry_run_does_what_the_import_does(
    shared_gateway: GatewayProcess, tmp_path: Path
) -> None:
    prefix = fresh("sql")
    found = {**file_of(prefix), "users": [], "permissions": []}  # whose hashes SQL never shows
    found["bindings"].append(
        {
            "source": f"{prefix}-x",
            "vhost": f"{prefix}-v",
            "destination": "amq.fanout",
            "destination_type": "exchange",
            "routing_key": "it's \\",
            "arguments": {"a": [1, "b"]},
        }
    )
    path = written(tmp_path, found)
    planned = shared_gateway.run("definitions", "import", path, "--dry-run", "--json")
    for step in json.loads(answer(planned))["steps"]:
        if step["sql"].startswith("SELECT"):
            number = fetch_value(shared_gateway.database_url, step["sql"])
            wait_until(partial(is_done, shared_gateway, number), step["sql"])
        elif step["sql"]:
            fetch_value(shared_gateway.database_url, step["sql"])
    again = shared_gateway.run("definitions", "import", path, "--dry-run", "--json")
    left = {step["action"] for step in json.loads(answer(again))["steps"]}
    assert left == {"same", "unsupported"}


def test_an_export_imported_into_an_empty_gateway_is_the_same_again(
    tmp_path: Path,
) -> None:
    prefix = fresh("round")
    path = tmp_path / "exported.json"
    with running(tmp_path / "one", SHARED) as one:
        one.run("definitions", "import", written(tmp_path, file_of(prefix)))
        answer(one.run("definitions", "export", str(path)))
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    exported = json.loads(path.read_text())
    mine = only(exported, prefix)
    assert len(mine["queues"]) == len(mine["exchanges"]) == len(mine["bindings"]) == 1
    assert mine["users"][0]["hashing_algorithm"] == SHA256
    with running(tmp_path / "other", SHARED) as other:
        answer(other.run("definitions", "import", str(path), "--strict"))
        answer(other.run("definitions", "diff", str(path)))
        again = tmp_path / "again.json"
        answer(other.run("definitions", "export", str(again)))
    assert json.loads(again.read_text()) == exported


def test_the_file_of_one_virtual_host_goes_into_another(
    shared_gateway: GatewayProcess, tmp_path: Path
) -> None:
    prefix = fresh("move")
    shared_gateway.run("definitions", "import", written(tmp_path, file_of(prefix)))
    path = tmp_path / "vhost.json"
    answer(shared_gateway.run("definitions", "export", str(path), "--vhost", f"{prefix}-v"))
    answer(shared_gateway.run("vhost", "add", f"{prefix}-w"))
    target = ("--vhost", f"{prefix}-w")
    done = answer(shared_gateway.run("definitions", "import", str(path), "--strict", *target))
    assert done == "3 made, 0 changed, 0 were there already\n"
    answer(shared_gateway.run("definitions", "diff", str(path), *target))
    said = refusal(shared_gateway.run("definitions", "import", str(path), "--vhost", "nowhere"))
    assert "howdah vhost add nowhere" in said


def test_a_queue_that_only_memory_knows_is_named_and_the_rest_is_made(
    shared_gateway: GatewayProcess, tmp_path: Path
) -> None:
    """The tables know nothing of a queue that is not durable: the gateway itself refuses."""
    name = fresh("live")
    connection = pika.BlockingConnection(pika.URLParameters(shared_gateway.amqp_url()))
    try:
        connection.channel().queue_declare(name, durable=False)
        queues = [{"name": each, "vhost": "/", "arguments": {}} for each in (name, f"{name}-2")]
        done = shared_gateway.run("definitions", "import", written(tmp_path, {"queues": queues}))
    finally:
        connection.close()
    assert done.returncode == 1
    assert done.stdout == "1 made, 0 changed, 0 were there already\n"
    assert f"queue '{name}' in '/': failed" in done.stderr


def test_a_queue_in_other_words_is_a_conflict_and_stays(
    shared_gateway: GatewayProcess, tmp_path: Path
) -> None:
    name = fresh("conflict")
    queue = {"name": name, "vhost": "/", "arguments": {"x-max-length": 10}}
    answer(shared_gateway.run("definitions", "import", written(tmp_path, {"queues": [queue]})))
    other = written(tmp_path, {"queues": [{**queue, "arguments": {}}]})
    done = shared_gateway.run("definitions", "import", other)
    assert done.returncode == 0
    assert f"queue '{name}' in '/': conflict: " in done.stderr


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("{", "no JSON", id="half a file"),
        pytest.param("[]", "must be a JSON object", id="a list"),
        pytest.param('{"queues": [{"name": 1}]}', "queues[0]", id="a wrong type"),
    ],
)
def test_a_file_of_another_shape_is_refused_with_the_place(
    shared_gateway: GatewayProcess, text: str, why: str
) -> None:
    done = shared_gateway.run("definitions", "import", "-", words=text)
    assert why in refusal(done)


def test_a_file_that_is_not_there_is_named(shared_gateway: GatewayProcess) -> None:
    said = refusal(shared_gateway.run("definitions", "import", "/nowhere/d.json"))
    assert "/nowhere/d.json cannot be read: No such file or directory" in said


def test_without_a_gateway_the_import_counts_from_the_next_start(tmp_path: Path) -> None:
    prefix = fresh("stopped")
    path = written(tmp_path, file_of(prefix))
    gateway = GatewayProcess(tmp_path / "gateway", SHARED)
    try:
        gateway.start()
        gateway.terminate()
        done = answer(gateway.run("definitions", "import", path))
        assert done == "6 made, 0 changed, 0 were there already\n"
        assert gateway.run("definitions", "diff", path).stdout.count("\n+") == 0
        gateway.start()
        arrives(gateway, prefix)
    finally:
        gateway.kill()


def test_a_file_is_imported_at_the_start_once_and_again_when_it_has_changed(tmp_path: Path) -> None:
    prefix = fresh("start")
    found = file_of(prefix)
    path = written(tmp_path, found)
    settings = {**SHARED, "definitions": {"import": path}}
    with running(tmp_path / "gateway", settings) as gateway:
        arrives(gateway, prefix)
        assert f"not taken: exchange '{prefix}-jms'" in gateway.said()
        url = gateway.database_url
        answer(gateway.run("queue", "delete", f"{prefix}-q", "--vhost", f"{prefix}-v"))
        gateway.restart()
        assert "is unchanged, and not imported again" in gateway.said()
        url = gateway.database_url
        count = "SELECT count(*) FROM howdah.definitions_import WHERE source = 'start'"
        assert fetch_value(url, count) == 1
        written(tmp_path, {**found, "explanation": "another file"})
        gateway.restart()
        assert fetch_value(gateway.database_url, count) == 2
        arrives(gateway, prefix)


@pytest.mark.parametrize(
    ("text", "strict", "why"),
    [
        pytest.param(None, False, "cannot be read: No such file", id="no file"),
        pytest.param("{", False, "no JSON", id="no JSON"),
        pytest.param('{"shards": []}', True, "nothing is imported", id="strict"),
    ],
)
def test_a_gateway_does_not_start_with_a_file_that_it_cannot_take(
    tmp_path: Path, text: str | None, strict: bool, why: str
) -> None:
    path = tmp_path / "definitions.json"
    if text is not None:
        path.write_text(text)
    environ = {
        "HOWDAH_DATA_DIR": str(tmp_path / "data"),
        "HOWDAH_POSTGRES__SETTINGS": '{"shared_buffers": "32MB"}',
        "HOWDAH_DEFINITIONS__IMPORT": str(path),
        "HOWDAH_DEFINITIONS__STRICT": str(strict).lower(),
    }
    done = howdah("serve", environ=environ)
    assert why in refusal(done, 2)
