"""The jobs on a cluster, as spark-submit runs them."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_etl.export import read_export
from spark_etl.jdbc_driver import find_jdbc_jar
from tests.etl.spark_cluster import BIN, running_cluster, spark_environment
from tests.etl.standby import free_port
from tests.gateway_process import ROOT
from tests.store.managers import House

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = 200


def submit(
    master: str, folder: Path, url: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """spark-submit as a person would: the package in a zip, the driver as a jar."""
    package = shutil.make_archive(str(folder / "jobs"), "zip", ROOT, "spark_etl")
    command: list[str | Path] = [BIN / "spark-submit", "--master", master, "--py-files", package]
    command += ["--jars", find_jdbc_jar(), "--conf", "spark.executor.memory=512m"]
    command += [ROOT / "spark_etl" / "__main__.py", *arguments]
    return subprocess.run(
        command,
        cwd=folder,
        env={**spark_environment(folder), "HOWDAH_ETL_URL": url},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS)
async def test_an_export_is_submitted_to_a_cluster(
    spark: SparkSession, house: House, tmp_path: Path
) -> None:
    await house.stream("s")
    await house.store("s", *[b"%d" % i for i in range(30)])
    out = tmp_path / "out"

    def run() -> subprocess.CompletedProcess[str]:
        with running_cluster(tmp_path, free_port()) as master:
            return submit(master, tmp_path, house.url, "export", "s", "--to", str(out))

    done = await asyncio.to_thread(run)
    assert done.returncode == 0, done.stderr
    # spark-submit puts both outputs of the job into one.
    progress, result = done.stdout.splitlines()
    assert progress.startswith("export s: offsets 0 to 29: 30 messages in ")
    assert result == f"30 messages in 1 batches -> {out}"
    work = list((tmp_path / "work").glob("app-*/*/stderr"))
    assert work, "no executor of the cluster had a part in it"
    rows = await asyncio.to_thread(lambda: read_export(spark, out, "s").collect())
    assert sorted((r.offset, bytes(r.body)) for r in rows) == [(i, b"%d" % i) for i in range(30)]
