"""The page of clients is what the tests prove, and leaves nothing of 5.0 out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.interop.mqtt import page
from tests.interop.mqtt.columns import COLUMNS, NOT_SENT, VERSIONS, Column
from tests.interop.mqtt.rows import ROWS

ROOT = Path(__file__).parents[4]
FEATURES = {
    "QoS 0",
    "QoS 1",
    "QoS 2",
    "retained message",
    "will",
    "session resumed",
    "shared subscription",
}


def test_the_page_is_what_make_docs_writes() -> None:
    assert page.PAGE.read_text() == page.render(), "run 'make docs'"


def test_every_property_is_proven_or_nobody_can() -> None:
    open_rows = [row for row in ROWS if row not in page.proven()]
    for row in open_rows:
        assert row in NOT_SENT or all(row in column.cannot for column in COLUMNS), row


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_no_reason_is_given_twice(column: Column) -> None:
    tables = (column.cannot, column.silent, NOT_SENT)
    assert len({row for table in tables for row in table}) == sum(map(len, tables))


def test_the_features_are_there() -> None:
    assert page.features().keys() >= FEATURES


def test_the_reasons_were_seen_in_the_clients_that_the_tests_use() -> None:
    """Another version may have another interface: look again, and change the page."""
    lock = (ROOT / "requirements-dev.lock").read_text()
    pinned = {
        name: re.search(rf"^{VERSIONS[name][0]}==(\S+)", lock, re.M) for name in ("gmqtt", "paho")
    }
    for name, found in pinned.items():
        assert found is not None
        assert VERSIONS[name][1].partition(",")[0] == found[1]
    package = json.loads((ROOT / "tests/interop/node/package.json").read_text())
    assert VERSIONS["mqttjs"][1] == package["dependencies"]["mqtt"]
