"""python-qpid-proton's reactive client: a handler that connects, and a thread that runs it."""

from __future__ import annotations

import threading
from importlib import import_module
from typing import Any

from tests.support.amqp10_client import reactor
from tests.support.gateway_process import GatewayProcess
from tests.support.until import PATIENCE_SECONDS

handlers: Any = import_module("proton.handlers")


def run(handler: Any) -> None:
    """Runs a handler until it has closed its connection; fails with what the handler met."""
    container = reactor.Container(handler)
    thread = threading.Thread(target=container.run, daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive(), "the client did not come to its end"
    if getattr(handler, "failure", None):
        raise AssertionError(handler.failure)


class Client(handlers.MessagingHandler, handlers.TransactionHandler):  # type: ignore[misc]
    """Connects, and remembers what went wrong."""

    def __init__(self, gateway: GatewayProcess, **options: Any) -> None:
        super().__init__(**options)
        self.url = f"amqp://guest:guest@127.0.0.1:{gateway.ports['amqp']}"
        self.failure = ""
        self.connection: Any = None

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self.connection = event.container.connect(self.url, allowed_mechs="PLAIN", reconnect=False)
        self.begin(event)

    def begin(self, event: Any) -> None:
        """Does what the test wants first, once the connection is open."""

    def on_transport_error(self, event: Any) -> None:
        self.failure = str(event.transport.condition)
        super().on_transport_error(event)

    def on_link_error(self, event: Any) -> None:
        self.failure = str(event.link.remote_condition)
        self.connection.close()
