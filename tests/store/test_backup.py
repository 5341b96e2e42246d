"""A dump of the schema, taken while the gateway runs, is a database that a gateway goes on from."""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gateway.postgres.binaries import find_binaries
from gateway.postgres.server import EmbeddedPostgres
from queue_core.delivery.consumer import Position
from queue_core.message.message import Message
from queue_core.outcomes import ACCEPTED
from tests.support.managers import BRISK, House, bodies
from tests.support.postgres import chosen_bin_dir, execute, fetch_value


async def run(server: EmbeddedPostgres, program: str, url: str, *options: str) -> None:
    """A program that came with the server, on one database."""
    beside = find_binaries(server.data_dir / "postgres", chosen_bin_dir()).bin_dir / program
    path = str(beside) if beside.exists() else shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed")
    parts = urlsplit(url)
    process = await asyncio.create_subprocess_exec(
        *(path, *options, f"--host={parts.hostname}", f"--port={parts.port}"),
        *(f"--username={parts.username}", f"--dbname={parts.path.lstrip('/')}"),
        env={**os.environ, "PGPASSWORD": parts.password or ""},
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()


async def dumped(server: EmbeddedPostgres, house: House, folder: Path) -> str:
    """The name of a dump of the house's database."""
    dump = str(folder / "howdah.dump")
    options = ("--schema=howdah", "--format=custom", f"--file={dump}")
    await run(server, "pg_dump", house.url, *options)
    return dump


async def test_a_gateway_goes_on_from_a_dump_that_was_taken_while_another_ran(
    postgres_server: EmbeddedPostgres, house: House, database_url: str, tmp_path: Path
) -> None:
    queue = await house.queue("q", max_length=100)
    await house.vhost.bind("amq.direct", queue, "k")
    await house.store("q", *(b"%d" % i for i in range(6)))
    inbox, _ = await house.consume("q", credit=4)
    taken = await inbox.has(4)
    house.vhost.settle([taken[0], taken[1], taken[3]], ACCEPTED)
    await house.stream()
    await house.store("s", b"a", b"b", b"c")
    stream = await house.stream()
    stream.commit_cursor("g", 1)
    await house.flushed()

    dump = await dumped(postgres_server, house, tmp_path)
    await house.store("q", b"after the dump")
    execute(house.url, "SELECT howdah.publish('q', 'to the first one only')")
    await run(postgres_server, "pg_restore", database_url, "--no-owner", "--exit-on-error", dump)
    execute(database_url, "SELECT howdah.publish('q', 'from SQL')")
    assert fetch_value(database_url, "SELECT lag FROM howdah.queue_status WHERE queue = 'q'") == 3

    restored = await House(database_url).open()
    try:
        assert restored.vhost.queues["q"].spec.max_length == 100
        restored.vhost.publish(Message(b"by its binding", "amq.direct", routing_key="k"))
        await restored.flushed()
        await restored.until(lambda: restored.vhost.queues["q"].counts().ready == 5)
        found = await restored.drain()
        assert sorted(bodies(found)) == sorted([b"2", b"4", b"5", b"by its binding", b"from SQL"])
        assert [delivery.offset for delivery in found] == [2, 4, 5, 6, 7]
        inbox, _ = await restored.consume("s", ACCEPTED, group="g", start=Position(name="first"))
        assert bodies(await inbox.has(1)) == [b"c"]
        cause = "SELECT cause FROM howdah.loss"
        assert fetch_value(database_url, cause) == "unproven"  # nobody kept a record
    finally:
        await restored.close()


async def test_a_dump_that_is_restored_on_purpose_is_served_and_numbers_go_on_behind_the_original(
    postgres_server: EmbeddedPostgres, migrated_url: str, database_url: str, tmp_path: Path
) -> None:
    store = replace(BRISK.store, record_folder=tmp_path / "data")
    settings = replace(BRISK, store=store)
    house = await House(migrated_url, settings=settings).open()
    await house.stream("s")
    await house.store("s", b"0", b"1")
    dump = await dumped(postgres_server, house, tmp_path)
    await house.store("s", b"2", b"3", b"4")
    await house.close()
    await run(postgres_server, "pg_restore", database_url, "--no-owner", "--exit-on-error", dump)
    restored = await House(database_url, settings=settings).open()
    try:
        details = "SELECT string_agg(detail, ' ' ORDER BY id) FROM howdah.loss"
        assert "commits with 3 messages" in str(fetch_value(database_url, details))
        assert restored.vhost.queue("s").counts().ready == 2
        await restored.store("s", b"new")
        newest = 'SELECT max("offset") FROM howdah.message'
        assert fetch_value(database_url, newest) == 5  # nobody takes it for the original's 2
    finally:
        await restored.close()
    # The original misses nothing, though its copy was served from the same folder.
    house = await House(migrated_url, settings=settings).open()
    await house.close()
    assert fetch_value(migrated_url, "SELECT count(*) FROM howdah.loss") == 0
