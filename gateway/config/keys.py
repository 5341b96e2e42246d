"""The configuration: every key, its default, and what must hold between keys.

Answers for the contract with whoever runs the gateway. It must not act on any of it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import Meta

from gateway.config.amqp_keys import Amqp091, Amqp10
from gateway.config.cluster_keys import Cluster
from gateway.config.database_url import url_problem
from gateway.config.definitions_keys import DefinitionsFile
from gateway.config.file_and_environment import ConfigError
from gateway.config.log_keys import Log
from gateway.config.memory_keys import Memory
from gateway.config.quantities import Duration, Size
from gateway.config.reader import read_config, with_least
from gateway.config.section import Section

__all__ = ["Config", "ConfigError", "load_config", "require_safe_listeners"]

KIB, MIB = 1024, 1024 * 1024
LONGEST_KEEP_ALIVE_SECONDS: Final = 65_535  # MQTT writes it in two bytes
# Keys of buffers that have to hold at least one message, whatever its size.
HOLD_A_MESSAGE: Final = {
    "storage": ("write_buffer_bytes", "cache_bytes", "segment_bytes", "ephemeral_bytes"),
    "broker": ("max_transaction_size",),
    "amqp10": ("max_partial_size",),
}
# PostgreSQL takes a value of up to 1 GB in a statement of up to 1 GB, and hangs up on more.
LARGEST_MESSAGE: Final = Size(512 * MIB)


class Database(Section, frozen=True, kw_only=True):
    url: Annotated[
        str | None,
        Meta(
            description="PostgreSQL to use; without it the gateway runs a private one in data_dir. "
            "Of several hosts (host1:port1,host2:port2) the one that takes writes is used"
        ),
    ] = None
    migrate: Annotated[
        bool,
        Meta(
            description="bring the schema up to date at the start; false: leave that to a DBA, and "
            "end with an error where it is not"
        ),
    ] = True
    pool_size: Annotated[
        int,
        Meta(
            ge=2,
            le=100,
            description="connections to PostgreSQL for reading and upkeep at most; the writer has "
            "one more, definitions and sessions up to four",
        ),
    ] = 8


class Postgres(Section, frozen=True, kw_only=True):
    """These keys hold for the private PostgreSQL, which runs where `database.url` is not set."""

    bin_dir: Annotated[
        Path | None,
        Meta(description="folder with postgres and initdb, instead of the packaged ones"),
    ] = None
    settings: Annotated[
        dict[str, str | int | float | bool],
        Meta(description="settings of the server, such as shared_buffers: 1GB"),
    ] = {}  # noqa: RUF012 - msgspec copies it


class Tls(Section, frozen=True, kw_only=True):
    cert: Annotated[Path, Meta(description="certificate chain, PEM")]
    key: Annotated[Path, Meta(description="private key, PEM")]
    ca: Annotated[Path | None, Meta(description="authorities that sign clients, PEM")] = None
    verify_client: Annotated[
        bool, Meta(description="whether a client must show a certificate signed by ca")
    ] = False


class Listener(Section, frozen=True, kw_only=True):
    port: Annotated[int, Meta(ge=0, le=65535, description="TCP port; 0 takes any free one")]
    host: Annotated[str, Meta(description="address to listen on")] = "127.0.0.1"
    tls: Annotated[Tls | None, Meta(description="plain TCP without it")] = None


class WebSocketListener(Listener, frozen=True, kw_only=True):
    path: Annotated[
        str, Meta(pattern="^/", description="where the upgrade is accepted, beside /")
    ] = "/mqtt"
    allowed_origins: Annotated[
        tuple[str, ...],
        Meta(
            description="origins of pages that may connect, such as https://app.example.com, "
            "beside those of this machine and, for peers from elsewhere, of the host that they "
            "connect to; '*': any"
        ),
    ] = ()


class ManagementListener(Listener, frozen=True, kw_only=True):
    metrics_login: Annotated[
        bool,
        Meta(
            description="whether /metrics asks for a user's name and password (HTTP Basic); "
            "nobody is let in without a name then, from loopback neither"
        ),
    ] = False
    allowed_hosts: Annotated[
        tuple[str, ...] | None,
        Meta(
            description="names by which it may be asked for, beside those of this machine; left "
            "out: peers on loopback by the latter only, others by any; '*': any"
        ),
    ] = None


class Listeners(Section, frozen=True, kw_only=True):
    """A listener that is set to null is switched off."""

    mqtt: Listener | None = Listener(port=1883)
    mqtt_ws: WebSocketListener | None = WebSocketListener(port=8083)
    amqp: Listener | None = Listener(port=5672)
    management: ManagementListener | None = ManagementListener(port=15672)

    def enabled(self) -> dict[str, Listener]:
        """Returns the listeners that are switched on, by name, in this order."""
        every = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: listener for name, listener in every.items() if listener is not None}


# How Python calls the names in a certificate.
CERTIFICATE_NAMES: Final = {
    "cn": "commonName",
    "dns": "DNS",
    "email": "email",
    "uri": "URI",
}


Strangers = bool | Literal["loopback"]


class Auth(Section, frozen=True, kw_only=True):
    """`allow_anonymous` and `guest`, if not set, admit peers on loopback while there are no users;
    true admits every peer, loopback those on this machine, whether or not there are users."""

    allow_anonymous: Annotated[
        Strangers | None,
        Meta(
            description="clients without credentials: true, false or loopback; left out: from "
            "loopback, while there are no users"
        ),
    ] = None
    guest: Annotated[
        Strangers | None,
        Meta(
            description="user guest with password guest: true, false or loopback; left out: from "
            "loopback, while there are no users"
        ),
    ] = None
    certificate_user: Annotated[
        Literal["cn", "dns", "email", "uri"],
        Meta(
            description="the name in a verified client certificate that is its user: common name, "
            "or an alternative name of that kind; needs tls.ca on the listener"
        ),
    ] = "cn"
    mqtt_certificate_login: Annotated[
        bool,
        Meta(
            description="MQTT clients with a verified certificate are that user, whatever user "
            "name and password they send"
        ),
    ] = False

    min_password_length: Annotated[
        int,
        Meta(ge=1, le=128, description="characters that a new password must have"),
    ] = 8

    @property
    def depends_on_users(self) -> bool:
        """Tells if built-in logins are open only while there are no users."""
        return self.allow_anonymous is None or self.guest is None

    @property
    def is_explicit(self) -> bool:
        return self.allow_anonymous is not None and self.guest is not None

    def admits_anonymous(self, *, is_loopback: bool, has_users: bool) -> bool:
        return _admits(self.allow_anonymous, is_loopback=is_loopback, has_users=has_users)

    def admits_guest(self, *, is_loopback: bool, has_users: bool) -> bool:
        return _admits(self.guest, is_loopback=is_loopback, has_users=has_users)

    @property
    def certificate_name(self) -> str:
        return CERTIFICATE_NAMES[self.certificate_user]


def _admits(said: Strangers | None, *, is_loopback: bool, has_users: bool) -> bool:
    """Tells if a built-in login is open to a peer. Proxies, tunnels and browsers are loopback as
    well: once somebody has made users, only a key that is set lets others in."""
    if said is None:
        return is_loopback and not has_users
    return is_loopback if said == "loopback" else said


class Broker(Section, frozen=True, kw_only=True):
    max_message_size: Annotated[
        Size,
        Meta(
            extra={"min": Size(KIB), "max": LARGEST_MESSAGE},
            description="largest message from any protocol",
        ),
    ] = Size(16 * MIB)
    max_transaction_size: Annotated[
        Size,
        Meta(
            extra={"min": Size(KIB)},
            description="what one AMQP transaction may hold until it is committed",
        ),
    ] = Size(64 * MIB)
    max_connection_transactions: Annotated[
        Size,
        Meta(
            extra={"min": Size(KIB)},
            description="what the open AMQP transactions of one connection may hold together",
        ),
    ] = Size(128 * MIB)
    max_unsent_size: Annotated[
        Size,
        Meta(
            extra={"min": Size(64 * KIB)},
            description="unread output of one client, above which it gets no more and is not read",
        ),
    ] = Size(4 * MIB)
    max_qos: Annotated[int, Meta(ge=0, le=2, description="highest MQTT QoS granted")] = 2
    async_fan_out: Annotated[
        bool,
        Meta(
            description="answer publishers before their messages are handed to live subscribers, "
            "which workers do in slices"
        ),
    ] = False
    fan_out_workers: Annotated[
        int, Meta(ge=0, le=64, description="workers of async_fan_out; 0: one for each core")
    ] = 0
    max_bindings_per_queue: Annotated[
        int, Meta(ge=1, description="bindings that lead to one queue, or to one exchange")
    ] = 10_000
    max_bindings_per_exchange: Annotated[
        int,
        Meta(ge=1, description="bindings of one exchange; MQTT subscriptions are not among them"),
    ] = 100_000
    max_header_bindings_per_exchange: Annotated[
        int,
        Meta(
            ge=1,
            description="bindings of one headers exchange, each of which every message is "
            "compared with; one with long arguments counts once more for 512 characters of them",
        ),
    ] = 10_000


class Session(Section, frozen=True, kw_only=True):
    max_inflight_messages: Annotated[
        int, Meta(ge=1, le=65535, description="unacknowledged messages a session may have")
    ] = 1000
    inflight_overflow: Annotated[
        Literal["backpressure", "pending"],
        Meta(
            description="a connected client that is behind: its publishers wait and nothing is "
            "dropped, or more is kept in a pending queue and the oldest is dropped"
        ),
    ] = "backpressure"
    stall_timeout: Annotated[
        Duration,
        Meta(
            extra={"min": Duration(0.1)},
            description="with backpressure, how long publishers wait for a client that takes "
            "nothing at all, before it is disconnected",
        ),
    ] = Duration(30.0)
    pending_queue_size: Annotated[
        int, Meta(ge=1, le=1_000_000, description="messages in a session's pending queue")
    ] = 1000
    max_offline_queue_size: Annotated[
        int, Meta(ge=0, description="messages kept for a session that is away")
    ] = 100_000
    max_sessions: Annotated[
        int, Meta(ge=1, description="sessions that outlive their connection, of all clients")
    ] = 1_000_000
    max_live_queue_size: Annotated[
        int, Meta(ge=1, description="messages that wait in memory for a client that is connected")
    ] = 100_000
    max_live_queue_bytes: Annotated[
        Size, Meta(extra={"min": Size(KIB)}, description="and their size")
    ] = Size(32 * MIB)
    max_subscriptions: Annotated[
        int, Meta(ge=1, le=1_000_000, description="subscriptions that a session may have")
    ] = 1000


class Mqtt(Section, frozen=True, kw_only=True):
    """CONNACK tells 5.0 clients what is set to false or bounded here, and it is enforced."""

    max_keep_alive: Annotated[
        Duration,
        Meta(
            description="longest keep alive of a 5.0 client, in whole seconds; 0s: what it asks "
            "for, as 3.x clients always get: they cannot be told of another"
        ),
    ] = Duration(0)
    max_session_expiry: Annotated[
        Duration | None,
        Meta(
            extra={"min": Duration(1)},
            description="how long a session outlives its connection at most; null: as long as the "
            "client asks for",
        ),
    ] = None
    max_topic_levels: Annotated[
        int,
        Meta(ge=1, le=256, description="levels of a topic or filter; other protocols may use 256"),
    ] = 128
    topic_alias_maximum: Annotated[
        int,
        Meta(ge=0, le=65_535, description="topic aliases in each direction of a connection"),
    ] = 100
    retained_messages: Annotated[
        bool,
        Meta(
            description="whether clients may retain messages; false: doing so ends the connection "
            "with 0x9A, and what was retained before is not sent"
        ),
    ] = True
    wildcard_subscriptions: Annotated[
        bool, Meta(description="filters with + and #; false: they are refused with 0xA2")
    ] = True
    shared_subscriptions: Annotated[
        bool, Meta(description="$share/ filters; false: they are refused with 0x9E")
    ] = True
    subscription_identifiers: Annotated[
        bool, Meta(description="in SUBSCRIBE; false: they are refused with 0xA1")
    ] = True
    reason_strings: Annotated[
        bool,
        Meta(
            description="whether 5.0 clients are told in words, beside the code, why something was "
            "refused or ended; false: the code alone, in every packet"
        ),
    ] = True
    server_reference: (
        Annotated[
            str,
            Meta(
                pattern="^[!-~]{1,255}$",
                description="another server, such as other.example:1883: 5.0 clients that this one "
                "cannot serve, or that are connected when it shuts down, are sent there with 0x9C",
            ),
        ]
        | None
    ) = None


class Retained(Section, frozen=True, kw_only=True):
    max_topics: Annotated[
        int,
        Meta(ge=0, description="topics with a retained message; about 330 bytes of memory each"),
    ] = 1_000_000
    max_bytes: Annotated[
        Size, Meta(description="size of all retained messages in the database")
    ] = Size(4096 * MIB)
    cache_bytes: Annotated[
        Size, Meta(description="memory for the retained messages that were used last")
    ] = Size(16 * MIB)


class Storage(Section, frozen=True, kw_only=True):
    segment_bytes: Annotated[
        Size,
        Meta(extra={"min": Size(MIB)}, description="a segment of messages is cut at this size"),
    ] = Size(256 * MIB)
    segment_age: Annotated[
        Duration, Meta(extra={"min": Duration(1)}, description="and at this age")
    ] = Duration(3600)
    cache_bytes: Annotated[
        Size,
        Meta(extra={"min": Size(MIB)}, description="memory for committed, undelivered messages"),
    ] = Size(32 * MIB)
    write_buffer_bytes: Annotated[
        Size,
        Meta(extra={"min": Size(MIB)}, description="memory for messages that wait for a commit"),
    ] = Size(64 * MIB)
    ephemeral_bytes: Annotated[
        Size,
        Meta(
            extra={"min": Size(MIB)},
            description="memory for messages of all queues that are in memory only",
        ),
    ] = Size(512 * MIB)
    max_dedup_ids: Annotated[
        int,
        Meta(
            ge=1,
            description="message ids and values that queues and exchanges tell repetitions by, "
            "together; about 150 bytes of memory each",
        ),
    ] = 1_000_000
    outbox_poll_interval: Annotated[
        Duration,
        Meta(extra={"min": Duration(0.01)}, description="how often SQL's messages are looked for"),
    ] = Duration(0.1)


class Config(Section, frozen=True, kw_only=True):
    data_dir: Annotated[Path, Meta(description="the gateway's own files")] = Path("howdah-data")
    database: Database = Database()
    cluster: Cluster = Cluster()
    postgres: Postgres = Postgres()
    listeners: Listeners = Listeners()
    auth: Auth = Auth()
    broker: Broker = Broker()
    session: Session = Session()
    mqtt: Mqtt = Mqtt()
    retained: Retained = Retained()
    amqp091: Amqp091 = Amqp091()
    amqp10: Amqp10 = Amqp10()
    storage: Storage = Storage()
    memory: Memory = Memory()
    definitions: DefinitionsFile = DefinitionsFile()
    log: Log = Log()


def load_config(path: Path | None, environ: Mapping[str, str]) -> Config:
    """Reads the file with the environment laid over it, and checks it as a whole."""
    config = read_config(Config, path, environ)
    # who wants larger messages needs to say so once
    config = with_least(config, HOLD_A_MESSAGE, config.broker.max_message_size)
    problems = [
        *_database_problems(config),
        *_listener_problems(config.listeners),
        *_broker_problems(config),
    ]
    if problems:
        source = str(path) if path is not None else "configuration"
        raise ConfigError([f"{source}: {problem}" for problem in problems])
    return config


def require_safe_listeners(config: Config, *, has_users: bool) -> None:
    """Raises ConfigError for listeners on the network while nobody has said who may log in."""
    if has_users or config.auth.is_explicit:
        return
    problems = [
        f"listeners.{name}.host: {listener.host} is reachable from other machines, and nobody said "
        "who may come in: create users, or set both auth.allow_anonymous and auth.guest, "
        "or listen on 127.0.0.1"
        for name, listener in config.listeners.enabled().items()
        if not is_loopback(listener.host)
    ]
    if problems:
        raise ConfigError(problems)


def is_loopback(host: str) -> bool:
    """Tells if a host is this machine's own; names other than localhost count as the network's."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _database_problems(config: Config) -> list[str]:
    url = config.database.url
    if url is None and config.cluster.enabled:
        return ["cluster.enabled: needs database.url, which all nodes of the cluster share"]
    if url is None:
        return []
    problem = url_problem(url)
    problems = [] if problem is None else [f"database.url: {problem}"]
    if config.postgres != Postgres():
        problems.append(
            "postgres: is for the private PostgreSQL, which database.url replaces: leave one out"
        )
    return problems


def _listener_problems(listeners: Listeners) -> list[str]:
    problems = []
    taken: dict[tuple[str, int], str] = {}
    for name, listener in listeners.enabled().items():
        place = (listener.host, listener.port)
        if listener.port and place in taken:
            other = f"listeners.{taken[place]}"
            problems.append(f"listeners.{name}.port: {listener.port} is taken by {other} already")
        taken[place] = name
        if listener.tls is not None and listener.tls.verify_client and listener.tls.ca is None:
            key = f"listeners.{name}.tls.verify_client"
            problems.append(f"{key}: needs ca, the authorities that sign clients")
    return problems


def _broker_problems(config: Config) -> list[str]:
    problems = []
    keep_alive = config.mqtt.max_keep_alive
    if keep_alive % 1 or keep_alive > LONGEST_KEEP_ALIVE_SECONDS:
        problems.append(
            f"mqtt.max_keep_alive: expected whole seconds up to {LONGEST_KEEP_ALIVE_SECONDS}s, "
            f"got {keep_alive}"
        )
    broker = config.broker
    if broker.fan_out_workers and not broker.async_fan_out:
        problems.append("broker.fan_out_workers: needs async_fan_out: true")
    held = {
        f"{section}.{name}": getattr(getattr(config, section), name)
        for section, names in HOLD_A_MESSAGE.items()
        for name in names
    }
    if config.memory.high_watermark is not None:
        held["memory.high_watermark"] = config.memory.high_watermark
    for key, size in held.items():
        if size < broker.max_message_size:
            problems.append(
                f"{key}: {size} does not hold one message of "
                f"broker.max_message_size ({broker.max_message_size})"
            )
    return problems
