"""The jobs on a cluster, as spark-submit runs them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_etl.export import read_export
from spark_etl.jdbc_driver import find_jdbc_jar
from tests.etl.spark_cluster import BIN, running_cluster, spark_environment
from tests.support.gateway_process import ROOT
from tests.support.managers import House
from tests.support.ports import lasting_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = 200


def command(master: str, folder: Path, *words: str | Path) -> list[str | Path]:
    """spark-submit as a person would: the package in a zip."""
    package = shutil.make_archive(str(folder / "jobs"), "zip", ROOT, "spark_etl")
    start: list[str | Path] = [BIN / "spark-submit", "--master", master, "--py-files", package]
    return [*start, "--conf", "spark.executor.memory=512m", *words]


def submit(
    master: str, folder: Path, url: str, words: list[str | Path], *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Words are for spark-submit, arguments for the job."""
    script = ROOT / "spark_etl" / "__main__.py"
    return subprocess.run(
        [*command(master, folder, *words), script, *arguments],
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
        with running_cluster(tmp_path, lasting_port()) as master:
            jar: list[str | Path] = ["--jars", find_jdbc_jar()]
            return submit(master, tmp_path, house.url, jar, "export", "s", "--to", str(out))

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


COORDINATES = "org.postgresql:postgresql:42.7.13"


def repository(folder: Path) -> Path:
    """A Maven repository with the driver in it; the settings that make Spark look only there."""
    group, name, version = COORDINATES.split(":")
    place = folder / "repository" / group.replace(".", "/") / name / version
    place.mkdir(parents=True)
    shutil.copy(find_jdbc_jar(), place / f"{name}-{version}.jar")
    (place / f"{name}-{version}.pom").write_text(
        "<project><modelVersion>4.0.0</modelVersion>"
        f"<groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        "</project>"
    )
    settings = folder / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="here"/><resolvers>'
        f'<ibiblio name="here" m2compatible="true" root="{(folder / "repository").as_uri()}"/>'
        "</resolvers></ivysettings>"
    )
    return settings


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS)
async def test_spark_submit_has_the_last_word_on_master_packages_and_settings(
    spark: SparkSession, house: House, tmp_path: Path
) -> None:
    """Where it is told a master, the job takes no other; the driver comes by --packages."""
    await house.queue("q")
    await house.store("q", *[b"%d" % i for i in range(30)])
    out, events = tmp_path / "out", tmp_path / "events"
    events.mkdir()
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
        "spark.jars.ivy": str(tmp_path / "ivy"),
        "spark.jars.ivySettings": str(repository(tmp_path)),
        "spark.sql.session.timeZone": "Asia/Tokyo",
    }
    words: list[str | Path] = ["--packages", COORDINATES]
    for key, value in settings.items():
        words += ["--conf", f"{key}={value}"]
    done = await asyncio.to_thread(
        lambda: submit("local[2]", tmp_path, house.url, words, "export", "q", "--to", str(out))
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"30 messages in 1 batches -> {out}"
    told = await asyncio.to_thread(settings_of, events)
    assert told["spark.master"] == "local[2]"
    assert told["spark.app.name"] == "howdah etl export"
    assert "/jobs.zip" in told["spark.submit.pyFiles"]
    assert told["spark.sql.session.timeZone"] == "Asia/Tokyo"
    assert "org.postgresql_postgresql-42.7.13.jar" in told["spark.jars"]
    rows = await asyncio.to_thread(lambda: read_export(spark, out, "q").collect())
    assert sorted((r.offset, bytes(r.body)) for r in rows) == [(i, b"%d" % i) for i in range(30)]


def settings_of(events: Path) -> dict[str, str]:
    """The settings that an application ran with, by its event log."""
    (log,) = (path for path in events.iterdir() if path.is_file())
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerEnvironmentUpdate":
            found: dict[str, str] = event["Spark Properties"]
            return found
    raise AssertionError("the application told nothing of its settings")


YARN = """<configuration><property><name>yarn.resourcemanager.address</name>
<value>127.0.0.1:{port}</value></property></configuration>"""


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.parametrize("manager", ["yarn", "k8s"])
def test_an_export_asks_the_cluster_manager_that_spark_submit_names(
    manager: str, migrated_url: str, tmp_path: Path
) -> None:
    """No such cluster is here: a port takes the manager's place, and hears the driver call."""
    greetings = {"yarn": b"hrpc", "k8s": b"POST /api/v1/"}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        (tmp_path / "yarn-site.xml").write_text(YARN.format(port=port))
        words: list[str | Path] = ["--jars", find_jdbc_jar()]
        words += ["--conf", "spark.kubernetes.container.image=none"]
        master = {"yarn": "yarn", "k8s": f"k8s://http://127.0.0.1:{port}"}[manager]
        script: list[str | Path] = [ROOT / "spark_etl" / "__main__.py", "export"]
        script += ["--to", tmp_path / "out", "--url", migrated_url]
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(
                [*command(master, tmp_path, *words), *script],
                cwd=tmp_path,
                env={**spark_environment(tmp_path), "HADOOP_CONF_DIR": str(tmp_path)},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            assert call(listener, process).startswith(greetings[manager])
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def call(listener: socket.socket, process: subprocess.Popen[bytes]) -> bytes:
    """The first words of whoever calls while the process runs."""
    listener.settimeout(0.5)
    while True:
        try:
            caller, _ = listener.accept()
        except TimeoutError:
            assert process.poll() is None, "it ended without a call"
        else:
            with caller:
                caller.settimeout(SECONDS)
                return caller.recv(4096)
