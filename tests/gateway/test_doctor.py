"""`howdah doctor`: what it finds, and that it names who and what to do."""

from __future__ import annotations

import json
import socket
import time
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from gateway.postgres.data_dir import DataDirLock, is_held
from queue_core.store.operator import doctor_checks
from queue_core.store.operator.finding import Finding, Level
from queue_core.store.operator.migration import upgrade
from tests import certificates
from tests.support.gateway_process import GatewayProcess, howdah, on_stock_gateway_too


@pytest.fixture
async def migrated(database_url: str) -> str:
    await upgrade(database_url)
    return database_url


def levels(findings: list[Finding]) -> set[Level]:
    return {finding.level for finding in findings}


@on_stock_gateway_too
def test_a_healthy_gateway_has_nothing_to_fear(shared_gateway: GatewayProcess) -> None:
    done = shared_gateway.run("doctor")
    assert done.returncode == 0, done.stdout
    assert "FAIL" not in done.stdout
    assert "schema and grants are in place" in done.stdout
    assert "listeners: the gateway is running" in done.stdout
    found = json.loads(shared_gateway.run("doctor", "--json").stdout)
    assert {finding["level"] for finding in found} <= {"OK", "WARN"}


def test_a_database_out_of_reach_fails(tmp_path: Path) -> None:
    environ = {
        "HOWDAH_DATABASE__URL": "postgresql://user:secret@127.0.0.1:1/db",
        "HOWDAH_DATA_DIR": str(tmp_path),
    }
    done = howdah("doctor", environ=environ)
    assert done.returncode == 1
    assert "FAIL the database cannot be examined\n     -> database.url: 127.0.0.1:1" in done.stdout
    assert "secret" not in done.stdout


def test_a_gateway_whose_database_is_out_of_reach_is_not_mistaken_for_another_program(
    shared_gateway: GatewayProcess, tmp_path: Path
) -> None:
    environ = {
        "HOWDAH_DATABASE__URL": "postgresql://user:secret@127.0.0.1:1/db",
        "HOWDAH_DATA_DIR": str(tmp_path),
    }
    for name, port in shared_gateway.ports.items():
        environ[f"HOWDAH_LISTENERS__{name.upper()}__PORT"] = str(port)
    done = howdah("doctor", environ=environ)
    assert done.returncode == 1
    assert "another program" not in done.stdout
    assert "listeners: the gateway is running" in done.stdout


def test_a_private_database_that_is_down_is_named_and_its_gateway_is_not_mistaken(
    tmp_path: Path,
) -> None:
    """A gateway whose PostgreSQL has just ended still has the folder and the port."""
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres.port").write_text("1")
    (tmp_path / "postgres.password").write_text("secret")
    lock = DataDirLock(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        environ = {
            "HOWDAH_DATA_DIR": str(tmp_path),
            "HOWDAH_LISTENERS__AMQP__PORT": str(taken.getsockname()[1]),
        }
        lock.acquire()
        try:
            done = howdah("doctor", environ=environ)
        finally:
            lock.release()
    assert done.returncode == 1
    assert "-> the private PostgreSQL in data_dir (127.0.0.1:1/howdah) cannot" in done.stdout
    assert "starts it again by itself" in done.stdout
    assert "database.url" not in done.stdout
    assert "another program" not in done.stdout
    assert "listeners: the gateway is running" in done.stdout
    assert not is_held(tmp_path)


def test_a_schema_that_is_missing_fails_with_the_command_that_makes_it(database_url: str) -> None:
    done = howdah("doctor", environ={"HOWDAH_DATABASE__URL": database_url})
    assert done.returncode == 1
    assert "has no schema howdah\n     -> run howdah migrate" in done.stdout


def test_a_taken_port_fails(migrated: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        environ = {
            "HOWDAH_DATABASE__URL": migrated,
            "HOWDAH_LISTENERS__AMQP__PORT": str(taken.getsockname()[1]),
        }
        done = howdah("doctor", environ=environ)
    assert done.returncode == 1
    assert "listeners.amqp.port: " in done.stdout


def test_listeners_that_the_gateway_refuses_to_open_fail_and_certificates_are_looked_at(
    migrated: str,
) -> None:
    environ = {
        "HOWDAH_DATABASE__URL": migrated,
        "HOWDAH_LISTENERS__AMQP__HOST": "0.0.0.0",
        "HOWDAH_LISTENERS__AMQP__TLS__CERT": str(certificates.SERVER),
        "HOWDAH_LISTENERS__AMQP__TLS__KEY": str(certificates.SERVER_KEY),
        **{f"HOWDAH_LISTENERS__{each}__PORT": "0" for each in ("MQTT", "AMQP", "MANAGEMENT")},
        "HOWDAH_LISTENERS__MQTT_WS": "null",
    }
    done = howdah("doctor", environ=environ)
    assert done.returncode == 1
    assert "FAIL listeners.amqp.host: 0.0.0.0 is reachable from other machines" in done.stdout
    assert "OK   certificates of listeners: the first ends in " in done.stdout


async def test_whoever_holds_back_vacuum_is_named(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_checks, "OLD_XMIN", timedelta())
    doctor = await asyncpg.connect(migrated)
    reader = await asyncpg.connect(migrated, server_settings={"application_name": "nightly export"})
    try:
        async with reader.transaction(isolation="repeatable_read"):
            await reader.fetch("SELECT * FROM howdah.queue")
            (finding,) = await doctor_checks.oldest_reader(doctor)
        assert finding.level is Level.WARN
        assert f"pid {reader.get_server_pid()} (nightly export" in finding.what
        assert "SELECT * FROM howdah.queue" in finding.what
        assert f"pg_terminate_backend({reader.get_server_pid()})" in finding.way_out
        assert levels(await doctor_checks.oldest_reader(doctor)) == {Level.OK}
    finally:
        await reader.close()
        await doctor.close()


async def test_settings_under_which_messages_are_lost_are_named(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    doctor = await asyncpg.connect(migrated)
    try:
        assert levels(await doctor_checks.safety(doctor)) == {Level.OK}
        await doctor.execute("SET synchronous_commit = off")
        (finding,) = await doctor_checks.safety(doctor)  # the preflight tells of it
        assert finding.what == "fsync, full_page_writes and autovacuum are on"
        off = "SELECT name, 'off' AS setting FROM pg_settings WHERE name IN ('fsync', 'autovacuum')"
        monkeypatch.setattr(doctor_checks, "_SETTINGS", off)
        loses, grows = await doctor_checks.safety(doctor)
        assert (loses.level, grows.level) == (Level.FAIL, Level.WARN)
        assert "fsync is off" in loses.what
        assert "ALTER SYSTEM SET autovacuum = on" in grows.way_out
    finally:
        await doctor.close()


async def test_a_clock_that_is_wrong_is_named(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    doctor = await asyncpg.connect(migrated)
    try:
        assert levels(await doctor_checks.clock(doctor)) == {Level.OK}
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + 60)
        (finding,) = await doctor_checks.clock(doctor)
        assert finding.level is Level.WARN
        assert "60.0 s behind" in finding.what
    finally:
        await doctor.close()


async def test_work_that_nobody_does_is_named(migrated: str) -> None:
    doctor = await asyncpg.connect(migrated)
    try:
        await doctor.execute("SELECT howdah.publish('orders', 'x'::text, mandatory => false)")
        await doctor.execute("UPDATE howdah.outbox SET inserted_at = now() - interval '1 hour'")
        (finding,) = await doctor_checks.waiting_work(doctor)
        assert finding.level is Level.WARN
        assert finding.what == "1 messages in the outbox wait, the oldest for 60 min"
    finally:
        await doctor.close()


async def test_a_segment_that_cannot_be_dropped_names_its_readers(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    doctor = await asyncpg.connect(migrated)
    try:
        assert levels(await doctor_checks.segments(doctor)) == {Level.OK}
        segment = await doctor.fetchval("SELECT howdah.create_segment()")
        await doctor.execute("SELECT howdah.seal_segment($1, 0, 0, now())", segment)
        await doctor.execute("SELECT howdah.retire_segment($1)", segment)
        await doctor.execute("UPDATE howdah.segment SET retired_at = now() - interval '3 hours'")
        (finding,) = await doctor_checks.segments(doctor)
        assert finding.level is Level.WARN
        assert "1 segments cannot be dropped, the oldest since 3 h" in finding.what
    finally:
        await doctor.close()


async def test_a_prepared_transaction_and_a_dead_slot_are_named(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    doctor = await asyncpg.connect(migrated)
    try:
        assert levels(await doctor_checks.leftovers(doctor)) == {Level.OK}
        monkeypatch.setattr(
            doctor_checks,
            "_SLOTS",
            "SELECT 'backup'::name AS slot_name, 'lost' AS wal_status, 1048576::bigint AS bytes",
        )
        monkeypatch.setattr(
            doctor_checks,
            "_PREPARED",
            "SELECT 'tx1' AS gid, 'app'::name AS owner, interval '5 hours' AS age",
        )
        slot, prepared = await doctor_checks.leftovers(doctor)
        assert "slot backup is not in use (lost) and keeps 1 MiB" in slot.what
        assert "ROLLBACK PREPARED 'tx1'" in prepared.way_out
    finally:
        await doctor.close()
