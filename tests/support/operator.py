"""An operator's hands in tests: runs a command, asks over HTTP, waits."""

from __future__ import annotations

import base64
import json
import subprocess
import urllib.error
import urllib.request
from email.message import Message

from tests.support.gateway_process import GatewayProcess
from tests.support.until import PATIENCE_SECONDS

Answer = tuple[int, str, Message]
Done = subprocess.CompletedProcess[str]


def answer(done: Done) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal(done: Done, code: int = 1) -> str:
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def ready(gateway: GatewayProcess, queue: str) -> int:
    found = json.loads(answer(gateway.run("queue", "show", queue, "--json")))
    return int(found["status"]["ready"])


def get(gateway: GatewayProcess, path: str, login: str | None = None) -> Answer:
    request = urllib.request.Request(gateway.http_url(path))
    if login is not None:
        request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.read().decode(), answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), error.headers
