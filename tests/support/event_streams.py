"""A viewer of server-sent events in tests."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.gateway_process import GatewayProcess
from tests.support.http_api import GUEST, basic
from tests.support.until import PATIENCE_SECONDS

Event = tuple[str, Any]  # its name, and what its data say


class EventStream:
    """An open stream of events."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def next(self) -> Event | None:
        """Reads the next event; None: the stream has ended."""
        name = ""
        while line := self._response.readline():
            text = line.decode().rstrip("\n")
            if text.startswith("event: "):
                name = text.removeprefix("event: ")
            elif text.startswith("data: "):
                return name, json.loads(text.removeprefix("data: "))
        return None

    def until(self, name: str) -> Any:
        """Reads on until an event of that name has come, and returns what it says."""
        while (found := self.next()) is not None:
            if found[0] == name:
                return found[1]
        raise AssertionError(f"the stream ended before an event '{name}' came")


@contextmanager
def watching(gateway: GatewayProcess, topics: str, login: str = GUEST) -> Iterator[EventStream]:
    """Opens a stream of events."""
    connection = http.client.HTTPConnection(
        "127.0.0.1", gateway.ports["management"], timeout=PATIENCE_SECONDS
    )
    try:
        path = f"/api/howdah/v1/events?topics={topics}"
        connection.request("GET", path, headers={"Authorization": basic(login)})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        assert response.headers["Content-Type"].startswith("text/event-stream")
        yield EventStream(response)
    finally:
        connection.close()
