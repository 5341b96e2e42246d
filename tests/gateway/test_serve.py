"""`howdah serve` as a process: how it starts, stops, and refuses to start."""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.postgres.server import EmbeddedPostgres
from tests import certificates
from tests.support.gateway_process import GatewayProcess, howdah, running
from tests.support.postgres import database_of, execute, fetch_value
from tests.support.until import PATIENCE_SECONDS, wait_until

NOWHERE = "postgresql://user:secret@127.0.0.1:1/db"


def refusal(gateway: GatewayProcess) -> tuple[int, str]:
    """The exit code and the words of a gateway that does not start."""
    gateway.spawn()
    code = gateway.wait()
    assert "Traceback" not in gateway.log()
    assert "ready" not in gateway.said()
    return code, gateway.log()


@pytest.fixture
def taken_port() -> Iterator[int]:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        yield taken.getsockname()[1]


# --- life


def test_it_prints_a_line_for_each_listener_and_then_ready(gateway: GatewayProcess) -> None:
    lines = gateway.said().splitlines()
    assert lines[len(gateway.ports)] == "ready"
    assert "management" in gateway.ports
    assert all(port > 0 for port in gateway.ports.values())


@pytest.mark.parametrize(
    ("header", "answer"),
    [
        pytest.param(b"AMQP\x00\x00\x09\x01", b"\x01\x00\x00", id="0.9.1: connection.start"),
        pytest.param(b"AMQP\x03\x01\x00\x00", b"AMQP\x03\x01\x00\x00", id="1.0 with SASL"),
        pytest.param(b"AMQP\x00\x00\x08\x00", b"AMQP\x00\x00\x09\x01", id="0.8 is not spoken"),
    ],
)
def test_two_protocols_share_the_amqp_port(
    shared_gateway: GatewayProcess, header: bytes, answer: bytes
) -> None:
    address = ("127.0.0.1", shared_gateway.ports["amqp"])
    with socket.create_connection(address, timeout=PATIENCE_SECONDS) as client:
        client.sendall(header)
        received = b""
        while len(received) < len(answer):
            received += client.recv(4096)
        assert received.startswith(answer)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_it_and_it_ends_well(
    gateway: GatewayProcess, number: signal.Signals
) -> None:
    assert gateway.terminate(number) == 0
    assert not (gateway.data_dir / "postgres" / "postmaster.pid").exists()


def test_connections_hear_a_goodbye_and_are_closed(gateway: GatewayProcess) -> None:
    with socket.create_connection(
        ("127.0.0.1", gateway.ports["amqp"]), timeout=PATIENCE_SECONDS
    ) as client:
        client.sendall(b"AMQP\x00\x00\x09\x01")
        assert client.recv(1) == b"\x01"  # connection.start
        assert gateway.terminate() == 0
        while client.recv(4096):
            pass


def test_a_second_signal_ends_it_at_once(gateway: GatewayProcess) -> None:
    # Both are there when it wakes up: it cannot have drained between them.
    os.kill(gateway.pid, signal.SIGSTOP)
    os.kill(gateway.pid, signal.SIGTERM)
    os.kill(gateway.pid, signal.SIGINT)
    os.kill(gateway.pid, signal.SIGCONT)
    assert gateway.wait() == 1
    assert "ending at once" in gateway.log()


def test_it_comes_back_after_kill_nine_on_the_same_data_and_ports(
    gateway: GatewayProcess,
) -> None:
    assert gateway.run("queue", "declare", "orders").returncode == 0
    ports = dict(gateway.ports)
    gateway.kill()
    gateway.restart()
    assert gateway.ports == ports
    assert "orders" in gateway.run("queue", "list").stdout


def test_an_external_database_is_migrated_and_data_dir_holds_its_newest_commit_alone(
    tmp_path: Path, database_url: str
) -> None:
    with running(tmp_path, {"database": {"url": database_url}}) as gateway:
        assert fetch_value(database_url, "SELECT count(*) FROM howdah.vhost") == 1
        assert [path.match("commits-*.mark") for path in gateway.data_dir.iterdir()] == [True]
        assert gateway.terminate() == 0


def test_a_url_may_say_what_libpq_knows(tmp_path: Path, database_url: str) -> None:
    url = database_url.replace("postgresql://", "postgres://") + "?sslmode=disable"
    with running(tmp_path, {"database": {"url": url}}) as gateway:
        assert gateway.run("queue", "declare", "orders").returncode == 0
        assert gateway.run("user", "add", "ada", words="secret word\n").returncode == 0
        assert "orders" in gateway.run("queue", "list").stdout
        assert gateway.terminate() == 0


def test_without_its_database_it_ends_in_time_and_says_what_was_given_up(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "database", settings={"shared_buffers": "32MB"})
    with server, running(tmp_path / "gateway", {"database": {"url": server.url}}) as gateway:
        assert gateway.run("queue", "declare", "orders").returncode == 0
        server.stop()
        arguments = ("--via", "mqtt", "--port", str(gateway.ports["mqtt"]))
        done = gateway.run("publish", "--queue", "orders", "x", *arguments)
        assert done.returncode == 1
        assert "did not confirm the message" in done.stderr
        assert gateway.terminate() == 1
        assert "no client was told that it was stored" in gateway.log()
        assert "Traceback" not in gateway.log()


def test_tls_on_one_port_for_mqtt_and_on_another_for_both_amqps(tmp_path: Path) -> None:
    tls = {"cert": str(certificates.SERVER), "key": str(certificates.SERVER_KEY)}
    names = ("mqtt", "amqp", "management")
    settings = {"listeners": {name: {"port": 0, "tls": tls} for name in names}}
    with running(tmp_path, settings) as gateway:
        assert gateway.said().count("(TLS)") == len(names)
        context = ssl.create_default_context(cafile=certificates.AUTHORITY)
        address = ("127.0.0.1", gateway.ports["amqp"])
        with (
            socket.create_connection(address, timeout=PATIENCE_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as client,
        ):
            client.sendall(b"AMQP\x00\x00\x09\x01")
            assert client.recv(1) == b"\x01"  # connection.start
        arguments = ("--via", "mqtt", "--port", str(gateway.ports["mqtt"]))
        done = gateway.run("publish", "over/tls", "x", *arguments)
        assert done.stderr.startswith("published 1 message (1 for nobody: ")
        with socket.create_connection(address, timeout=PATIENCE_SECONDS) as plain:
            plain.sendall(b"AMQP\x00\x00\x09\x01")
            assert not plain.recv(100).startswith(b"\x01")


def test_a_gateway_is_no_superuser_of_its_own_postgresql(gateway: GatewayProcess) -> None:
    assert gateway.run("queue", "declare", "orders").returncode == 0
    query = """
        SELECT string_agg(DISTINCT format('%s %s', usename, usesuper), ', ')
        FROM pg_stat_activity JOIN pg_user USING (usename)
        WHERE application_name LIKE 'howdah gateway%'
    """
    for _ in range(2):  # the second time on a folder that has the login already
        assert fetch_value(gateway.database_url, query) == "howdah_serving f"
        gateway.restart()
    assert "orders" in gateway.run("queue", "list").stdout
    rights = "SELECT rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls FROM pg_roles"
    assert fetch_value(gateway.database_url, f"{rights} WHERE rolname = 'howdah_serving'") is False


def _shown(gateway: GatewayProcess) -> bytes:
    """The certificate that a client sees."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(
            ("127.0.0.1", gateway.ports["mqtt"]), timeout=PATIENCE_SECONDS
        ) as plain,
        context.wrap_socket(plain) as client,
    ):
        shown = client.getpeercert(binary_form=True)
    assert shown is not None
    return shown


def test_sighup_renews_certificates_and_ends_nothing(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_bytes(certificates.SERVER.read_bytes())
    key.write_bytes(certificates.SERVER_KEY.read_bytes())
    tls = {"cert": str(cert), "key": str(key)}
    with running(tmp_path / "gateway", {"listeners": {"mqtt": {"port": 0, "tls": tls}}}) as gateway:
        before = _shown(gateway)
        cert.write_text("no certificate")
        os.kill(gateway.pid, signal.SIGHUP)
        wait_until(lambda: gateway.log().count("SIGHUP: reloaded") == 1)
        assert "listener mqtt keeps its certificate" in gateway.log()
        assert _shown(gateway) == before
        cert.write_bytes(certificates.CLIENT.read_bytes())
        key.write_bytes(certificates.CLIENT_KEY.read_bytes())
        os.kill(gateway.pid, signal.SIGHUP)
        wait_until(lambda: gateway.log().count("SIGHUP: reloaded") == 2)
        assert _shown(gateway) != before
        assert gateway.terminate() == 0


# --- what keeps it from starting


def test_a_wrong_configuration_ends_with_two_and_names_every_key(tmp_path: Path) -> None:
    code, words = refusal(GatewayProcess(tmp_path, {"brokr": {}, "log": {"level": "loud"}}))
    assert code == 2
    assert "brokr: unknown key" in words
    assert "log.level: " in words
    assert not (tmp_path / "data").exists()


def test_a_configuration_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = howdah("serve", "--config", str(tmp_path / "none.yaml"))
    assert done.returncode == 2
    assert "none.yaml: cannot be read" in done.stderr


def test_a_taken_port_is_named_with_its_key(tmp_path: Path, taken_port: int) -> None:
    settings = {"listeners": {"management": {"port": taken_port}}}
    code, words = refusal(GatewayProcess(tmp_path, settings))
    assert code == 1
    assert (
        f"listeners.management.port: 127.0.0.1:{taken_port} is taken by another program or gateway"
        in words
    )


def test_a_gateway_that_no_client_can_reach_says_so(tmp_path: Path) -> None:
    off = dict.fromkeys(("mqtt", "mqtt_ws", "amqp"))
    with running(tmp_path, {"listeners": off}) as gateway:
        assert gateway.terminate() == 0
        assert "no client can connect" in gateway.said()


def test_an_open_address_needs_a_word_about_who_may_come_in(tmp_path: Path) -> None:
    settings = {"listeners": {"amqp": {"host": "0.0.0.0"}}}
    code, words = refusal(GatewayProcess(tmp_path, settings))
    assert code == 2
    assert "listeners.amqp.host: 0.0.0.0 is reachable from other machines" in words


def test_an_open_address_is_fine_once_there_are_users(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path, {"listeners": {"amqp": {"host": "0.0.0.0"}}})
    refusal(gateway)
    assert gateway.run("user", "add", "ada", words="secret word\n").returncode == 0
    gateway.start()
    assert gateway.terminate() == 0


def test_a_database_out_of_reach_is_named_without_its_password(tmp_path: Path) -> None:
    code, words = refusal(GatewayProcess(tmp_path, {"database": {"url": NOWHERE}}))
    assert code == 1
    assert "database.url: 127.0.0.1:1/db cannot be used" in words
    assert "see that PostgreSQL runs there" in words
    assert "secret" not in words


def test_a_wrong_database_password_is_told_as_such(tmp_path: Path, database_url: str) -> None:
    user, _, rest = database_url.removeprefix("postgresql://").partition("@")
    url = f"postgresql://{user.partition(':')[0]}:wrong@{rest}"
    code, words = refusal(GatewayProcess(tmp_path, {"database": {"url": url}}))
    assert code == 1
    assert "see the user and the password in database.url" in words


def test_a_database_that_does_not_exist_is_told_as_such(
    tmp_path: Path, postgres_server: EmbeddedPostgres
) -> None:
    url = database_of(postgres_server, "nowhere_to_be_found")
    code, words = refusal(GatewayProcess(tmp_path, {"database": {"url": url}}))
    assert code == 1
    assert "CREATE DATABASE" in words


def test_a_schema_that_may_not_be_migrated_is_left_alone(tmp_path: Path, database_url: str) -> None:
    settings = {"database": {"url": database_url, "migrate": False}}
    code, words = refusal(GatewayProcess(tmp_path, settings))
    assert code == 1
    assert "run howdah migrate" in words
    query = "SELECT count(*) FROM pg_namespace WHERE nspname = 'howdah'"
    assert fetch_value(database_url, query) == 0


def test_a_schema_of_a_later_release_is_not_touched(tmp_path: Path, database_url: str) -> None:
    assert howdah("migrate", environ={"HOWDAH_DATABASE__URL": database_url}).returncode == 0
    execute(database_url, "UPDATE howdah.alembic_version SET version_num = '9999'")
    code, words = refusal(GatewayProcess(tmp_path, {"database": {"url": database_url}}))
    assert code == 1
    assert "9999, which this release does not know" in words


@pytest.fixture
def plain_login(database_url: str) -> Iterator[str]:
    """A login without any rights, on a database that is migrated."""
    assert howdah("migrate", environ={"HOWDAH_DATABASE__URL": database_url}).returncode == 0
    name = "plain_" + database_url.rpartition("/")[2]
    execute(database_url, f"CREATE ROLE {name} LOGIN PASSWORD 'plain'")
    yield name
    execute(database_url, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


def as_login(url: str, name: str) -> str:
    return f"postgresql://{name}:plain@{url.rpartition('@')[2]}"


def test_missing_grants_are_named_with_the_statement_that_mends_it(
    tmp_path: Path, database_url: str, plain_login: str
) -> None:
    settings = {"database": {"url": as_login(database_url, plain_login)}}
    code, words = refusal(GatewayProcess(tmp_path, settings))
    assert code == 1
    assert f'GRANT howdah_gateway TO "{plain_login}"' in words


def test_the_role_of_the_gateway_is_all_that_it_needs(
    tmp_path: Path, database_url: str, plain_login: str
) -> None:
    execute(database_url, f"GRANT howdah_gateway TO {plain_login}")
    with running(tmp_path, {"database": {"url": as_login(database_url, plain_login)}}) as gateway:
        words = gateway.run("queue", "list").stderr
        assert f'ask a DBA for GRANT howdah_operator TO "{plain_login}"' in words
        assert gateway.run("user", "list").returncode == 0
        assert gateway.terminate() == 0


def test_the_role_of_operators_is_told_what_users_need(database_url: str, plain_login: str) -> None:
    execute(database_url, f"GRANT howdah_operator TO {plain_login}")
    environ = {"HOWDAH_DATABASE__URL": as_login(database_url, plain_login)}
    assert howdah("queue", "list", environ=environ).returncode == 0
    done = howdah("user", "list", environ=environ)
    assert done.returncode == 1
    assert f'its login, or ask a DBA for GRANT howdah_gateway TO "{plain_login}"' in done.stderr


def test_a_data_dir_in_use_names_who_uses_it(gateway: GatewayProcess, tmp_path: Path) -> None:
    second = GatewayProcess(tmp_path / "second", {"data_dir": str(gateway.data_dir)})
    code, words = refusal(second)
    assert code == 1
    assert f"in use by another gateway (pid {gateway.pid})" in words
    assert gateway.is_running


def test_a_second_gateway_on_the_same_database_says_who_owns_it(
    tmp_path: Path, database_url: str
) -> None:
    settings = {"database": {"url": database_url}}
    with running(tmp_path / "first", settings) as first:
        code, words = refusal(GatewayProcess(tmp_path / "second", settings))
        assert code == 1
        first_pid = first.pid
    owner = rf"another gateway \({socket.gethostname()} \(pid {first_pid}\), since [0-9 :-]+ UTC\)"
    session = r"by the session of server process \d+ from 127\.0\.0\.1"
    assert re.search(rf"{owner}, {session}, owns this database; stop it", words), words


def test_a_certificate_that_is_not_there_is_named_with_its_key(tmp_path: Path) -> None:
    tls = {"cert": str(tmp_path / "no.pem"), "key": str(tmp_path / "no.key")}
    settings = {"listeners": {"amqp": {"port": 0, "tls": tls}}}
    gateway = GatewayProcess(tmp_path, settings)
    code, words = refusal(gateway)
    assert code == 2
    assert "listeners.amqp.tls.cert: " in words
    assert not gateway.data_dir.exists()  # found before a database was made
