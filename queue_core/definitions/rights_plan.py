"""The part of a plan that says who may log in, and what they may do: users, virtual hosts,
permissions and topic permissions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import astuple
from typing import Final

from queue_core.access.accounts import GUEST, Permission, TopicPermission, User
from queue_core.access.passwords import hash_password, is_hash_of, weakness_of
from queue_core.access.rabbitmq_passwords import (
    MD5,
    is_from_rabbitmq,
    is_password_of,
    kept_hash,
    rabbitmq_algorithm,
)
from queue_core.access.scram import Verifier
from queue_core.definitions.document import Document
from queue_core.definitions.items import (
    PermissionItem,
    Section,
    TopicPermissionItem,
    UserItem,
    VhostItem,
    table,
    words,
)
from queue_core.definitions.plan import Account, Action, Step, without_repetitions
from queue_core.definitions.present import Present
from queue_core.definitions.settings_plan import VhostPlanner, read_limits
from queue_core.errors import InvalidArgument
from queue_core.queues.spec import is_storable

ARGON2ID: Final = "howdah_argon2id"  # the algorithm's name in our own files
ARGON2_PREFIX: Final = "$argon2id$"
LONGEST_NAME: Final = 255  # bytes
USER_LIMITS: Final = ("max-connections", "max-channels")
WEAK_HASH: Final = "its hash is MD5, which is weak; its first login replaces it"
DEFAULT_GUEST: Final = (
    "its password is 'guest', by which anybody could log in from the network, whereas RabbitMQ "
    "lets it in from loopback only; give it another with `howdah user add guest`, or see auth.guest"
)


class RightsPlanner:
    """Judges the users, virtual hosts and permissions of a document. Who is not taken has no
    permissions either. A new password that is written out has at least `shortest_password`
    characters."""

    def __init__(self, document: Document, present: Present, shortest_password: int) -> None:
        self._document = document
        self._shortest_password = shortest_password
        self._present = present
        self._users: set[str] = set(present.roll.users)  # that are there when all is done
        self.vhosts: set[str] = set(present.vhosts)
        self._vhosts = VhostPlanner(present)

    def steps(self) -> Iterator[Step]:
        for step in without_repetitions(map(self._user, self._document.of(UserItem))):
            if step.is_made:
                self._users.add(step.name)
            yield step
        for step in without_repetitions(map(self._vhosts.step, self._document.of(VhostItem))):
            if step.is_made:
                self.vhosts.add(step.name)
            yield step
        permissions = self._document.of(PermissionItem)
        yield from without_repetitions(map(self._permission, permissions))
        topics = self._document.of(TopicPermissionItem)
        yield from without_repetitions(map(self._topic_permission, topics))

    # --- users

    def _user(self, item: UserItem) -> Step:
        before = self._present.roll.users.get(item.name)
        try:
            _require_user_name(item.name)
            user = _wanted_user(item, before, self._shortest_password)
        except InvalidArgument as error:
            return Step(Section.USERS, item.name, None, Action.UNSUPPORTED, str(error))
        limits, notes = read_limits(table(item.limits), USER_LIMITS)
        differs = [] if before is None else _differences(before, user)
        if limits != self._present.settings.user_limits.get(item.name, {}):
            differs.append("limits")
        action = Action.CREATE if before is None else Action.CHANGE if differs else Action.SAME
        reason = f"other {' and '.join(differs)}" if action is Action.CHANGE else ""
        reason = WEAK_HASH if _is_weak(user) else reason
        wanted = Account(user, limits)
        return Step(Section.USERS, item.name, None, action, reason, notes, wanted)

    # --- permissions

    def _permission(self, item: PermissionItem) -> Step:
        wanted = Permission(item.configure, item.write, item.read)
        before = self._present.roll.permissions.get((item.user, item.vhost))
        action, reason = self._judged(item, wanted, before)
        return Step(Section.PERMISSIONS, item.user, item.vhost, action, reason, (), wanted)

    def _topic_permission(self, item: TopicPermissionItem) -> Step:
        wanted = TopicPermission(item.write, item.read)
        key = (item.user, item.vhost, item.exchange)
        before = self._present.roll.topic_permissions.get(key)
        action, reason = self._judged(item, wanted, before)
        section = Section.TOPIC_PERMISSIONS
        return Step(section, item.user, item.vhost, action, reason, (), wanted, item.exchange)

    def _judged(
        self,
        item: PermissionItem | TopicPermissionItem,
        wanted: Permission | TopicPermission,
        before: Permission | TopicPermission | None,
    ) -> tuple[Action, str]:
        if item.user not in self._users:
            return Action.UNSUPPORTED, f"there is no user '{item.user}', and none is taken"
        if item.vhost not in self.vhosts:
            return Action.UNSUPPORTED, f"there is no virtual host '{item.vhost}'"
        if mistake := _pattern_mistake(wanted):
            return Action.UNSUPPORTED, mistake
        if before is None:
            return Action.CREATE, ""
        return (Action.SAME, "") if before == wanted else (Action.CHANGE, "other patterns")


def _require_user_name(name: str) -> None:
    if not 0 < len(name.encode()) <= LONGEST_NAME or not name.isprintable():
        raise InvalidArgument(f"a user name has 1 to {LONGEST_NAME} bytes of printable text")


def _wanted_user(item: UserItem, before: User | None, shortest_password: int) -> User:
    """Makes the user as it will be. A password that is written out and is the user's already keeps
    the hash that it has. Raises InvalidArgument."""
    tags = frozenset(words(item.tags))
    if not all(map(is_storable, tags)):
        raise InvalidArgument("a tag is text without NUL")
    if item.password is not None and item.password_hash is None:
        _require_password(item)
        old = None if before is None else before.password_hash
        if before is not None and old is not None and is_hash_of(old, item.password.encode()):
            return User(item.name, old, tags, before.verifier)
        if weakness := weakness_of(item.name, item.password, shortest_password):
            raise InvalidArgument(weakness)
        return User(item.name, hash_password(item.password), tags, Verifier.of(item.password))
    if item.password_hash is None:
        raise InvalidArgument(
            "it has neither password_hash nor password; an empty hash is no login"
        )
    if item.hashing_algorithm == ARGON2ID:
        return User(item.name, _argon2_hash(item.password_hash), tags, _verifier(item))
    kept = kept_hash(item.password_hash, item.hashing_algorithm)
    if item.name == GUEST and kept is not None and is_password_of(kept, GUEST.encode()):
        raise InvalidArgument(DEFAULT_GUEST)
    return User(item.name, kept, tags, _verifier(item))


def _require_password(item: UserItem) -> None:
    if not item.password or not is_storable(item.password):
        raise InvalidArgument("its password is empty, or has a NUL in it")
    if item.name == item.password == GUEST:
        raise InvalidArgument(DEFAULT_GUEST)


def _argon2_hash(text: str) -> str:
    if not text.startswith(ARGON2_PREFIX) or not is_storable(text):
        raise InvalidArgument(f"password_hash is none of {ARGON2ID}, as hashing_algorithm says")
    return text


def _verifier(item: UserItem) -> Verifier | None:
    if item.scram_verifier is None:
        return None
    try:
        return Verifier.parsed(item.scram_verifier)
    except ValueError as error:
        raise InvalidArgument(f"scram_verifier: {error}") from None


def _differences(before: User, wanted: User) -> list[str]:
    """Names what else a file says of a user; its limits are compared apart."""
    kept = (before.password_hash, before.verifier)
    differs = {
        "password": kept != (wanted.password_hash, wanted.verifier),
        "tags": before.tags != wanted.tags,
    }
    return [name for name, is_other in differs.items() if is_other]


def _is_weak(user: User) -> bool:
    kept = user.password_hash
    return kept is not None and is_from_rabbitmq(kept) and rabbitmq_algorithm(kept) == MD5


def _pattern_mistake(wanted: Permission | TopicPermission) -> str:
    for pattern in astuple(wanted):
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            return f"'{pattern}' is no regular expression here: {error}"
        if not is_storable(pattern):
            return "a pattern is text without NUL"
    return ""
