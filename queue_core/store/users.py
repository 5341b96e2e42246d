"""Users, their passwords and their permissions in PostgreSQL: read by the gateway, changed by
operators.

Answers for the tables user, permission and topic_permission. It does not judge anybody.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg
from sqlalchemy import (
    ColumnElement,
    Executable,
    Row,
    Select,
    Table,
    delete,
    func,
    literal_column,
    select,
    union_all,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queue_core.accounts import DEFAULT_VHOST, Permission, Roll, TopicPermission, User
from queue_core.errors import InvalidArgument, StoreUnavailable, VhostNotFound
from queue_core.scram import Verifier
from queue_core.store.schema import permission, secret, topic_permission, user

log = logging.getLogger(__name__)

LONGEST_NAME: Final = 255

# Every version of a row has its own place and transaction, whoever wrote it: their sum tells any
# change, also one by hand, without sending a row. 1 ms for a thousand users.
_VERSION: Final[ColumnElement[int]] = literal_column(
    "hashtextextended(ctid::text || xmin::text, 0)"
)


def _revision_of(table: Table) -> Select[int, int]:
    return select(func.count(), func.coalesce(func.sum(_VERSION), 0)).select_from(table)


_REVISION: Final = union_all(*map(_revision_of, (user, permission, topic_permission)))
_MOCK_KEY: Final = select(secret.c.value).where(secret.c.name == "mock salt")
_IS_NEW: Final[ColumnElement[bool]] = literal_column("xmax = 0")


class StoredRoll:
    """The roll of users as the gateway reads it."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def revision(self) -> object:
        async with _reading(self._engine) as connection:
            return sorted(tuple(row) for row in await connection.execute(_REVISION))

    async def read(self) -> Roll:
        async with _reading(self._engine) as connection:
            users = await connection.execute(select(user))
            permissions = await connection.execute(select(permission))
            topics = await connection.execute(select(topic_permission))
            mock_key = (await connection.execute(_MOCK_KEY)).scalar_one()
        return Roll(
            {row.name: _user(row) for row in users},
            {
                (row.user_name, row.vhost): Permission(row.configure, row.write, row.read)
                for row in permissions
            },
            {
                (row.user_name, row.vhost, row.exchange): TopicPermission(row.write, row.read)
                for row in topics
            },
            mock_key,
        )


def _user(row: Row[Any]) -> User:
    try:
        verifier = None if row.scram_verifier is None else Verifier.parsed(row.scram_verifier)
    except ValueError as error:  # written by hand
        log.warning("user '%s' cannot log in by SCRAM: %s; set its password", row.name, error)
        verifier = None
    return User(row.name, row.password_hash, frozenset(row.tags), verifier)


class Users:
    """The same tables as an operator changes them. A running gateway notices within a second."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def roll(self) -> Roll:
        """Everybody, as of now."""
        return await StoredRoll(self._engine).read()

    async def put(
        self,
        name: str,
        password_hash: str | None,
        tags: Iterable[str] | None = None,
        verifier: Verifier | None = None,
        first: Permission | None = None,
    ) -> bool:
        """Makes a user, or gives an existing one a new password; True if it is new. `first` is what
        a new one may do in virtual host `/`, from the same moment on."""
        _check_name(name)
        values: dict[str, object] = {
            "password_hash": password_hash,
            "scram_verifier": None if verifier is None else str(verifier),
            "changed_at": func.now(),
        }
        if tags is not None:
            values["tags"] = sorted(set(tags))
        made = insert(user).values(name=name, **values)
        statement = made.on_conflict_do_update(index_elements=[user.c.name], set_=values)
        async with _changing(self._engine) as connection:
            is_new = bool((await connection.execute(statement.returning(_IS_NEW))).scalar_one())
            if is_new and first is not None:
                given = {"configure": first.configure, "write": first.write, "read": first.read}
                await connection.execute(
                    insert(permission).values(user_name=name, vhost=DEFAULT_VHOST, **given)
                )
        return is_new

    async def remove(self, name: str) -> bool:
        """With all its permissions; False if there was none."""
        async with _changing(self._engine) as connection:
            result = await connection.execute(delete(user).where(user.c.name == name))
            return result.rowcount > 0

    async def grant(self, name: str, vhost: str, given: Permission) -> None:
        """In place of what it was granted in that virtual host before."""
        _check_patterns(configure=given.configure, write=given.write, read=given.read)
        values = {"configure": given.configure, "write": given.write, "read": given.read}
        statement = insert(permission).values(user_name=name, vhost=vhost, **values)
        keys = [permission.c.user_name, permission.c.vhost]
        await self._grant(
            statement.on_conflict_do_update(index_elements=keys, set_=values), name, vhost
        )

    async def grant_topic(
        self, name: str, vhost: str, exchange: str, given: TopicPermission
    ) -> None:
        _check_patterns(write=given.write, read=given.read)
        values = {"write": given.write, "read": given.read}
        statement = insert(topic_permission).values(
            user_name=name, vhost=vhost, exchange=exchange, **values
        )
        keys = [topic_permission.c.user_name, topic_permission.c.vhost, topic_permission.c.exchange]
        await self._grant(
            statement.on_conflict_do_update(index_elements=keys, set_=values), name, vhost
        )

    async def revoke(self, name: str, vhost: str) -> bool:
        """Everything in that virtual host; False if nothing was granted there."""
        async with _changing(self._engine) as connection:
            removed = [
                (
                    await connection.execute(
                        delete(table).where(table.c.user_name == name, table.c.vhost == vhost)
                    )
                ).rowcount
                for table in (permission, topic_permission)
            ]
            return any(removed)

    async def _grant(self, statement: Executable, name: str, vhost: str) -> None:
        try:
            async with _changing(self._engine) as connection:
                await connection.execute(statement)
        except IntegrityError as error:
            if "vhost" in str(error.orig).partition("DETAIL")[0]:
                raise VhostNotFound(f"there is no virtual host '{vhost}'") from error
            raise InvalidArgument(
                f"there is no user '{name}'; make it first with `howdah user add {name}`"
            ) from error


@asynccontextmanager
async def _reading(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    async with _reaching("read"), engine.connect() as connection:
        yield connection


@asynccontextmanager
async def _changing(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    async with _reaching("changed"), engine.begin() as connection:
        yield connection


@asynccontextmanager
async def _reaching(what: str) -> AsyncIterator[None]:
    try:
        yield
    except IntegrityError:
        raise  # the database is there, and right
    except (SQLAlchemyError, asyncpg.PostgresError, OSError, TimeoutError) as error:
        # Only the driver's own words: SQLAlchemy adds the statement with its values.
        said = getattr(error, "orig", None) or error
        reason = str(said).splitlines()[0] if str(said) else type(said).__name__
        raise StoreUnavailable(f"users cannot be {what}: {reason}") from error


def _check_name(name: str) -> None:
    if not 0 < len(name.encode()) <= LONGEST_NAME or not name.isprintable():
        raise InvalidArgument(
            f"a user name has 1 to {LONGEST_NAME} bytes of printable text; '{name}' does not"
        )


def _check_patterns(**patterns: str) -> None:
    for what, pattern in patterns.items():
        try:
            re.compile(pattern)
        except re.error as error:
            raise InvalidArgument(
                f"{what} '{pattern}' is not a regular expression: {error}"
            ) from error
