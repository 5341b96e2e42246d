"""The document of the HTTP API, held against the gateway by requests that schemathesis makes of it:
no bug, and no answer that the document does not have.

`HOWDAH_API_EXAMPLES=200` makes more of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.gateway_process import SHARED, clean_environment, running

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
# A check that fails, and a database that is away, are answered with 503: that is no bug.
CONFIG = "[checks]\nnot_a_server_error.expected-statuses = ['2xx', '3xx', '4xx', 503]\n"
EXAMPLES = os.environ.get("HOWDAH_API_EXAMPLES", "3")
SECONDS = 60.0 * int(EXAMPLES)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS)
def test_every_answer_is_in_the_document(tmp_path: Path) -> None:
    config = tmp_path / "schemathesis.toml"
    config.write_text(CONFIG)
    with running(tmp_path / "gateway", SHARED) as gateway:
        done = subprocess.run(
            [
                Path(sys.executable).with_name("st"),
                f"--config-file={config}",
                "run",
                gateway.http_url("/api/openapi.json"),
                "--phases=coverage,fuzzing",
                f"--checks={','.join(CHECKS)}",
                f"--max-examples={EXAMPLES}",
                "--auth=guest:guest",
                "--seed=1",
                "--generation-database=none",
                "--continue-on-failure",
                "--no-color",
                "--warnings=off",
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=clean_environment(),
        )
        said = gateway.said()
    assert "a bug" not in said, said
    assert done.returncode == 0, done.stdout + done.stderr
