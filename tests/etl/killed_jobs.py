"""An export, an archive and a replay in one driver, killed without a last word when each of
them has just done the step that it was told."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from spark_etl.archive import archive
from spark_etl.export import ExportSettings, export
from spark_etl.replay import ReplaySettings, replay
from spark_etl.sources import StreamSource
from spark_etl.spark_session import local_session

JOBS = ("export", "archive", "replay")
# The second batch of the export and of the replay, so that there is a first one to keep.
ROUNDS = {"export": 2, "archive": 1, "replay": 2}


class Doom:
    """Each job waits at its step until all do."""

    def __init__(self) -> None:
        self._all_there = threading.Barrier(len(JOBS))

    def at(self, job: str, fatal: str) -> Callable[[str], None]:
        left = ROUNDS[job]

        def on_step(step: str) -> None:
            nonlocal left
            if step != fatal:
                return
            left -= 1
            if left == 0:
                self._all_there.wait()
                os.kill(os.getpid(), signal.SIGKILL)

        return on_step


def main() -> None:
    url, out, *steps = sys.argv[1:]
    folder, doom = Path(out), Doom()
    export_step, archive_step, replay_step = map(doom.at, JOBS, steps)
    quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    spark = local_session("howdah killed jobs", cores=2, settings=quick)
    settings = ExportSettings(folder / "export", 20, 1)
    source = StreamSource(url, "s")
    work: tuple[Callable[[], object], ...] = (
        lambda: export(spark, url, ["s"], settings, on_step=export_step),
        lambda: archive(spark, url, folder / "archive", on_step=archive_step),
        lambda: replay(spark, url, source, ReplaySettings("q", rate=200), on_step=replay_step),
    )
    threads = [threading.Thread(target=each) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
