"""The doctor on a cluster: nobody stands by, or a node's sessions could not be ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from queue_core.store.nodes.cluster_node import join_cluster
from queue_core.store.nodes.rows import NodeTerms
from queue_core.store.operator.cluster_check import cluster
from queue_core.store.operator.finding import Level
from tests.support.logins import a_login, logged_in
from tests.support.until import PATIENCE_SECONDS


@asynccontextmanager
async def node(url: str, name: str, *, rises: bool) -> AsyncIterator[None]:
    joined = await join_cluster(url, NodeTerms(name, 1024, cluster="here", lease_ms=60_000))
    try:
        if rises:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await joined.until_up()
        yield
    finally:
        await joined.leave()


async def test_a_database_without_a_cluster_has_nothing_to_be_blamed_for(
    db: asyncpg.Connection,
) -> None:
    (finding,) = await cluster(db)
    assert finding.level is Level.OK


async def test_a_node_that_nobody_stands_by_for_is_named_until_another_joins(
    db: asyncpg.Connection, migrated_url: str
) -> None:
    async with node(migrated_url, "first", rises=True):
        (finding,) = await cluster(db)
        assert finding.level is Level.WARN
        assert "node 'first' of cluster 'here' serves, and no other stands by" in finding.what
        assert "cluster.enabled" in finding.way_out
        async with node(migrated_url, "second", rises=False):
            (finding,) = await cluster(db)
            assert finding.level is Level.OK
            assert finding.what == "node 'first' serves; standing by: second"


async def test_a_login_that_may_not_end_a_nodes_sessions_is_told_which_grant_it_lacks(
    db: asyncpg.Connection, migrated_url: str
) -> None:
    async with (
        a_login(db, migrated_url, "howdah_gateway") as url,
        node(url, "first", rises=True),
        node(url, "second", rises=False),
        logged_in(db, migrated_url, "howdah_gateway") as other,
    ):
        login = await other.fetchval("SELECT current_user")
        found = await cluster(other)
        assert [finding.level for finding in found] == [Level.WARN, Level.WARN]
        assert "node 'first' is logged in as" in found[0].what
        assert f'GRANT pg_signal_backend TO "{login}"' in found[0].way_out
        await db.execute(f"GRANT pg_signal_backend TO {login}")
        assert [finding.level for finding in await cluster(other)] == [Level.OK]


async def test_a_superusers_sessions_are_out_of_reach_whatever_is_granted(
    db: asyncpg.Connection, migrated_url: str
) -> None:
    roles = ("howdah_gateway", "pg_signal_backend")
    async with (
        node(migrated_url, "first", rises=True),  # as the superuser of the test's server
        node(migrated_url, "second", rises=False),
        logged_in(db, migrated_url, *roles) as other,
    ):
        assert {finding.level for finding in await cluster(other)} == {Level.WARN}


async def test_nodes_with_the_same_login_may_end_each_others_sessions(
    db: asyncpg.Connection, migrated_url: str
) -> None:
    async with a_login(db, migrated_url, "howdah_gateway") as url:
        connection = await asyncpg.connect(url)
        try:
            async with node(url, "first", rises=True), node(url, "second", rises=False):
                (finding,) = await cluster(connection)
                assert finding.level is Level.OK
        finally:
            await connection.close()
