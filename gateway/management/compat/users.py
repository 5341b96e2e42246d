"""Users: `/api/users`, `/api/whoami` and `/api/auth/hash_password`.

Administrators see the hashes of passwords, as in RabbitMQ, so that a user can be read and written
back; passwords themselves, and what SCRAM needs, are shown to nobody.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from gateway.management.answers import NO_CONTENT, Reply, created_or_changed
from gateway.management.api_errors import ApiError, bad_request, not_found
from gateway.management.call import Call
from gateway.management.changed_rights import in_force
from gateway.management.lists import ColumnsQuery, Listing, ListQuery
from gateway.management.roles import Role
from gateway.management.routes import Body, NoQuery, Route
from queue_core.access.accounts import User
from queue_core.access.passwords import hash_password, weakness_of
from queue_core.access.rabbitmq_passwords import (
    SHA256,
    in_rabbitmqs_words,
    is_from_rabbitmq,
    kept_hash,
    rabbitmq_hash,
)
from queue_core.access.scram import Verifier
from queue_core.errors import InvalidArgument

ARGON2ID: Final = "howdah_argon2id"  # RabbitMQ has no such algorithm, and refuses it by name
ARGON2ID_PREFIX: Final = "$argon2id$"
MOST_PASSWORD_CHARACTERS: Final = 1024


class UserRow(Struct, frozen=True):
    """One user of RabbitMQ's list."""

    name: str
    password_hash: str  # empty: no login by password
    hashing_algorithm: str
    tags: list[str]
    limits: dict[str, int] = {}


class UserBody(Body, frozen=True):
    """A user as it is to be: with a password, with a hash of one, or without."""

    tags: Annotated[
        str | list[str] | None, Meta(description="a list, or names by commas; required")
    ] = None
    password: Annotated[str, Meta(max_length=MOST_PASSWORD_CHARACTERS)] | None = None
    password_hash: Annotated[str, Meta(description="empty: no login by password")] | None = None
    hashing_algorithm: str | None = None


class BulkDeleteBody(Body, frozen=True):
    users: list[str]


class WhoAmI(Struct, frozen=True):
    name: str
    tags: list[str]
    is_internal_user: bool = True


class HashBody(Body, frozen=True):
    password: Annotated[str, Meta(min_length=1, max_length=MOST_PASSWORD_CHARACTERS)]


class HashedPassword(Struct, frozen=True):
    ok: str


def row(user: User) -> UserRow:
    """Describes a user to an administrator."""
    kept = user.password_hash or ""
    hashed, algorithm = in_rabbitmqs_words(kept) if is_from_rabbitmq(kept) else (kept, ARGON2ID)
    named = algorithm if kept else SHA256
    return UserRow(user.name, hashed, named, sorted(user.tags), user.limits.set_ones)


def user_in_path(call: Call[Any, Any]) -> User:
    """Returns the user that the path names. Raises 404."""
    name = call.path["user"]
    user = call.manager.auth.accounts.roll.users.get(name)
    if user is None:
        raise not_found(f"there is no user '{name}'")
    return user


def _sorted_users(call: Call[ListQuery, None]) -> list[User]:
    return sorted(call.manager.auth.accounts.roll.users.values(), key=lambda user: user.name)


# --- looking


async def list_users(call: Call[ListQuery, None]) -> Listing[User]:
    return Listing(_sorted_users(call), row)


async def list_without_permissions(call: Call[ListQuery, None]) -> Listing[User]:
    granted = {name for name, _ in call.manager.auth.accounts.roll.permissions}
    return Listing([user for user in _sorted_users(call) if user.name not in granted], row)


async def show(call: Call[ColumnsQuery, None]) -> UserRow:
    return row(user_in_path(call))


async def who_am_i(call: Call[NoQuery, None]) -> WhoAmI:
    return WhoAmI(call.identity.name, sorted(call.caller.tags))


# --- changing


async def put(call: Call[NoQuery, UserBody]) -> Reply:
    name, body = call.path["user"], call.body
    if body.tags is None:
        raise ApiError(400, "bad_request", "tags is missing: send a list, which may be empty")
    tags = body.tags.split(",") if isinstance(body.tags, str) else body.tags
    named = [tag.strip() for tag in tags if tag.strip()]
    password_hash, verifier = await _secrets(call, name)
    users = call.manager.stored_users
    is_new = await users.put(name, password_hash, named, verifier)
    await in_force(call.manager)
    return created_or_changed(is_new=is_new)


async def _secrets(call: Call[NoQuery, UserBody], name: str) -> tuple[str | None, Verifier | None]:
    """Makes what is stored of a password. A hash that the user has already keeps its verifier."""
    body = call.body
    if body.password is not None:
        if body.password_hash is not None:
            raise bad_request("send a password or a password_hash, not both")
        shortest = call.services.config.auth.min_password_length
        if weakness := weakness_of(name, body.password, shortest):
            raise bad_request(weakness)
        return await asyncio.to_thread(_hashed, body.password)
    if not body.password_hash:
        return None, None
    kept = _kept(body.password_hash, body.hashing_algorithm)
    user = call.manager.auth.accounts.roll.users.get(name)
    is_same = user is not None and user.password_hash == kept
    return kept, user.verifier if user is not None and is_same else None


def _hashed(password: str) -> tuple[str, Verifier]:
    """Takes a tenth of a second: not for the event loop."""
    return hash_password(password), Verifier.of(password)


def _kept(password_hash: str, algorithm: str | None) -> str | None:
    if algorithm == ARGON2ID:
        if not password_hash.startswith(ARGON2ID_PREFIX) or not password_hash.isascii():
            raise InvalidArgument(f"password_hash is none of {ARGON2ID}")
        return password_hash
    return kept_hash(password_hash, algorithm or SHA256)


async def delete(call: Call[NoQuery, None]) -> Reply:
    if not await call.manager.stored_users.remove(call.path["user"]):
        raise not_found(f"there is no user '{call.path['user']}'")
    await in_force(call.manager)
    return NO_CONTENT


async def bulk_delete(call: Call[NoQuery, BulkDeleteBody]) -> Reply:
    """Removes users in one transaction; names that nobody has are no error, as in RabbitMQ."""
    await call.manager.stored_users.remove_all(call.body.users)
    await in_force(call.manager)
    return NO_CONTENT


async def hash_in_path(call: Call[NoQuery, None]) -> HashedPassword:
    return HashedPassword(rabbitmq_hash(call.path["password"].encode()))


async def hash_in_body(call: Call[NoQuery, HashBody]) -> HashedPassword:
    return HashedPassword(rabbitmq_hash(call.body.password.encode()))


ADMINISTRATOR: Final = Role.ADMINISTRATOR
USER: Final = "/api/users/{user}"
HASH: Final = "/api/auth/hash_password"

ROUTES: Final = (
    Route(
        method="GET",
        path="/api/whoami",
        handler=who_am_i,
        summary="The user who asks",
        answer=WhoAmI,
    ),
    Route(
        method="GET",
        path="/api/users",
        handler=list_users,
        summary="All users",
        role=ADMINISTRATOR,
        query=ListQuery,
        answer=UserRow,
        is_list=True,
    ),
    Route(
        method="GET",
        path="/api/users/without-permissions",
        handler=list_without_permissions,
        summary="Users who may not enter any virtual host",
        role=ADMINISTRATOR,
        query=ListQuery,
        answer=UserRow,
        is_list=True,
    ),
    Route(
        method="POST",
        path="/api/users/bulk-delete",
        handler=bulk_delete,
        summary="Remove several users with their permissions",
        role=ADMINISTRATOR,
        body=BulkDeleteBody,
        statuses=(204,),
    ),
    Route(
        method="GET",
        path=USER,
        handler=show,
        summary="One user",
        role=ADMINISTRATOR,
        query=ColumnsQuery,
        answer=UserRow,
    ),
    Route(
        method="PUT",
        path=USER,
        handler=put,
        summary="Make a user, or change its tags and password",
        role=ADMINISTRATOR,
        body=UserBody,
    ),
    Route(
        method="DELETE",
        path=USER,
        handler=delete,
        summary="Remove a user with its permissions",
        role=ADMINISTRATOR,
    ),
    Route(
        method="PUT",
        path=HASH,
        handler=hash_in_body,
        summary="Hash a password as RabbitMQ does",
        body=HashBody,
        answer=HashedPassword,
        statuses=(200,),
    ),
    Route(
        method="GET",
        path=HASH + "/{password}",
        handler=hash_in_path,
        summary="Hash a password as RabbitMQ does; proxies log the path, PUT is better",
        answer=HashedPassword,
    ),
)
