"""One real local Spark for all ETL tests (starting it takes seconds), and queues to read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from spark_etl.spark_session import local_session
from tests.support.migrated_databases import db, house, migrated_template, migrated_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Queries over a handful of rows: compiling them well would take longer than running them.
QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}

__all__ = ["db", "house", "migrated_template", "migrated_url"]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = local_session("howdah tests", settings=QUICK)
    yield session
    session.stop()
