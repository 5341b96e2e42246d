"""The configuration contract: strict, and every error leads to its key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.config.keys import Config, ConfigError, Storage, load_config, require_safe_listeners


def load(tmp_path: Path, text: str = "", environ: Mapping[str, str] | None = None) -> Config:
    path = tmp_path / "howdah.yaml"
    path.write_text(text)
    return load_config(path, environ or {})


def problems(tmp_path: Path, text: str = "", environ: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, environ)
    return [problem.replace(f"{tmp_path}/", "") for problem in caught.value.problems]


CONTRACT = """
data_dir: ./elsewhere
database: {url: "postgresql://user:pass@host:5432/db", pool_size: 4}
listeners:
  mqtt:       {host: 127.0.0.1, port: 1884}
  mqtt_ws:    {host: 127.0.0.1, port: 8084, path: /ws}
  amqp:       {host: 127.0.0.1, port: 5673}
  management: null
auth: {allow_anonymous: true, guest: false}
broker: {max_message_size: 8MiB, max_qos: 1, async_fan_out: true, fan_out_workers: 2}
session:
  max_inflight_messages: 10
  inflight_overflow: pending
  pending_queue_size: 20
  max_offline_queue_size: 30
mqtt:
  max_keep_alive: 30s
  max_session_expiry: 7d
  topic_alias_maximum: 10
  retained_messages: false
  wildcard_subscriptions: false
  shared_subscriptions: false
  subscription_identifiers: false
  server_reference: other.example:1883
amqp091: {strict: true}
storage:
  segment_bytes: 64MiB
  segment_age: 10m
  cache_bytes: 128MiB
  write_buffer_bytes: 32MiB
  outbox_poll_interval: 200ms
log: {level: debug, format: json}
"""


def test_no_file_and_no_environment_means_the_defaults() -> None:
    config = load_config(None, {})
    assert config == Config()
    assert list(config.listeners.enabled()) == ["mqtt", "mqtt_ws", "amqp", "management"]
    ports = [listener.port for listener in config.listeners.enabled().values()]
    assert ports == [1883, 8083, 5672, 15672]
    assert config.broker.max_message_size == 16 * 1024**2


def test_an_empty_file_means_the_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, "# nothing yet\n") == Config()


def test_every_key_of_the_contract_is_taken(tmp_path: Path) -> None:
    config = load(tmp_path, CONTRACT)
    assert config.data_dir == Path("elsewhere")
    assert config.listeners.management is None
    assert config.listeners.mqtt_ws is not None
    assert (config.listeners.mqtt_ws.port, config.listeners.mqtt_ws.path) == (8084, "/ws")
    assert config.auth.allow_anonymous is True
    assert config.auth.guest is False
    assert config.broker.max_message_size == 8 * 1024**2
    assert config.session.inflight_overflow == "pending"
    assert config.amqp091.strict
    assert config.storage.segment_age == 600.0
    assert config.storage.outbox_poll_interval == 0.2
    assert config.log.format == "json"


def test_a_section_written_in_part_keeps_the_other_defaults(tmp_path: Path) -> None:
    config = load(tmp_path, "listeners: {amqp: {host: localhost}}")
    assert config.listeners.amqp is not None
    assert (config.listeners.amqp.host, config.listeners.amqp.port) == ("localhost", 5672)
    assert config.listeners.mqtt == Config().listeners.mqtt


ENVIRONMENT = [
    pytest.param("HOWDAH_DATA_DIR", "/srv/1", "data_dir", Path("/srv/1"), id="top level"),
    pytest.param("HOWDAH_LISTENERS__MQTT__PORT", "0", "listeners.mqtt.port", 0, id="nested"),
    pytest.param("HOWDAH_LISTENERS__AMQP", "null", "listeners.amqp", None, id="switched off"),
    pytest.param("HOWDAH_AUTH__GUEST", "false", "auth.guest", False, id="boolean"),
    pytest.param(
        "HOWDAH_BROKER__MAX_MESSAGE_SIZE", "1MiB", "broker.max_message_size", 2**20, id="size"
    ),
    pytest.param("HOWDAH_STORAGE__SEGMENT_AGE", "90s", "storage.segment_age", 90, id="duration"),
    pytest.param("HOWDAH_LOG__LEVEL", "error", "log.level", "error", id="choice"),
    pytest.param("HOWDAH_DATABASE__URL", "", "database.url", None, id="empty is null"),
    pytest.param(
        "HOWDAH_DATABASE__URL",
        "postgresql://u:p: x@h/d",
        "database.url",
        "postgresql://u:p: x@h/d",
        id="text is not YAML",
    ),
    pytest.param(
        "HOWDAH_POSTGRES__SETTINGS",
        "{shared_buffers: 1GB}",
        "postgres.settings",
        {"shared_buffers": "1GB"},
        id="mapping",
    ),
]


@pytest.mark.parametrize(("variable", "text", "key", "expected"), ENVIRONMENT)
def test_every_key_is_an_environment_variable_too(
    variable: str, text: str, key: str, expected: object
) -> None:
    value: object = load_config(None, {variable: text})
    for name in key.split("."):
        value = getattr(value, name)
    assert value == expected


def test_the_environment_is_laid_over_the_file(tmp_path: Path) -> None:
    environ = {"HOWDAH_LISTENERS__MQTT__PORT": "1999"}
    config = load(tmp_path, "listeners: {mqtt: {host: localhost, port: 1}, amqp: null}", environ)
    assert config.listeners.mqtt is not None
    assert (config.listeners.mqtt.host, config.listeners.mqtt.port) == ("localhost", 1999)
    assert config.listeners.amqp is None


@pytest.mark.parametrize(
    ("text", "environ", "place"),
    [
        pytest.param("broker: 5", {}, "howdah.yaml:1", id="in the file"),
        pytest.param("", {"HOWDAH_BROKER": "5"}, "environment HOWDAH_BROKER", id="in a variable"),
    ],
)
def test_a_key_in_the_environment_hides_no_wrong_section(
    tmp_path: Path, text: str, environ: dict[str, str], place: str
) -> None:
    assert problems(tmp_path, text, {**environ, "HOWDAH_BROKER__MAX_QOS": "1"}) == [
        f"{place}: broker: expected a section with keys, got 5"
    ]


def test_a_key_in_the_environment_brings_back_a_listener_that_was_off(tmp_path: Path) -> None:
    config = load(tmp_path, "listeners: {amqp: null}", {"HOWDAH_LISTENERS__AMQP__HOST": "::1"})
    assert config.listeners.amqp is not None
    assert (config.listeners.amqp.host, config.listeners.amqp.port) == ("::1", 5672)


UNKNOWN = [
    pytest.param(
        "brokr: {}", "howdah.yaml:1: brokr: unknown key, did you mean broker?", id="section"
    ),
    pytest.param(
        "\nlisteners:\n  mqtt:\n    prot: 1",
        "howdah.yaml:4: listeners.mqtt.prot: unknown key, did you mean port?",
        id="nested",
    ),
    pytest.param(
        "max_qos: 1",
        "howdah.yaml:1: max_qos: unknown key, did you mean broker.max_qos?",
        id="in the wrong section",
    ),
    pytest.param(
        "amqp10: {max_transaction_size: 1MiB}",
        "howdah.yaml:1: amqp10.max_transaction_size: unknown key, "
        "did you mean broker.max_transaction_size?",
        id="moved, with a neighbour of nearly the same name",
    ),
    pytest.param(
        "mqtt: {port: 1883}",
        "howdah.yaml:1: mqtt.port: unknown key, did you mean listeners.mqtt.port?",
        id="one of several with that name",
    ),
    pytest.param(
        "log: {zzz: 1}",
        "howdah.yaml:1: log.zzz: unknown key, expected one of level, format",
        id="nothing like it",
    ),
]


@pytest.mark.parametrize(("text", "problem"), UNKNOWN)
def test_an_unknown_key_stops_the_start_and_names_the_nearest(
    tmp_path: Path, text: str, problem: str
) -> None:
    assert problems(tmp_path, text) == [problem]


WRONG = [
    (
        "listeners: {mqtt: {port: high}}",
        "listeners.mqtt.port",
        "a whole number from 0 to 65535, got 'high'",
    ),
    (
        "listeners: {mqtt: {port: 70000}}",
        "listeners.mqtt.port",
        "a whole number from 0 to 65535, got 70000",
    ),
    (
        "listeners: {mqtt: {port: null}}",
        "listeners.mqtt.port",
        "a whole number from 0 to 65535, got null",
    ),
    ("broker: {max_qos: true}", "broker.max_qos", "a whole number from 0 to 2, got true"),
    (
        "broker: {max_message_size: huge}",
        "broker.max_message_size",
        "a size such as 16MiB from 1KiB to 512MiB, got 'huge'",
    ),
    (
        "broker: {max_message_size: 1}",
        "broker.max_message_size",
        "a size such as 16MiB from 1KiB to 512MiB, got 1",
    ),
    (
        "broker: {max_message_size: 1GiB}",
        "broker.max_message_size",
        "a size such as 16MiB from 1KiB to 512MiB, got '1GiB'",
    ),
    (
        f"storage: {{cache_bytes: {'9' * 400}MiB}}",
        "storage.cache_bytes",
        f"a size such as 16MiB of at least 1MiB, got '{'9' * 56}...",
    ),
    (
        "amqp10: {idle_timeout: 50d}",
        "amqp10.idle_timeout",
        "a duration such as 30s of at most 24d, got '50d'",
    ),
    (
        "storage: {segment_age: 36501d}",
        "storage.segment_age",
        "a duration such as 30s of at least 1s, got '36501d'",
    ),
    (
        "storage: {segment_age: 30}",
        "storage.segment_age",
        "a duration such as 30s of at least 1s, got 30",
    ),
    ("log: {level: loud}", "log.level", "one of debug, info, warning, error, got 'loud'"),
    ("auth: {guest: maybe}", "auth.guest", "true or false, or loopback, or null, got 'maybe'"),
    ("data_dir: ''", "data_dir", "a path, got ''"),
    ('data_dir: "a\\0b"', "data_dir", r"a path, got 'a\x00b'"),
    ("session: 7", "session", "a section with keys, got 7"),
    ("broker: null", "broker", "a section with keys, got null"),
    (
        "listeners: {mqtt_ws: {path: mqtt}}",
        "listeners.mqtt_ws.path",
        "text that matches ^/, got 'mqtt'",
    ),
]


@pytest.mark.parametrize(("text", "key", "expected"), WRONG)
def test_a_wrong_value_stops_the_start_and_says_what_was_expected(
    tmp_path: Path, text: str, key: str, expected: str
) -> None:
    assert problems(tmp_path, text) == [f"howdah.yaml:1: {key}: expected {expected}"]


def test_a_key_without_a_default_must_be_there(tmp_path: Path) -> None:
    assert problems(tmp_path, "listeners: {mqtt: {tls: {cert: a.pem}}}") == [
        "howdah.yaml:1: listeners.mqtt.tls.key: is missing, expected a path"
    ]


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    text = "broker: {max_qos: 3}\nlog:\n  level: loud\n  colour: red\n"
    assert [problem.split(":")[1] for problem in problems(tmp_path, text)] == ["1", "3", "4"]


def test_a_wrong_value_in_the_environment_names_the_variable() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, {"HOWDAH_BROKER__MAX_QOS": "5"})
    place = "environment HOWDAH_BROKER__MAX_QOS: broker.max_qos"
    expected = "expected a whole number from 0 to 2, got 5"
    assert caught.value.problems == [f"{place}: {expected}"]


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("HOWDAH_LISTENERS__MQTT__PROT", "HOWDAH_LISTENERS__MQTT__PORT"),
        ("HOWDAH_LOG_LEVEL", "HOWDAH_LOG__LEVEL"),
        ("HOWDAH_DATADIR", "HOWDAH_DATA_DIR"),
    ],
)
def test_an_unknown_variable_stops_the_start(variable: str, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, {variable: "1"})
    assert caught.value.problems == [f"environment: {variable}: unknown key, did you mean {meant}?"]


@pytest.mark.parametrize(
    "variable",
    ["HOWDAH_SERVICE_HOST", "HOWDAH_PORT_1883_TCP_ADDR", "HOWDAH_JDBC_JAR", "HOWDAH_POSTGRES_BIN"],
)
def test_variables_that_are_no_keys_of_ours_are_left_alone(variable: str) -> None:
    assert load_config(None, {variable: "tcp://10.0.0.1:1883"}) == Config()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("broker: {a: 1", "howdah.yaml:1: not valid YAML"),
        ("broker: {max_qos: 1, max_qos: 2}", "howdah.yaml:1: max_qos: is given twice"),
        ("- 1\n- 2", "howdah.yaml: expected sections with keys"),
        ("1: 2", "howdah.yaml:1: expected a name, got 1"),
        ("a: &a {b: *a}", "howdah.yaml: nested too deeply, or within itself"),
        ("a: " + "[" * 5000, "howdah.yaml: nested too deeply, or within itself"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    assert problems(tmp_path, text)[0].startswith(problem)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_config(tmp_path / "missing.yaml", {})


NO_SERVER = (
    "database.url: expected postgresql://user:password@host:port/database, with %40 for @, %2F for "
    "/ and so on in user and password"
)
ACROSS = [
    pytest.param(
        "database: {url: 'mysql://u:secret@h/d'}",
        NO_SERVER,
        id="not PostgreSQL, and the password is not shown",
    ),
    *(
        pytest.param(f"database: {{url: 'postgresql://{rest}'}}", NO_SERVER, id=f"no URL: {rest}")
        for rest in (
            "h:abc/d",
            "h:99999/d",
            "h:0/d",
            "[::1/d",
            "u:se/cret@h/d",
            "u:12/34@h/d",
            "u:12#34@h/d",
            "h1:1,h2:x/d",
        )
    ),
    pytest.param(
        "database: {url: 'postgresql://a,b/d?target_session_attrs=prefer-standby'}",
        "database.url: the gateway writes, so target_session_attrs must be read-write (as it is "
        "without a word), primary or any",
        id="a standby",
    ),
    pytest.param(
        "database: {url: 'postgresql://h/d'}\npostgres: {bin_dir: /x}",
        "postgres: is for the private PostgreSQL, which database.url replaces: leave one out",
        id="two databases",
    ),
    pytest.param(
        "listeners: {mqtt: {port: 5672}}",
        "listeners.amqp.port: 5672 is taken by listeners.mqtt already",
        id="one port twice",
    ),
    pytest.param(
        "listeners: {mqtt: {tls: {cert: a, key: b, verify_client: true}}}",
        "listeners.mqtt.tls.verify_client: needs ca, the authorities that sign clients",
        id="mutual TLS without authorities",
    ),
    pytest.param(
        "broker: {fan_out_workers: 2}",
        "broker.fan_out_workers: needs async_fan_out: true",
        id="workers without work",
    ),
    pytest.param(
        "mqtt: {max_keep_alive: 20h}",
        "mqtt.max_keep_alive: expected whole seconds up to 65535s, got 20h",
        id="a keep alive that no packet can say",
    ),
    pytest.param(
        "mqtt: {max_keep_alive: 1500ms}",
        "mqtt.max_keep_alive: expected whole seconds up to 65535s, got 1500ms",
        id="half a second of keep alive",
    ),
    pytest.param(
        "storage: {write_buffer_bytes: 8MiB}",
        "storage.write_buffer_bytes: 8MiB does not hold one message of "
        "broker.max_message_size (16MiB)",
        id="a buffer too small for one message",
    ),
]


def test_larger_messages_are_asked_for_by_one_key(tmp_path: Path) -> None:
    path = tmp_path / "howdah.yaml"
    path.write_text("broker: {max_message_size: 200MiB}")
    config = load_config(path, {})
    assert config.amqp10.max_partial_size == config.broker.max_message_size
    assert config.broker.max_transaction_size == config.broker.max_message_size
    assert config.storage.cache_bytes == config.broker.max_message_size
    assert config.storage.ephemeral_bytes == Storage().ephemeral_bytes  # which has room for it


@pytest.mark.parametrize(
    "rest",
    [
        "",
        "/d",
        "h",
        "u:p%2Fw@h:5433/d",
        "u:p@w@h/d",
        "[::1]:5432/d",
        "h1:1,h2:2/d?target_session_attrs=primary",
        "/d?host=/run/postgresql",
        "%2Frun%2Fpostgresql/d",
    ],
)
def test_a_database_may_be_named_as_libpq_has_it(tmp_path: Path, rest: str) -> None:
    url = f"postgresql://{rest}"
    assert load(tmp_path, f"database: {{url: '{url}'}}").database.url == url


@pytest.mark.parametrize(("text", "problem"), ACROSS)
def test_keys_that_contradict_each_other_stop_the_start(
    tmp_path: Path, text: str, problem: str
) -> None:
    assert problems(tmp_path, text) == [f"howdah.yaml: {problem}"]


def test_several_listeners_may_ask_for_any_free_port(tmp_path: Path) -> None:
    config = load(tmp_path, "listeners: {mqtt: {port: 0}, amqp: {port: 0}}")
    assert config.listeners.mqtt == config.listeners.amqp


OPEN = "listeners: {mqtt: {host: 0.0.0.0}}\n"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "'::1'", "localhost"])
def test_a_loopback_listener_needs_no_users(tmp_path: Path, host: str) -> None:
    require_safe_listeners(
        load(tmp_path, f"listeners: {{mqtt: {{host: {host}}}}}"), has_users=False
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "'::'", "192.0.2.1", "broker.example", "''"])
def test_an_open_listener_without_users_is_refused(tmp_path: Path, host: str) -> None:
    config = load(tmp_path, f"listeners: {{mqtt: {{host: {host}}}}}")
    with pytest.raises(ConfigError, match=r"listeners\.mqtt\.host: .* create users, or set both"):
        require_safe_listeners(config, has_users=False)


def test_an_open_listener_with_users_is_fine(tmp_path: Path) -> None:
    require_safe_listeners(load(tmp_path, OPEN), has_users=True)


def test_an_open_listener_is_fine_when_both_flags_are_set(tmp_path: Path) -> None:
    both = OPEN + "auth: {allow_anonymous: false, guest: true}"
    require_safe_listeners(load(tmp_path, both), has_users=False)
    with pytest.raises(ConfigError):
        require_safe_listeners(load(tmp_path, OPEN + "auth: {guest: true}"), has_users=False)


def test_guests_and_strangers_come_from_loopback_unless_said_otherwise(tmp_path: Path) -> None:
    default = load(tmp_path).auth
    assert default.admits_guest(is_loopback=True, has_users=False)
    assert not default.admits_guest(is_loopback=True, has_users=True)
    assert not default.admits_anonymous(is_loopback=True, has_users=True)
    assert not default.admits_guest(is_loopback=False, has_users=False)
    assert default.admits_anonymous(is_loopback=True, has_users=False)
    assert not default.admits_anonymous(is_loopback=False, has_users=False)
    said = load(tmp_path, "auth: {allow_anonymous: true, guest: false}").auth
    assert said.admits_anonymous(is_loopback=False, has_users=False)
    assert not said.admits_guest(is_loopback=True, has_users=False)
