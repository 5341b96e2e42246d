"""When a write fails for a reason that is nobody's message: all wait, the log says why, nothing is
refused or lost, and it goes on by itself when the cause is gone."""

from __future__ import annotations

import asyncio
import logging
import secrets

import asyncpg
import pytest

from queue_core.errors import InvalidArgument, StoreUnavailable
from queue_core.outcomes import ACCEPTED, Outcome, Verdict
from queue_core.queues.spec import QueueSpec
from queue_core.store import log_once as complaints
from queue_core.store.tables import table_transactions as cold
from queue_core.store.write import journal_generation
from tests.support.managers import House, Told, bodies
from tests.support.until import until

NOBODYS_FAULT = {
    "57014": "statement timeout",
    "40P01": "deadlock",
    "40001": "serialization",
    "53100": "disk full",
    "53200": "out of memory",
    "53300": "too many connections",
    "42501": "permission revoked",
    "25006": "read-only server",
    "42P01": "table dropped",
    "58030": "I/O error",
    "XX000": "internal error",
}


class Trouble:
    """Makes every change of some tables fail as the server would."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._db = connection

    async def begin(self, code: str, table: str, change: str = "INSERT") -> None:
        await self._db.execute(
            f"""
            CREATE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN RAISE EXCEPTION 'trouble with {table}' USING ERRCODE = '{code}'; END $$;
            CREATE TRIGGER trouble BEFORE {change} ON howdah.{table}
                FOR EACH ROW EXECUTE FUNCTION public.fail();
            """
        )

    async def end(self) -> None:
        await self._db.execute("DROP FUNCTION public.fail() CASCADE")


@pytest.fixture
def trouble(db: asyncpg.Connection) -> Trouble:
    return Trouble(db)


async def said(caplog: pytest.LogCaptureFixture, text: str) -> None:
    """Returns when the log has this text."""
    await until(lambda: text in caplog.text, f"the log says '{text}'")


@pytest.mark.parametrize("table", ["message", "settlement", "segment"])
async def test_what_is_written_waits_until_the_cause_is_gone(
    migrated_url: str, trouble: Trouble, caplog: pytest.LogCaptureFixture, table: str
) -> None:
    house = await House(migrated_url).with_segments(size=1).open()  # a new one for each batch
    await house.queue()
    inbox, _ = await house.consume("q", ACCEPTED)
    told = Told()
    for number, code in enumerate(NOBODYS_FAULT):
        caplog.clear()
        await trouble.begin(code, table)
        house.put("q", b"%d" % number, told=told)
        await said(caplog, f"trouble with {table}")
        assert not house.manager.is_ready
        if table != "settlement":
            assert len(told.committed) == number
        await trouble.end()
        await inbox.has(number + 1)
        await house.flushed()
        assert house.manager.is_ready
    assert (len(told.committed), told.refused) == (len(NOBODYS_FAULT), [])
    await house.crash_and_reopen()
    assert house.vhost.queue("q").counts().ready == 0
    await house.close()


@pytest.mark.parametrize("code", ["57014", "42501", "22021", "23514", "54000"])
async def test_a_journal_that_cannot_start_again_holds_up_nobody_and_does_so_later(
    house: House,
    db: asyncpg.Connection,
    trouble: Trouble,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
) -> None:
    monkeypatch.setattr(journal_generation, "GENERATION_ROWS", 20)
    await house.queue()
    inbox, _ = await house.consume("q")
    await house.store("q", b"stays")
    await inbox.has(1)
    inbox.take()

    async def live_on() -> None:
        for _ in range(25):
            told = Told()
            house.put("q", b"goes", told=told)
            await told.answers(1)
            assert told.refused == []
            await inbox.has(1)
            house.vhost.settle(inbox.take(), ACCEPTED)
            await house.flushed()

    before = house.manager.writer.generation
    await trouble.begin(code, "shard", "UPDATE")
    await live_on()
    assert "the journal cannot start again" in caplog.text
    assert house.manager.counters.failed_generations > 0
    assert await db.fetchval("SELECT max(generation) FROM howdah.shard") == before
    await trouble.end()
    await live_on()
    assert await db.fetchval("SELECT max(generation) FROM howdah.shard") > before
    await house.crash_and_reopen()
    assert bodies(await house.drain()) == [b"stays"]


async def test_a_new_generation_whose_answer_was_lost_counts(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later settlements are written where the next start looks for them."""
    await house.queue()
    await house.store("q", b"1", b"2")
    at_work = house.manager.writer
    before = at_work.generation
    note = at_work._note_generation
    answers = iter([False, True])

    def lost(generation: int) -> None:
        if not next(answers):
            raise ConnectionResetError("the answer was lost")
        note(generation)

    monkeypatch.setattr(at_work, "_note_generation", lost)
    await at_work._start_generation()
    assert at_work.generation == before + 1
    first = await house.vhost.get("q")
    assert first is not None
    house.vhost.settle([first], ACCEPTED)
    await house.flushed()
    await house.crash_and_reopen()
    assert bodies(await house.drain()) == [b"2"]


async def test_a_failure_that_the_journal_does_not_take_is_dropped_alone(
    house: House, db: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await house.queue()
    await house.store("q", b"1", b"2", b"3")
    await db.execute('ALTER TABLE howdah.redelivery ADD CHECK ("offset" <> 1) NOT VALID')
    told = Told()
    inbox, _ = await house.consume("q", credit=3)
    one, two, three = await inbox.has(3)
    house.vhost.settle([one, two], Verdict(Outcome.MODIFIED, delay=50))
    house.vhost.settle([three], ACCEPTED)
    house.put("q", b"4", b"5", told=told)
    await told.answers(2)
    assert (told.committed, told.refused) == ([0, 1], [])
    await house.flushed()
    assert "message 1 failed cannot be written" in caplog.text
    assert house.manager.counters.failed_writes == 1
    await house.crash_and_reopen()
    again = await house.drain()
    assert bodies(again) == [b"2", b"4", b"5"]
    await house.later(51)
    assert [(d.message.body, d.failures) for d in await house.drain()] == [(b"1", 1)]


async def test_a_limit_on_statements_that_a_dba_sets_for_people_is_not_for_the_writer(
    house: House, db: asyncpg.Connection
) -> None:
    name = await db.fetchval("SELECT current_database()")
    await house.queue()
    await db.execute(f"ALTER DATABASE {name} SET statement_timeout = '50ms'")
    await db.execute(
        """
        CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN PERFORM pg_sleep(0.2); RETURN NEW; END $$;
        CREATE TRIGGER slow BEFORE INSERT ON howdah.segment
            FOR EACH ROW EXECUTE FUNCTION public.slow();
        """
    )
    await house.crash_and_reopen()
    await house.store("q", b"1")
    assert bodies(await house.drain()) == [b"1"]


async def test_a_partition_that_a_dba_took_away_is_waited_for(
    house: House, db: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """A missing partition is no fault of the messages that were to be written into it."""
    await house.queue()
    await house.store("q", b"1", b"2")
    taken = await house.vhost.get("q")
    assert taken is not None
    leaf = f"howdah.settlement_{house.manager.writer.generation}"
    await db.execute(f"ALTER TABLE howdah.settlement DETACH PARTITION {leaf}")
    house.vhost.settle([taken], ACCEPTED)
    told = Told()
    house.put("q", b"3", told=told)
    await said(caplog, "no partition of relation")
    assert told.refused == []
    await db.execute(
        f"ALTER TABLE howdah.settlement ATTACH PARTITION {leaf} "
        f"FOR VALUES IN ({house.manager.writer.generation})"
    )
    await told.answers(1)
    await house.crash_and_reopen()
    assert bodies(await house.drain()) == [b"2", b"3"]


# --- definitions and sessions


async def test_a_definition_is_refused_for_now_and_taken_when_the_cause_is_gone(
    house: House,
    trouble: Trouble,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await house.queue()
    monkeypatch.setattr(cold, "complaints", complaints.Complaints(cold.log))
    for code in NOBODYS_FAULT:
        await trouble.begin(code, "queue")
        with pytest.raises(StoreUnavailable, match="try again later: trouble with queue"):
            await house.queue(f"new {code}")
        await trouble.end()
        await house.queue(f"new {code}")
    assert caplog.text.count("trouble with queue") == 1  # not for each client that tries
    await house.crash_and_reopen()
    assert {f"new {code}" for code in NOBODYS_FAULT} < house.vhost.queues.keys()


async def test_what_is_too_large_for_one_is_refused_to_that_one(
    house: House, trouble: Trouble, db: asyncpg.Connection
) -> None:
    """Many are declared in one statement; one that no index holds is not the others' affair."""
    await db.execute("CREATE INDEX ON howdah.queue (created_by)")
    specs = [QueueSpec.parse(f"q{i}") for i in range(5)]
    too_long = secrets.token_hex(8000)
    answers = await asyncio.gather(
        *(
            house.vhost.declare_queue(spec, created_by=too_long if i == 2 else "me")
            for i, spec in enumerate(specs)
        ),
        return_exceptions=True,
    )
    refused = [i for i, answer in enumerate(answers) if isinstance(answer, BaseException)]
    assert refused == [2]
    assert isinstance(answers[2], InvalidArgument)


# --- what goes on by itself


async def test_rights_that_upkeep_lacks_are_said_aloud_and_keep_nobody(
    house: House, trouble: Trouble, caplog: pytest.LogCaptureFixture
) -> None:
    await house.queue()
    await house.store("q", b"1")
    await trouble.begin("42501", "queue_activity")
    await house.consume("q")
    with pytest.raises(StoreUnavailable):
        await house.manager._background.keep_up()
    assert "old segments stay: trouble with queue_activity" in caplog.text
    await trouble.end()
    await house.manager._background.keep_up()


async def test_one_segment_that_cannot_go_does_not_keep_the_others(
    migrated_url: str, db: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    house = await House(migrated_url).with_segments(size=1).open()
    await house.queue()
    for i in range(4):
        await house.store("q", b"%d" % i)
    await house.drain()
    first = await db.fetchval("SELECT min(id) FROM howdah.segment")
    await db.execute(f"CREATE VIEW public.theirs AS SELECT * FROM howdah.message_{first}")
    await house.upkeep()
    left = await db.fetchval("SELECT array_agg(id) FROM howdah.segment")
    assert left == [first]
    assert f"segment {first} stays: " in caplog.text
    await db.execute("DROP VIEW public.theirs")
    await house.upkeep()
    assert await db.fetchval("SELECT count(*) FROM howdah.segment") == 0
    await house.close()


async def test_an_outbox_that_cannot_be_read_is_said_aloud_and_drained_afterwards(
    house: House, db: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await house.queue()
    await db.execute("ALTER TABLE howdah.outbox RENAME TO elsewhere")
    await said(caplog, "the outbox waits: ")
    assert not house.manager.is_ready
    await db.execute("ALTER TABLE howdah.elsewhere RENAME TO outbox")
    await db.fetchval("SELECT howdah.publish('q', 'from SQL'::text)")
    inbox, _ = await house.consume("q")
    await inbox.has(1)
    assert inbox.bodies == [b"from SQL"]


async def test_a_segment_whose_table_is_gone_is_named_to_readers_and_at_the_start(
    house: House, db: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await house.queue()
    await house.store("q", b"1")
    await house.crash_and_reopen()
    (segment,) = await db.fetchval("SELECT array_agg(id) FROM howdah.segment")
    await db.execute(f"ALTER TABLE howdah.message_{segment} RENAME TO elsewhere")
    getting = asyncio.create_task(house.vhost.get("q"))
    await said(caplog, "if somebody dropped the table, restore it")
    await house.crash()
    getting.cancel()
    with pytest.raises(StoreUnavailable, match=r"run SELECT \* FROM howdah.repair\(\)"):
        await house.open()
    await db.execute(f"ALTER TABLE howdah.elsewhere RENAME TO message_{segment}")
    await house.open()
    assert bodies(await house.drain()) == [b"1"]


def test_the_same_complaint_is_made_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    times = iter([0.0, 1.0, 2.0, 61.0])
    complain = complaints.Complaints(logging.getLogger(), lambda: next(times)).warn
    for text in ("no disk", "no disk", "no right", "no disk"):
        complain("%s", text)
    assert [record.getMessage() for record in caplog.records] == ["no disk", "no right", "no disk"]
