"""An export that kills its own process, without a last word, after the step that it is told."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from spark_etl.export import ExportSettings, export
from spark_etl.runtime import local_session


def main() -> None:
    url, queue, directory, fatal, round_ = sys.argv[1:]
    left = int(round_)

    def on_step(step: str) -> None:
        nonlocal left
        if step == fatal:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    spark = local_session("howdah killed export", cores=1, settings=quick)
    export(spark, url, [queue], ExportSettings(Path(directory), 20, 1), on_step=on_step)


if __name__ == "__main__":
    main()
