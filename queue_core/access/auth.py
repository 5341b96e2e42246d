"""Who a client is, and what it may do: the seam that every adapter calls.

    identity = await auth.authenticate(credentials, peer)        raises AccessRefused
    login = auth.begin(mechanism, peer)                          the same in steps; see `logins`
    auth.may_enter(identity, vhost)
    auth.authorize(identity, Action.WRITE, Resource("exchange", vhost, name))

Authenticators and authorizers are plugged in, and asked one after the other. Answers of `authorize`
are kept until `revision` changes; an adapter may keep its own for as long. Nothing here knows a
protocol, a password file or a table; `queue_core.access.accounts` brings those that rest on users.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final, Literal, Protocol, Self, TypeVar

from queue_core.access.login import Answer, Challenger, Conversation, Login, Proven
from queue_core.access.login_throttle import Throttle
from queue_core.access.mechanisms import ANONYMOUS, PLAIN, UNGUESSABLE, best_first
from queue_core.access.occupancy import NO_LIMITS, Occupancy, Occupant, Place, UserLimits
from queue_core.errors import AccessRefused, StoreUnavailable

log = logging.getLogger(__name__)

SHOWN_NAME_CHARACTERS: Final = 80  # of what a client calls itself, in the log
IMPERSONATOR_TAG: Final = "impersonator"  # of users who may put another's name on a message
UNIX_HOST: Final = "a Unix socket"
# Reset before it was accepted, or a transport that failed.
UNKNOWN_HOST: Final = "an unknown address"
MOST_KEPT_ANSWERS: Final = 65_536
MAX_KEPT_NAME_CHARACTERS: Final = 1024  # of names in an answer that is kept, or of a throttle's key
REVIEWED_AT_ONCE: Final = 100  # connections, before others get their turn
LONGEST_WAIT_SECONDS: Final = 5.0  # of a login after others that failed; a handshake has 10 s
IPV6_SITE_BITS: Final = 64  # whoever has one IPv6 address has all of its network

T = TypeVar("T")


class Action(StrEnum):
    CONFIGURE = "configure"  # declare and delete
    WRITE = "write"  # publish to, bind a queue
    READ = "read"  # consume, get, purge, bind an exchange


ResourceKind = Literal["vhost", "exchange", "queue", "topic"]


@dataclass(frozen=True, slots=True)
class Resource:
    """Names what a client wants to use. For a topic, `name` is its exchange and `routing_key` the
    key in dot form: the rules of the exchange and of the topic must both agree. None is every
    key."""

    kind: ResourceKind
    vhost: str
    name: str = ""
    routing_key: str | None = None


@dataclass(frozen=True, slots=True)
class Peer:
    """Tells where a connection comes from. A peer is local only where its transport says so in so
    many words: by a loopback address, or by a socket of the Unix family."""

    host: str
    port: int = 0
    tls: bool = False
    certificate: tuple[tuple[str, str], ...] = ()  # kinds and names in one that was checked
    is_unix: bool = False
    has_certificate: bool = False  # one that was checked, whether or not it names anybody

    def named_by(self, kind: str) -> str | None:
        """The one name of that kind in the client's certificate. None also where it has several:
        which of them counts would be guesswork."""
        names = [name for each, name in self.certificate if each == kind and name]
        return names[0] if len(names) == 1 else None

    @property
    def is_loopback(self) -> bool:
        """Tells whether the peer is on this machine. One without an address is not: a client that
        sends its bytes and resets the connection before it is accepted has no peer name either."""
        if self.is_unix:
            return True
        address = self._address()
        return address is not None and address.is_loopback

    @property
    def place(self) -> str:
        """Returns by what the peer's failures are counted: an IPv4 address, or the /64 of an IPv6
        one."""
        address = self._address()
        if isinstance(address, ipaddress.IPv6Address) and not address.is_loopback:
            return str(ipaddress.IPv6Network((address, IPV6_SITE_BITS), strict=False))
        return self.host if address is None else str(address)

    @property
    def address(self) -> str:
        """Host and port, as people write them."""
        if not self.port:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def _address(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
        try:
            address = ipaddress.ip_address(self.host.partition("%")[0])
        except ValueError:
            return None
        return getattr(address, "ipv4_mapped", None) or address

    @classmethod
    def described_by(cls, fact: Callable[[str], Any]) -> Self:
        """Makes a peer from what a transport says of itself: pass its `get_extra_info`. One that
        says nothing any more describes nobody."""
        try:
            return cls._described(fact)
        except (AttributeError, OSError, ValueError):  # uvloop's, once its socket is gone
            return cls(UNKNOWN_HOST)

    @classmethod
    def _described(cls, fact: Callable[[str], Any]) -> Self:
        name = fact("peername")
        family = getattr(fact("socket"), "family", None)
        is_unix = family is not None and family == socket.AF_UNIX
        nameless = UNIX_HOST if is_unix else UNKNOWN_HOST
        is_named = isinstance(name, tuple) and not is_unix
        host, port = (name[0], name[1]) if is_named else (nameless, 0)
        # Only what was verified is there: Python shows nothing of a certificate that was not.
        certificate = fact("peercert") or {}
        subject = [pair for part in certificate.get("subject", ()) for pair in part]
        names = (*subject, *certificate.get("subjectAltName", ()))
        has_tls = fact("sslcontext") is not None
        return cls(host, port, has_tls, tuple(names), is_unix, bool(certificate))


@dataclass(frozen=True, slots=True)
class Credentials:
    """Holds what a client says about itself, and how it proves it. Never shown: it holds a
    secret."""

    mechanism: str
    username: str = ""
    password: bytes = b""  # or the mechanism's own proof
    client_id: str = ""

    def __repr__(self) -> str:
        return f"Credentials({self.mechanism}, {self.username!r})"

    @classmethod
    def given(cls, username: str | None, password: bytes | str | None, client_id: str = "") -> Self:
        """A user name and a password, where a protocol lets a client leave out either. Only one
        that gives neither is anonymous; empty ones are what some libraries send for none."""
        if not username and not password:
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

    @classmethod
    def from_response(cls, mechanism: str, response: bytes, client_id: str = "") -> Self:
        """The response of a SASL mechanism that takes one step."""
        if mechanism == PLAIN:
            return cls.from_plain(response, client_id)
        if mechanism == ANONYMOUS:  # what it says is a trace for people, and proves nothing
            return cls(ANONYMOUS, client_id=client_id)
        return cls(mechanism, password=response, client_id=client_id)


@dataclass(frozen=True, slots=True)
class Identity:
    """Tells who a client proved to be."""

    name: str
    tags: frozenset[str] = frozenset()
    is_anonymous: bool = False
    client_id: str = ""  # as given: rules may speak of it
    # Let in by the configuration. Never told by the name: a user may be called guest, too.
    is_built_in: bool = False

    def may_speak_for(self, name: str) -> bool:
        """Whether a message of this client may name that user as its publisher."""
        return name == self.name or IMPERSONATOR_TAG in self.tags

    def is_same_account(self, other: Identity) -> bool:
        mine = (self.name, self.is_anonymous, self.is_built_in)
        return mine == (other.name, other.is_anonymous, other.is_built_in)


NOBODY: Final = Identity("")


class NotChecked(AccessRefused):
    """Refused without a look at the proof: nobody's failure, and worth another try."""


class Authenticator(Protocol):
    """Checks credentials in one way."""

    def mechanisms(self, peer: Peer) -> Sequence[str]:
        """SASL names of what it takes from such a peer, best first."""
        ...

    async def authenticate(self, credentials: Credentials, peer: Peer) -> Identity | None:
        """Tells who the client is; None: another authenticator is to judge that. Raises
        AccessRefused: nobody is asked any more."""
        ...


class Recognizer(Protocol):
    """Knows some clients again, at no cost."""

    async def recognize(self, credentials: Credentials) -> Identity | None:
        """Tells who the client is, where the same proof was right a while ago or is being checked
        already; None says nothing."""
        ...


class Authorizer(Protocol):
    """Judges by one set of rules."""

    def may_enter(self, identity: Identity, vhost: str) -> bool | None:
        """None: no rule of mine speaks of it, ask the next."""
        ...

    def permits(self, identity: Identity, action: Action, resource: Resource) -> bool | None:
        """None: no rule of mine speaks of it, ask the next."""
        ...


class Source(Protocol):
    """Keeps what authenticators and authorizers know."""

    async def refresh(self) -> bool:
        """Looks whether anything was changed. Raises StoreUnavailable."""
        ...


class Guest(Occupant, Protocol):
    """A connection that was let in."""

    def expel(self, reason: str) -> None:
        """Tells the client that it may not be there any more, and ends the connection."""
        ...

    def review(self) -> None:
        """Permissions have changed: ends what it reads and may not read any more; see
        `Auth.loss`."""
        ...


@dataclass(slots=True)
class AuthCounters:
    logins: int = 0
    failed_logins: int = 0
    throttled_logins: int = 0  # refused unchecked: too many failures, or too many at once
    refused_actions: int = 0
    expelled_connections: int = 0  # of users who were removed, or lost their virtual host
    revoked_consumers: int = 0  # consumers and subscriptions of users who may not read any more


class Auth:
    """Asks whoever is plugged in. What nobody allows is refused."""

    def __init__(
        self,
        authenticators: Sequence[Authenticator],
        authorizers: Sequence[Authorizer],
        sources: Sequence[Source] = (),
        throttle: Throttle | None = None,
        challengers: Sequence[Challenger] = (),
        recognizers: Sequence[Recognizer] = (),
    ) -> None:
        self._authenticators = tuple(authenticators)
        self._challengers = tuple(challengers)
        self._authorizers = tuple(authorizers)
        self._sources = tuple(sources)
        self._recognizers = tuple(recognizers)
        self._throttle = throttle or Throttle()
        # No Memo: the bound is on the answers of all, and those of a client that left go with it.
        self._answers: dict[Identity, dict[tuple[Action, Resource], bool]] = {}
        self._kept_answers = 0
        self._guests: dict[Guest, tuple[Identity, str]] = {}
        self._occupancy = Occupancy()
        self._is_stale = False
        self.counters = AuthCounters()
        self.revision = 0  # answers given before it changed may not hold any more

    # --- who

    def mechanisms(self, peer: Peer) -> tuple[str, ...]:
        """SASL mechanisms to offer to a peer, best first."""
        ways: list[Challenger | Authenticator] = [*self._challengers, *self._authenticators]
        return best_first(name for each in ways for name in each.mechanisms(peer))

    def begin(
        self, mechanism: str, peer: Peer, client_id: str = "", *, has_last_word: bool = True
    ) -> Login:
        """A login by a mechanism that is offered, in as many steps as it takes. Raises
        AccessRefused."""
        if mechanism not in self.mechanisms(peer):
            raise self._unknown(mechanism, peer)
        for challenger in self._challengers:
            conversation = challenger.converse(mechanism, peer, client_id)
            if conversation is not None:
                step = partial(self._converse, conversation, peer, client_id)
                return Login(step, has_last_word=has_last_word)

        async def only_step(response: bytes) -> Answer:
            credentials = Credentials.from_response(mechanism, response, client_id)
            return Proven(await self.authenticate(credentials, peer))

        return Login(only_step, has_last_word=has_last_word)

    async def authenticate(self, credentials: Credentials, peer: Peer) -> Identity:
        """Finds who the client is. Raises AccessRefused, with no hint at what was wrong for a
        guesser."""
        name = credentials.username
        identity = await self._recognized(credentials)
        if identity is None:
            ask = partial(self._ask, credentials, peer)
            is_guess = credentials.mechanism not in UNGUESSABLE
            identity = await self._attempt(
                name, peer, ask, is_guess=is_guess, client_id=credentials.client_id
            )
        self.counters.logins += 1
        return identity

    async def _recognized(self, credentials: Credentials) -> Identity | None:
        """A proof that was right before is no guess: nobody's failures keep it waiting."""
        for recognizer in self._recognizers:
            identity = await recognizer.recognize(credentials)
            if identity is not None:
                return identity
        return None

    async def _converse(
        self, conversation: Conversation, peer: Peer, client_id: str, response: bytes
    ) -> Answer:
        """Takes one step of a login; whoever fails in it has failed to log in. Before the client
        has said who it is, there is nobody whose failures could count."""
        name = conversation.username
        step = partial(conversation.step, response)
        is_guess = bool(name)
        answer = await self._attempt(name, peer, step, is_guess=is_guess, client_id=client_id)
        if isinstance(answer, Proven):
            self.counters.logins += 1
        return answer

    async def _attempt(
        self,
        name: str,
        peer: Peer,
        check: Callable[[], Awaitable[T]],
        *,
        is_guess: bool,
        client_id: str,
    ) -> T:
        """Checks, after a while where that name has failed too often from that place. Nobody waits
        for failures of another name, or from another place."""
        key = f"{peer.place} {_short(name)}"
        try:
            if not is_guess:
                return await check()
            await self._wait_for_turn(key, peer)
            try:
                answer = await check()
            except BaseException as error:
                if isinstance(error, NotChecked) or not isinstance(error, AccessRefused):
                    self._throttle.give_back(key)
                raise
        except AccessRefused as error:
            self._count_failure(name, peer, error, client_id)
            raise
        self._throttle.give_back(key)
        return answer

    async def _wait_for_turn(self, key: str, peer: Peer) -> None:
        seconds = self._throttle.charge(key)
        if seconds > LONGEST_WAIT_SECONDS:
            self._throttle.give_back(key)
            raise NotChecked(
                f"too many failed logins of that name from {peer.host}, and others wait already; "
                f"try again in {LONGEST_WAIT_SECONDS:.0f} s"
            )
        if seconds:
            try:
                await self._throttle.pause(seconds)
            except BaseException:
                self._throttle.give_back(key)
                raise

    def _count_failure(self, name: str, peer: Peer, error: AccessRefused, client_id: str) -> None:
        if isinstance(error, NotChecked):
            self.counters.throttled_logins += 1
            return
        self.counters.failed_logins += 1
        client = f" (client '{client_id[:SHOWN_NAME_CHARACTERS]}')" if client_id else ""
        log.warning("login of '%s' from %s refused: %s%s", name, peer.host, error, client)

    async def _ask(self, credentials: Credentials, peer: Peer) -> Identity:
        for authenticator in self._authenticators:
            identity = await authenticator.authenticate(credentials, peer)
            if identity is not None:
                return identity
        raise self._unknown(credentials.mechanism, peer)

    def _unknown(self, mechanism: str, peer: Peer) -> AccessRefused:
        offered = ", ".join(self.mechanisms(peer)) or "none: no login is possible"
        return AccessRefused(
            f"nobody here takes mechanism '{mechanism[:40]}'; use one of {offered}"
        )

    # --- what

    def may_enter(self, identity: Identity, vhost: str) -> bool:
        """Tells whether a client may use a virtual host at all."""
        for authorizer in self._authorizers:
            answer = authorizer.may_enter(identity, vhost)
            if answer is not None:
                return answer
        return False

    def limits_of(self, identity: Identity) -> UserLimits:
        """Finds the limits that operators have set for a user."""
        return NO_LIMITS

    def require_connection(self, identity: Identity, vhost: str, limit: int | None) -> None:
        """Refuses a connection for which a limit of the user, or the virtual host's own `limit`,
        leaves no room. Raises QuotaReached."""
        self._occupancy.require_connection(identity.name, self.limits_of(identity), vhost, limit)

    def opening(self, identity: Identity, vhost: str, limit: int | None) -> Place:
        """Requires a connection, and gives it a place, which others that open meanwhile count."""
        self.require_connection(identity, vhost, limit)
        return Place(self._occupancy, identity.name, vhost)

    def require_channel(self, identity: Identity) -> None:
        """Refuses a channel or session for which the user's limit leaves no room. Raises
        QuotaReached."""
        self._occupancy.require_channel(identity.name, self.limits_of(identity))

    def let_in(self, guest: Guest, identity: Identity, vhost: str) -> None:
        """A connection in that virtual host: it is expelled when it may not enter any more."""
        self._forget_guest(guest)
        self._guests[guest] = (identity, vhost)
        self._occupancy.add(guest, identity.name, vhost)

    def _forget_guest(self, guest: Guest) -> Identity:
        if guest not in self._guests:
            return NOBODY
        identity, vhost = self._guests.pop(guest)
        self._occupancy.remove(guest, identity.name, vhost)
        return identity

    def let_go(self, guest: Guest) -> None:
        """Forgets a connection that has ended. Answers about an identity that was this client's
        alone go with it: fleets that come and go would fill the memory with them."""
        identity = self._forget_guest(guest)
        if identity.client_id:
            self._kept_answers -= len(self._answers.pop(identity, ()))

    @property
    def present(self) -> int:
        """Counts the connections that are let in."""
        return len(self._guests)

    def is_present(self, connection: object) -> bool:
        """Tells whether a connection is let in."""
        return connection in self._guests

    def presence(self, connection: object) -> tuple[Identity, str] | None:
        """Returns the user of a connection that is let in, and its virtual host."""
        return self._guests.get(connection)  # type: ignore[call-overload,no-any-return]

    def authorize(self, identity: Identity, action: Action, resource: Resource) -> bool:
        """Tells whether a client may do that. Never waits."""
        answers = self._answers.get(identity)
        answer = answers.get((action, resource)) if answers is not None else None
        if answer is None:
            answer = self._judge(identity, action, resource)
            self._keep(answer, identity, action, resource)
        if not answer:
            self.counters.refused_actions += 1
        return answer

    def _keep(self, answer: bool, identity: Identity, action: Action, resource: Resource) -> None:
        # A client chooses its id and its topics, up to 64 KiB each: long ones are judged anew.
        if len(resource.routing_key or "") + len(identity.client_id) > MAX_KEPT_NAME_CHARACTERS:
            return
        if self._kept_answers >= MOST_KEPT_ANSWERS:
            self._forget_answers()
        self._answers.setdefault(identity, {})[action, resource] = answer
        self._kept_answers += 1

    def _forget_answers(self) -> None:
        self._answers.clear()
        self._kept_answers = 0

    def require(self, identity: Identity, action: Action, resource: Resource) -> None:
        """Requires a right that `authorize` tells of. Raises AccessRefused, in words that an
        operator can act on."""
        if not self.authorize(identity, action, resource):
            what = f"{resource.kind} '{resource.routing_key or resource.name}'"
            if resource.kind == "topic" and resource.routing_key is None:
                what = f"every topic of exchange '{resource.name}'"
            raise AccessRefused(
                f"user '{identity.name}' has no {action} access to {what} in vhost "
                f"'{resource.vhost}'; grant it with `howdah user grant`"
            )

    def loss(self, identity: Identity, right: Resource) -> AccessRefused | None:
        """Why it may not read any more what it has been reading, counted; None: it may."""
        try:
            self.require(identity, Action.READ, right)
        except AccessRefused as error:
            self.counters.revoked_consumers += 1
            log.info("a consumer ends: %s", error)
            return error
        return None

    def _judge(self, identity: Identity, action: Action, resource: Resource) -> bool:
        if resource.kind == "vhost":
            return self.may_enter(identity, resource.vhost)
        for authorizer in self._authorizers:
            answer = authorizer.permits(identity, action, resource)
            if answer is not None:
                return answer
        return False

    # --- changes

    async def refresh(self) -> bool:
        """Looks for changes; True when whatever was changed before is in force. What is known stays
        while the database is away."""
        try:
            changes = [await source.refresh() for source in self._sources]
        except StoreUnavailable as error:
            if not self._is_stale:
                log.warning("users and permissions stay as last read: %s", error)
            self._is_stale = True
            return False
        self._is_stale = False
        if any(changes):
            self._forget_answers()
            self.revision += 1
            await self._review()
        return True

    async def _review(self) -> None:
        for number, (guest, (identity, vhost)) in enumerate(list(self._guests.items()), 1):
            if number % REVIEWED_AT_ONCE == 0:
                await asyncio.sleep(0)
            if guest not in self._guests:
                continue
            try:
                if self.may_enter(identity, vhost):
                    guest.review()
                else:
                    self._expel(
                        guest, f"user '{identity.name}' may not use vhost '{vhost}' any more"
                    )
            except Exception:
                log.exception("a bug: what a user has lost may not have ended")

    def _expel(self, guest: Guest, reason: str) -> None:
        self.let_go(guest)
        self.counters.expelled_connections += 1
        log.info("a connection ends: %s", reason)
        guest.expel(reason)


def _short(name: str) -> str:
    """The name, or its digest where it is long: anybody may choose ten thousand of them."""
    if len(name) <= MAX_KEPT_NAME_CHARACTERS:
        return name
    return hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=32).hexdigest()
