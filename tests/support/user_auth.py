"""Logins against users in memory: users, permissions and policy that a test sets by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from queue_core.access.accounts import (
    Permission,
    Roll,
    TopicPermission,
    User,
    UserAuth,
)
from queue_core.access.auth import (
    Auth,
    Credentials,
    Identity,
    Peer,
)
from queue_core.access.login_throttle import Throttle
from queue_core.access.password_renewal import RenewedHash
from queue_core.access.passwords import hash_password
from queue_core.errors import StoreUnavailable

HERE = Peer("127.0.0.1", 40000)
AWAY = Peer("192.0.2.7", 40000)
PUMP = Peer("192.0.2.8", 40000, True, (("commonName", "machine"), ("DNS", "pump-7.example")))
ADA_HASH = hash_password("correct horse")


class FakeRoll:
    """A source that tests change by hand."""

    def __init__(self, roll: Roll) -> None:
        self.roll = roll
        self.number = 1
        self.is_away = False
        self.reads = 0
        self.renewed = asyncio.Event()

    def change(self, roll: Roll) -> None:
        self.roll = roll
        self.number += 1

    async def revision(self) -> object:
        if self.is_away:
            raise StoreUnavailable("the database is away")
        return self.number

    async def read(self) -> Roll:
        self.reads += 1
        return self.roll

    async def renew(self, renewed: Sequence[RenewedHash]) -> None:
        if self.is_away:
            raise StoreUnavailable("the database is away")
        users = dict(self.roll.users)
        for each in renewed:
            if (old := users.get(each.name)) and old.password_hash == each.replaces:
                users[each.name] = replace(
                    old, password_hash=each.password_hash, verifier=each.verifier
                )
        self.change(replace(self.roll, users=users))
        self.renewed.set()


@dataclass(frozen=True)
class FakePolicy:
    """None: from loopback only, and while there are no users."""

    anonymous: bool | None = None
    guest: bool | None = None
    certificate_name: str = "commonName"

    def admits_anonymous(self, *, is_loopback: bool, has_users: bool) -> bool:
        return is_loopback and not has_users if self.anonymous is None else self.anonymous

    def admits_guest(self, *, is_loopback: bool, has_users: bool) -> bool:
        return is_loopback and not has_users if self.guest is None else self.guest


ROLL = Roll(
    users={
        "ada": User("ada", ADA_HASH, frozenset({"administrator"})),
        "machine": User("machine"),
    },
    permissions={
        ("ada", "/"): Permission("^ada-", "^(ada-.*|amq\\.topic|amq\\.default)$", ".*"),
        ("ada", "empty"): Permission(),
    },
    topic_permissions={
        ("ada", "/", "amq.topic"): TopicPermission("^plant\\.{client_id}\\.", "^{username}\\.")
    },
)


async def auth_of(
    roll: Roll = ROLL, policy: FakePolicy | None = None, **options: Throttle
) -> tuple[UserAuth, FakeRoll]:
    source = FakeRoll(roll)
    auth = UserAuth(source, policy or FakePolicy(), **options)
    await auth.refresh()
    return auth, source


async def login(auth: Auth, username: str, password: str, peer: Peer = HERE) -> Identity:
    return await auth.authenticate(Credentials.given(username, password), peer)


class ThrottleClock:
    """Time that passes when somebody waits."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def throttle(self, burst: int = 2, seconds: float = 1.0) -> Throttle:
        return Throttle(burst, seconds, self, self.pause)
