"""MQTT over WebSocket with Eclipse Paho for C: compiled here, where it can be."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.gateway_process import GatewayProcess
from tests.support.names import fresh

SOURCE = Path(__file__).with_name("c") / "paho_websocket.c"
HEADER = Path("/usr/include/MQTTAsync.h")
SECONDS = 120
MESSAGES = 300


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler (apt-get install gcc)")
    if not HEADER.exists():
        pytest.skip("Paho's C library is not installed (apt-get install libpaho-mqtt-dev)")
    made = tmp_path_factory.mktemp("paho") / "client"
    libraries = ["-lpaho-mqtt3a", "-lpthread"]
    subprocess.run(
        [compiler, "-std=gnu11", "-O1", "-o", made, SOURCE, *libraries], check=True, timeout=SECONDS
    )
    return made


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_paho_c_gets_every_acknowledgement_and_message_over_websocket(
    program: Path, shared_gateway: GatewayProcess, qos: int
) -> None:
    """Paho C reads one packet of a frame: more in one would wait for ever."""
    name = fresh("paho")
    address = f"ws://127.0.0.1:{shared_gateway.ports['mqtt_ws']}/mqtt"
    done = subprocess.run(
        [program, address, name, f"t/{name}", str(MESSAGES), str(qos)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.stdout == f"acknowledged {MESSAGES} delivered {MESSAGES} failures 0\n", done.stderr
