"""`howdah etl` beside a real gateway: from the command line to the files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pyarrow import parquet

from spark_etl.__main__ import main
from tests.support.gateway_process import COMMAND, GatewayProcess, clean_environment
from tests.support.operator import ready
from tests.support.postgres import execute
from tests.support.until import wait_until


@pytest.mark.slow
@pytest.mark.timeout(
    360
)  # Spark starts in seconds, and in minutes where many others want the cores
def test_the_gateways_messages_are_exported_by_a_command(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    gateway.run("queue", "declare", "orders", "-a", "x-queue-type=stream")
    execute(
        gateway.database_url,
        "SELECT howdah.publish('orders', i::text, headers => '{\"n\": 1}') "
        "FROM generate_series(0, 9) i",
    )
    wait_until(lambda: ready(gateway, "orders") == 10)
    out = tmp_path / "out"
    done = subprocess.run(
        [
            *(*COMMAND, "etl", "export", "orders", "--to", str(out), "--master", "local[1]"),
            *("--config", str(gateway.config_path)),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=clean_environment(),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"10 messages in 1 batches -> {out}\n"
    assert "rows/s, 0 to go" in done.stderr
    tables = [parquet.read_table(path) for path in sorted(out.rglob("*.parquet"))]
    bodies = [body for table in tables for body in table.column("body").to_pylist()]
    assert sorted(bodies) == [b"%d" % i for i in range(10)]


def test_without_a_database_the_command_says_what_to_give(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.delenv("HOWDAH_ETL_URL", raising=False)
    assert main(["export", "--to", str(tmp_path)]) == 1
    assert "give --url, or set HOWDAH_ETL_URL" in capsys.readouterr().err
