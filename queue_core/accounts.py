"""Users with passwords and permissions, and the two strangers that a fresh gateway lets in.

`guest` (password guest) and clients without credentials come in where the policy says so, by
default from loopback only, and may do everything in virtual host `/`. A user of that name in the
table takes their place, with its own password and permissions. Permissions are regular expressions
as RabbitMQ reads them. Where users are kept is the roll's business, not known here.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from queue_core.auth import ANONYMOUS, PLAIN, Action, Auth, Credentials, Identity, Peer, Resource
from queue_core.errors import AccessRefused
from queue_core.passwords import PasswordChecker, nobodys_hash
from queue_core.throttle import Throttles

GUEST: Final = "guest"
ANONYMOUS_NAME: Final = "anonymous"
DEFAULT_VHOST: Final = "/"
DEFAULT_EXCHANGE: Final = "amq.default"  # how rules call the exchange without a name
WRONG: Final = "wrong user name or password"
NOTHING: Final = re.compile(r"(?!)")


@dataclass(frozen=True, slots=True)
class User:
    name: str
    password_hash: str | None = None  # None: no login by password
    tags: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Permission:
    """What a user may do in a virtual host: regular expressions of names."""

    configure: str = ""
    write: str = ""
    read: str = ""


@dataclass(frozen=True, slots=True)
class TopicPermission:
    """What a user may do on a topic exchange: regular expressions of routing keys, in which
    {username}, {vhost} and {client_id} stand for the client's own."""

    write: str = ""
    read: str = ""


EVERYTHING: Final = Permission(".*", ".*", ".*")


@dataclass(frozen=True, slots=True)
class Roll:
    """All users and what they may do, as of one moment."""

    users: Mapping[str, User] = field(default_factory=dict)
    permissions: Mapping[tuple[str, str], Permission] = field(default_factory=dict)
    topic_permissions: Mapping[tuple[str, str, str], TopicPermission] = field(default_factory=dict)


class RollSource(Protocol):
    """Where the roll is kept."""

    async def revision(self) -> object:
        """Equal as long as nothing was changed. Raises StoreUnavailable."""
        ...

    async def read(self) -> Roll:
        """Raises StoreUnavailable."""
        ...


class Policy(Protocol):
    """Which strangers may come in."""

    def admits_anonymous(self, *, is_loopback: bool) -> bool: ...
    def admits_guest(self, *, is_loopback: bool) -> bool: ...


class Accounts:
    """The roll as last read, with the expressions compiled when first asked for."""

    def __init__(self, source: RollSource) -> None:
        self._source = source
        self._revision: object = None
        self._patterns: dict[tuple[str, ...], re.Pattern[str]] = {}
        self.roll = Roll()

    @property
    def has_users(self) -> bool:
        """Whether somebody has said who may come in."""
        return any(user.password_hash for user in self.roll.users.values())

    async def refresh(self) -> bool:
        # Asked first: a change between the two is seen again next time, never missed.
        revision = await self._source.revision()
        if revision == self._revision:
            return False
        self.roll = await self._source.read()
        self._revision = revision
        return True

    def permission(self, identity: Identity, vhost: str) -> Permission | None:
        found = self.roll.permissions.get((identity.name, vhost))
        if found is not None or identity.name in self.roll.users:
            return found
        is_stranger = identity.is_anonymous or identity.name == GUEST
        return EVERYTHING if is_stranger and vhost == DEFAULT_VHOST else None

    def pattern(self, text: str, *names: str) -> re.Pattern[str]:
        """Compiled; `names` take the places of {username}, {vhost} and {client_id}. What cannot be
        compiled matches nothing."""
        key = (text, *names)
        pattern = self._patterns.get(key)
        if pattern is None:
            for place, name in zip(("{username}", "{vhost}", "{client_id}"), names, strict=False):
                text = text.replace(place, re.escape(name))
            pattern = _compiled(text)
            if len(self._patterns) >= 10_000:
                self._patterns.clear()
            self._patterns[key] = pattern
        return pattern


def _compiled(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text or r"\A\Z")  # an empty expression permits nothing, as '^$' does
    except re.error:
        return NOTHING


class AnonymousLogin:
    """Clients without credentials."""

    def __init__(self, accounts: Accounts, policy: Policy) -> None:
        self._accounts = accounts
        self._policy = policy

    def mechanisms(self, peer: Peer) -> Sequence[str]:
        is_admitted = self._policy.admits_anonymous(is_loopback=peer.is_loopback)
        return (ANONYMOUS,) if is_admitted else ()

    async def authenticate(self, credentials: Credentials, peer: Peer) -> Identity | None:
        if credentials.mechanism != ANONYMOUS:
            return None
        if not self._policy.admits_anonymous(is_loopback=peer.is_loopback):
            raise AccessRefused(
                "a user name and a password are needed here; "
                "auth.allow_anonymous says who may come without"
            )
        user = self._accounts.roll.users.get(ANONYMOUS_NAME)
        tags = user.tags if user else frozenset[str]()
        return Identity(ANONYMOUS_NAME, tags, True, credentials.client_id)


class PasswordLogin:
    """Users of the roll, and guest."""

    def __init__(self, accounts: Accounts, policy: Policy, passwords: PasswordChecker) -> None:
        self._accounts = accounts
        self._policy = policy
        self._passwords = passwords

    def mechanisms(self, peer: Peer) -> Sequence[str]:
        return (PLAIN,)

    async def authenticate(self, credentials: Credentials, peer: Peer) -> Identity | None:
        if credentials.mechanism != PLAIN:
            return None
        name, password = credentials.username, credentials.password
        user = self._accounts.roll.users.get(name)
        if user is None and name == GUEST and hmac.compare_digest(password, GUEST.encode()):
            if self._policy.admits_guest(is_loopback=peer.is_loopback):
                return Identity(GUEST, client_id=credentials.client_id)
            raise AccessRefused(
                "user guest may not come in from here; make users with `howdah user add`, "
                "or set auth.guest"
            )
        password_hash = (user.password_hash if user else None) or nobodys_hash()
        is_right = await self._passwords.is_right(password, password_hash)
        if user is None or not is_right:
            raise AccessRefused(WRONG)
        return Identity(name, user.tags, False, credentials.client_id)


class TablePermissions:
    """What the roll says."""

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
        if pattern.search(name) is None:
            return False
        return resource.kind != "topic" or self._permits_topic(identity, action, resource)

    def _permits_topic(self, identity: Identity, action: Action, resource: Resource) -> bool:
        """A topic exchange without a rule for the user is open to it, as in RabbitMQ."""
        rules = self._accounts.roll.topic_permissions
        rule = rules.get((identity.name, resource.vhost, resource.name))
        if rule is None or action is Action.CONFIGURE:
            return True
        text = rule.write if action is Action.WRITE else rule.read
        names = (identity.name, resource.vhost, identity.client_id)
        return self._accounts.pattern(text, *names).search(resource.routing_key or "") is not None


class UserAuth(Auth):
    """The seam on users and permissions."""

    def __init__(
        self, source: RollSource, policy: Policy, *, throttles: Throttles | None = None
    ) -> None:
        self.passwords = PasswordChecker()
        self.accounts = Accounts(source)
        super().__init__(
            (
                PasswordLogin(self.accounts, policy, self.passwords),
                AnonymousLogin(self.accounts, policy),
            ),
            (TablePermissions(self.accounts),),
            (self.accounts,),
            throttles,
        )

    def close(self) -> None:
        self.passwords.close()
