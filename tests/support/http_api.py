"""A client of the HTTP API in tests: any method, JSON both ways."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from typing import Any

from tests.support.gateway_process import GatewayProcess
from tests.support.until import PATIENCE_SECONDS

GUEST = "guest:guest"


@dataclass(frozen=True)
class HttpAnswer:
    status: int
    raw: bytes
    headers: Message

    @property
    def value(self) -> Any:
        return json.loads(self.raw)

    @property
    def error(self) -> tuple[int, str]:
        """Status and error of a refusal, whose reason is there."""
        assert self.value["reason"]
        return self.status, self.value["error"]


def basic(login: str) -> str:
    return f"Basic {base64.b64encode(login.encode()).decode()}"


def ask(
    gateway: GatewayProcess,
    method: str,
    path: str,
    body: Any = None,
    *,
    login: str | None = GUEST,
    headers: Mapping[str, str] | None = None,
) -> HttpAnswer:
    return ask_port(gateway.ports["management"], method, path, body, login=login, headers=headers)


def ask_port(
    port: int,
    method: str,
    path: str,
    body: Any = None,
    *,
    login: str | None = GUEST,
    headers: Mapping[str, str] | None = None,
) -> HttpAnswer:
    """Asks as written: nothing of the path is changed. Bytes are sent as they are."""
    raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    sent = dict(headers or {})
    if login is not None:
        sent["Authorization"] = basic(login)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    try:
        connection.request(method, path, raw, sent)
        answer = connection.getresponse()
        return HttpAnswer(answer.status, answer.read(), answer.headers)
    finally:
        connection.close()
