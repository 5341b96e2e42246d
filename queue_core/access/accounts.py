"""Users with passwords and permissions, and the two strangers that a fresh gateway lets in.

`guest` (password guest) and clients without credentials come in where the policy says so, by
default from loopback only and only while there are no users, and may do everything in virtual host
`/`. A user of that name in the table takes their place, with its own password and permissions.
Permissions are regular expressions as RabbitMQ reads them. A user proves who it is by its password,
as it is or by SCRAM, or by a certificate that names it. Where users are kept is known to the roll
alone.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final, Protocol

from queue_core.access.auth import (
    MAX_KEPT_NAME_CHARACTERS,
    Action,
    Auth,
    Credentials,
    Identity,
    Peer,
    Resource,
)
from queue_core.access.login import Answer, Challenge, Proven
from queue_core.access.login_throttle import Throttle
from queue_core.access.mechanisms import ANONYMOUS, EXTERNAL, PLAIN, SCRAM_SHA_256
from queue_core.access.occupancy import NO_LIMITS, UserLimits
from queue_core.access.password_renewal import HashWriter, PasswordRenewal
from queue_core.access.passwords import PasswordChecker, nobodys_hash
from queue_core.access.permission_patterns import matches, pattern_for
from queue_core.access.rabbitmq_passwords import is_from_rabbitmq
from queue_core.access.scram import ClientFirst, ScramServer, Verifier
from queue_core.errors import AccessRefused
from queue_core.message.memo import Memo

GUEST: Final = "guest"
ANONYMOUS_NAME: Final = "anonymous"
DEFAULT_VHOST: Final = "/"
DEFAULT_EXCHANGE: Final = "amq.default"  # how rules call the exchange without a name
WRONG: Final = "wrong user name or password"
MAX_PATTERNS: Final = 10_000  # compiled, with the names that stand in them
EVERY_KEY: Final = frozenset((".*", "^.*", "^.*$", ".*$"))  # rules that plainly keep nobody out


@dataclass(frozen=True, slots=True)
class User:
    name: str
    password_hash: str | None = None  # None: no login by password
    tags: frozenset[str] = frozenset()
    verifier: Verifier | None = None  # None: no login by SCRAM
    limits: UserLimits = NO_LIMITS


@dataclass(frozen=True, slots=True)
class Permission:
    """Says what a user may do in a virtual host: regular expressions of names."""

    configure: str = ""
    write: str = ""
    read: str = ""


@dataclass(frozen=True, slots=True)
class TopicPermission:
    """Says what a user may do on a topic exchange: regular expressions of routing keys, in which
    {username}, {vhost} and {client_id} stand for the client's own."""

    write: str = ""
    read: str = ""


EVERYTHING: Final = Permission(".*", ".*", ".*")


@dataclass(frozen=True, slots=True)
class Roll:
    """Lists all users and what they may do, as of one moment."""

    users: Mapping[str, User] = field(default_factory=dict)
    permissions: Mapping[tuple[str, str], Permission] = field(default_factory=dict)
    topic_permissions: Mapping[tuple[str, str, str], TopicPermission] = field(default_factory=dict)
    mock_key: bytes = field(default_factory=lambda: secrets.token_bytes(32))  # for nobody's salts

    @property
    def has_users(self) -> bool:
        """Tells whether somebody has said who may come in. A row that says what clients without
        credentials may do, and nobody can log in as, is no user."""
        return any(
            user.password_hash or user.verifier or user.name != ANONYMOUS_NAME
            for user in self.users.values()
        )


class RollSource(HashWriter, Protocol):
    """Reads the roll from where it is kept, and renews password hashes there."""

    async def revision(self) -> object:
        """Equal as long as nothing was changed. Raises StoreUnavailable."""
        ...

    async def read(self) -> Roll:
        """Raises StoreUnavailable."""
        ...


class Policy(Protocol):
    """Says which clients without a user may come in, and what is a user name in a certificate."""

    def admits_anonymous(self, *, is_loopback: bool, has_users: bool) -> bool: ...
    def admits_guest(self, *, is_loopback: bool, has_users: bool) -> bool: ...

    @property
    def certificate_name(self) -> str:
        """Tells which kind of name in a client's certificate is its user name, as Python calls
        it."""
        ...


class Accounts:
    """The roll as last read, with the expressions compiled when first asked for."""

    def __init__(self, source: RollSource, policy: Policy) -> None:
        self._source = source
        self._policy = policy
        self._revision: object = None
        self._patterns: Memo[tuple[str, ...], re.Pattern[str]] = Memo(MAX_PATTERNS)
        self._roll = Roll()
        self._has_users = True  # a roll that was never read is no proof that there are none

    @property
    def roll(self) -> Roll:
        return self._roll

    @roll.setter
    def roll(self, roll: Roll) -> None:
        self._roll, self._has_users = roll, roll.has_users

    @property
    def has_users(self) -> bool:
        """Tells what `Roll.has_users` tells, found once for each roll: it is asked at every
        login."""
        return self._has_users

    def admits_anonymous(self, *, is_loopback: bool) -> bool:
        return self._policy.admits_anonymous(is_loopback=is_loopback, has_users=self.has_users)

    def admits_guest(self, *, is_loopback: bool) -> bool:
        return self._policy.admits_guest(is_loopback=is_loopback, has_users=self.has_users)

    async def refresh(self) -> bool:
        # Asked first: a change between the two is seen again next time, never missed.
        revision = await self._source.revision()
        if revision == self._revision:
            return False
        self.roll = await self._source.read()
        self._revision = revision
        return True

    def permission(self, identity: Identity, vhost: str) -> Permission | None:
        """Finds what a client may do in a virtual host; None: it may not even enter. Whoever came
        in by a row has what that row has, and nothing once it is gone; whoever the configuration
        let in goes when a row takes that name, or when the configuration would not let it in any
        more."""
        has_row = identity.name in self.roll.users
        if identity.is_anonymous and not self.admits_anonymous(is_loopback=True):
            return (
                None  # a row says what clients without credentials may do, not that they may come
            )
        if not identity.is_built_in:
            return self.roll.permissions.get((identity.name, vhost)) if has_row else None
        if has_row or vhost != DEFAULT_VHOST:
            return None
        admits = self.admits_anonymous if identity.is_anonymous else self.admits_guest
        # From loopback, where only the number of users changes the answer: the peer was asked for
        # when it came in, and the configuration stays as it is.
        return EVERYTHING if admits(is_loopback=True) else None

    def pattern(self, text: str, *names: str) -> re.Pattern[str]:
        """Compiles a regular expression; `names` take the places of {username}, {vhost} and
        {client_id}. What cannot be compiled matches nothing."""
        key = (text, *names)
        pattern = self._patterns.get(key)
        if pattern is None:
            pattern = pattern_for(text, names)
            if sum(map(len, names)) <= MAX_KEPT_NAME_CHARACTERS:
                self._patterns.keep(key, pattern)
        return pattern


class AnonymousLogin:
    """Clients without credentials."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    def mechanisms(self, peer: Peer) -> Sequence[str]:
        is_admitted = self._accounts.admits_anonymous(is_loopback=peer.is_loopback)
        return (ANONYMOUS,) if is_admitted else ()

    async def authenticate(self, credentials: Credentials, peer: Peer) -> Identity | None:
        if credentials.mechanism != ANONYMOUS:
            return None
        if not self._accounts.admits_anonymous(is_loopback=peer.is_loopback):
            raise AccessRefused(
                "a user name and a password are needed here; "
                "auth.allow_anonymous says who may come without"
            )
        user = self._accounts.roll.users.get(ANONYMOUS_NAME)
        tags = user.tags if user else frozenset[str]()
        return Identity(ANONYMOUS_NAME, tags, True, credentials.client_id, is_built_in=user is None)


class PasswordLogin:
    """Users of the roll, and guest."""

    def __init__(
        self, accounts: Accounts, passwords: PasswordChecker, renewal: PasswordRenewal
    ) -> None:
        self._accounts = accounts
        self._passwords = passwords
        self._renewal = renewal

    def mechanisms(self, peer: Peer) -> Sequence[str]:
        return (PLAIN,)

    async def authenticate(self, credentials: Credentials, peer: Peer) -> Identity | None:
        if credentials.mechanism != PLAIN:
            return None
        name, password = credentials.username, credentials.password
        user = self._accounts.roll.users.get(name)
        if user is None and name == GUEST and hmac.compare_digest(password, GUEST.encode()):
            if self._accounts.admits_guest(is_loopback=peer.is_loopback):
                return Identity(GUEST, client_id=credentials.client_id, is_built_in=True)
            raise AccessRefused(
                "the built-in user guest comes in from loopback only, and only while there are no "
                "users; make one with `howdah user add`, or set auth.guest"
            )
        password_hash = (user.password_hash if user else None) or nobodys_hash()
        is_right = await self._passwords.is_right(password, password_hash, peer.place)
        if user is None or not is_right:
            raise AccessRefused(WRONG)
        return self._identity(user, credentials)

    async def recognize(self, credentials: Credentials) -> Identity | None:
        user = self._accounts.roll.users.get(credentials.username)
        if credentials.mechanism != PLAIN or user is None or user.password_hash is None:
            return None
        if not await self._passwords.is_known(credentials.password, user.password_hash):
            return None
        return self._identity(user, credentials)

    def _identity(self, user: User, credentials: Credentials) -> Identity:
        """Makes the identity of a user whose password is right: the moment to replace a hash that
        came from RabbitMQ."""
        if user.password_hash is not None and is_from_rabbitmq(user.password_hash):
            self._renewal.submit(user.name, user.password_hash, credentials.password)
        return Identity(user.name, user.tags, False, credentials.client_id)


class ScramLogin:
    """Logs users in by SCRAM-SHA-256: the password is proven, and never sent."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    def mechanisms(self, peer: Peer) -> Sequence[str]:
        return (SCRAM_SHA_256,)

    def converse(self, mechanism: str, peer: Peer, client_id: str) -> ScramConversation | None:
        if mechanism != SCRAM_SHA_256:
            return None
        admits_guest = self._accounts.admits_guest(is_loopback=peer.is_loopback)
        return ScramConversation(self._accounts, client_id, admits_guest=admits_guest)


@cache
def _guests_verifier() -> Verifier:
    return Verifier.of(GUEST)


class ScramConversation:
    """Two messages of the client's. Whoever cannot log in this way is challenged all the same: who
    exists, and who has no verifier yet, is not for strangers to find out (RFC 5802, section 9)."""

    def __init__(self, accounts: Accounts, client_id: str, *, admits_guest: bool) -> None:
        self._accounts = accounts
        self._client_id = client_id
        self._admits_guest = admits_guest
        self._server: ScramServer | None = None
        self._asked_by: Verifier | None = None
        self.username = ""

    async def step(self, response: bytes) -> Answer:
        if self._server is not None:
            return self._judge(self._server, response)
        if not response:
            return Challenge(b"")  # the client begins (RFC 4422, section 3)
        first = ClientFirst.parsed(response)
        self.username = first.username
        self._asked_by = self._verifier(first.username)
        self._server = ScramServer(first, self._asked_by)
        return Challenge(self._server.first_message.encode())

    def _verifier(self, name: str) -> Verifier:
        roll = self._accounts.roll
        user = roll.users.get(name)
        if user is None and name == GUEST and self._admits_guest:
            return _guests_verifier()
        found = None if user is None else user.verifier
        return found or Verifier.nobodys(roll.mock_key, name)

    def _judge(self, server: ScramServer, response: bytes) -> Proven:
        final = server.final_message(response)
        if final is None or self._verifier(self.username) != self._asked_by:  # changed meanwhile
            raise AccessRefused(WRONG)
        user = self._accounts.roll.users.get(self.username)
        tags = user.tags if user else frozenset[str]()
        identity = Identity(self.username, tags, False, self._client_id, is_built_in=user is None)
        return Proven(identity, final.encode())


class CertificateLogin:
    """Users whom a certificate names that the listener has verified."""

    def __init__(self, accounts: Accounts, policy: Policy) -> None:
        self._accounts = accounts
        self._policy = policy

    def mechanisms(self, peer: Peer) -> Sequence[str]:
        return () if self._name(peer) is None else (EXTERNAL,)

    def _name(self, peer: Peer) -> str | None:
        return peer.named_by(self._policy.certificate_name)

    async def authenticate(self, credentials: Credentials, peer: Peer) -> Identity | None:
        name = self._name(peer)
        if credentials.mechanism != EXTERNAL or name is None:
            return None
        acts_for = credentials.password.decode(errors="replace")
        if acts_for not in ("", name):
            raise AccessRefused(
                f"the certificate of '{name}' does not speak for '{acts_for[:80]}'; leave the "
                "authorization identity out"
            )
        user = self._accounts.roll.users.get(name)
        if user is None:
            raise AccessRefused(
                f"the certificate names '{name}', who is no user here; make it with "
                f"`howdah user add {name} --no-password`"
            )
        return Identity(name, user.tags, False, credentials.client_id)


class TablePermissions:
    """Authorizes by the permissions in the roll."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    def may_enter(self, identity: Identity, vhost: str) -> bool:
        return self._accounts.permission(identity, vhost) is not None

    def permits(self, identity: Identity, action: Action, resource: Resource) -> bool:
        permission = self._accounts.permission(identity, resource.vhost)
        if permission is None:
            return False
        name = resource.name
        if not name and resource.kind != "queue":
            name = DEFAULT_EXCHANGE
        pattern = self._accounts.pattern(getattr(permission, action.value))
        if not matches(pattern, name):
            return False
        return resource.kind != "topic" or self._permits_topic(identity, action, resource)

    def _permits_topic(self, identity: Identity, action: Action, resource: Resource) -> bool:
        """A topic exchange without a rule for the user is open to it, as in RabbitMQ."""
        rules = self._accounts.roll.topic_permissions
        rule = rules.get((identity.name, resource.vhost, resource.name))
        if rule is None or action is Action.CONFIGURE:
            return True
        text = rule.write if action is Action.WRITE else rule.read
        if resource.routing_key is None:
            return text in EVERY_KEY
        names = (identity.name, resource.vhost, identity.client_id)
        return matches(self._accounts.pattern(text, *names), resource.routing_key)


class UserAuth(Auth):
    """The seam on users and permissions."""

    def __init__(
        self, source: RollSource, policy: Policy, *, throttle: Throttle | None = None
    ) -> None:
        self.passwords = PasswordChecker()
        self.accounts = Accounts(source, policy)
        self._renewal = PasswordRenewal(source, self.passwords)
        passwords = PasswordLogin(self.accounts, self.passwords, self._renewal)
        super().__init__(
            (CertificateLogin(self.accounts, policy), passwords, AnonymousLogin(self.accounts)),
            (TablePermissions(self.accounts),),
            (self.accounts,),
            throttle,
            (ScramLogin(self.accounts),),
            (passwords,),
        )

    def limits_of(self, identity: Identity) -> UserLimits:
        user = self.accounts.roll.users.get(identity.name)
        return NO_LIMITS if user is None else user.limits

    async def close(self) -> None:
        await self._renewal.close()
        self.passwords.close()
