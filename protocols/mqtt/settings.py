"""The operator's decisions about MQTT. The gateway fills them in from the configuration."""

from __future__ import annotations

from dataclasses import dataclass, field

from queue_core.access.browser_origins import AllowedOrigins


@dataclass(frozen=True, slots=True)
class Settings:
    vhost: str = "/"
    certificate_login: bool = False  # a verified certificate names the user, whatever CONNECT says
    max_message_size: int = 16 * 1024 * 1024  # bytes of a whole packet, in either direction
    max_qos: int = 2
    async_fan_out: bool = False
    fan_out_workers: int = 0  # 0: one for each core
    max_inflight: int = 1000  # unacknowledged messages of a session, in either direction
    pends_overflow: bool = False  # keep more in a pending queue, instead of holding the queue back
    pending_queue_size: int = 1000
    topic_alias_maximum: int = 100  # aliases a client may use, and that we use where it allows
    max_keep_alive: int = 0  # seconds, of 5.0 clients; 0: what the client asks for
    max_session_expiry: float | None = None  # seconds; None: what the client asks for
    retained_messages: bool = True
    wildcard_subscriptions: bool = True
    shared_subscriptions: bool = True
    subscription_identifiers: bool = True
    reason_strings: bool = True  # 5.0 clients hear in words why something was refused
    server_reference: str | None = None  # where to go when this gateway cannot serve a client
    max_subscriptions: int = 1000  # a session may have
    max_topic_levels: int = 128  # a topic or filter may have
    max_topics_remembered: int = 1000  # checked topics that a connection keeps for its fast path
    connect_timeout: float = 10.0  # seconds from the connection to its CONNECT
    write_buffer_bytes: int = 4 * 1024 * 1024  # a client that leaves more unread is held back
    sys_interval: float = 10.0  # seconds between two rounds of $SYS; 0: none
    path: str = "/mqtt"  # the WebSocket upgrade asks for it
    origins: AllowedOrigins = field(default_factory=AllowedOrigins)  # pages from there may connect
