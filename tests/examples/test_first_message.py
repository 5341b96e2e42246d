"""The first message of the README does what the README says."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.support.gateway_process import ROOT, SECONDS, GatewayProcess, clean_environment


def test_the_first_message_of_the_readme_crosses_from_mqtt_to_amqp(
    shared_gateway: GatewayProcess,
) -> None:
    """The commands run as printed, but for the ports, the database and the queue's name."""
    page = (ROOT / "README.md").read_text()
    found = re.search(r"^## A first message.*?^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    here = {
        ".venv/bin/howdah": f"{sys.executable} -m gateway.main",
        ".venv/bin/python": sys.executable,
        ":5672": f":{shared_gateway.ports['amqp']}",
        "readings": "first-readings",
    }
    script = re.sub("|".join(map(re.escape, here)), lambda match: here[match[0]], found[1])
    where = {
        "HOWDAH_DATABASE__URL": shared_gateway.database_url,
        "HOWDAH_LISTENERS__MQTT__PORT": str(shared_gateway.ports["mqtt"]),
    }
    done = subprocess.run(
        ["sh", "-e", "-c", script],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        cwd=ROOT,
        env={**clean_environment(), **where},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("plant.7.temperature b'21.5'\n")
    assert "offset 0" in done.stdout
