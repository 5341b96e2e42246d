"""A Spark cluster on this machine: a standalone master and a worker, each a process of its own."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from spark_etl.java import find_java_home

PATIENCE = 60.0
BIN = Path(sysconfig.get_path("scripts"))
_REACHED = {"Master": "I have been elected leader", "Worker": "Successfully registered with master"}


def spark_environment(folder: Path) -> dict[str, str]:
    """For Spark's own programs: the tests' Java and Python, on loopback, in little memory."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("HOWDAH_")},
        "JAVA_HOME": str(find_java_home()),
        "PYSPARK_PYTHON": str(BIN / "python"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_WORKER_DIR": str(folder / "work"),
    }


@contextmanager
def running_cluster(folder: Path, port: int) -> Iterator[str]:
    """Starts a master and a worker; yields the spark:// URL when the worker has joined."""
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        master = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        stack.enter_context(_running("Master", folder, *master))
        worker = ("--host", "127.0.0.1", "--cores", "2", "--memory", "1g", "--webui-port", "0")
        stack.enter_context(_running("Worker", folder, *worker, url))
        yield url


@contextmanager
def _running(role: str, folder: Path, *arguments: str) -> Iterator[None]:
    process = subprocess.Popen(
        [BIN / "spark-class", f"org.apache.spark.deploy.{role.lower()}.{role}", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=spark_environment(folder),
    )
    assert process.stderr is not None
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            if _REACHED[role] in line:
                break
        else:
            raise AssertionError(f"the {role} ended:\n{''.join(said)}")
        yield
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)
