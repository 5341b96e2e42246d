"""Who a client is, and what it may do: the seam that every adapter calls.

    identity = await auth.authenticate(credentials, peer)        raises AccessRefused
    auth.may_enter(identity, vhost)
    auth.authorize(identity, Action.WRITE, Resource("exchange", vhost, name))

Authenticators and authorizers are plugged in, and asked one after the other. Answers of `authorize`
are kept until `revision` changes; an adapter may keep its own for as long. Nothing here knows a
protocol, a password file or a table; `queue_core.accounts` brings the ones that rest on users.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal, Protocol, Self

from queue_core.errors import AccessRefused, StoreUnavailable
from queue_core.throttle import Throttles

log = logging.getLogger(__name__)

ANONYMOUS: Final = "ANONYMOUS"
PLAIN: Final = "PLAIN"
MOST_KEPT_ANSWERS: Final = 65_536


class Action(StrEnum):
    CONFIGURE = "configure"  # declare and delete
    WRITE = "write"  # publish to, bind a queue
    READ = "read"  # consume, get, purge, bind an exchange


ResourceKind = Literal["vhost", "exchange", "queue", "topic"]


@dataclass(frozen=True, slots=True)
class Resource:
    """What somebody wants to touch. For a topic, `name` is its exchange and `routing_key` the key
    in dot form: the rules of the exchange and of the topic must both agree."""

    kind: ResourceKind
    vhost: str
    name: str = ""
    routing_key: str | None = None


@dataclass(frozen=True, slots=True)
class Peer:
    """Where a connection comes from."""

    host: str
    port: int = 0
    tls: bool = False
    tls_subject: str | None = None  # of a client certificate that was checked

    @property
    def is_loopback(self) -> bool:
        if not self.host:
            return True  # a Unix socket
        try:
            address = ipaddress.ip_address(self.host.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return (mapped or address).is_loopback

    @classmethod
    def described_by(cls, fact: Callable[[str], Any]) -> Self:
        """From what a transport says of itself: pass its `get_extra_info`."""
        name = fact("peername")
        host, port = (name[0], name[1]) if isinstance(name, tuple) else ("", 0)
        certificate = fact("peercert") or {}
        subject = ",".join(
            f"{key}={value}" for part in certificate.get("subject", ()) for key, value in part
        )
        return cls(host, port, fact("sslcontext") is not None, subject or None)


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client says about itself, and how it proves it. Never shown: it holds a secret."""

    mechanism: str
    username: str = ""
    password: bytes = b""  # or the mechanism's own proof
    client_id: str = ""

    def __repr__(self) -> str:
        return f"Credentials({self.mechanism}, {self.username!r})"

    @classmethod
    def given(cls, username: str | None, password: bytes | str | None, client_id: str = "") -> Self:
        """A user name and a password, where a protocol lets a client leave out either. Only one
        that gives neither is anonymous."""
        if username is None and password is None:
            return cls(ANONYMOUS, client_id=client_id)
        secret = password.encode() if isinstance(password, str) else password
        return cls(PLAIN, username or "", secret or b"", client_id)

    @classmethod
    def from_plain(cls, response: bytes, client_id: str = "") -> Self:
        """The response of SASL PLAIN: authorization identity, user name and password (RFC 4616)."""
        parts = response.split(b"\0")
        if len(parts) != 3:
            raise AccessRefused("the SASL PLAIN response is malformed; send NUL user NUL password")
        try:
            acts_for, username = parts[0].decode(), parts[1].decode()
        except UnicodeDecodeError:
            raise AccessRefused("the user name is not UTF-8; send it as such") from None
        if acts_for not in ("", username):
            raise AccessRefused(
                f"user '{username}' may not act for '{acts_for}'; leave the authorization identity "
                "out"
            )
        return cls(PLAIN, username, parts[2], client_id)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a client proved to be."""

    name: str
    tags: frozenset[str] = frozenset()
    is_anonymous: bool = False
    client_id: str = ""  # as given: rules may speak of it


class NotChecked(AccessRefused):
    """Refused without a look at the proof: nobody's failure, and worth another try."""


class Authenticator(Protocol):
    """One way to prove who one is."""

    def mechanisms(self, peer: Peer) -> Sequence[str]:
        """SASL names of what it takes from such a peer, best first."""
        ...

    async def authenticate(self, credentials: Credentials, peer: Peer) -> Identity | None:
        """Who it is; None: not mine to judge, ask the next. Raises AccessRefused: nobody is asked
        any more."""
        ...


class Authorizer(Protocol):
    """One set of rules."""

    def may_enter(self, identity: Identity, vhost: str) -> bool | None:
        """None: no rule of mine speaks of it, ask the next."""
        ...

    def permits(self, identity: Identity, action: Action, resource: Resource) -> bool | None:
        """None: no rule of mine speaks of it, ask the next."""
        ...


class Source(Protocol):
    """Where authenticators and authorizers have their knowledge from."""

    async def refresh(self) -> bool:
        """Looks whether anything was changed. Raises StoreUnavailable."""
        ...


@dataclass(slots=True)
class AuthCounters:
    logins: int = 0
    failed_logins: int = 0
    throttled_logins: int = 0  # refused unchecked: too many failures, or too many at once
    refused_actions: int = 0


class Auth:
    """Asks whoever is plugged in. What nobody allows is refused."""

    def __init__(
        self,
        authenticators: Sequence[Authenticator],
        authorizers: Sequence[Authorizer],
        sources: Sequence[Source] = (),
        throttles: Throttles | None = None,
    ) -> None:
        self._authenticators = tuple(authenticators)
        self._authorizers = tuple(authorizers)
        self._sources = tuple(sources)
        self._throttles = throttles or Throttles()
        self._answers: dict[tuple[Identity, Action, Resource], bool] = {}
        self._is_stale = False
        self.counters = AuthCounters()
        self.revision = 0  # answers given before it changed may not hold any more

    # --- who

    def mechanisms(self, peer: Peer) -> tuple[str, ...]:
        """SASL mechanisms to offer to a peer, best first."""
        names = (name for each in self._authenticators for name in each.mechanisms(peer))
        return tuple(dict.fromkeys(names))

    async def authenticate(self, credentials: Credentials, peer: Peer) -> Identity:
        """Who the client is. Raises AccessRefused, with no hint at what was wrong for a guesser."""
        places = (peer.host, f"{peer.host} {credentials.username}")
        seconds = 0.0 if credentials.mechanism == ANONYMOUS else self._throttles.seconds(*places)
        if seconds > 0:
            self.counters.throttled_logins += 1
            raise NotChecked(
                f"too many failed logins from {peer.host}; wait {seconds:.1f} s and try again"
            )
        try:
            identity = await self._ask(credentials, peer)
        except NotChecked:
            self.counters.throttled_logins += 1
            raise
        except AccessRefused as error:
            self.counters.failed_logins += 1
            self._throttles.count(*places)
            log.warning("login of '%s' from %s refused: %s", credentials.username, peer.host, error)
            raise
        self.counters.logins += 1
        return identity

    async def _ask(self, credentials: Credentials, peer: Peer) -> Identity:
        for authenticator in self._authenticators:
            identity = await authenticator.authenticate(credentials, peer)
            if identity is not None:
                return identity
        raise AccessRefused(
            f"nobody here takes mechanism '{credentials.mechanism}'; "
            f"use one of {', '.join(self.mechanisms(peer)) or 'none: no login is possible'}"
        )

    # --- what

    def may_enter(self, identity: Identity, vhost: str) -> bool:
        """Whether it may use a virtual host at all."""
        for authorizer in self._authorizers:
            answer = authorizer.may_enter(identity, vhost)
            if answer is not None:
                return answer
        return False

    def authorize(self, identity: Identity, action: Action, resource: Resource) -> bool:
        """Whether it may do that. Never waits."""
        key = (identity, action, resource)
        answer = self._answers.get(key)
        if answer is None:
            answer = self._judge(identity, action, resource)
            if len(self._answers) >= MOST_KEPT_ANSWERS:
                self._answers.clear()
            self._answers[key] = answer
        if not answer:
            self.counters.refused_actions += 1
        return answer

    def require(self, identity: Identity, action: Action, resource: Resource) -> None:
        """The same; raises AccessRefused, in words that an operator can act on."""
        if not self.authorize(identity, action, resource):
            what = f"{resource.kind} '{resource.routing_key or resource.name}'"
            raise AccessRefused(
                f"user '{identity.name}' has no {action} access to {what} in vhost "
                f"'{resource.vhost}'; grant it with `howdah user grant`"
            )

    def _judge(self, identity: Identity, action: Action, resource: Resource) -> bool:
        if resource.kind == "vhost":
            return self.may_enter(identity, resource.vhost)
        for authorizer in self._authorizers:
            answer = authorizer.permits(identity, action, resource)
            if answer is not None:
                return answer
        return False

    # --- changes

    async def refresh(self) -> None:
        """Looks for changes; called about once a second. What is known stays while the database is
        away."""
        try:
            changes = [await source.refresh() for source in self._sources]
        except StoreUnavailable as error:
            if not self._is_stale:
                log.warning("users and permissions stay as last read: %s", error)
            self._is_stale = True
            return
        self._is_stale = False
        if any(changes):
            self._answers.clear()
            self.revision += 1
