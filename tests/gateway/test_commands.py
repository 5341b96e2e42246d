"""The commands for operators, as processes beside a real gateway."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from queue_core.store.operator.migration import expected_version
from tests.support.gateway_process import GatewayProcess, howdah, on_stock_gateway_too
from tests.support.operator import answer, ready, refusal
from tests.support.postgres import execute, fetch_value
from tests.support.until import wait_until


@pytest.fixture
def queue(shared_gateway: GatewayProcess, request: pytest.FixtureRequest) -> str:
    """A queue named after the test."""
    name = request.node.name
    answer(shared_gateway.run("queue", "declare", name))
    return str(name)


# --- virtual hosts


def test_a_virtual_host_is_made_used_and_removed(shared_gateway: GatewayProcess) -> None:
    """While the gateway runs, which notices."""
    assert "made" in answer(shared_gateway.run("vhost", "add", "tenant"))
    assert "already" in refusal(shared_gateway.run("vhost", "add", "tenant"))
    found = json.loads(answer(shared_gateway.run("vhost", "list", "--json")))
    queues = {each["name"]: each["queues"] for each in found}
    assert "/" in queues
    assert queues["tenant"] == 0

    def is_declared() -> bool:
        return shared_gateway.run("queue", "declare", "q", "--vhost", "tenant").returncode == 0

    wait_until(is_declared)
    words = refusal(shared_gateway.run("vhost", "remove", "tenant"))
    assert "has 1 durable queues: delete them first" in words
    answer(shared_gateway.run("queue", "delete", "q", "--vhost", "tenant"))
    assert answer(shared_gateway.run("queue", "list", "--vhost", "tenant")).count("\n") == 1
    made = r"^tenant +0  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+\d{4} "
    assert re.search(made, answer(shared_gateway.run("vhost", "list")), re.MULTILINE)
    assert "removed" in answer(shared_gateway.run("vhost", "remove", "tenant"))
    assert "no virtual host 'tenant'" in refusal(shared_gateway.run("vhost", "remove", "tenant"))
    assert "tenant" not in answer(shared_gateway.run("vhost", "list"))
    assert "stays" in refusal(shared_gateway.run("vhost", "remove", "/"))


# --- queues


@on_stock_gateway_too
def test_a_queue_is_declared_listed_and_shown(shared_gateway: GatewayProcess) -> None:
    arguments = ("-a", "x-queue-type=stream", "-a", "x-max-length-bytes=1000000")
    said = answer(shared_gateway.run("queue", "declare", "shown", *arguments))
    assert "queue 'shown' declared (created: yes)" in said
    table = answer(shared_gateway.run("queue", "list"))
    assert table.split()[:2] == ["VHOST", "QUEUE"]
    assert "shown" in table
    words = refusal(shared_gateway.run("queue", "list", "--vhost", "nope"))
    assert "there is no virtual host 'nope'" in words
    shown = answer(shared_gateway.run("queue", "show", "shown"))
    assert '"x-max-length-bytes": 1000000' in shown
    assert "kind:         stream" in shown


def test_messages_are_peeked_at_without_effect(shared_gateway: GatewayProcess, queue: str) -> None:
    for body in ("first", '{"second": 2}'):
        done = shared_gateway.run("publish", "--queue", queue, body, "--header", "region=eu")
        assert done.stderr.startswith("published as ")
    wait_until(lambda: ready(shared_gateway, queue) == 2)
    for _ in range(2):
        found = json.loads(answer(shared_gateway.run("queue", "peek", queue, "--json")))
        assert [message["body"] for message in found] == ["first", '{"second": 2}']
        assert found[0]["headers"] == {"region": "eu"}
    people = answer(shared_gateway.run("queue", "peek", queue, "--offset", "1", "-n", "1"))
    assert people.startswith("offset 1")
    assert '{"second": 2}' in people
    assert "first" not in people


def test_a_binary_body_is_shown_as_such(shared_gateway: GatewayProcess, queue: str) -> None:
    statement = f"SELECT howdah.publish('{queue}', '\\xff00'::bytea)"
    execute(shared_gateway.database_url, statement)
    wait_until(lambda: ready(shared_gateway, queue) == 1)
    assert "\\xff00" in answer(shared_gateway.run("queue", "peek", queue))
    (found,) = json.loads(answer(shared_gateway.run("queue", "peek", queue, "--json")))
    assert (found["body"], found["body_encoding"]) == ("/wA=", "base64")


def test_a_queue_is_purged_and_deleted(shared_gateway: GatewayProcess, queue: str) -> None:
    answer(shared_gateway.run("publish", "--queue", queue, "x"))
    wait_until(lambda: ready(shared_gateway, queue) == 1)
    words = refusal(shared_gateway.run("queue", "delete", queue, "--if-empty"))
    assert "purge it first" in words
    assert "purged (messages: 1)" in answer(shared_gateway.run("queue", "purge", queue))
    assert ready(shared_gateway, queue) == 0
    assert "deleted" in answer(shared_gateway.run("queue", "delete", queue, "--if-empty"))
    assert f"no durable queue '{queue}'" in refusal(shared_gateway.run("queue", "show", queue))


def test_a_queue_takes_a_topic_filter_until_it_is_unbound(
    shared_gateway: GatewayProcess, queue: str
) -> None:
    run = shared_gateway.run
    said = answer(run("queue", "bind", queue, "--topic", "bound/+/x"))
    assert f"queue '{queue}' bound (exchange: amq.topic, routing_key: bound.*.x)" in said
    answer(run("queue", "bind", queue, "--key", "direct", "--exchange", "amq.direct"))
    assert "amq.topic with key 'bound.*.x'" in answer(run("queue", "show", queue))
    port = ("--port", str(shared_gateway.ports["mqtt"]))
    for address, words in (
        ("bound/7/x", "published 1 message\n"),
        ("bound/7/y", "published 1 message (1 for nobody: no client has subscribed"),
    ):
        done = run("publish", "--via", "mqtt", "--qos", "1", *port, address, "taken")
        assert done.stderr.startswith(words), done.stderr
    assert ready(shared_gateway, queue) == 1
    assert "unbound" in answer(run("queue", "unbind", queue, "--topic", "bound/+/x"))
    assert "bound.*.x" not in answer(run("queue", "show", queue))
    words = refusal(run("queue", "unbind", queue, "--topic", "bound/+/x"))
    assert f"queue '{queue}' is not bound to exchange 'amq.topic' with key 'bound.*.x'" in words
    words = refusal(run("queue", "bind", queue, "--topic", "a/#/b"))
    assert "# must be the last level" in words
    words = refusal(run("queue", "bind", queue, "--topic", "a", "--exchange", "amq.direct"))
    assert "give --key with --exchange amq.direct" in words


def test_a_group_of_a_stream_reads_again_from_where_it_is_sent(
    shared_gateway: GatewayProcess,
) -> None:
    run = shared_gateway.run
    answer(run("queue", "declare", "replayed", "-a", "x-queue-type=stream"))
    answer(run("publish", "--queue", "replayed", "--lines", words="one\ntwo\nthree\n"))
    wait_until(lambda: ready(shared_gateway, "replayed") == 3)
    port = ("--port", str(shared_gateway.ports["mqtt"]))
    read = ("subscribe", "--queue", "replayed", "--group", "billing", *port)
    assert "one" in answer(run(*read, "--offset", "first", "-n", "3"))
    said = answer(run("queue", "reset", "replayed", "--group", "billing", "--to", "1"))
    assert "queue 'replayed' reset (group: billing, offset: 1)" in said
    assert "two" in answer(run(*read, "-n", "1"))
    for group, place, why in (
        ("nobody", "first", "has no consumer group 'nobody'"),
        ("billing", "soon", "'soon' is no place in a stream"),
    ):
        words = refusal(run("queue", "reset", "replayed", "--group", group, "--to", place))
        assert why in words
    answer(run("queue", "declare", "settled"))
    words = refusal(run("queue", "reset", "settled", "--group", "billing", "--to", "first"))
    assert "queue 'settled' in virtual host '/' is no stream: it has no consumer groups" in words
    assert "declare a stream" in words
    for queue in ("replayed", "settled"):
        answer(run("queue", "delete", queue))


@on_stock_gateway_too
def test_dead_letters_are_driven_back(shared_gateway: GatewayProcess) -> None:
    run = shared_gateway.run
    answer(run("queue", "declare", "graves"))
    to_graves = ("-a", "x-dead-letter-exchange=", "-a", "x-dead-letter-routing-key=graves")
    answer(run("queue", "declare", "mortal", "-a", "x-message-ttl=1", *to_graves))
    answer(run("publish", "--queue", "mortal", "a", "--header", "region=eu"))
    answer(run("publish", "--queue", "mortal", "b", "--header", "region=us"))
    wait_until(lambda: ready(shared_gateway, "graves") == 2)
    # To the time to live they fall again: what counts is that one of them was moved.
    said = answer(run("queue", "redrive", "graves", "--where", "headers->>'region' = 'eu'"))
    assert "moved: 1" in said
    words = refusal(run("queue", "redrive", "graves", "--where", "no such column = 1"))
    assert words.startswith("howdah: --where no such column = 1: ")
    assert "syntax" in words or "column" in words
    words = refusal(run("queue", "redrive", "graves", "--where", " "))
    assert "the predicate is empty" in words
    words = refusal(run("queue", "redrive", "missing", "--where", "priority = 1"))
    assert "--where" not in words


@pytest.mark.parametrize("command", ["show", "peek", "purge", "redrive", "delete"])
def test_an_unknown_queue_is_named(shared_gateway: GatewayProcess, command: str) -> None:
    words = refusal(shared_gateway.run("queue", command, "missing"))
    assert words.startswith("howdah: there is no durable queue 'missing' in virtual host '/'")


def test_an_argument_that_nobody_knows_is_kept_and_a_wrong_value_is_refused(
    shared_gateway: GatewayProcess,
) -> None:
    assert shared_gateway.run("queue", "declare", "odd", "-a", "x-wish=1").returncode == 0
    assert "x-wish" in shared_gateway.run("queue", "show", "odd").stdout
    words = refusal(shared_gateway.run("queue", "declare", "even", "-a", "x-max-length=-1"))
    assert "x-max-length" in words
    words = refusal(shared_gateway.run("queue", "declare", "even", "-a", "x-max-length"))
    assert "expected NAME=VALUE" in words


def test_a_name_that_only_the_gateway_hands_out_is_refused(shared_gateway: GatewayProcess) -> None:
    words = refusal(shared_gateway.run("queue", "declare", "amq.mine"))
    assert "queue name 'amq.mine' contains reserved prefix 'amq.*'" in words
    port = ("--port", str(shared_gateway.ports["mqtt"]))
    topic = "$queue/amq.mine"
    refusal(shared_gateway.run("publish", "--via", "mqtt", "--qos", "1", *port, topic, "x"))
    assert "amq.mine" not in answer(shared_gateway.run("queue", "list"))


# --- without a gateway


@pytest.fixture
def stopped(gateway: GatewayProcess) -> GatewayProcess:
    """A gateway that has run, with a queue in it, and runs no more."""
    answer(gateway.run("queue", "declare", "orders"))
    assert gateway.terminate() == 0
    return gateway


def test_commands_work_on_the_data_of_a_gateway_that_is_stopped(stopped: GatewayProcess) -> None:
    assert "orders" in answer(stopped.run("queue", "list"))
    done = stopped.run("publish", "--queue", "orders", "later")
    assert done.returncode == 0
    assert "no gateway is running: it is routed when one starts" in done.stderr
    words = refusal(stopped.run("queue", "purge", "orders"))
    assert "no gateway is running on this database: command" in words
    assert not (stopped.data_dir / "postgres" / "postmaster.pid").exists()
    assert "asked for as command" in answer(stopped.run("queue", "purge", "orders", "--no-wait"))
    stopped.restart()
    query = "SELECT count(*) FROM howdah.command WHERE done_at IS NULL"
    wait_until(lambda: fetch_value(stopped.database_url, query) == 0)


def test_without_any_data_a_command_says_what_to_do(tmp_path: Path) -> None:
    environ = {"HOWDAH_DATA_DIR": str(tmp_path / "nothing")}
    words = refusal(howdah("queue", "list", environ=environ))
    assert f"there is no database in data_dir {tmp_path / 'nothing'}" in words
    assert not (tmp_path / "nothing").exists()


def test_a_database_out_of_reach_is_named_by_every_command() -> None:
    environ = {"HOWDAH_DATABASE__URL": "postgresql://user:secret@127.0.0.1:1/db"}
    for arguments in (["queue", "list"], ["migrate"], ["user", "list"], ["publish", "a", "b"]):
        words = refusal(howdah(*arguments, environ=environ))
        assert "127.0.0.1:1/db" in words, arguments
        assert "secret" not in words


SCHEMA_COMMANDS = (
    ["queue", "list"],
    ["queue", "declare", "q"],
    ["publish", "a", "b"],
    ["user", "list"],
    ["vhost", "list"],
)


def test_without_a_schema_every_command_names_the_one_that_makes_it(database_url: str) -> None:
    for arguments in SCHEMA_COMMANDS:
        words = refusal(howdah(*arguments, environ={"HOWDAH_DATABASE__URL": database_url}))
        assert "run `howdah migrate`" in words, arguments


def test_without_grants_every_command_names_the_role_to_ask_for(database_url: str) -> None:
    answer(howdah("migrate", environ={"HOWDAH_DATABASE__URL": database_url}))
    execute(database_url, "CREATE ROLE stranger LOGIN PASSWORD 'strange'")
    try:
        parts = urlsplit(database_url)
        place = parts.netloc.rpartition("@")[2]
        url = parts._replace(netloc=f"stranger:strange@{place}").geturl()
        for arguments in SCHEMA_COMMANDS:
            words = refusal(howdah(*arguments, environ={"HOWDAH_DATABASE__URL": url}))
            assert "permission denied for schema howdah" in words, arguments
            assert "GRANT howdah_" in words, arguments
    finally:
        execute(database_url, "DROP ROLE stranger")


def test_a_condition_that_postgresql_does_not_understand_is_no_missing_schema(
    shared_gateway: GatewayProcess, queue: str
) -> None:
    words = refusal(shared_gateway.run("queue", "redrive", queue, "--where", "nothing(1)"))
    assert "function nothing(integer) does not exist" in words
    assert "migrate" not in words


# --- publishing


def test_the_body_comes_from_the_argument_or_from_standard_input(
    shared_gateway: GatewayProcess, queue: str
) -> None:
    shared_gateway.run("publish", "--queue", queue, words="from stdin")
    shared_gateway.run("publish", f"$queue/{queue}", "-", words="from dash")
    shared_gateway.run("publish", "--exchange", "", queue, "by exchange")
    done = shared_gateway.run("publish", "--queue", queue, "--lines", words="one\ntwo\n")
    assert done.stderr == "published 2 messages\n"
    wait_until(lambda: ready(shared_gateway, queue) == 5)
    found = json.loads(answer(shared_gateway.run("queue", "peek", queue, "--json")))
    bodies = [message["body"] for message in found]
    assert bodies == ["from stdin", "from dash", "by exchange", "one", "two"]


def test_a_topic_that_is_named_as_a_queue_is_told_from_it(
    shared_gateway: GatewayProcess, queue: str
) -> None:
    words = shared_gateway.run("publish", queue, "x").stderr
    assert f"to the topic '{queue}', not into the queue of that name: that is --queue" in words
    assert "published as" in words
    assert "queue" not in shared_gateway.run("publish", f"{queue}/level", "x").stderr


async def test_a_command_that_publishes_does_not_wait_for_a_lock_on_the_log(
    shared_gateway: GatewayProcess, queue: str
) -> None:
    connection = await asyncpg.connect(shared_gateway.database_url)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE howdah.message IN ACCESS EXCLUSIVE MODE")
            done = await asyncio.to_thread(shared_gateway.run, "publish", "--queue", queue, "x")
            assert done.stderr.startswith("published as ")
    finally:
        await connection.close()
    await asyncio.to_thread(wait_until, lambda: ready(shared_gateway, queue) == 1)


@on_stock_gateway_too
def test_a_delayed_message_waits_and_an_expiring_one_goes(
    shared_gateway: GatewayProcess, queue: str
) -> None:
    answer(shared_gateway.run("publish", "--queue", queue, "later", "--delay", "1h"))
    query = f"SELECT state FROM howdah.ready_messages WHERE queue = '{queue}'"
    wait_until(lambda: fetch_value(shared_gateway.database_url, query) == "delayed")
    status = json.loads(answer(shared_gateway.run("queue", "show", queue, "--json")))["status"]
    assert (status["ready"], status["delayed"], status["in_flight"]) == (0, 1, 0)
    listed = answer(shared_gateway.run("queue", "list"))
    assert re.search(rf"^/ +{re.escape(queue)} +classic +0 +1 +0 ", listed, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--exchange", "nowhere", "key", "x"], "there is no durable exchange 'nowhere'"),
        (["a/+", "x"], "has a wildcard in it"),
        (["--queue", "q", "a", "b"], "takes a body and no address"),
        (["--queue", "q", "--exchange", "x", "b"], "not both"),
        (["t", "x", "--delay", "soon"], "--delay soon: not a duration"),
        (["t", "x", "--header", "flag"], "expected NAME=VALUE"),
        (["--queue", "q", "x", "--retain"], "--retain goes with a topic"),
        (["t", "x", "--via", "mqtt", "--priority", "3"], "--priority: not over MQTT"),
        (["t", "x", "--qos", "0", "--port", "1883"], "--qos, --port: only with --via mqtt"),
        (["t", "x", "--lines"], "--lines reads standard input"),
        (["t", "x", "--expires-in", f"{'9' * 400}d"], "longer than 36500d"),
        (["--queue", "missing", "x"], "make it with `howdah queue declare missing`"),
        (["$queue/missing", "x"], "there is no durable queue 'missing' in virtual host '/'"),
        (["--queue", "q", "x", "--vhost", "nope"], "there is no virtual host 'nope'"),
        ([], "where to?"),
    ],
)
def test_what_cannot_be_published_is_refused_with_the_way_out(
    shared_gateway: GatewayProcess, arguments: list[str], expected: str
) -> None:
    assert expected in refusal(shared_gateway.run("publish", *arguments))


def test_a_message_over_the_limit_is_refused_with_the_limit(
    shared_gateway: GatewayProcess, queue: str
) -> None:
    large = "x" * (16 * 1024**2 + 1)
    words = refusal(shared_gateway.run("publish", "--queue", queue, words=large))
    assert "the gateway takes 16777216 at most" in words
    assert "raise broker.max_message_size" in words
    over_mqtt = ("--via", "mqtt", "--port", str(shared_gateway.ports["mqtt"]))
    words = refusal(shared_gateway.run("publish", *over_mqtt, "a/b", words=large))
    assert "16MiB is the most (0x95)" in words
    assert ready(shared_gateway, queue) == 0


def test_a_client_that_is_shown_out_says_why(shared_gateway: GatewayProcess) -> None:
    over_mqtt = ("--via", "mqtt", "--port", str(shared_gateway.ports["mqtt"]))
    words = refusal(shared_gateway.run("publish", *over_mqtt, "a/+/b", "x"))
    assert words.endswith("'a/+/b': a topic name with a wildcard in it (0x90)\n")


def test_what_the_server_refuses_is_told_without_a_trace(database_url: str) -> None:
    """A standby refuses all writes, for example."""
    answer(howdah("migrate", environ={"HOWDAH_DATABASE__URL": database_url}))
    name = urlsplit(database_url).path.lstrip("/")
    execute(database_url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    words = refusal(howdah("publish", "a", "b", environ={"HOWDAH_DATABASE__URL": database_url}))
    assert "read-only transaction; this server takes no writes" in words
    execute(
        database_url,
        "SET default_transaction_read_only = off",
        f"ALTER DATABASE {name} RESET default_transaction_read_only",
    )


# --- users


def test_users_are_made_granted_listed_and_removed(shared_gateway: GatewayProcess) -> None:
    run = shared_gateway.run
    assert "made" in answer(run("user", "add", "ada", "--tag", "monitoring", words="secret word\n"))
    assert "changed" in answer(run("user", "add", "ada", words="another word\n"))
    answer(run("user", "grant", "ada", "--configure", "^ada-", "--write", ".*", "--read", ""))
    rule = ("--topic-exchange", "amq.topic", "--write", "^plant\\.")
    answer(run("user", "grant", "ada", *rule))
    table = answer(run("user", "list"))
    row, topics = [line.split() for line in table.splitlines() if line.startswith("ada")]
    assert topics == ["ada", "/", "amq.topic", "^plant\\.", ".*"]
    assert row[:6] == ["ada", "password,scram", "monitoring", "/", "^ada-", ".*"]
    users = {user["name"]: user for user in json.loads(answer(run("user", "list", "--json")))}
    assert users["ada"]["has_password"] is True
    assert users["ada"]["has_scram"] is True
    assert users["ada"]["permissions"]["/"]["configure"] == "^ada-"
    assert "secret" not in json.dumps(users)
    answer(run("user", "revoke", "ada"))
    assert "no permissions" in refusal(run("user", "revoke", "ada"))
    assert "removed" in answer(run("user", "remove", "ada"))
    assert "there is no user 'ada'" in refusal(run("user", "remove", "ada"))


@pytest.mark.parametrize(
    ("arguments", "words", "expected"),
    [
        (["add", "eve"], "\n", "the password is empty"),
        (["grant", "nobody"], "", "there is no user 'nobody'"),
        (["grant", "guest", "--write", "("], "", "is not a regular expression"),
        (["grant", "guest", "--topic-exchange", "x", "--configure", ""], "", "leave it out"),
    ],
)
def test_what_a_user_cannot_be_is_refused(
    shared_gateway: GatewayProcess, arguments: list[str], words: str, expected: str
) -> None:
    assert expected in refusal(shared_gateway.run("user", *arguments, words=words))


def test_a_schema_that_may_not_be_migrated_is_not_made_for_a_user(database_url: str) -> None:
    environ = {"HOWDAH_DATABASE__URL": database_url, "HOWDAH_DATABASE__MIGRATE": "false"}
    words = refusal(howdah("user", "add", "ada", words="secret word\n", environ=environ))
    assert "run `howdah migrate`" in words
    assert fetch_value(database_url, "SELECT to_regnamespace('howdah') IS NULL") is True


# --- migrations


def test_migrations_go_up_and_down_and_print_themselves(database_url: str) -> None:
    environ = {"HOWDAH_DATABASE__URL": database_url}
    sql = answer(howdah("migrate", "--sql", environ=environ))
    assert "CREATE TABLE howdah.message" in sql
    query = "SELECT to_regnamespace('howdah') IS NULL"
    assert fetch_value(database_url, query) is True
    head = expected_version()
    assert answer(howdah("migrate", environ=environ)) == f"schema: none -> {head}\n"
    assert answer(howdah("migrate", environ=environ)) == f"the schema is at {head} already\n"
    execute(database_url, "CREATE VIEW mine AS SELECT name FROM howdah.queue")
    words = refusal(howdah("migrate", "--to", "base", environ=environ))
    assert "view mine depends on" in words
    assert "nothing was changed" in words
    assert "CASCADE" not in words
    execute(database_url, "DROP VIEW mine")
    down = answer(howdah("migrate", "--sql", "--to", "base", environ=environ))
    assert "DROP TABLE" in down
    assert answer(howdah("migrate", "--to", "base", environ=environ)) == f"schema: {head} -> none\n"
    assert fetch_value(database_url, query) is True


def test_an_unknown_revision_is_refused(database_url: str) -> None:
    environ = {"HOWDAH_DATABASE__URL": database_url}
    words = refusal(howdah("migrate", "--to", "7777", environ=environ))
    assert "--to 7777: no such revision; known: base, 0001" in words


def test_a_schema_that_no_migration_starts_from_is_refused_with_the_way_out(
    database_url: str,
) -> None:
    environ = {"HOWDAH_DATABASE__URL": database_url}
    answer(howdah("migrate", environ=environ))
    for version, way_out in (("0009", "an empty database"), ("9999", "install the release")):
        execute(database_url, f"UPDATE howdah.alembic_version SET version_num = '{version}'")
        assert way_out in refusal(howdah("migrate", environ=environ))
        assert f"at {version}" in refusal(howdah("migrate", "--sql", environ=environ))


# --- the command line itself


@pytest.mark.parametrize(
    "command",
    ["serve", "migrate", "queue list", "queue peek", "publish", "subscribe", "user add", "doctor"],
)
def test_help_is_documentation(command: str) -> None:
    done = howdah(*command.split(), "--help")
    assert done.returncode == 0
    assert f"usage: howdah {command}" in done.stdout
    assert "--config FILE" in done.stdout


def test_an_unknown_command_ends_with_two() -> None:
    assert "invalid choice: 'serv'" in refusal(howdah("serv"), 2)


def test_the_version_is_told() -> None:
    assert answer(howdah("version")) == answer(howdah("--version"))


def test_nobody_goes_back_to_an_older_schema_below_a_running_gateway(
    shared_gateway: GatewayProcess,
) -> None:
    words = refusal(shared_gateway.run("migrate", "--to", "base"))
    assert "a gateway runs on this database: stop it before going back" in words
    answer(shared_gateway.run("queue", "list"))
