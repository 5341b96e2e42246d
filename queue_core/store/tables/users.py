"""The tables user, permission and topic_permission: read by the gateway, changed by operators.
Passwords are stored here and checked elsewhere."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any, Final

import asyncpg
from sqlalchemy import Executable, Row, Table, delete, func, select, union_all, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.types import Text

from queue_core.access.accounts import DEFAULT_VHOST, Permission, Roll, TopicPermission, User
from queue_core.access.occupancy import UserLimits
from queue_core.access.password_renewal import RenewedHash
from queue_core.access.scram import Verifier
from queue_core.errors import InvalidArgument, StoreUnavailable, VhostNotFound
from queue_core.queues.spec import is_storable
from queue_core.store.schema import permission, secret, topic_permission, user
from queue_core.store.tables.limits import checked_limit
from queue_core.store.tables.row_versions import IS_NEW, revision_of
from queue_core.store.tables.table_transactions import begin, transaction, unnested

log = logging.getLogger(__name__)

LONGEST_NAME: Final = 255

# The limits of a user, as RabbitMQ names them, and their columns.
LIMITS: Final = {"max-connections": user.c.max_connections, "max-channels": user.c.max_channels}

_REVISION: Final = union_all(*map(revision_of, (user, permission, topic_permission)))
_MOCK_KEY: Final = select(secret.c.value).where(secret.c.name == "mock salt")


class StoredRoll:
    """Reads all users and permissions for the gateway, and renews password hashes for it."""

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

    async def renew(self, renewed: Sequence[RenewedHash]) -> None:
        """Writes the hashes of users whose hash is still the one that was replaced: an operator
        may have set a password meanwhile."""
        given = unnested(
            name=([each.name for each in renewed], Text),
            replaces=([each.replaces for each in renewed], Text),
            password_hash=([each.password_hash for each in renewed], Text),
            verifier=([each.verifier and str(each.verifier) for each in renewed], Text),
        )
        statement = (
            update(user)
            .where(user.c.name == given.c.name, user.c.password_hash == given.c.replaces)
            .values(
                password_hash=given.c.password_hash,
                scram_verifier=given.c.verifier,
                changed_at=func.now(),
            )
        )
        async with transaction(self._engine) as connection:
            await connection.execute(statement)


def _user(row: Row[Any]) -> User:
    try:
        verifier = None if row.scram_verifier is None else Verifier.parsed(row.scram_verifier)
    except ValueError as error:  # written by hand
        log.warning("user '%s' cannot log in by SCRAM: %s; set its password", row.name, error)
        verifier = None
    limits = UserLimits(row.max_connections, row.max_channels)
    return User(row.name, row.password_hash, frozenset(row.tags), verifier, limits)


class Users:
    """Changes users and permissions for an operator; each call is one transaction. A running
    gateway hears of it at once: see `rights_changes`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def roll(self) -> Roll:
        """Reads all users and permissions, as of now."""
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
            values["tags"] = sorted(map(_storable_tag, set(tags)))
        made = insert(user).values(name=name, **values)
        statement = made.on_conflict_do_update(index_elements=[user.c.name], set_=values)
        async with _changing(self._engine) as connection:
            is_new = bool((await connection.execute(statement.returning(IS_NEW))).scalar_one())
            if is_new and first is not None:
                await connection.execute(
                    _granting(permission, _patterns(first), name, DEFAULT_VHOST)
                )
        return is_new

    async def set_limit(self, name: str, limit: str, value: int | None) -> None:
        """Sets a limit of a user; None takes it away."""
        values = {checked_limit(limit, LIMITS, value).name: value}
        statement = update(user).where(user.c.name == name).values(**values)
        async with _changing(self._engine) as connection:
            if not (await connection.execute(statement)).rowcount:
                raise InvalidArgument(f"there is no user '{name}': see `howdah user list`")

    async def remove(self, name: str) -> bool:
        """Removes a user with all its permissions; False if there was none."""
        async with _changing(self._engine) as connection:
            result = await connection.execute(delete(user).where(user.c.name == name))
            return result.rowcount > 0

    async def remove_all(self, names: Iterable[str]) -> int:
        """Removes users with all their permissions, all or none; returns how many there were."""
        async with _changing(self._engine) as connection:
            result = await connection.execute(delete(user).where(user.c.name.in_(list(names))))
            return result.rowcount

    async def grant(
        self,
        name: str,
        vhost: str,
        given: Permission | None,
        topics: Mapping[str, TopicPermission] | None = None,
    ) -> None:
        """Replaces what the user may do in a virtual host, and on the given topic exchanges there,
        in one change."""
        statements: list[Executable] = []
        if given is not None:
            statements.append(_granting(permission, _patterns(given), name, vhost))
        for exchange, rule in (topics or {}).items():
            if not is_storable(exchange):
                raise InvalidArgument("the name of an exchange is text without NUL")
            names = {"exchange": exchange}
            statements.append(_granting(topic_permission, _patterns(rule), name, vhost, **names))
        try:
            async with _changing(self._engine) as connection:
                for statement in statements:
                    await connection.execute(statement)
        except IntegrityError as error:
            if "vhost" in str(error.orig).partition("DETAIL")[0]:
                raise VhostNotFound(f"there is no virtual host '{vhost}'") from error
            raise InvalidArgument(
                f"there is no user '{name}'; make it first with `howdah user add {name}`"
            ) from error

    async def revoke_names(self, name: str, vhost: str) -> bool:
        """Revokes what the user may do to names in a virtual host, which it may not enter any more;
        rules for topics stay for when it may again. False if nothing was granted there."""
        ours = (permission.c.user_name == name, permission.c.vhost == vhost)
        async with _changing(self._engine) as connection:
            return (await connection.execute(delete(permission).where(*ours))).rowcount > 0

    async def revoke_topics(self, name: str, vhost: str, exchange: str | None = None) -> bool:
        """Takes back the rules for topics of one exchange, or of all; what the user may do to names
        stays. False if there were none."""
        ours = [topic_permission.c.user_name == name, topic_permission.c.vhost == vhost]
        if exchange is not None:
            ours.append(topic_permission.c.exchange == exchange)
        async with _changing(self._engine) as connection:
            return (await connection.execute(delete(topic_permission).where(*ours))).rowcount > 0

    async def revoke(self, name: str, vhost: str) -> bool:
        """Revokes everything that the user may do in a virtual host; False if nothing was granted
        there."""
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


def _granting(
    table: Table, patterns: dict[str, str], name: str, vhost: str, **names: str
) -> Executable:
    keys = {"user_name": name, "vhost": vhost, **names}
    made = insert(table).values(**keys, **patterns)
    return made.on_conflict_do_update(index_elements=list(keys), set_=patterns)


def _patterns(given: Permission | TopicPermission) -> dict[str, str]:
    """Returns the columns of a permission. Raises InvalidArgument for what is no regular
    expression."""
    patterns = {name: str(value) for name, value in asdict(given).items()}
    for what, pattern in patterns.items():
        if not is_storable(pattern):
            raise InvalidArgument(f"{what}: a regular expression is text without NUL")
        try:
            re.compile(pattern)
        except re.error as error:
            raise InvalidArgument(
                f"{what} '{pattern}' is not a regular expression: {error}"
            ) from error
    return patterns


@asynccontextmanager
async def _reading(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Opens one view of all tables: half of somebody's transaction would be more than was ever
    granted, such as a permission without the topic rule that narrows it."""
    async with _reaching("read"), engine.connect() as connection:
        yield await connection.execution_options(isolation_level="REPEATABLE READ")


@asynccontextmanager
async def _changing(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    async with _reaching("changed"), begin(engine) as connection:
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


def _storable_tag(tag: str) -> str:
    if not tag or not is_storable(tag):
        raise InvalidArgument("a tag is text without NUL, and not empty")
    return tag


def _check_name(name: str) -> None:
    if not 0 < len(name.encode()) <= LONGEST_NAME or not name.isprintable():
        raise InvalidArgument(
            f"a user name has 1 to {LONGEST_NAME} bytes of printable text; '{name}' does not"
        )
