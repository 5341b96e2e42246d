"""The table of policies: changed by operators, noticed by a running gateway."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Row, delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from queue_core.errors import CoreError, VhostNotFound
from queue_core.policies.policy import Policy
from queue_core.policies.policy_set import PolicySet
from queue_core.store.schema import policy
from queue_core.store.tables.row_versions import IS_NEW, revision_of
from queue_core.store.tables.table_transactions import reading, transaction

log = logging.getLogger(__name__)

_REVISION: Final = revision_of(policy)


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """A policy, and the virtual host that it belongs to."""

    vhost: str
    policy: Policy


class Policies:
    """Reads and changes policies; each change is one transaction. A running gateway hears of it at
    once: see `rights_changes`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def revision(self) -> object:
        """Gives what stays equal as long as no policy is changed."""
        async with reading(self._engine) as connection:
            return tuple((await connection.execute(_REVISION)).one())

    async def all(
        self, vhost: str | None = None, *, is_operator: bool | None = None
    ) -> list[StoredPolicy]:
        """Lists policies in the order in which they are tried. Rows that were written by hand and
        make no sense are told in the log, and left out."""
        statement = select(policy).order_by(policy.c.vhost)
        if vhost is not None:
            statement = statement.where(policy.c.vhost == vhost)
        if is_operator is not None:
            statement = statement.where(policy.c.is_operator == is_operator)
        async with reading(self._engine) as connection:
            rows = list(await connection.execute(statement))
        found = []
        for row in rows:
            if (read := _policy(row)) is not None:
                found.append(StoredPolicy(row.vhost, read))
            await asyncio.sleep(0)  # a pattern that is new takes up to a millisecond to compile
        return sorted(found, key=lambda each: (each.vhost, *each.policy.order))

    async def sets(self) -> Mapping[str, PolicySet]:
        """Reads the policies of each virtual host that has some."""
        by_vhost: dict[str, list[Policy]] = {}
        for each in await self.all():
            by_vhost.setdefault(each.vhost, []).append(each.policy)
        return {vhost: PolicySet(policies) for vhost, policies in by_vhost.items()}

    async def put(self, vhost: str, given: Policy) -> bool:
        """Makes a policy, or replaces the one of that name; True if it is new."""
        values: dict[str, Any] = {
            "pattern": given.pattern,
            "apply_to": given.apply_to.value,
            "priority": given.priority,
            "definition": dict(given.definition),
            "changed_at": func.now(),
        }
        made = insert(policy).values(
            vhost=vhost, name=given.name, is_operator=given.is_operator, **values
        )
        keys = [policy.c.vhost, policy.c.name, policy.c.is_operator]
        statement = made.on_conflict_do_update(index_elements=keys, set_=values)
        try:
            async with transaction(self._engine) as connection:
                result = await connection.execute(statement.returning(IS_NEW))
                return bool(result.scalar_one())
        except IntegrityError as error:
            raise VhostNotFound(f"there is no virtual host '{vhost}'") from error

    async def remove(self, vhost: str, name: str, *, is_operator: bool = False) -> bool:
        """Removes a policy; False if there was none of that name."""
        statement = delete(policy).where(
            policy.c.vhost == vhost, policy.c.name == name, policy.c.is_operator == is_operator
        )
        async with transaction(self._engine) as connection:
            return (await connection.execute(statement)).rowcount > 0


def _policy(row: Row[Any]) -> Policy | None:
    try:
        return Policy.parse(
            row.name,
            row.pattern,
            row.definition,
            apply_to=row.apply_to,
            priority=row.priority,
            is_operator=row.is_operator,
        )
    except CoreError as error:
        log.error(
            "a row of howdah.policy in virtual host '%s' was written by hand, and is left out: %s. "
            "Way out: set the policy again with `howdah policy set`, or clear it",
            row.vhost,
            error,
        )
        return None
